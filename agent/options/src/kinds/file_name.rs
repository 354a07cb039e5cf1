//! The name of the recording, from a pattern.
//!
//! `%p` is the process id, `%t` the time in seconds since the epoch, `%h` the host's name, and `%{NAME}` a variable
//! of the environment; other characters stand for themselves.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the recording where the options name no destination.
pub const DEFAULT_PATTERN: &str = "%p.tickwalk";

/// The same if each period has a file.
pub const DEFAULT_PATTERN_OF_PERIODS: &str = "%p-%t.tickwalk";

/// Part of a pattern that stands for the time.
pub const TIME: &str = "%t";

/// Returns the path that a pattern stands for; `None` if it names a variable that is not set.
pub fn path(pattern: &str) -> Option<PathBuf> {
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        path.push_str(before);
        let mut others = after.chars();
        rest = match others.next() {
            Some('p') => {
                path.push_str(&std::process::id().to_string());
                others.as_str()
            }
            Some('t') => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                path.push_str(&now.as_secs().to_string());
                others.as_str()
            }
            Some('h') => {
                path.push_str(&host_name());
                others.as_str()
            }
            Some('{') => {
                let (name, others) = others.as_str().split_once('}')?;
                path.push_str(&std::env::var(name).ok()?);
                others
            }
            _ => {
                path.push('%');
                after
            }
        };
    }
    path.push_str(rest);
    Some(path.into())
}

/// Returns the name of this machine or container, empty if it is unknown.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let pid = std::process::id();
        assert_eq!(path("/tmp/p-%p.tickwalk"), Some(format!("/tmp/p-{pid}.tickwalk").into()));
        assert_eq!(path("%p%p"), Some(format!("{pid}{pid}").into()));
        assert_eq!(path("100%.tickwalk"), Some("100%.tickwalk".into()));
        assert_eq!(path("%%x%"), Some("%%x%".into()));
        let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
        assert_eq!(path("%{CARGO_MANIFEST_DIR}/x"), Some(format!("{manifest}/x").into()));
        assert_eq!(path("%{TICKWALK_NO_SUCH_VARIABLE}"), None);
        assert_eq!(path("%{PATH"), None);
        let time = path("%t").expect("a time").display().to_string();
        assert!(time.parse::<u64>().expect("seconds") > 1_700_000_000, "{time}");
        let host = path("%h").expect("a name").display().to_string();
        assert!(!host.is_empty() && !host.contains('%'), "{host}");
    }
}
