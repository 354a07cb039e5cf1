//! Warnings about the completeness and the accuracy of a profile.

use std::fmt::Write;

use crate::delivery::Delivery;
use crate::quantity::{count, duration, percent};
use crate::trust::{Outcome, SelfTest};

/// A profile gets a warning if its samples explain less than this share of CPU time.
const TRUSTED: f64 = 0.95;

/// Warning of a profile with a part of the session's samples.
pub const PART: &str = "a part of the session is shown; the account is of the whole session";

/// The figures that the warnings of a session depend on.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Whether the agent ended the session or is still sending.
    pub is_complete: bool,
    /// Why reading the recording stopped before its last byte.
    pub cut: Option<String>,
    /// Messages that were sent and not received.
    pub missing_messages: u64,
    /// Samples whose stacks were never defined.
    pub unknown_samples: u64,
    /// Samples received.
    pub samples: u64,
    /// Whether a part of the session is shown.
    pub is_part: bool,
    /// Whether statistics were received.
    pub is_accounted: bool,
    /// Share of CPU time that samples explain.
    pub explained: f64,
    /// CPU time before timers ran.
    pub before_timer_ns: u64,
    /// CPU time whose samples were lost.
    pub lost_ns: u64,
    /// CPU time since the last expirations.
    pub unfinished_ns: u64,
    /// Delivery of the samples.
    pub delivery: Delivery,
    /// The agent's comparisons with the VM.
    pub self_tests: Vec<SelfTest>,
    /// How many times timers moved from one thread to another.
    pub timer_handovers: u64,
}

impl Evidence {
    /// Returns the warnings as sentences without capital and full stop.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.is_complete {
            warnings.push("the session did not end properly; its last samples may be missing".to_owned());
        }
        if let Some(cut) = &self.cut {
            warnings.push(format!("the recording is cut off: {cut}"));
        }
        if self.missing_messages > 0 {
            warnings.push(format!("{} messages are missing", self.missing_messages));
        }
        if self.unknown_samples > 0 {
            warnings.push(format!("{} samples have no names", count(self.unknown_samples)));
        }
        if self.samples == 0 {
            warnings.push(
                "no samples were taken: the program used less CPU time than a sampling interval".to_owned(),
            );
        } else if self.is_part {
            warnings.push(PART.to_owned());
        } else if !self.is_accounted {
            warnings.push("no statistics were received, so there is no account of CPU time".to_owned());
        } else if self.explained < TRUSTED {
            warnings.push(self.unexplained());
        }
        if self.delivery.merged_samples > 0 {
            warnings.push(merged(&self.delivery));
        }
        for test in self.self_tests.iter().filter(|test| test.outcome == Outcome::Failed) {
            warnings.push(format!("the agent's self-test failed ({}): {}", test.capability, test.detail));
        }
        if self.timer_handovers > 0 {
            warnings.push(
                "there were fewer timers than threads, so threads shared timers; raise 'ulimit -i'"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Returns the warning about CPU time without samples, by cause.
    fn unexplained(&self) -> String {
        let parts = [
            (self.before_timer_ns, "was used before timers ran"),
            (self.lost_ns, "was lost"),
            (self.unfinished_ns, "lies in unfinished periods"),
        ];
        let mut parts: Vec<_> = parts.into_iter().filter(|&(ns, _)| ns > 0).collect();
        parts.sort_by_key(|&(ns, _)| std::cmp::Reverse(ns));
        let parts: Vec<String> =
            parts.into_iter().map(|(ns, what)| format!("{} {what}", duration(ns))).collect();
        let explained = percent(self.explained);
        format!("only {explained} of CPU time is explained by samples: {}", parts.join(", "))
    }
}

/// Returns the warning about samples that were merged while the collector was unreachable.
fn merged(delivery: &Delivery) -> String {
    let mut text = format!(
        "{} samples were merged while the collector was unreachable, to a time resolution of {}",
        count(delivery.merged_samples),
        duration(delivery.resolution_ns)
    );
    if delivery.unnamed_ns > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "; {} of them without their stacks", duration(delivery.unnamed_ns));
    }
    text
}
