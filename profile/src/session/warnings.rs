//! Warnings about the completeness and the accuracy of a profile.

use std::fmt::Write;

use proto::framing::FramingError;

use crate::session::Session;
use crate::session::account::{CpuTime, Timers, Waiting};
use crate::session::delivery::Delivery;
use crate::session::mode::Mode;
use crate::session::trust::{Outcome, SelfTest};
use crate::text::quantity::{count, duration, percent, share};

/// A profile gets a warning if its samples explain less than this share of CPU time.
const TRUSTED: f64 = 0.95;
/// CPU time that each profile leaves without samples, however long it is: the start of the JVM and of the profiler, and
/// the last interval of each thread. Programs of a few seconds have up to 0.35 s, with a profiler built for debugging.
const START_NS: u64 = 500_000_000;
/// A profile gets a warning if this share of its samples, or more, is biased. Code with positions between safepoints
/// has up to 15 %, code without them 25 % and more (`java-tests/tests/biased.rs`).
const NOTABLE: f64 = 0.2;

/// Warning of a profile with a part of the session's samples.
pub const PART: &str = "a part of the session is shown; the account is of the whole session";

/// Warning of a session without an end. It is none for a profile that goes on.
pub const UNENDED: &str = "the session did not end properly; its last samples may be missing";

/// The facts that the warnings of a session depend on.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'s> {
    pub session: &'s Session,
    pub cpu: &'s CpuTime,
    /// True if the agent ended the session or is still sending; false if its data stops without an end.
    pub is_complete: bool,
    /// Why reading the recording stopped before its last byte.
    pub cut: Option<FramingError>,
    /// True if a part of the session is shown.
    pub is_part: bool,
    /// Samples whose stacks were never defined.
    pub unknown_samples: u64,
}

/// Returns the warning about a recording that could not be read whole.
pub fn incomplete(cut: FramingError) -> String {
    match cut {
        FramingError::Truncated(_) => format!("the recording is cut off: {cut}"),
        _ => format!("the recording is damaged, and samples are missing: {cut}"),
    }
}

impl Evidence<'_> {
    /// Returns the warnings as sentences without capital and full stop.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let time = self.session.mode().time();
        let (statistics, missing_messages) = (&self.session.statistics, self.session.missing_messages);
        if !self.is_complete {
            warnings.push(UNENDED.to_owned());
        }
        if let Some(why) = self.session.goodbye.as_deref().and_then(early_end) {
            warnings.push(format!("the profile ended before the program: {why}"));
        }
        // Names are written before the samples that use them, so a cut file may have names and no samples.
        let place = if self.session.samples == 0 { ", before its first samples" } else { "" };
        warnings.extend(self.cut.map(|cut| incomplete(cut) + place));
        if missing_messages > 0 {
            warnings.push(format!("{missing_messages} messages are missing"));
        }
        if self.unknown_samples > 0 {
            warnings.push(format!("{} samples have no names", count(self.unknown_samples)));
        }
        if self.session.samples == 0 {
            warnings.extend((self.cpu.missed_ns() > 0).then(|| self.unexplained()));
        } else if self.is_part {
            warnings.push(PART.to_owned());
        } else if statistics.is_none() {
            warnings.push(format!("no statistics were received, so there is no account of {time}"));
        } else if self.is_unexplained() {
            warnings.push(self.unexplained());
        }
        let biased = share(self.session.biased, self.session.samples);
        if biased >= NOTABLE && self.session.mode() != Mode::Jvmti {
            warnings.push(later_methods(biased));
        }
        let Some(statistics) = statistics else { return warnings };
        let Waiting { throttled_ns, throttled_periods, .. } = Waiting::new(statistics);
        if let Some(ns) = throttled_ns.filter(|&ns| ns > 0) {
            let periods = count(throttled_periods.unwrap_or(0));
            warnings.push(format!(
                "the cgroup's CPU limit stopped the program for {} in {periods} periods; no sample shows that time",
                duration(ns)
            ));
        }
        let delivery = Delivery::new(statistics);
        if delivery.merged_samples > 0 {
            warnings.push(merged(&delivery));
        }
        for test in SelfTest::all(statistics).iter().filter(|test| test.outcome == Outcome::Failed) {
            warnings.push(format!("the agent's self-test failed ({}): {}", test.capability, test.detail));
        }
        if Timers::new(statistics).turns > 0 {
            warnings.push(
                "there were fewer timers than threads, so threads shared timers; raise 'ulimit -i'"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Returns what explains the figures although nothing is wrong, as sentences without capital and full stop.
    pub fn notes(&self) -> Vec<String> {
        let has_none = self.session.samples == 0 && self.cpu.missed_ns() == 0 && self.is_complete;
        let note = match self.session.mode() {
            Mode::Wall => "no samples: the program ended within a sampling interval",
            Mode::CpuTime | Mode::Jvmti if self.cpu.not_chosen_ns() > 0 => {
                "no samples: no chosen thread used a sampling interval of CPU time; check the names in --threads"
            }
            Mode::CpuTime | Mode::Jvmti => {
                "no samples: the program used almost no CPU time; --mode wall shows where its threads wait"
            }
        };
        has_none.then(|| note.to_owned()).into_iter().collect()
    }

    /// Returns whether more CPU time has no samples than the start of a JVM and the ends of its threads explain.
    fn is_unexplained(&self) -> bool {
        let CpuTime { before_timer, profiler, unfinished, outside, .. } = self.cpu;
        let of_start = before_timer.saturating_add(*profiler).saturating_add(*unfinished);
        let unknown = self.cpu.missed_ns().saturating_add(*outside);
        self.cpu.explained() < TRUSTED
            && (of_start > START_NS || share(unknown, self.cpu.chosen()) > 1.0 - TRUSTED)
    }

    /// Returns the warning about CPU time without samples, by cause.
    fn unexplained(&self) -> String {
        let parts = [
            (self.cpu.before_timer, "was used before timers ran"),
            (self.cpu.missed_ns(), "was lost"),
            (self.cpu.unfinished, "lies in unfinished periods"),
            (self.cpu.profiler, "was used by the profiler"),
            (self.cpu.outside, "lies outside the accounts of threads"),
        ];
        let mut parts: Vec<_> = parts.into_iter().filter(|&(ns, _)| ns > 0).collect();
        parts.sort_by_key(|&(ns, _)| std::cmp::Reverse(ns));
        let parts: Vec<String> =
            parts.into_iter().map(|(ns, what)| format!("{} {what}", duration(ns))).collect();
        let time = self.session.mode().time();
        let explained = percent(self.cpu.explained());
        format!("only {explained} of {time} is explained by samples: {}", parts.join(", "))
    }
}

/// Returns the warning about samples whose method and line are those of a later instruction than the one that ran.
fn later_methods(share: f64) -> String {
    format!(
        "{} of the samples may show the method and line of a later call, because their code was compiled before the profiler \
         came; start the JVM with -XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints",
        percent(share)
    )
}

/// Returns why an agent ended a profile by itself, from the reason in its last message.
fn early_end(reason: &str) -> Option<&'static str> {
    match reason {
        "no_destination" => Some("no other destination was left"),
        "handler_replaced" => Some("the program installed its own handler for the signal of the timers"),
        "descriptors_closed" => Some("the program closed descriptors of the profiler"),
        "internal_error" => Some("an internal error of the agent"),
        _ => None,
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
