//! Sources of samples: a recording in memory, or a store.
//!
//! A source consists of parts, each with its own dictionary: a recording has one, a store one for each partition.
//! Queries visit the parts one after the other and merge the results by name.

pub mod deadline;
pub mod recording;

use std::ops::Range;
use std::sync::Arc;

use proto::framing::FramingError;

use crate::dictionary::Dictionary;
use crate::session::Session;

/// Why a source cannot be read, as text of the source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub String);

/// One sample, or several samples that the agent merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub session: u64,
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    pub thread: u32,
    /// Stack number in the part's dictionary.
    pub stack: u32,
    /// CPU time that it represents.
    pub cpu_ns: u64,
    /// Number of samples merged into it.
    pub count: u32,
}

impl Sample {
    /// Returns its CPU time and number of samples.
    pub fn sum(&self) -> Sum {
        Sum { cpu_ns: self.cpu_ns, samples: self.count.into() }
    }
}

/// Returns the whole minutes from the one of `first_ns` to the one of `last_ns`.
pub fn whole_minutes(first_ns: u64, last_ns: u64) -> Range<u64> {
    const MINUTE_NS: u64 = 60_000_000_000;
    first_ns / MINUTE_NS * MINUTE_NS..(last_ns / MINUTE_NS).saturating_add(1).saturating_mul(MINUTE_NS)
}

/// Returns the whole minutes that contain all samples.
pub fn minutes_of(samples: &[Sample]) -> Range<u64> {
    let times = || samples.iter().map(|sample| sample.time_ns);
    times().min().zip(times().max()).map_or(0..0, |(first_ns, last_ns)| whole_minutes(first_ns, last_ns))
}

/// A number of samples and their CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// CPU time that the samples represent.
    pub cpu_ns: u64,
    /// Number of samples.
    pub samples: u64,
}

impl Sum {
    /// Adds `other`. Sums saturate, because agents may send any number.
    pub fn add(&mut self, other: Sum) {
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// A time whose samples cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Gap {
    /// File with the samples.
    pub path: String,
    /// Nanoseconds since the epoch.
    pub from_ns: u64,
    /// Nanoseconds since the epoch, exclusive.
    pub to_ns: u64,
}

/// A range of time and a set of sessions to read.
#[derive(Clone)]
pub struct Scope<'s> {
    /// Half-open range in nanoseconds since the epoch.
    pub range_ns: Range<u64>,
    pub sessions: &'s dyn Fn(u64) -> bool,
}

/// The part of a source that a question is about.
#[derive(Clone)]
pub struct Wanted<'q> {
    /// Half-open ranges of nanoseconds since the epoch.
    pub ranges_ns: &'q [Range<u64>],
    /// Selected processes, each by its id, its pid or its service; empty if no process was selected.
    pub processes: &'q [String],
    /// Returns whether a session is selected; `None` for all sessions.
    pub sessions: Option<&'q IsSelected<'q>>,
    /// False if the question is about sessions and their accounts only, so that no sample has to be read.
    pub has_samples: bool,
    /// Returns whether the answer is no longer needed.
    pub is_over: &'q dyn Fn() -> bool,
}

/// Returns whether a session, given with its id, is selected.
pub type IsSelected<'q> = dyn Fn(u64, &Session) -> bool + 'q;

/// A source that threads can share.
pub type SharedSource = Arc<dyn Source + Send + Sync>;

/// Detail of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// By thread where that is stored, else by group of threads.
    Apart,
    /// By group of threads, which allows reading coarse levels.
    Together,
}

/// Part of a session that is read. A source that has all of it in memory passes all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The introduction and the account of the process.
    Account,
    /// Also the threads and their accounts.
    Threads,
}

/// The kind of rows that are read.
#[derive(Clone, Copy)]
pub enum Kind<'s> {
    Stacks,
    /// Sums by thread and stack, of the threads (session and number) for which the function holds.
    ThreadStacks(&'s dyn Fn(u64, u32) -> bool),
    /// CPU time by thread and time.
    Times(Threads),
    /// The single samples that are kept.
    Samples,
}

/// A row that is read. Any kind can have samples, which are not summed up yet; they are of all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    Sample(Sample),
    Stack { session: u64, stack: u32, sum: Sum },
    ThreadStack { session: u64, thread: u32, stack: u32, sum: Sum },
    Time { session: u64, thread: u32, cell_s: Range<u64>, cpu_ns: u64 },
}

/// Samples with one dictionary. `visit` can receive a key several times and must be quick, because a store may hold a
/// lock during the call.
///
/// # Errors
/// Methods fail if the source cannot be read.
pub trait Part {
    /// Returns the time from the first sample to the last, in whole minutes, as nanoseconds since the epoch; 0 to 0 if
    /// empty.
    fn range_ns(&self) -> Range<u64>;

    /// Returns whether single samples are kept for the whole range.
    fn has_samples(&self) -> bool;

    /// Calls `read` once with the dictionary; `read` must not call this method.
    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError>;

    /// Visits the sessions for which `is_selected` holds, in the order of their ids.
    fn sessions(
        &self,
        extent: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError>;

    /// Visits the rows of `kind`.
    fn read(&self, scope: &Scope<'_>, kind: Kind<'_>, visit: &mut dyn FnMut(Row)) -> Result<(), ReadError>;

    /// Visits CPU time by session and stack.
    fn stacks(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(u64, u32, Sum)) -> Result<(), ReadError> {
        self.read(scope, Kind::Stacks, &mut |row| match row {
            Row::Sample(sample) => visit(sample.session, sample.stack, sample.sum()),
            Row::Stack { session, stack, sum } => visit(session, stack, sum),
            Row::ThreadStack { .. } | Row::Time { .. } => {}
        })
    }

    /// Visits CPU time by session, thread and stack, of the threads for which `is_selected` holds.
    fn thread_stacks(
        &self,
        scope: &Scope<'_>,
        is_selected: &dyn Fn(u64, u32) -> bool,
        visit: &mut dyn FnMut(u64, u32, u32, Sum),
    ) -> Result<(), ReadError> {
        self.read(scope, Kind::ThreadStacks(is_selected), &mut |row| match row {
            Row::Sample(sample) if is_selected(sample.session, sample.thread) => {
                visit(sample.session, sample.thread, sample.stack, sample.sum());
            }
            Row::ThreadStack { session, thread, stack, sum } => visit(session, thread, stack, sum),
            Row::Sample(_) | Row::Stack { .. } | Row::Time { .. } => {}
        })
    }

    /// Visits CPU time by session, thread and time: seconds since the epoch, a second or more.
    fn times(
        &self,
        scope: &Scope<'_>,
        threads: Threads,
        visit: &mut dyn FnMut(u64, u32, Range<u64>, u64),
    ) -> Result<(), ReadError> {
        self.read(scope, Kind::Times(threads), &mut |row| match row {
            Row::Sample(sample) => {
                let second = sample.time_ns / 1_000_000_000;
                visit(sample.session, sample.thread, second..second + 1, sample.cpu_ns);
            }
            Row::Time { session, thread, cell_s, cpu_ns } => visit(session, thread, cell_s, cpu_ns),
            Row::Stack { .. } | Row::ThreadStack { .. } => {}
        })
    }

    /// Visits the single samples that are kept.
    fn samples(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(Sample)) -> Result<(), ReadError> {
        self.read(scope, Kind::Samples, &mut |row| {
            if let Row::Sample(sample) = row {
                visit(sample);
            }
        })
    }

    /// Returns the time from the first sample in `limits` to the last one there, as [`range_ns`](Self::range_ns).
    fn range_within(&self, limits: &Range<u64>) -> Range<u64> {
        let own = self.range_ns();
        let range = own.start.max(limits.start)..own.end.min(limits.end);
        if range.is_empty() { 0..0 } else { range }
    }

    /// Returns whether samples may exist in this range of nanoseconds since the epoch.
    fn overlaps(&self, range_ns: &Range<u64>) -> bool {
        let own = self.range_ns();
        own.start < range_ns.end && range_ns.start < own.end
    }
}

/// A recording or a store.
pub trait Source {
    /// Returns the parts, oldest first.
    fn parts(&self) -> Vec<Box<dyn Part + '_>>;

    /// Returns the time after the last sample, to which relative times refer, if the source gets no further samples.
    fn end_ns(&self) -> Option<u64>;

    /// Returns the time at which the earliest session began, if it is known without reading; else relative times refer
    /// to the first minute with samples.
    fn start_ns(&self) -> Option<u64> {
        None
    }

    /// Returns the times that samples can be from, if clocks are right; others are shown on demand only.
    fn plausible_ns(&self, _now_ns: u64) -> Range<u64> {
        0..u64::MAX
    }

    /// Returns why reading stopped before the last byte; `None` if every byte was read.
    fn cut(&self) -> Option<FramingError>;

    /// Returns the text of the source file with this path below the root of a source tree, such as
    /// `java/util/HashMap.java`; `None` if it is not available.
    fn source_text(&self, _file: &str) -> Option<String> {
        None
    }

    /// Returns the time that the page shows if none is chosen, such as `-1h`, for a source that is too
    /// large to be shown as a whole.
    fn usual_time(&self) -> Option<&'static str> {
        None
    }

    /// Reads what a question is about, if this source is too large to be read as a whole; `None` if this source can be
    /// asked itself.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn read_part(&self, _wanted: &Wanted<'_>) -> Result<Option<SharedSource>, ReadError> {
        Ok(None)
    }

    /// Returns the times whose samples cannot be read; a failed question may add one.
    fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }
}

/// Calls `read` with the dictionary of `part` and returns its result.
///
/// # Errors
/// If the source cannot be read.
pub fn with_dictionary<R>(part: &dyn Part, read: impl FnOnce(&Dictionary) -> R) -> Result<R, ReadError> {
    let (mut read, mut result) = (Some(read), None);
    part.dictionary(&mut |dictionary| result = read.take().map(|read| read(dictionary)))?;
    result.ok_or_else(|| ReadError("the dictionary is missing".to_owned()))
}
