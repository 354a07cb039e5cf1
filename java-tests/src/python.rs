//! Programs in Python, with readers that others wrote (`java-tests/fetch`), in `java-tests/readers/`.

use std::path::Path;
use std::process::{Command, Stdio};

/// The command that runs `readers/NAME.py`; arguments are to be added.
///
/// # Panics
/// If the readers were not fetched.
pub fn reader(name: &str) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = here.join(".cache/python");
    assert!(packages.is_dir(), "{} is not there: run java-tests/fetch", packages.display());
    let mut command = Command::new("python3");
    command.arg(here.join("readers").join(name).with_extension("py"));
    command.env("PYTHONPATH", packages).stdin(Stdio::null());
    command
}

/// What a reader prints as JSON.
///
/// # Panics
/// If it fails; shows what it said.
pub fn read(name: &str, arguments: &[&str]) -> serde_json::Value {
    let output = reader(name).args(arguments).output().expect("python3 starts");
    assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
