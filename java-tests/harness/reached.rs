//! JVMs in other namespaces and of other users, and what `tickwalk` says of them.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::command::tickwalk;
use crate::jdk::Jdk;
use crate::process::Finished;
use crate::visible;
use crate::workload::{Workload, create_end_file};

/// Returns a folder that JVMs with their own `/tmp` and of other users see as well.
///
/// # Panics
/// If `/var/tmp` is not writable.
pub fn shared_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a writable /var/tmp");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("own folder");
    folder
}

/// Returns whether a launcher works here; says so if not.
///
/// # Panics
/// If `launcher` is empty.
pub fn is_allowed(launcher: &[&str]) -> bool {
    let mut words = launcher.iter().copied().chain(["true"]);
    let allowed = Command::new(words.next().expect("a program")).args(words).output();
    let allowed = allowed.is_ok_and(|output| output.status.success());
    if !allowed {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        // Written to the file descriptor, because the test runner captures `eprintln!` of passing tests.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {launcher:?} is not allowed here");
    }
    allowed
}

/// Returns the row of `tickwalk list` whose program contains `text`.
///
/// # Panics
/// If there is none.
pub fn listed(text: &str) -> serde_json::Value {
    let finished = tickwalk(&["list", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let rows = rows.as_array().expect("a list");
    let is_it =
        |row: &&serde_json::Value| row["program"].as_str().is_some_and(|program| program.contains(text));
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no {text} in {rows:?}")).clone()
}

/// A JVM that runs Burner through a launcher.
pub struct Reached {
    /// Returns what `tickwalk list` shows.
    pub row: serde_json::Value,
    /// Its process id for this process.
    pub pid: i64,
}

/// Runs Burner through `launcher`, calls `check` once while it runs, and asserts that it ends well.
///
/// # Panics
/// If it does not.
pub fn with_burner(
    jdk: &Jdk,
    launcher: &[&str],
    options: &[&str],
    mut check: impl FnMut(&Reached, &Path),
) -> Finished {
    let folder = shared_folder();
    let end_file = folder.path().join("end-file");
    // Without a launcher the JVM sees what this process sees.
    let jdk = if launcher.is_empty() { jdk.clone() } else { visible::jdk(jdk) };
    let mut workload = Workload::burner(0, &end_file).launcher(launcher);
    for option in options {
        workload = workload.jvm_option(option);
    }
    let mut is_checked = false;
    let program = workload.run_unprofiled_watched(&jdk, |_, _| {
        if !std::mem::replace(&mut is_checked, true) {
            let row = listed(&end_file.display().to_string());
            let pid = row["pid"].as_i64().expect("a process id");
            check(&Reached { row, pid }, folder.path());
            create_end_file(&end_file);
        }
    });
    assert!(is_checked, "{}", program.stderr);
    assert_eq!(program.exit_code(), 0, "{}", program.stderr);
    program
}

/// Asserts exit code 1 and exactly one line on standard error, which contains `text`.
///
/// # Panics
/// If something else was reported.
#[track_caller]
pub fn assert_refused(finished: &Finished, text: &str) {
    assert_eq!(finished.exit_code(), 1, "{}", finished.stderr);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains(text), "{}", finished.stderr);
}
