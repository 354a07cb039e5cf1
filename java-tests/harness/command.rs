//! The command `tickwalk`, as a process.

use std::path::Path;
use std::process::Command;

use crate::binaries;
use crate::process::{Finished, run};
use crate::stacks::Stacks;

/// Runs `tickwalk ARGUMENTS...` to its end.
pub fn tickwalk(arguments: &[&str]) -> Finished {
    let mut command = Command::new(binaries::tickwalk());
    command.args(arguments);
    run(command, |_| ())
}

/// Like [`tickwalk`], for a command that succeeds.
///
/// # Panics
/// If the command fails; the message holds its standard error.
#[track_caller]
pub fn succeed(arguments: &[&str]) -> Finished {
    let finished = tickwalk(arguments);
    assert_eq!(finished.exit_code(), 0, "tickwalk {arguments:?}: {}", finished.stderr);
    finished
}

/// Returns the stacks of a recording with their CPU time in nanoseconds.
///
/// # Panics
/// If the recording cannot be exported.
#[track_caller]
pub fn stacks_of(recording: &Path) -> Stacks {
    let recording = recording.display().to_string();
    let exported = succeed(&["export", "--format", "collapsed", "--unit", "ns", &recording]);
    Stacks::parse_collapsed(&exported.stdout)
}
