//! Selections of samples by time, process, thread and stack. Options, HTTP API and page use the same parameter names.

use std::ops::Range;

use proto::ThreadState;
use proto::v1::{FrameKind, Thread};
use rustc_hash::FxHashSet;

use super::blocked::is_blocked;
use super::error::{QueryError, VALUES};
use super::modes::Modes;
pub use super::moment::FORMS as TIME_FORMS;
use super::moment::{Bounds, Limits, Moment, NS_PER_S};
use super::span::Span;
use crate::dictionary::Dictionary;
use crate::session::Session;
use crate::session::thread::{kind_text, virtual_id, virtual_ids};
use crate::session::warnings::incomplete;
use crate::source::{Extent, Source};
use crate::text::pattern::matches;

/// Maximum length of a parameter's value in bytes.
const VALUE_BYTES: usize = 1024;

/// Ranges of at least this length are widened to whole minutes, because stores have sums by minute.
const WHOLE_MINUTES_NS: u64 = 600 * NS_PER_S;

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
        let mut values = vec![value];
        let list = match parameter {
            "from" | "to" => {
                let bad = QueryError::BadValue { parameter, expected: TIME_FORMS };
                let moment = Some(Moment::of(value).ok_or(bad)?);
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
                let bad = QueryError::BadValue { parameter, expected: THREAD_KIND_FORMS };
                values = vec![thread_kind(value).ok_or(bad)?];
                &mut self.thread_kinds
            }
            "kind" => {
                let bad = QueryError::BadValue { parameter, expected: FRAME_KIND_FORMS };
                values = frame_kinds(value).ok_or(bad)?;
                &mut self.kinds
            }
            "state" => {
                let bad = QueryError::BadValue { parameter, expected: STATE_FORMS };
                let known = THREAD_STATES.into_iter().find(|state| value.eq_ignore_ascii_case(state));
                values = vec![known.ok_or(bad)?];
                &mut self.states
            }
            "include" => &mut self.includes,
            "exclude" => &mut self.excludes,
            _ => &mut self.frames,
        };
        if list.len() + values.len() > VALUES {
            return Err(QueryError::TooMany(parameter));
        }
        list.extend(values.into_iter().map(str::to_owned));
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
        let (source_end_ns, start_ns) = (source.end_ns(), source.start_ns().unwrap_or(first_ns));
        let now_ns = source_end_ns.unwrap_or(now_ns);
        let bounds = Bounds { start_ns: Some(start_ns), end_ns: now_ns, has_ended: source_end_ns.is_some() };
        let selected = Limits::of(self.from, self.to, bounds);
        let from_ns = selected.from_ns.unwrap_or(first_ns);
        // A clock that is years ahead must not extend the range by years.
        let end_ns = if self.from.is_some() { now_ns } else { last_ns };
        let to_ns = selected.to_ns.unwrap_or(end_ns).max(from_ns);
        let is_outside = |range: Range<u64>| {
            self.from.is_none() && range.start < limits.start && range.end > 0
                || self.from.is_none() && self.to.is_none() && range.end > limits.end
        };
        let leaves_out_wrong_clocks = parts.iter().any(|part| is_outside(part.range_ns()));
        // Without a start time, the gap may have the earliest samples.
        let all_from_ns = if self.from.is_some() { from_ns } else { 0 };
        let mut gaps = source.gaps();
        gaps.retain(|gap| gap.from_ns < to_ns && all_from_ns < gap.to_ns);
        let unit_ns = if to_ns - from_ns < WHOLE_MINUTES_NS { 1 } else { 60 * NS_PER_S };
        Span {
            from_ns: from_ns / unit_ns * unit_ns,
            to_ns: to_ns.div_ceil(unit_ns).saturating_mul(unit_ns),
            gaps,
            cut: source.cut().map(incomplete),
            leaves_out_wrong_clocks,
            modes: Modes::default(),
        }
    }

    /// Returns the range of time that is selected in `source` at `now_ns`, with the modes of the selected processes.
    /// Answers that sum samples use it.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn span_with_modes(&self, source: &dyn Source, now_ns: u64) -> Result<Span, QueryError> {
        let mut span = self.span(source, now_ns);
        let mut modes = Modes::default();
        // A session of many parts has one mode, so it is read once.
        let mut known: FxHashSet<u64> = FxHashSet::default();
        for part in source.parts().iter().filter(|part| !self.has_time() || part.overlaps(&span.range_ns())) {
            let mut more = Vec::new();
            part.sessions(Extent::Account, &|id| !known.contains(&id), &mut |id, session| {
                if self.is_during(session, &span) && self.matches_session(id, session) {
                    modes.insert(session.mode());
                    more.push(id);
                }
            })?;
            known.extend(more);
        }
        span.modes = modes;
        Ok(span)
    }

    /// Returns the selected time, if relative times refer to `now_ns`; unlimited where no time is selected.
    pub fn limits_ns(&self, now_ns: u64) -> Range<u64> {
        // Where a source is too large to be read, its start is unknown.
        let bounds = Bounds { start_ns: None, end_ns: now_ns, has_ended: false };
        let Limits { from_ns, to_ns } = Limits::of(self.from, self.to, bounds);
        from_ns.unwrap_or(0)..to_ns.unwrap_or(u64::MAX)
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
            (Some(Moment::After(from)), Some(Moment::After(to))) => from >= to,
            (Some(Moment::Before(from)), Some(Moment::Before(to))) => from <= to,
            (Some(Moment::Daily(from)), Some(Moment::Daily(to))) => from == to,
            _ => false,
        };
        if is_empty { Err(QueryError::EmptyTime) } else { Ok(()) }
    }

    /// Returns whether `session` overlaps `span`. Without a selected time every session does, even before its first
    /// sample.
    pub fn is_during(&self, session: &Session, span: &Span) -> bool {
        !self.has_time() || session.first_ns < span.to_ns && session.last_ns >= span.from_ns
    }

    fn has_time(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Returns whether the selection can exclude samples of a matching session.
    pub fn narrows_sessions(&self) -> bool {
        self.has_time() || self.filters_threads() || self.filters_stacks()
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

    fn has_state(&self, dictionary: &Dictionary, stack: u32) -> bool {
        let state = ThreadState::split(dictionary.string(dictionary.stack(stack).stop)).1;
        self.states.iter().any(|selected| match &**selected {
            BLOCKED => state == Some(ThreadState::Waiting) && is_blocked(dictionary, &dictionary.path(stack)),
            selected => state.is_some_and(|state| state.name() == selected),
        })
    }

    /// Returns the error of a selection that matches nothing, with the probable cause.
    pub fn no_samples(&self) -> QueryError {
        let whole = self.includes.iter().find(|pattern| !pattern.contains('*'));
        let part = self.frames.iter().find(|text| text.contains('*'));
        match (whole, part) {
            (Some(pattern), _) => QueryError::NoWholeFrame(pattern.clone()),
            (None, Some(text)) => QueryError::NoPartOfFrame(text.clone()),
            (None, None) => QueryError::NoSamples,
        }
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
                    && (self.states.is_empty() || self.has_state(dictionary, stack))
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
pub const THREAD_STATES: [&str; 3] = ["running", "waiting", BLOCKED];
/// The state of a thread that waits for a monitor.
const BLOCKED: &str = "blocked";
/// Kinds of threads by the names used in parameters and answers.
pub const THREAD_KINDS: [&str; 6] = ["java", "virtual", "compiler", "gc", "vm", "native"];

/// The accepted words for kinds of threads, for messages.
pub const THREAD_KIND_FORMS: &str = "java, virtual, compiler (JIT), gc, vm (JVM) or native (native code)";
/// The accepted words for kinds of frames, for messages.
pub const FRAME_KIND_FORMS: &str = "interpreted, c1, c2, jvmci, inlined, native_method, stub, native, vm (JVM), marker, \
                                    java for all Java code, or 'native code': that of the newest frame; JIT and GC are kinds \
                                    of threads (thread_kind)";
/// The accepted states, for messages.
pub const STATE_FORMS: &str =
    "running, waiting, or blocked, which is a part of waiting; only profiles of wall time have states";

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

/// Frames of Java code.
pub(super) const JAVA: [FrameKind; 6] = [
    FrameKind::Interpreted,
    FrameKind::C1,
    FrameKind::C2,
    FrameKind::Jvmci,
    FrameKind::Inlined,
    FrameKind::Stub,
];
/// Frames of native code.
pub(super) const NATIVE: [FrameKind; 2] = [FrameKind::Native, FrameKind::NativeMethod];

/// Returns the kind of threads that a word stands for, also if it is that of a report.
fn thread_kind(word: &str) -> Option<&'static str> {
    let kind = match &*word.to_ascii_lowercase() {
        "jit" | "jit compiler" => "compiler",
        "jvm" => "vm",
        "native code" => "native",
        _ => return THREAD_KINDS.into_iter().find(|kind| word.eq_ignore_ascii_case(kind)),
    };
    Some(kind)
}

/// Returns the kinds of frames that a word stands for, also if it is that of a report.
fn frame_kinds(word: &str) -> Option<Vec<&'static str>> {
    let word = word.to_ascii_lowercase();
    let is_meant = |name: &str, kind: FrameKind| match &*word {
        "java" => JAVA.contains(&kind),
        "native code" => NATIVE.contains(&kind),
        "jvm" => kind == FrameKind::Vm,
        word => word == name,
    };
    let kinds = FRAME_KINDS.into_iter().filter(|&(name, kind)| is_meant(name, kind));
    let names: Vec<&str> = kinds.map(|(name, _)| name).collect();
    (!names.is_empty()).then_some(names)
}

fn require(holds: bool, parameter: &'static str, expected: &'static str) -> Result<(), QueryError> {
    if holds { Ok(()) } else { Err(QueryError::BadValue { parameter, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked() {
        let mut selection = Selection::default();
        assert_eq!(selection.set("colour", "red"), Ok(false));
        assert_eq!(selection.set("kind", "c2"), Ok(true));
        assert!(selection.set("kind", "c3").is_err());
        for (name, value, is_known) in [
            ("thread_kind", "GC", true),
            ("thread_kind", "Java", true),
            ("thread_kind", "JIT", true),
            ("thread_kind", "JIT compiler", true),
            ("thread_kind", "native code", true),
            ("thread_kind", "C2", false),
            ("kind", "Java", true),
            ("kind", "native code", true),
            ("kind", "JVM", true),
            ("kind", "C2", true),
            ("kind", "GC", false),
            ("state", "Blocked", true),
            ("state", "runnable", false),
        ] {
            assert_eq!(Selection::default().set(name, value).is_ok(), is_known, "{name}={value}");
        }
        for (forms, words) in [
            (THREAD_KIND_FORMS, THREAD_KINDS.to_vec()),
            (FRAME_KIND_FORMS, FRAME_KINDS.map(|(name, _)| name).to_vec()),
            (STATE_FORMS, THREAD_STATES.to_vec()),
        ] {
            assert!(words.iter().all(|word| forms.contains(word)), "{forms}");
        }
        assert!(selection.set("label", "colour").is_err() && selection.set("label", "colour=").is_err());
        assert!(selection.set("frame", "").is_err());
        assert!(selection.set("frame", &"x".repeat(1025)).is_err());
        for _ in 0..VALUES {
            assert_eq!(selection.set("process", "1"), Ok(true));
        }
        assert_eq!(selection.set("process", "1"), Err(QueryError::TooMany("process")));
    }
}
