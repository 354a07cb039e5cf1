//! Acts as the user of a JVM.
//!
//! Problem: if the superuser attaches to the JVM of another user, the files it makes must belong to that user, and
//! the JVM accepts only its own user or the superuser of its own user namespace.
//! Approach: a new thread takes the user's ids, acts and ends; in Linux, ids belong to threads. Directories are opened
//! before, so the thread needs no other access.
//! Sources: credentials(7), `os/posix/attachListener_posix.cpp` and `os/linux/attachListener_linux.cpp` (JDK 11 to 25).

use std::io;
use std::thread;

use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

impl Owner {
    pub fn own() -> Self {
        Self { user: geteuid().as_raw(), group: getegid().as_raw() }
    }

    /// Runs `action` with the ids of this user and group; without the right to change ids, with those of this process.
    ///
    /// # Errors
    /// Those of `action`, and if the ids cannot be taken.
    pub fn act<T: Send>(self, action: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        if self == Self::own() || !geteuid().is_root() {
            return action();
        }
        let act = || {
            set_thread_groups(&[])?;
            let group = Gid::from_raw(self.group);
            set_thread_res_gid(group, group, group)?;
            let user = Uid::from_raw(self.user);
            set_thread_res_uid(user, user, user)?;
            action()
        };
        let failed = || io::Error::other("an internal error on the thread that acts for the user");
        thread::scope(|scope| {
            let acting = thread::Builder::new().spawn_scoped(scope, act)?;
            acting.join().unwrap_or_else(|_| Err(failed()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Runs as the superuser only, because no other user can take other ids.
    #[test]
    fn actions_have_the_rights_of_the_user_and_this_thread_keeps_its_own() {
        let before = Owner::own();
        if before.user != 0 {
            eprintln!("SKIPPED: not the superuser");
            return;
        }
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        let user = Owner { user: 65_534, group: 65_534 };
        std::os::unix::fs::chown(directory.path(), Some(user.user), None).expect("given");
        let file = directory.path().join("file");
        user.act(|| fs::write(&file, "")).expect("written");
        let made = fs::metadata(&file).expect("a file");
        assert_eq!((made.uid(), made.gid()), (user.user, user.group));
        let denied = user.act(|| fs::write("/etc/tickwalk-test", ""));
        assert_eq!(denied.expect_err("no right").kind(), io::ErrorKind::PermissionDenied);
        // A link of the user leads only to what the user may write, and gives away nothing.
        let own = tempfile::NamedTempFile::new_in("/tmp").expect("a file");
        let link = directory.path().join("link");
        user.act(|| std::os::unix::fs::symlink(own.path(), &link)).expect("a link");
        let denied = user.act(|| fs::write(&link, ""));
        assert_eq!(denied.expect_err("no right").kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(own.as_file().metadata().expect("a file").uid(), before.user);
        assert_eq!(Owner::own(), before);
    }
}
