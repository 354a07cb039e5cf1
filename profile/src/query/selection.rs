//! Selections of samples by time, process, thread and stack. Options, HTTP API and page use the same parameter names.

use std::ops::Range;

use proto::ThreadState;
use proto::v1::{FrameKind, Thread};
use rustc_hash::FxHashSet;
use serde::Serialize;

use super::error::{QueryError, VALUES};
use crate::dictionary::Dictionary;
use crate::session::Session;
use crate::session::thread::{kind_text, virtual_id, virtual_ids};
use crate::source::{Gap, Source};
use crate::text::pattern::matches;
use crate::text::units::duration_ns;

/// Maximum length of a parameter's value in bytes.
const VALUE_BYTES: usize = 1024;

const NS_PER_S: u64 = 1_000_000_000;

/// Ranges of at least this length are widened to whole minutes, because stores have sums by minute.
const WHOLE_MINUTES_NS: u64 = 600 * NS_PER_S;

/// A time, absolute or relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Nanoseconds since the epoch.
    At(u64),
    /// Nanoseconds before the last sample of a recording, or before now for a store.
    Before(u64),
}

/// A selection of samples. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    from: Option<Moment>,
    to: Option<Moment>,
    processes: Vec<String>,
    labels: Vec<String>,
    threads: Vec<String>,
    thread_kinds: Vec<String>,
    kinds: Vec<String>,
    states: Vec<String>,
    frames: Vec<String>,
    includes: Vec<String>,
    excludes: Vec<String>,
}

/// The absolute time range of a selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Nanoseconds since the epoch.
    pub from_ns: u64,
    /// Nanoseconds since the epoch, exclusive.
    pub to_ns: u64,
    /// Times in the range whose samples cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// True if samples with impossible times are left out, because no time was selected.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves_out_wrong_clocks: bool,
}

impl Span {
    /// Returns a warning for each gap, and one for samples with wrong times.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let wrong = self.leaves_out_wrong_clocks.then(|| {
            "samples of processes with a wrong clock are left out; name a time (--from, --to) to see them"
                .to_owned()
        });
        wrong.into_iter().chain(self.gaps.iter().map(|gap| {
            let (from_s, to_s) = (gap.from_ns / NS_PER_S, gap.to_ns / NS_PER_S);
            format!("samples of {} are missing, seconds {from_s} to {to_s}: the file is damaged", gap.path)
        }))
    }

    pub fn range_ns(&self) -> Range<u64> {
        self.from_ns..self.to_ns
    }
}

const MOMENT: &str = "seconds since the epoch, `now`, or a time back such as -90s, -15m, -2h, -7d";

impl Selection {
    /// Returns the selection of these names and values.
    ///
    /// # Errors
    /// If a name is unknown or a value not valid.
    pub fn of(pairs: &[(String, String)]) -> Result<Selection, QueryError> {
        let mut selection = Selection::default();
        for (name, value) in pairs {
            if !selection.set(name, value)? {
                return Err(QueryError::UnknownParameter(name.clone()));
            }
        }
        selection.check_time()?;
        Ok(selection)
    }

    /// Sets the parameter `name`. Returns false if it is not a parameter of selections.
    ///
    /// # Errors
    /// If the value is not valid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, QueryError> {
        let Some(&parameter) = PARAMETERS.iter().find(|known| **known == name) else { return Ok(false) };
        if value.is_empty() || value.len() > VALUE_BYTES {
            return Err(QueryError::BadValue { parameter, expected: "1 to 1024 bytes" });
        }
        let list = match parameter {
            "from" | "to" => {
                let moment = Some(moment(parameter, value)?);
                *(if parameter == "from" { &mut self.from } else { &mut self.to }) = moment;
                return Ok(true);
            }
            "label" => {
                let has_key =
                    value.split_once('=').is_some_and(|(key, text)| !key.is_empty() && !text.is_empty());
                require(
                    has_key,
                    parameter,
                    "KEY=VALUE; host, service, jvm, command and pid are known of each process",
                )?;
                &mut self.labels
            }
            "process" => &mut self.processes,
            "thread" => &mut self.threads,
            "thread_kind" => {
                let is_known = THREAD_KINDS.contains(&value);
                require(is_known, parameter, "java, virtual, compiler, gc, vm or native")?;
                &mut self.thread_kinds
            }
            "kind" => {
                let expected = "interpreted, c1, c2, inlined, native_method, stub, native, vm or marker";
                require(FRAME_KINDS.iter().any(|(name, _)| *name == value), parameter, expected)?;
                &mut self.kinds
            }
            "state" => {
                require(THREAD_STATES.contains(&value), parameter, "running or waiting")?;
                &mut self.states
            }
            "include" => &mut self.includes,
            "exclude" => &mut self.excludes,
            _ => &mut self.frames,
        };
        if list.len() >= VALUES {
            return Err(QueryError::TooMany(parameter));
        }
        list.push(value.to_owned());
        Ok(true)
    }

    /// Returns the range of time that is selected in `source` at `now_ns`.
    pub fn span(&self, source: &dyn Source, now_ns: u64) -> Span {
        let parts = source.parts();
        let ranges_in = |limits: &Range<u64>| -> Vec<Range<u64>> {
            parts.iter().map(|part| part.range_within(limits)).filter(|range| range.end > 0).collect()
        };
        let mut limits = source.plausible_ns(now_ns);
        let mut ranges = ranges_in(&limits);
        if ranges.is_empty() {
            // For example in a store of old recordings.
            limits = 0..u64::MAX;
            ranges = ranges_in(&limits);
        }
        let first_ns = ranges.iter().map(|range| range.start).min().unwrap_or(0);
        let last_ns = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        let now_ns = source.end_ns().unwrap_or(now_ns);
        let at = |moment| match moment {
            Moment::At(ns) => ns,
            Moment::Before(ns) => now_ns.saturating_sub(ns),
        };
        let from_ns = self.from.map_or(first_ns, at);
        // A clock that is years ahead must not extend the range by years.
        let end_ns = if self.from.is_some() { now_ns } else { last_ns };
        let to_ns = self.to.map_or(end_ns, at).max(from_ns);
        let is_outside = |range: Range<u64>| {
            self.from.is_none() && range.start < limits.start && range.end > 0
                || self.from.is_none() && self.to.is_none() && range.end > limits.end
        };
        let leaves_out_wrong_clocks = parts.iter().any(|part| is_outside(part.range_ns()));
        // Without a start time, the gap may have the earliest samples.
        let all_from_ns = if self.from.is_some() { from_ns } else { 0 };
        let mut gaps = source.gaps();
        gaps.retain(|gap| gap.from_ns < to_ns && all_from_ns < gap.to_ns);
        if to_ns - from_ns < WHOLE_MINUTES_NS {
            return Span { from_ns, to_ns, gaps, leaves_out_wrong_clocks };
        }
        let minute_ns = 60 * NS_PER_S;
        Span {
            from_ns: from_ns / minute_ns * minute_ns,
            to_ns: to_ns.div_ceil(minute_ns).saturating_mul(minute_ns),
            gaps,
            leaves_out_wrong_clocks,
        }
    }

    /// Returns the selected time, if relative times refer to `now_ns`; unlimited where no time is selected.
    pub fn limits_ns(&self, now_ns: u64) -> Range<u64> {
        let at = |moment| match moment {
            Moment::At(ns) => ns,
            Moment::Before(ns) => now_ns.saturating_sub(ns),
        };
        self.from.map_or(0, at)..self.to.map_or(u64::MAX, at)
    }

    /// Returns the selected processes, each by its id, its pid or its service.
    pub fn processes(&self) -> &[String] {
        &self.processes
    }

    /// Checks that the selected time is not empty, as far as that follows from the selection alone.
    ///
    /// # Errors
    /// [`QueryError::EmptyTime`].
    pub fn check_time(&self) -> Result<(), QueryError> {
        let is_empty = match (self.from, self.to) {
            (Some(Moment::At(from)), Some(Moment::At(to))) => from >= to,
            (Some(Moment::Before(from)), Some(Moment::Before(to))) => from <= to,
            _ => false,
        };
        if is_empty { Err(QueryError::EmptyTime) } else { Ok(()) }
    }

    /// Returns whether `session` overlaps `span`. Without a selected time every session does, even before its first
    /// sample.
    pub fn is_during(&self, session: &Session, span: &Span) -> bool {
        let has_time = self.from.is_some() || self.to.is_some();
        !has_time || session.first_ns < span.to_ns && session.last_ns >= span.from_ns
    }

    /// Returns whether the selection can exclude samples of a matching session.
    pub fn narrows_sessions(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.filters_threads() || self.filters_stacks()
    }

    /// Returns whether a session matches the selected processes and labels.
    pub fn matches_session(&self, id: u64, session: &Session) -> bool {
        let is_named = |text: &String| {
            *text == format!("{id:016x}")
                || *text == session.hello.pid.to_string()
                || text == session.service()
        };
        let has_label = |label: &String| match label.split_once('=').unwrap_or_default() {
            ("command", text) => session.hello.command.contains(text),
            (key @ ("host" | "service" | "jvm" | "pid"), text) => {
                session.label(key).is_some_and(|own| own == text)
            }
            _ if session.hello.labels.contains(label) => true,
            ("mode", text) => session.mode().name() == text,
            _ => false,
        };
        (self.processes.is_empty() || self.processes.iter().any(is_named))
            && self.labels.iter().all(has_label)
    }

    /// Returns the selected threads of a session, `None` for all. A virtual thread has a number for each of its
    /// carriers, but may have its name under only one of them; all of its numbers are selected together.
    pub fn matching_threads(&self, session: &Session) -> Option<FxHashSet<u32>> {
        if self.threads.is_empty() && self.thread_kinds.is_empty() {
            return None;
        }
        let has_name = |thread: &&Thread| self.threads.iter().any(|text| thread.name.contains(&**text));
        let named = virtual_ids(session.threads().filter(has_name));
        let is_match = |thread: &&Thread| {
            let is_named = |text: &String| {
                thread.name.contains(text.as_str())
                    || named.contains(&virtual_id(thread))
                    || (thread.tid != 0 && thread.tid.to_string() == *text)
            };
            let kind = kind_text(thread.kind());
            (self.threads.is_empty() || self.threads.iter().any(is_named))
                && (self.thread_kinds.is_empty() || self.thread_kinds.iter().any(|name| name == kind))
        };
        Some(session.threads().filter(is_match).map(|thread| thread.id).collect())
    }

    /// Returns whether processes or labels are selected.
    pub fn filters_sessions(&self) -> bool {
        !self.processes.is_empty() || !self.labels.is_empty()
    }

    pub fn filters_threads(&self) -> bool {
        !self.threads.is_empty() || !self.thread_kinds.is_empty()
    }

    /// Returns whether frames, kinds of frames or states are selected.
    pub fn filters_stacks(&self) -> bool {
        ![&self.kinds, &self.states, &self.frames, &self.includes, &self.excludes]
            .into_iter()
            .all(Vec::is_empty)
    }

    fn has_state(&self, root: &str) -> bool {
        let state = ThreadState::split(root).1.map(ThreadState::name);
        self.states.iter().any(|selected| Some(&**selected) == state)
    }

    /// Returns for each stack of `dictionary` whether it is selected.
    pub fn matching_stacks(&self, dictionary: &Dictionary) -> Vec<bool> {
        let kinds: Vec<u8> = FRAME_KINDS
            .iter()
            .filter(|(name, _)| self.kinds.iter().any(|kind| kind == name))
            .map(|&(_, kind)| kind as u8)
            .collect();
        let has_form = |patterns: &[String], text: &str| patterns.iter().any(|form| matches(form, text));
        let framed =
            below(dictionary, &self.frames, |text| self.frames.iter().all(|part| text.contains(part)));
        let included = below(dictionary, &self.includes, |text| has_form(&self.includes, text));
        let excluded = below(dictionary, &self.excludes, |text| has_form(&self.excludes, text));
        (0..dictionary.stack_count() as u32)
            .map(|stack| {
                let node = dictionary.stack(stack).node as usize;
                let leaf = dictionary.frame(dictionary.nodes()[node].frame);
                (kinds.is_empty() || kinds.contains(&leaf.kind))
                    && (self.states.is_empty()
                        || self.has_state(dictionary.string(dictionary.stack(stack).stop)))
                    && (self.frames.is_empty() || framed[node])
                    && (self.includes.is_empty() || included[node])
                    && (self.excludes.is_empty() || !excluded[node])
            })
            .collect()
    }
}

/// Returns for each node of `dictionary` whether its frame or that of a caller matches; empty if there are no texts.
fn below(dictionary: &Dictionary, texts: &[String], is_match: impl Fn(&str) -> bool) -> Vec<bool> {
    if texts.is_empty() {
        return Vec::new();
    }
    let frames = 0..dictionary.frame_count() as u32;
    let matching: Vec<bool> = frames.map(|frame| is_match(&dictionary.frame_text(frame))).collect();
    // A node matches if its caller does; callers come first.
    let mut on_path = Vec::with_capacity(dictionary.nodes().len());
    for node in dictionary.nodes() {
        let above = on_path.get(node.parent as usize).copied().unwrap_or(false);
        // The root has no frame.
        let own = !on_path.is_empty() && matching.get(node.frame as usize).copied().unwrap_or(false);
        on_path.push(above || own);
    }
    on_path
}

const PARAMETERS: [&str; 11] = [
    "from",
    "to",
    "process",
    "label",
    "thread",
    "thread_kind",
    "kind",
    "state",
    "frame",
    "include",
    "exclude",
];
/// States of threads in profiles of wall time, by their names.
pub const THREAD_STATES: [&str; 2] = ["running", "waiting"];
/// Kinds of threads by the names used in parameters and answers.
pub const THREAD_KINDS: [&str; 6] = ["java", "virtual", "compiler", "gc", "vm", "native"];

/// Kinds of frames by the names used in parameters and answers.
pub const FRAME_KINDS: [(&str, FrameKind); 10] = [
    ("interpreted", FrameKind::Interpreted),
    ("c1", FrameKind::C1),
    ("c2", FrameKind::C2),
    ("inlined", FrameKind::Inlined),
    ("native_method", FrameKind::NativeMethod),
    ("stub", FrameKind::Stub),
    ("native", FrameKind::Native),
    ("vm", FrameKind::Vm),
    ("marker", FrameKind::Marker),
    ("jvmci", FrameKind::Jvmci),
];

fn require(holds: bool, parameter: &'static str, expected: &'static str) -> Result<(), QueryError> {
    if holds { Ok(()) } else { Err(QueryError::BadValue { parameter, expected }) }
}

fn moment(parameter: &'static str, text: &str) -> Result<Moment, QueryError> {
    let bad = QueryError::BadValue { parameter, expected: MOMENT };
    if text == "now" {
        return Ok(Moment::Before(0));
    }
    if let Some(back) = text.strip_prefix('-') {
        return duration_ns(back).map(Moment::Before).ok_or(bad);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return Err(bad);
    }
    let seconds: u64 = whole.parse().map_err(|_| bad.clone())?;
    let ns: u64 = format!("{fraction:0<9}").parse().map_err(|_| bad.clone())?;
    seconds.checked_mul(NS_PER_S).and_then(|s| s.checked_add(ns)).map(Moment::At).ok_or(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (text, expected) in [
            ("now", Some(Moment::Before(0))),
            ("-90s", Some(Moment::Before(90 * NS_PER_S))),
            ("-2h", Some(Moment::Before(7200 * NS_PER_S))),
            ("1795219200", Some(Moment::At(1_795_219_200 * NS_PER_S))),
            ("1.5", Some(Moment::At(1_500_000_000))),
            ("-2", None),
            ("-", None),
            ("-9999999999999d", None),
            ("1e9", None),
            ("1.0000000001", None),
            ("-2µ", None),
        ] {
            assert_eq!(moment("from", text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn parameters_are_checked() {
        let mut selection = Selection::default();
        assert_eq!(selection.set("colour", "red"), Ok(false));
        assert_eq!(selection.set("kind", "c2"), Ok(true));
        assert!(selection.set("kind", "c3").is_err());
        assert!(selection.set("label", "colour").is_err() && selection.set("label", "colour=").is_err());
        assert!(selection.set("frame", "").is_err());
        assert!(selection.set("frame", &"x".repeat(1025)).is_err());
        for _ in 0..VALUES {
            assert_eq!(selection.set("process", "1"), Ok(true));
        }
        assert_eq!(selection.set("process", "1"), Err(QueryError::TooMany("process")));
    }
}
