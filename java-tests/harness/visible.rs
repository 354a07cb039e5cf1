//! Places of JDKs and programs that every JVM sees.
//!
//! Problem: another user cannot enter `/root`, where a clone may lie, and a JVM with its own `/tmp` sees nothing of a
//! clone below it.
//! Approach: a folder that every user can read, outside of those for temporary files, is used where it is. Others are
//! copied once for each test program, to a folder that another process removes when the test program has ended in
//! whatever way. Only the superuser can make such JVMs, so the copies lie where only the superuser can write, and every
//! folder of an ordinary user is used where it is.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::unistd::geteuid;

use crate::jdk::Jdk;
use crate::{binaries, java_classes};

/// Folders that a JVM may see others of.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Folders for the copies, in the order in which they are tried.
const PLACES: [&str; 3] = ["/opt", "/srv", "/var/lib"];

/// Returns a JDK at a path that every JVM sees.
///
/// # Panics
/// If a copy is needed and cannot be made.
pub fn jdk(jdk: &Jdk) -> Jdk {
    Jdk { home: folder(&jdk.home), ..jdk.clone() }
}

/// Returns the folder of the compiled workloads, as [`jdk`].
///
/// # Panics
/// As [`jdk`].
pub(crate) fn classes() -> PathBuf {
    folder(java_classes::classes())
}

/// Returns a folder with the `tickwalk` command and the agent library, as [`jdk`].
///
/// # Panics
/// As [`jdk`].
pub fn programs() -> PathBuf {
    let (command, agent) = (binaries::tickwalk(), binaries::agent());
    let built = agent.parent().expect("a file is in a folder");
    if is_usable(built) {
        return built.to_owned();
    }
    copied(built, |copy| {
        fs::create_dir(copy).expect("a writable folder");
        for file in [&command, &agent] {
            fs::copy(file, copy.join(file.file_name().expect("a file"))).expect("copied");
        }
    })
}

fn folder(original: &Path) -> PathBuf {
    let original = fs::canonicalize(original).expect("a folder");
    if is_usable(&original) {
        return original;
    }
    copied(&original, |copy| run(Command::new("cp").arg("-r").arg(&original).arg(copy)))
}

/// Returns whether every JVM that this user can make sees a folder.
fn is_usable(folder: &Path) -> bool {
    !geteuid().is_root() || is_seen_by_all(folder)
}

/// Returns whether every user can read a folder, and no JVM has another one in its place.
fn is_seen_by_all(folder: &Path) -> bool {
    let allows = |folder: &Path, bits: u32| {
        fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & bits == bits)
    };
    let is_temporary = TEMPORARY.iter().any(|temporary| folder.starts_with(temporary));
    !is_temporary && allows(folder, 0o005) && folder.ancestors().all(|above| allows(above, 0o001))
}

/// Returns the copy of a folder, which `copy` makes at the first call.
fn copied(original: &Path, copy: impl FnOnce(&Path)) -> PathBuf {
    static COPIES: Mutex<Option<HashMap<PathBuf, PathBuf>>> = Mutex::new(None);
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let copies = copies.get_or_insert_default();
    if let Some(copy) = copies.get(original) {
        return copy.clone();
    }
    let path = place().join(copies.len().to_string());
    copy(&path);
    run(Command::new("chmod").args(["-R", "a+rX"]).arg(&path));
    copies.insert(original.to_owned(), path.clone());
    path
}

fn run(command: &mut Command) {
    let status = command.status().expect("the command starts");
    assert!(status.success(), "{command:?}: {status}");
}

/// Returns the folder for the copies of this test program.
fn place() -> &'static Path {
    static PLACE: OnceLock<(PathBuf, Child)> = OnceLock::new();
    let make = || {
        let made = PLACES
            .iter()
            .find_map(|place| tempfile::Builder::new().prefix("tickwalk-java-").tempdir_in(place).ok());
        let made = made.unwrap_or_else(|| panic!("no folder can be made in {}", PLACES.join(", "))).keep();
        fs::set_permissions(&made, Permissions::from_mode(0o755)).expect("own folder");
        // Its input ends with this process. In a group of its own, no key of the terminal ends it before.
        let mut cleaner = Command::new("sh");
        cleaner.args(["-c", r#"cat >/dev/null; rm -rf "$1""#, "sh"]).arg(&made);
        let cleaner = cleaner.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        (made, cleaner.process_group(0).spawn().expect("a shell"))
    };
    &PLACE.get_or_init(make).0
}
