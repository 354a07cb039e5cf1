//! What exports tell about a session besides its samples: when it was, of what, and how far it can be trusted.

use super::samples::Sample;
use crate::Profile;
use crate::summary::Summary;

/// The time from the first sample to the last, both included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Span {
    /// Extends the span to `sample`.
    pub fn add(&mut self, sample: &Sample) {
        self.first_ns = Some(self.first_ns.map_or(sample.time_ns, |first| first.min(sample.time_ns)));
        self.last_ns = self.last_ns.max(sample.time_ns);
    }

    /// Start, ns since the epoch: that of the session, or of the first sample if it is older.
    pub fn start_ns(&self, profile: &Profile) -> u64 {
        let start = profile.hello().wall_clock_ns;
        self.first_ns.map_or(start, |first| first.min(start))
    }

    /// Time from the start to the last sample.
    pub fn duration_ns(&self, profile: &Profile) -> u64 {
        self.last_ns.saturating_sub(self.start_ns(profile))
    }
}

/// The account of CPU time and what else a reader should know, one sentence a line.
///
/// It is that of the whole session, also where an export holds a part of it.
pub fn comments(profile: &Profile) -> Vec<String> {
    let summary = Summary::new(profile);
    let hello = profile.hello();
    let jvm = format!("{} {}, process {} on {}", hello.jvm_name, hello.jvm_version, hello.pid, hello.host);
    let mut comments = vec![format!("Tickwalk: {}", summary.sentence()), jvm, hello.command.clone()];
    comments.retain(|comment| !comment.is_empty());
    comments.extend(summary.warnings(profile).into_iter().map(|warning| format!("warning: {warning}")));
    comments
}

/// What to call the program: the last part of its main class or archive, `java` if there is no telling.
pub fn service_name(profile: &Profile) -> &str {
    let main = profile.hello().command.split_whitespace().next().unwrap_or_default();
    let name = main.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "java" } else { name }
}
