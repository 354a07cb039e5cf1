//! Finds the JDKs of this machine and reports which of them the agent supports.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::Finding;

/// Oldest supported major version.
const OLDEST_SUPPORTED: u32 = 11;

/// Newest tested major version; `stackwalk/NEW_JDK.md` lists the steps to raise it.
const NEWEST_TESTED: u32 = 28;

const SUBJECT: &str = "JDK";

pub(super) fn examine() -> Vec<Finding> {
    let homes = homes();
    if homes.is_empty() {
        let fix = format!("install one of version {OLDEST_SUPPORTED} or newer, or set JAVA_HOME");
        return vec![Finding::warn(SUBJECT, "no JDK found in JAVA_HOME, PATH or /usr/lib/jvm", fix)];
    }
    homes.iter().map(|home| examine_jdk(home)).collect()
}

/// Returns the launcher `java` that `PATH` finds.
pub(super) fn in_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join("java")).find(|java| java.is_file())
}

/// Home directories of the JDKs, without duplicates: symbolic links are resolved.
fn homes() -> BTreeSet<PathBuf> {
    let named = env::var_os("JAVA_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    // .../bin/java, with links resolved, lies two levels below the home directory.
    let by_path = in_path()
        .and_then(|java| fs::canonicalize(java).ok())
        .and_then(|java| Some(java.parent()?.parent()?.to_owned()));
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    named
        .into_iter()
        .chain(by_path)
        .chain(installed)
        .filter_map(|home| fs::canonicalize(home).ok())
        .filter(|home| home.join("bin/java").is_file())
        .collect()
}

fn examine_jdk(home: &Path) -> Finding {
    let release = Release(fs::read_to_string(home.join("release")).unwrap_or_default());
    let version = release.value("JAVA_VERSION").unwrap_or("of unknown version");
    let vendor = release.value("IMPLEMENTOR").map_or(String::new(), |vendor| format!(" ({vendor})"));
    let found = format!("{version}{vendor} at {}", home.display());
    let is_openj9 =
        release.value("JVM_VARIANT").is_some_and(|variant| variant.eq_ignore_ascii_case("openj9"))
            || home.join("lib/default/libj9vm29.so").exists();
    if is_openj9 {
        return Finding::warn(
            SUBJECT,
            format!("{found}: OpenJ9, not supported"),
            "use a JDK with the HotSpot VM",
        );
    }
    let library = home.join("lib/server/libjvm.so");
    if !library.is_file() {
        let fix = "use a JDK that contains the server VM";
        return Finding::warn(SUBJECT, format!("{found}: no lib/server/libjvm.so, not supported"), fix);
    }
    if let Some(machine) = other_machine(&library, Path::new("/proc/self/exe")) {
        let fix = format!("use a JDK for {}", env::consts::ARCH);
        return Finding::warn(SUBJECT, format!("{found}: for another CPU ({machine})"), fix);
    }
    match major(version) {
        Some(major) if major < OLDEST_SUPPORTED => {
            let fix = format!("use version {OLDEST_SUPPORTED} or newer");
            Finding::warn(SUBJECT, format!("{found}: too old"), fix)
        }
        Some(major) if major > NEWEST_TESTED => {
            let fix = "try it with 'tickwalk doctor --java PATH'; the agent refuses unknown layouts";
            Finding::warn(SUBJECT, format!("{found}: newer than {NEWEST_TESTED}, not tested"), fix)
        }
        Some(_) => Finding::ok(SUBJECT, format!("{found}: supported")),
        None => Finding::warn(
            SUBJECT,
            found,
            format!("its release file has no JAVA_VERSION; use version {OLDEST_SUPPORTED} or newer"),
        ),
    }
}

/// Returns the CPU that an ELF file is for, if it is not that of `own`.
fn other_machine(file: &Path, own: &Path) -> Option<String> {
    let (other, own) = (machine(file)?, machine(own)?);
    // `elf.h`: EM_X86_64, EM_AARCH64.
    let name = match other {
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        number => format!("ELF machine {number}"),
    };
    (other != own).then_some(name)
}

/// Returns `e_machine` of an ELF file of this byte order (elf(5)).
fn machine(file: &Path) -> Option<u16> {
    let mut header = [0; 20];
    fs::File::open(file).and_then(|mut file| file.read_exact(&mut header)).ok()?;
    let [.., low, high] = header;
    header.starts_with(b"\x7fELF").then_some(u16::from_ne_bytes([low, high]))
}

/// Returns the major version: 25 for "25.0.3", 8 for "1.8.0_402".
fn major(version: &str) -> Option<u32> {
    let mut numbers = version.split(['.', '-', '+', '_']);
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        major => Some(major),
    }
}

/// The text of a JDK's file `release`, which has lines NAME="value".
struct Release(String);

impl Release {
    fn value(&self, name: &str) -> Option<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(line.trim().trim_matches('"'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majors() {
        for (version, expected) in [
            ("25.0.3", Some(25)),
            ("1.8.0_402", Some(8)),
            ("21", Some(21)),
            ("26-ea", Some(26)),
            ("of unknown version", None),
        ] {
            assert_eq!(major(version), expected, "{version}");
        }
    }

    #[test]
    fn a_library_for_another_cpu_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let own = Path::new("/proc/self/exe");
        let header = |machine: u8| [b"\x7fELF".as_slice(), &[0; 14], &[machine, 0]].concat();
        let other = if cfg!(target_arch = "x86_64") { (183, "aarch64") } else { (62, "x86_64") };
        for (bytes, expected) in [
            (header(other.0), Some(other.1)),
            (header(8), Some("ELF machine 8")),
            (fs::read(own).expect("this program"), None),
            (b"no library".to_vec(), None),
        ] {
            let file = folder.path().join("libjvm.so");
            fs::write(&file, bytes).expect("a file");
            assert_eq!(other_machine(&file, own).as_deref(), expected);
        }
    }

    #[test]
    fn release_files() {
        let release = Release("IMPLEMENTOR=\"Debian\"\nJAVA_VERSION=\"17.0.9\"\n".into());
        assert_eq!(release.value("JAVA_VERSION"), Some("17.0.9"));
        assert_eq!(release.value("JAVA"), None);
    }
}
