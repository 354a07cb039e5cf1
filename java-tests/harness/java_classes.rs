//! Compiles `workloads/*.java` once for all tests.
//!
//! The classes are in `.cache/classes/HASH`, where HASH covers every source. The folder appears by an atomic rename, so
//! concurrent test processes see either no classes or all of them.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::jdk::{Jdk, crate_folder};
use crate::process::{self, Finished};

/// Returns the folder of the compiled workloads; compiles them if it does not exist.
pub fn classes() -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(compile)
}

fn compile() -> PathBuf {
    let sources = sources();
    let mut hasher = DefaultHasher::new();
    for source in &sources {
        source.file_name().hash(&mut hasher);
        std::fs::read(source).expect("a workload source").hash(&mut hasher);
    }
    let parent = crate_folder().join(".cache/classes");
    let classes = parent.join(format!("{:016x}", hasher.finish()));
    if classes.is_dir() {
        return classes;
    }
    std::fs::create_dir_all(&parent).expect("java-tests/.cache is writable");
    let scratch = tempfile::tempdir_in(&parent).expect("java-tests/.cache/classes is writable");
    // The oldest supported release, so that the same classes run on every JDK. C2 is off: the compiler ends
    // before optimised code pays off.
    let output = Command::new(javac())
        .args(["-J-XX:TieredStopAtLevel=1", "--release", "11", "-d"])
        .arg(scratch.path())
        .args(&sources)
        .output()
        .expect("javac starts (if it is missing, run java-tests/fetch)");
    assert!(output.status.success(), "javac: {}", String::from_utf8_lossy(&output.stderr));
    match std::fs::rename(scratch.path(), &classes) {
        // The renamed folder must not be deleted with its TempDir.
        Ok(()) => drop(scratch.keep()),
        Err(error) => assert!(classes.is_dir(), "cannot rename the compiled workloads: {error}"),
    }
    classes
}

fn sources() -> Vec<PathBuf> {
    let folder = crate_folder().join("workloads");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("java-tests/workloads")
        .map(|entry| entry.expect("java-tests/workloads").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "java"))
        .collect();
    sources.sort();
    sources
}

/// Compiles the example `agent/examples/NAME.java` and runs it with these arguments.
///
/// `workloads/stubs/` declares what it uses of newer JDKs than the compiler's.
///
/// # Panics
/// If there is no Java compiler, or the example does not compile.
pub fn java_example(jdk: &Jdk, name: &str, arguments: &[&Path]) -> Finished {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let stubs = crate_folder().join("workloads/stubs");
    let output = Command::new(javac())
        .args([
            "-implicit:none",
            "--add-exports",
            "java.base/java.lang.foreign=ALL-UNNAMED",
            "--patch-module",
        ])
        .arg(format!("java.base={}", stubs.display()))
        .arg("-d")
        .arg(scratch.path())
        .arg(crate_folder().join("../agent/examples").join(format!("{name}.java")))
        .output()
        .expect("javac starts (if it is missing, run java-tests/fetch)");
    assert!(output.status.success(), "javac: {}", String::from_utf8_lossy(&output.stderr));
    let mut command = Command::new(jdk.java());
    command.args(["--enable-native-access=ALL-UNNAMED", "-cp"]).arg(scratch.path()).arg(name).args(arguments);
    process::run(command, |_| ())
}

/// Returns the Java compiler: the fetched one, else the one on the search path.
pub fn javac() -> OsString {
    let fetched = crate_folder().join(".cache/javac/bin/javac");
    if fetched.is_file() { fetched.into_os_string() } else { OsString::from("javac") }
}
