//! The Java runtimes the tests run on, as `java-tests/fetch` leaves them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// Releases that have tests of their own, each with a pinned build of that name.
const RELEASES: [u32; 4] = [11, 17, 21, 25];

/// One Java runtime.
#[derive(Debug, Clone)]
pub struct Jdk {
    /// Its folder's name: `25`, or, after `java-tests/fetch --more-jdks`, `25-trixie`.
    pub name: String,
    /// Feature release: the number its name begins with.
    pub feature: u32,
    /// Its JAVA_HOME.
    pub home: PathBuf,
}

impl Jdk {
    /// The pinned runtime of this feature release, if it has been fetched.
    pub fn find(feature: u32) -> Option<Self> {
        Self::named(&feature.to_string())
    }

    /// The runtime of this name, if it has been fetched.
    pub fn named(name: &str) -> Option<Self> {
        let digits = name.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(name.len());
        let feature = name[..digits].parse().ok()?;
        let home = jdk_folder().join(name);
        home.join("bin/java").is_file().then(|| Self { name: name.to_owned(), feature, home })
    }

    /// The `java` launcher.
    pub fn java(&self) -> PathBuf {
        self.home.join("bin/java")
    }

    /// The release whose tests this runtime takes: its own, else the newest older one.
    fn tested_as(&self) -> Option<u32> {
        RELEASES.into_iter().rfind(|&release| release <= self.feature)
    }
}

/// The runtimes that take the tests of a release: the pinned one, unless TICKWALK_JDK names others.
fn chosen(release: u32) -> Vec<Jdk> {
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
        Jdk::named(name).unwrap_or_else(|| panic!("no JDK {name} in {}", jdk_folder().display()))
    });
    found.filter(|jdk| jdk.tested_as() == Some(release)).collect()
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

/// Who may run JVMs: one test alone, or several beside each other.
static TURN: RwLock<()> = RwLock::new(());

/// [`on_jdk`] while no other test of this program runs a JVM: one that shares its core with another is no steady ground
/// for figures of CPU time.
///
/// # Panics
/// As [`on_jdk`].
pub fn on_jdk_alone(release: u32, check: impl Fn(&Jdk)) {
    let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
    on_jdk(release, check);
}

/// [`on_jdk`] beside other tests, as many as the test runner starts, but never beside [`on_jdk_alone`].
///
/// # Panics
/// As [`on_jdk`].
pub fn on_jdk_beside(release: u32, check: impl Fn(&Jdk)) {
    let _turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
    on_jdk(release, check);
}

/// Runs `check` on the pinned JDK of a release, or skips it loudly when that JDK is not there.
///
/// With `TICKWALK_JDK=NAME,...` (or `all`) it runs on those instead: on each that is of this release, or of a
/// later one that has no tests of its own.
///
/// # Panics
/// When the JDK is missing and `TICKWALK_REQUIRE_JDKS=1`; whatever `check` panics with.
pub fn on_jdk(release: u32, check: impl Fn(&Jdk)) {
    let jdks = chosen(release);
    for jdk in &jdks {
        check(jdk);
    }
    if !jdks.is_empty() {
        return;
    }
    let text = match std::env::var("TICKWALK_JDK") {
        Ok(names) => format!("no JDK for it among TICKWALK_JDK={names}"),
        Err(_) => format!("no JDK {release} in {} (run java-tests/fetch)", jdk_folder().display()),
    };
    let required = std::env::var_os("TICKWALK_REQUIRE_JDKS").is_some_and(|value| value == "1");
    assert!(!required, "{text}");
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    // Straight to the file descriptor: the test runner hides what a passing test prints.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {text}");
}
