//! Private directories in the file system of a JVM, for the socket and the library that it uses.
//!
//! Problem: a JVM with its own `/tmp` may not see this command's socket and library. Files put there must be removed,
//! and must not help its user to change files of the superuser.
//! Approach: directories with random names that are made, filled and removed with the rights of the JVM's user
//! ([`Owner::act`]), through a descriptor of the directory above.
//! Sources: unix(7) (sockets are found by their inode, in whichever mount namespace), proc_pid_root(5), dlopen(3).

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, statvfs};

use super::identity::Owner;
use super::process::Process;
use crate::output::private_directory;

/// Directories for temporary files; libraries cannot be loaded from those that are mounted noexec.
const PLACES: [&str; 3] = ["/tmp", "/dev/shm", "/var/tmp"];

/// A directory that is removed on drop.
#[derive(Debug)]
pub struct Workplace {
    owner: Owner,
    above: OwnedFd,
    name: PathBuf,
    /// The path that the JVM sees.
    inner: PathBuf,
}

impl Workplace {
    /// Makes a directory that only the JVM's user, and the superuser, can enter.
    pub fn for_socket(process: Process, owner: Owner) -> io::Result<Self> {
        Self::first_of(process, owner, |_| true)
    }

    /// Makes such a directory in a place from which libraries can be loaded.
    pub fn for_library(process: Process, owner: Owner) -> io::Result<Self> {
        Self::first_of(process, owner, |above| {
            statvfs(above).is_ok_and(|mount| !mount.f_flag.contains(StatVfsMountFlags::NOEXEC))
        })
    }

    fn first_of(process: Process, owner: Owner, is_fit: impl Fn(&Path) -> bool) -> io::Result<Self> {
        let mut failure =
            io::Error::other(format!("{} do not exist or are mounted noexec", PLACES.join(", ")));
        for place in PLACES.map(Path::new) {
            let outer = process.outer_path(place);
            if !is_fit(&outer) {
                continue;
            }
            match Self::below(&outer, place, owner) {
                Ok(made) => return Ok(made),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn below(outer: &Path, inner: &Path, owner: Owner) -> io::Result<Self> {
        let above =
            rustix::fs::open(outer, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = path_of(&above);
        let made = owner.act(|| Ok(private_directory().tempdir_in(path)?.keep()))?;
        let name = made.file_name().map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { owner, inner: inner.join(&name), above, name })
    }

    /// Returns the path of the directory for this process.
    fn outer(&self) -> PathBuf {
        path_of(&self.above).join(&self.name)
    }

    /// Listens on a socket in the directory that only the JVM's user can connect to; returns its path for the JVM as
    /// well.
    pub fn listen(&self, name: &str) -> io::Result<(UnixListener, PathBuf)> {
        let path = self.outer().join(name);
        let listener = self.owner.act(|| UnixListener::bind(path))?;
        Ok((listener, self.inner.join(name)))
    }

    /// Copies `library` into the directory; returns the path for the JVM.
    pub fn copy(&self, library: &Path, name: &str) -> io::Result<PathBuf> {
        let mut from = File::open(library)?;
        let path = self.outer().join(name);
        self.owner.act(|| {
            let mut to = OpenOptions::new().write(true).create_new(true).mode(0o500).open(path)?;
            io::copy(&mut from, &mut to)
        })?;
        Ok(self.inner.join(name))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        let directory = self.outer();
        // An error means that it was removed already.
        let _ = self.owner.act(|| fs::remove_dir_all(directory));
    }
}

/// Returns a path to an open directory that does not depend on the rights to the directories above it.
fn path_of(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Returns a name for copies of a library, which depends on its content: `libtickwalk-HASH.so`.
pub fn copied_name(library: &Path) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(library)?);
    Ok(format!("libtickwalk-{:016x}.so", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workplace_leaves_nothing_behind() {
        let own = Process::of(i32::try_from(std::process::id()).expect("a process id"));
        let workplace = Workplace::for_library(own, Owner::own()).expect("made");
        let (_listener, socket) = workplace.listen("collector").expect("bound");
        let library = std::env::current_exe().expect("a file");
        let copy = workplace.copy(&library, "libtickwalk-1.so").expect("copied");
        assert_eq!(fs::read(&copy).expect("read"), fs::read(&library).expect("read"));
        assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let directory = workplace.inner.clone();
        assert!(directory.starts_with("/tmp") || directory.starts_with("/dev/shm"), "{directory:?}");
        drop(workplace);
        assert!(!directory.exists());
    }

    #[test]
    fn the_name_of_a_copy_depends_on_the_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&a, "one").expect("written");
        fs::write(&b, "two").expect("written");
        let name = |path| copied_name(path).expect("read");
        assert_ne!(name(&a), name(&b));
        fs::write(&b, "one").expect("written");
        assert_eq!(name(&a), name(&b));
        assert!(name(&a).starts_with("libtickwalk-") && name(&a).ends_with(".so"));
    }
}
