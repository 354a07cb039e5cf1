//! The files of a profile: the recording, which may have no name, and the result that is written from it at the end.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};
use profile::export::whole_file::{self, Readers};
use sampler_thread::descriptor::OwnedDescriptor;

use super::refusal::Refusal;
use agent_options::Options;
use agent_options::output::ResultFile;

/// Names of open files of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

#[derive(Debug)]
pub struct Results {
    /// The recording, if it has no name; it disappears with this descriptor.
    unnamed: Option<OwnedDescriptor<File>>,
    /// The result that is written when the profile ends, until then.
    pub at_end: Option<ResultFile>,
    /// True while a program waits for the end, and gets the failure.
    pub is_awaited: bool,
    /// Why the result was not written.
    pub failure: Option<Refusal>,
}

impl Results {
    pub const fn new() -> Self {
        Self { unnamed: None, at_end: None, is_awaited: false, failure: None }
    }

    /// Plans the results that the options of a profile ask for. Without a place for the recording, sets one without
    /// a name.
    ///
    /// # Errors
    /// [`Refusal::File`] if the result could not be written, [`Refusal::Storage`].
    pub fn of(options: &mut Options) -> Result<Self, Refusal> {
        let at_end = options.result.clone();
        if let Some(result) = &at_end {
            // A file that cannot be written is refused before the program is profiled for nothing.
            whole_file::check(&result.path)
                .map_err(|error| Refusal::File { path: result.path.clone(), error })?;
        }
        let is_unnamed = options.file.is_none() && (at_end.is_some() || options.collector.is_none());
        let unnamed = is_unnamed.then(unnamed).transpose().map_err(Refusal::Storage)?;
        if let Some(file) = &unnamed {
            options.file = Some(path_of(file));
        }
        Ok(Self { unnamed, at_end, is_awaited: false, failure: None })
    }

    /// Returns whether the program has closed the descriptor of a recording without a name.
    pub fn is_lost(&self) -> bool {
        self.unnamed.as_ref().is_some_and(|file| file.get().is_err())
    }
}

/// Makes a file without a name: in the folder for temporary files, or in memory if that folder cannot hold it.
///
/// # Errors
/// As memfd_create(2).
fn unnamed() -> io::Result<OwnedDescriptor<File>> {
    let on_disk = File::options()
        .read(true)
        .write(true)
        .mode(Readers::Owner.mode())
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir());
    let file =
        on_disk.or_else(|_| io::Result::Ok(memfd_create(c"tickwalk", MFdFlags::MFD_CLOEXEC)?.into()))?;
    OwnedDescriptor::new(file)
}

/// Returns a path by which this process can open the file again, as long as it is open.
fn path_of(file: &OwnedDescriptor<File>) -> PathBuf {
    Path::new(DESCRIPTORS).join(file.as_fd().as_raw_fd().to_string())
}

pub fn is_unnamed(path: &Path) -> bool {
    path.starts_with(DESCRIPTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unnamed_file_can_be_opened_again_by_its_path() {
        let file = unnamed().expect("a file");
        let path = path_of(&file);
        assert!(is_unnamed(&path) && !is_unnamed(Path::new("/tmp/a.tickwalk")));
        for text in ["first and longer", "second"] {
            // Writing truncates, as for a recording.
            std::fs::write(&path, text).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
        }
    }
}
