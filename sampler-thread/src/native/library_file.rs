//! A library's file, from which names are read as long as the profile lasts.
//!
//! Problem: the descriptors of some forty files with symbols would be missing in a program close to its limit.
//! Approach: the file stays open if the process may have plenty of descriptors. Otherwise it is opened for each
//! reading, and only read if it is the same file.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};

use crate::descriptor::OwnedDescriptor;

/// Limit of descriptors from which on a few dozen more do not matter. The JVM raises its limit to the highest that is
/// allowed: 524,288 under systemd, but 1,024 or 4,096 in some containers.
const PLENTY: u64 = 16_384;

/// A file that is read at any time.
#[derive(Debug)]
pub(super) struct LibraryFile {
    path: PathBuf,
    /// Device and number of the file.
    identity: (u64, u64),
    kept: Option<OwnedDescriptor<File>>,
}

impl LibraryFile {
    /// Takes the open file at `path`, whose descriptor it keeps if there are plenty.
    ///
    /// # Errors
    /// As fstat(2).
    pub(super) fn new(path: &Path, file: File) -> io::Result<Self> {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self::within(limit, path, file)
    }

    fn within(limit: u64, path: &Path, file: File) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        let kept = if limit >= PLENTY { Some(OwnedDescriptor::new(file)?) } else { None };
        Ok(Self { path: path.to_owned(), identity, kept })
    }

    /// Reads bytes from `at` on; returns how many there were.
    ///
    /// # Errors
    /// As pread(2), and if another file is at the path.
    pub(super) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        if let Some(file) = &self.kept {
            return file.get()?.read_at(into, at);
        }
        let file = File::open(&self.path)?;
        match identity(&file.metadata()?) == self.identity {
            true => file.read_at(into, at),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_kept_open_where_descriptors_are_plenty_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lib.so");
        fs::write(&path, "first").expect("written");
        let open = |limit| {
            let file = File::open(&path).expect("a file");
            LibraryFile::within(limit, &path, file).expect("a file")
        };
        let (kept, reopened) = (open(PLENTY), open(PLENTY - 1));
        assert!(kept.kept.is_some() && reopened.kept.is_none());
        let text = |file: &LibraryFile| {
            let mut bytes = [0; 5];
            file.read_at(&mut bytes, 0).map(|length| (length, bytes))
        };
        for file in [&kept, &reopened] {
            assert_eq!(text(file).expect("read"), (5, *b"first"));
        }
        // An upgrade puts another file there.
        fs::write(folder.path().join("new"), "other").expect("written");
        fs::rename(folder.path().join("new"), &path).expect("renamed");
        assert_eq!(text(&kept).expect("read"), (5, *b"first"));
        assert!(text(&reopened).is_err());
    }
}
