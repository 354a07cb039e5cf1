//! Warnings: what a reader must know before trusting a profile.

use std::fmt::Write;

use crate::delivery::Delivery;
use crate::quantity::{count, duration, percent};
use crate::trust::{Outcome, SelfTest};

/// A profile that explains less than this share of CPU time is shown with a warning.
const TRUSTED: f64 = 0.95;

/// The warning of a selection from a session.
pub const PART: &str = "a part of the session is shown, its account is of the whole";

/// What the warnings of a session depend on.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Whether the agent ended the session, or still sends.
    pub is_complete: bool,
    /// Why the recording ends before its last byte.
    pub cut: Option<String>,
    /// Messages that were sent and not received.
    pub missing_messages: u64,
    /// Samples whose stacks were not described.
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
    /// How samples were sent.
    pub delivery: Delivery,
    /// The agent's comparisons with the VM.
    pub self_tests: Vec<SelfTest>,
    /// How often timers passed from one thread to another.
    pub timer_turns: u64,
}

impl Evidence {
    /// A sentence for each reason to doubt the profile, without capital and full stop.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.is_complete {
            warnings.push("the session did not end in order, its last samples may be missing".to_owned());
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
            warnings.push("no statistics were received, so CPU time cannot be accounted for".to_owned());
        } else if self.explained < TRUSTED {
            warnings.push(self.unexplained());
        }
        if self.delivery.merged_samples > 0 {
            warnings.push(merged(&self.delivery));
        }
        for test in self.self_tests.iter().filter(|test| test.outcome == Outcome::Failed) {
            warnings.push(format!("the agent's self-test failed ({}): {}", test.capability, test.detail));
        }
        if self.timer_turns > 0 {
            warnings
                .push("there were fewer timers than threads, which took turns: raise 'ulimit -i'".to_owned());
        }
        warnings
    }

    /// The CPU time that samples do not stand for, by what became of it.
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

/// The loss of time resolution while the collector could not be reached.
fn merged(delivery: &Delivery) -> String {
    let mut text = format!(
        "{} samples were merged while the collector was away, to a time resolution of {}",
        count(delivery.merged_samples),
        duration(delivery.resolution_ns)
    );
    if delivery.unnamed_ns > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "; {} of them without their stacks", duration(delivery.unnamed_ns));
    }
    text
}
