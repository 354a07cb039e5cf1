//! Runs the Python programs in `readers/`, which use third-party parsers that `java-tests/fetch` downloads.

use std::process::{Command, Stdio};

use crate::jdk::crate_folder;

/// Returns the command that runs `readers/NAME.py`; the caller adds the arguments.
///
/// # Panics
/// If the Python packages have not been fetched.
pub fn reader(name: &str) -> Command {
    let here = crate_folder();
    let packages = here.join(".cache/python");
    assert!(packages.is_dir(), "{} does not exist: run java-tests/fetch", packages.display());
    let mut command = Command::new("python3");
    command.arg(here.join("harness/readers").join(name).with_extension("py"));
    command.env("PYTHONPATH", packages).stdin(Stdio::null());
    command
}

/// Runs a reader and parses its standard output as JSON.
///
/// # Panics
/// If the reader fails; the message holds its standard error.
pub fn read(name: &str, arguments: &[&str]) -> serde_json::Value {
    let output = reader(name).args(arguments).output().expect("python3 starts");
    assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
