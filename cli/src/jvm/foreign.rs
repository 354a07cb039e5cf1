//! Reads files that belong to another process.
//!
//! Problem: the superuser reads files that any user controls. A pipe would block, a device never ends, a link may
//! lead to a file that the user may not read, and reading some files of the kernel has effects.
//! Approach: resolve the path below the root directory of the process, open it for reading only if it is a regular
//! file on a storage file system, and read a limited part.
//! Limit: a file system that does not answer blocks. A user's own file system (FUSE) denies access to the superuser,
//! unless an administrator allows it.
//! Sources: openat2(2), open(2) (`O_PATH`), fs/fuse/dir.c (`fuse_allow_current_process`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::sys::statfs::{DEBUGFS_MAGIC, FsType, PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC, fstatfs};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

/// File systems of the kernel: reading one of their regular files may wait, or have an effect.
const NO_STORAGE: [FsType; 4] = [PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC, DEBUGFS_MAGIC];

/// Treatment of symbolic links in a path, which never lead out of the root directory of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// A path with a link is refused.
    Refused,
    /// Links are followed; for paths that the user has named.
    Followed,
}

/// Opens the regular file at `path`, which begins at the directory `root`.
///
/// # Errors
/// As openat2(2); `InvalidInput` if there is something else than a regular file.
pub fn open(root: &Path, path: &Path, links: Links) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_below(&rustix::fs::open(root, flags, Mode::empty())?, path, links)
}

/// Opens the regular file at `path` below an open directory.
pub fn open_below(root: impl AsFd, path: &Path, links: Links) -> io::Result<File> {
    let more = match links {
        Links::Refused => ResolveFlags::NO_SYMLINKS,
        Links::Followed => ResolveFlags::NO_MAGICLINKS,
    };
    let inner = path.strip_prefix("/").unwrap_or(path);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    reopen(openat2(root, inner, flags, Mode::empty(), ResolveFlags::IN_ROOT | more)?)
}

/// Opens what a path of the kernel leads to, such as a name below `/proc/PID/map_files`.
///
/// # Errors
/// As open(2); `InvalidInput` if that is no regular file.
pub fn open_kernel_link(path: &Path) -> io::Result<File> {
    reopen(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens for reading what an `O_PATH` descriptor refers to, if that is a regular file.
fn reopen(found: impl AsFd + AsRawFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
    let system = fstatfs(&found)?.filesystem_type();
    if kind != FileType::RegularFile || NO_STORAGE.contains(&system) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Reads at most `limit` bytes as text.
pub fn read(from: impl Read, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_of_the_process_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "JAVA_VERSION").expect("written");
        fs::create_dir(at("folder")).expect("made");
        symlink("/file", at("link")).expect("linked");
        symlink("/dev/zero", at("zero")).expect("linked");
        symlink("/proc/self/status", at("status")).expect("linked");
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        let opened = |name: &str, links| open(folder.path(), Path::new(name), links);
        let read_all = |file: io::Result<File>| read(file.expect("a file"), 4).expect("read");
        assert_eq!(read_all(opened("/file", Links::Refused)), "JAVA");
        // An absolute link begins at the root directory of the process, where there is no /dev.
        assert_eq!(read_all(opened("/link", Links::Followed)), "JAVA");
        for name in ["/link", "/zero", "/status", "/folder", "/pipe", "/missing"] {
            assert!(opened(name, Links::Refused).is_err(), "{name}");
        }
        for name in ["/zero", "/status", "/folder", "/pipe"] {
            assert!(opened(name, Links::Followed).is_err(), "{name}");
        }
        for path in ["/proc/self/status", "/dev/zero", "/sys/kernel/uevent_seqnum"] {
            assert!(open(Path::new("/"), Path::new(path), Links::Refused).is_err(), "{path}");
        }
        assert!(open_kernel_link(&at("zero")).is_err());
    }
}
