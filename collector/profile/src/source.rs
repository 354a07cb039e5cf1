//! What samples are read from: a recording in memory, or a store.
//!
//! A source consists of parts, each with its own dictionary: a recording has one, a store one for each partition.
//! Queries visit the parts one after the other and merge what they find by names.

use std::fmt;
use std::ops::Range;

use proto::framing::FramingError;

use crate::cell::Cell;
use crate::dictionary::Dictionary;
use crate::session::Session;

/// Why a source cannot be read, in the words of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError(pub String);

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

/// One sample, or several that were merged before they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Session it belongs to.
    pub session: u64,
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// Thread number.
    pub thread: u32,
    /// Stack number in the part's dictionary.
    pub stack: u32,
    /// CPU time it stands for.
    pub cpu_ns: u64,
    /// Samples merged into it.
    pub count: u32,
}

impl Sample {
    /// What the sample adds to a sum.
    pub fn cell(&self) -> Cell {
        Cell { cpu_ns: self.cpu_ns, samples: self.count.into() }
    }
}

/// What is read: a range of time, half open, in nanoseconds since the epoch, and sessions.
#[derive(Clone)]
pub struct Scope<'s> {
    /// The time.
    pub range_ns: Range<u64>,
    /// Returns whether a session is read.
    pub sessions: &'s dyn Fn(u64) -> bool,
}

/// How far sums distinguish threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// By thread where that is still known, else by group of threads.
    Apart,
    /// By group of threads, so that coarse levels can be used.
    Together,
}

/// How much of a session is read; a source that has all of it in memory passes all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Its introduction and the account of the process.
    Account,
    /// Its threads and their accounts as well.
    Threads,
}

/// Samples with one dictionary. Each `visit` can get a key several times, and has to be quick: a store may keep others
/// waiting meanwhile.
pub trait Part {
    /// Time from the first sample to the last, in whole minutes; nanoseconds since the epoch, 0 to 0 if there is none.
    fn range_ns(&self) -> Range<u64>;

    /// Whether single samples are kept for all its time.
    fn has_samples(&self) -> bool;

    /// Calls `read` once with the dictionary; `read` must not ask for another one.
    ///
    /// # Errors
    /// If the source cannot be read, here and below.
    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError>;

    /// Visits the sessions for which `is_selected` holds, in the order of their ids.
    ///
    /// # Errors
    /// As above.
    fn sessions(
        &self,
        extent: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError>;

    /// Visits CPU time by session and stack.
    ///
    /// # Errors
    /// As above.
    fn stacks(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(u64, u32, Cell)) -> Result<(), ReadError>;

    /// Visits CPU time by session, thread and stack, of the threads for which `is_selected` holds.
    ///
    /// # Errors
    /// As above.
    fn thread_stacks(
        &self,
        scope: &Scope<'_>,
        is_selected: &dyn Fn(u64, u32) -> bool,
        visit: &mut dyn FnMut(u64, u32, u32, Cell),
    ) -> Result<(), ReadError>;

    /// Visits CPU time by session, thread and time: seconds since the epoch, a second or more.
    ///
    /// # Errors
    /// As above.
    fn times(
        &self,
        scope: &Scope<'_>,
        threads: Threads,
        visit: &mut dyn FnMut(u64, u32, Range<u64>, u64),
    ) -> Result<(), ReadError>;

    /// Visits single samples, as far as they are kept.
    ///
    /// # Errors
    /// As above.
    fn samples(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(Sample)) -> Result<(), ReadError>;

    /// Whether there may be samples in this range of time, in nanoseconds since the epoch.
    fn overlaps(&self, range_ns: &Range<u64>) -> bool {
        let own = self.range_ns();
        own.start < range_ns.end && range_ns.start < own.end
    }
}

/// A recording or a store.
pub trait Source {
    /// The parts, oldest first.
    fn parts(&self) -> Vec<Box<dyn Part + '_>>;

    /// Whether time has ended for this source, so that times are relative to its last sample.
    fn has_ended(&self) -> bool;

    /// Why the source ends before its last byte, `None` if it does not.
    fn cut(&self) -> Option<FramingError>;
}

/// Returns what `read` makes of the dictionary of `part`.
///
/// # Errors
/// If the source cannot be read.
pub fn with_dictionary<R>(part: &dyn Part, read: impl FnOnce(&Dictionary) -> R) -> Result<R, ReadError> {
    let (mut read, mut result) = (Some(read), None);
    part.dictionary(&mut |dictionary| result = read.take().map(|read| read(dictionary)))?;
    result.ok_or_else(|| ReadError("the dictionary is missing".to_owned()))
}
