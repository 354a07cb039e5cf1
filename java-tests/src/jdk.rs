//! The Java runtimes the tests run on, as `java-tests/fetch` leaves them.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// One Java runtime.
#[derive(Debug, Clone)]
pub struct Jdk {
    /// Feature release: 11, 17, 21 or 25.
    pub feature: u32,
    /// Its JAVA_HOME.
    pub home: PathBuf,
}

impl Jdk {
    /// The runtime of this feature release, if it has been fetched.
    pub fn find(feature: u32) -> Option<Self> {
        let home = jdk_folder().join(feature.to_string());
        home.join("bin/java").is_file().then_some(Self { feature, home })
    }

    /// The `java` launcher.
    pub fn java(&self) -> PathBuf {
        self.home.join("bin/java")
    }
}

/// Folder of this crate, where `.cache` and `workloads` are.
pub(crate) fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn jdk_folder() -> PathBuf {
    match std::env::var_os("TICKWALK_JDKS") {
        Some(folder) => PathBuf::from(folder),
        None => crate_folder().join(".cache/jdk"),
    }
}

/// Runs `check` on one JDK, or skips it loudly when that JDK is not there.
///
/// # Panics
/// When the JDK is missing and `TICKWALK_REQUIRE_JDKS=1`; whatever `check` panics with.
pub fn on_jdk(feature: u32, check: impl FnOnce(&Jdk)) {
    if let Some(jdk) = Jdk::find(feature) {
        check(&jdk);
        return;
    }
    let text = format!("no JDK {feature} in {} (run java-tests/fetch)", jdk_folder().display());
    let required = std::env::var_os("TICKWALK_REQUIRE_JDKS").is_some_and(|value| value == "1");
    assert!(!required, "{text}");
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    // Straight to the file descriptor: the test runner hides what a passing test prints.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {text}");
}
