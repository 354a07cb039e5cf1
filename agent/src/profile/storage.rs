//! A file without a name, which disappears with its last descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};
use sampler_thread::descriptor::OwnedDescriptor;

/// Names of open files of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Makes the file in the folder for temporary files, so that it is no memory of the process; in memory where that folder
/// cannot hold it.
///
/// # Errors
/// As memfd_create(2).
pub fn unnamed() -> io::Result<OwnedDescriptor<File>> {
    let on_disk = File::options()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir());
    let file =
        on_disk.or_else(|_| io::Result::Ok(memfd_create(c"tickwalk", MFdFlags::MFD_CLOEXEC)?.into()))?;
    OwnedDescriptor::new(file)
}

/// Returns a path by which this process can open the file again, as long as it is open.
pub fn path_of(file: &OwnedDescriptor<File>) -> PathBuf {
    Path::new(DESCRIPTORS).join(file.as_fd().as_raw_fd().to_string())
}

/// Returns whether a path is one of [`path_of`].
pub fn is_unnamed(path: &Path) -> bool {
    path.starts_with(DESCRIPTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_opening_writes_another_one_reads() {
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
