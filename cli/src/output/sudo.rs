//! Files that belong to the user who called `sudo`.
//!
//! Problem: a recording can be read by its owner only; after `sudo tickwalk attach` that would be the superuser, and
//! `tickwalk top` without sudo could not read it.
//! Approach: under sudo, files are given to the user whom it names in the environment (sudo(8), `SUDO_UID`).

use std::env;
use std::os::unix::fs::lchown;
use std::path::Path;

use nix::unistd::geteuid;
use profile::export::whole_file::is_special;

use super::tell;

/// Gives the file at `path`, which this command has made, to the user who called sudo, if this is the superuser by it.
pub fn hand_over(path: &Path) {
    let Some((uid, gid)) = caller(|name| env::var(name).ok()).filter(|_| geteuid().is_root()) else { return };
    if is_special(path) {
        return;
    }
    if let Err(error) = lchown(path, Some(uid), Some(gid)) {
        tell!(
            "note: {} belongs to the superuser, because its owner cannot be changed: {error}",
            path.display()
        );
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
    fn the_caller_is_in_the_environment() {
        let of = |uid: Option<&str>, gid: Option<&str>| {
            caller(|name| if name == "SUDO_UID" { uid } else { gid }.map(str::to_owned))
        };
        assert_eq!(of(Some("1000"), Some("100")), Some((1000, 100)));
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some("someone"), Some("100")), None);
    }
}
