//! Files that belong to the user who called `sudo`.
//!
//! Problem: a recording can be read by its owner only; after `sudo tickwalk attach` that would be the superuser, and
//! `tickwalk top` without sudo could not read it.
//! Approach: under sudo, files are given to the user whom it names in the environment (sudo(8), `SUDO_UID`).

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;
use std::{env, io};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use super::tell;

/// Gives the file at `path`, which this command has made, to the user who called sudo, if this is the superuser by it.
pub fn hand_over(path: &Path) {
    let Some((uid, gid)) = caller(|name| env::var(name).ok()).filter(|_| geteuid().is_root()) else { return };
    if let Err(error) = give(path, uid, gid) {
        tell!(
            "note: {} belongs to the superuser, because its owner cannot be changed: {error}",
            path.display()
        );
    }
}

/// Changes the owner of a file of the superuser. If another file has taken the path, nothing is given away: neither a
/// file of another user, nor one that has further names.
fn give(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let path = path.canonicalize()?;
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    match found.is_file() && found.uid() == 0 && found.nlink() == 1 {
        true => fchown(file, Some(uid), Some(gid)),
        false => Ok(()),
    }
}

/// Returns ids of the user and the group that called sudo.
fn caller(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let id = |name| variable(name)?.parse().ok();
    Some((id("SUDO_UID")?, id("SUDO_GID")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_the_superuser_with_one_name_is_given() {
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("own"), "").expect("a file");
        std::os::unix::fs::symlink(at("own"), at("link")).expect("a link");
        std::fs::write(at("two"), "").expect("a file");
        std::fs::hard_link(at("two"), at("names")).expect("a link");
        let given = |name: &str| {
            give(&at(name), 65534, 65534).expect("it can be opened");
            std::fs::metadata(at(name)).expect("a file").uid() == 65534
        };
        assert!(given("link") && given("own"), "the target of a link");
        assert!(!given("two"));
    }

    #[test]
    fn the_caller_is_in_the_environment() {
        let of = |uid: Option<&str>, gid: Option<&str>| {
            caller(|name| if name == "SUDO_UID" { uid } else { gid }.map(str::to_owned))
        };
        assert_eq!(of(Some("1000"), Some("100")), Some((1000, 100)));
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some("someone"), Some("100")), None);
    }
}
