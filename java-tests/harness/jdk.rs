//! Finds the Java runtimes that `java-tests/fetch` downloaded, and runs tests on them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// Releases with tests; each has a pinned build of that name.
const RELEASES: [u32; 4] = [11, 17, 21, 25];

/// A Java runtime.
#[derive(Debug, Clone)]
pub struct Jdk {
    /// Name of its folder: `25`, or for example `25-trixie` after `java-tests/fetch --more-jdks`.
    pub name: String,
    /// Feature release: the number at the beginning of the name.
    pub feature: u32,
    /// Its JAVA_HOME.
    pub home: PathBuf,
}

impl Jdk {
    /// Returns the pinned runtime of this feature release, if it has been fetched.
    pub fn find(feature: u32) -> Option<Self> {
        Self::named(&feature.to_string())
    }

    /// Returns the runtime of this name, if it has been fetched.
    pub fn named(name: &str) -> Option<Self> {
        let digits = name.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(name.len());
        let feature = name[..digits].parse().ok()?;
        let home = jdk_folder().join(name);
        home.join("bin/java").is_file().then(|| Self { name: name.to_owned(), feature, home })
    }

    /// Returns the path of the `java` launcher.
    pub fn java(&self) -> PathBuf {
        self.home.join("bin/java")
    }

    /// Returns the release whose tests run on this runtime: its own, else the newest older one.
    fn tests_of_release(&self) -> Option<u32> {
        RELEASES.into_iter().rfind(|&release| release <= self.feature)
    }
}

/// Returns the runtimes on which the tests of a release run: the pinned one, unless TICKWALK_JDK names others.
fn selected_jdks(release: u32) -> Vec<Jdk> {
    let Ok(names) = std::env::var("TICKWALK_JDK") else {
        return Jdk::find(release).into_iter().collect();
    };
    let names: Vec<String> = match names.as_str() {
        "all" => {
            let entries = std::fs::read_dir(jdk_folder()).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        }
        names => names.split(',').map(str::to_owned).collect(),
    };
    let found = names.iter().map(|name| {
        Jdk::named(name)
            .unwrap_or_else(|| panic!("no JDK {name} in {} (check TICKWALK_JDK)", jdk_folder().display()))
    });
    found.filter(|jdk| jdk.tests_of_release() == Some(release)).collect()
}

/// Returns the folder of this crate, which holds `.cache` and `workloads`.
pub(crate) fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn jdk_folder() -> PathBuf {
    match std::env::var_os("TICKWALK_JDKS") {
        Some(folder) => PathBuf::from(folder),
        None => crate_folder().join(".cache/jdk"),
    }
}

/// Held for writing by a test that runs exclusively, for reading by tests that run concurrently.
static RUNNING: RwLock<()> = RwLock::new(());

/// Calls [`on_jdk`] while no other test of this program runs a JVM: JVMs that share a core disturb each other's CPU
/// times.
///
/// # Panics
/// As [`on_jdk`].
pub fn on_jdk_exclusively(release: u32, check: impl Fn(&Jdk)) {
    let _running = RUNNING.write().unwrap_or_else(PoisonError::into_inner);
    on_jdk(release, check);
}

/// Calls [`on_jdk`] concurrently with other such tests, but never with one that runs in [`on_jdk_exclusively`].
///
/// # Panics
/// As [`on_jdk`].
pub fn on_jdk_concurrently(release: u32, check: impl Fn(&Jdk)) {
    let _running = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
    on_jdk(release, check);
}

/// Runs `check` on the pinned JDK of a release; if it is missing, prints a line and skips the check.
///
/// With `TICKWALK_JDK=NAME,...` (or `all`) the check runs instead on each named JDK of this release, or of a later
/// release that has no tests of its own.
///
/// # Panics
/// If the JDK is missing and `TICKWALK_REQUIRE_JDKS=1`, or if `check` panics.
pub fn on_jdk(release: u32, check: impl Fn(&Jdk)) {
    let jdks = selected_jdks(release);
    for jdk in &jdks {
        check(jdk);
    }
    if !jdks.is_empty() {
        return;
    }
    let text = match std::env::var("TICKWALK_JDK") {
        Ok(names) => format!("TICKWALK_JDK={names} names no JDK for release {release}"),
        Err(_) => format!("no JDK {release} in {} (run java-tests/fetch)", jdk_folder().display()),
    };
    let required = std::env::var_os("TICKWALK_REQUIRE_JDKS").is_some_and(|value| value == "1");
    assert!(!required, "{text}");
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    // Written to the file descriptor, because the test runner captures `eprintln!` of passing tests.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {text}");
}
