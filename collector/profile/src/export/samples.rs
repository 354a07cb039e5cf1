//! Samples one by one, in the order they were taken, and the choice among them.
//!
//! Problem: a [`Profile`](crate::Profile) sums samples up and forgets their times, which formats with a
//! time axis need, and a long recording has more samples than should be in memory at once.
//! Approach: exports read the recording twice, first into a profile for its dictionaries, then as this stream.
//! Invariant: without a [`Selection`], the stream holds exactly the samples that the profile sums up.

use std::io::Read;

use proto::rows::rows;
use proto::v1::{AgentMessage, SampleBatch, Thread, agent_message::Body};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::recording::RecordingReader;
use crate::{Cell, Profile, virtual_id, virtual_ids};

/// Bit of [`proto::v1::SampleBatch::flags`]: the stack could not be walked.
const WALK_FAILED: u32 = 2;

/// One sample, or several that the agent merged while its collector was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken, ns since the epoch.
    pub time_ns: u64,
    /// Number of the thread in the session ([`proto::v1::Thread::id`]).
    pub thread: u32,
    /// Id of the stack ([`crate::profile::Stack::id`]).
    pub stack: u64,
    /// CPU time it stands for.
    pub cpu_ns: u64,
    /// Samples taken: 1, unless it was merged.
    pub samples: u64,
    /// Whether the stack could not be walked.
    pub failed: bool,
}

/// Which samples are wanted; all, unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Numbers of threads; `None` for all.
    threads: Option<FxHashSet<u32>>,
    /// First instant, ns since the epoch.
    from_ns: u64,
    /// Instant after the last, ns since the epoch; `None` for no end.
    to_ns: Option<u64>,
}

impl Selection {
    /// The samples from `from_ns` to before `to_ns`, both relative to the start of the session of `profile`.
    #[must_use]
    pub fn during(mut self, profile: &Profile, from_ns: Option<u64>, to_ns: Option<u64>) -> Self {
        let start = profile.hello().wall_clock_ns;
        // Threads may have been sampled before the agent read the clock for its Hello message.
        self.from_ns = from_ns.map_or(0, |from| start.saturating_add(from));
        self.to_ns = to_ns.map(|to| start.saturating_add(to));
        self
    }

    /// The samples of threads whose name contains `text`.
    ///
    /// Returns `None` if there is no such thread.
    #[must_use]
    pub fn of_threads(mut self, profile: &Profile, text: &str) -> Option<Self> {
        let ids = profile.thread_ids();
        let known = || ids.iter().filter_map(|&id| profile.thread(id));
        // A virtual thread has a number for each carrier, and its name may have been told with one of them only.
        let carried = virtual_ids(known().filter(|thread| thread.name.contains(text)));
        let is_named = |thread: &&Thread| thread.name.contains(text) || carried.contains(&virtual_id(thread));
        let threads: FxHashSet<u32> = known().filter(is_named).map(|thread| thread.id).collect();
        if threads.is_empty() {
            return None;
        }
        self.threads = Some(threads);
        Some(self)
    }

    /// Whether every sample is wanted.
    pub fn is_all(&self) -> bool {
        self.threads.is_none() && self.from_ns == 0 && self.to_ns.is_none()
    }

    /// Whether `sample` is wanted.
    pub fn includes(&self, sample: &Sample) -> bool {
        sample.time_ns >= self.from_ns
            && self.to_ns.is_none_or(|to| sample.time_ns < to)
            && self.threads.as_ref().is_none_or(|threads| threads.contains(&sample.thread))
    }
}

/// The samples of a recording.
#[derive(Debug)]
pub struct Samples<R> {
    reader: RecordingReader<R>,
    clock: Clock,
    last_sequence: u64,
    batch: std::vec::IntoIter<Sample>,
}

impl<R: Read> Samples<R> {
    /// The samples in what `reader` has not read yet.
    pub fn new(reader: RecordingReader<R>) -> Self {
        let hello = reader.hello();
        let clock = Clock { wall_clock_ns: hello.wall_clock_ns, monotonic_ns: hello.monotonic_ns };
        Samples { reader, clock, last_sequence: 0, batch: Vec::new().into_iter() }
    }

    fn next_batch(&mut self) -> Option<()> {
        loop {
            let AgentMessage { sequence, body } = self.reader.next()?;
            // As in the profile, a message that was repeated after a reconnect counts once.
            if sequence <= self.last_sequence {
                continue;
            }
            self.last_sequence = sequence;
            if let Some(Body::Samples(batch)) = body {
                self.batch = samples_of(&batch, self.clock).into_iter();
                return Some(());
            }
        }
    }
}

impl<R: Read> Iterator for Samples<R> {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        loop {
            if let Some(sample) = self.batch.next() {
                return Some(sample);
            }
            self.next_batch()?;
        }
    }
}

/// What turns times of samples into times of the day.
#[derive(Clone, Copy, Debug)]
struct Clock {
    wall_clock_ns: u64,
    monotonic_ns: u64,
}

impl Clock {
    fn wall_ns(self, monotonic_ns: u64) -> u64 {
        // Both ways, for a sample may be older than the Hello message.
        self.wall_clock_ns.wrapping_add(monotonic_ns.wrapping_sub(self.monotonic_ns))
    }
}

/// The rows that the columns for thread, stack and CPU time all have; a missing time is that of the row before.
fn samples_of(batch: &SampleBatch, clock: Clock) -> Vec<Sample> {
    rows(batch)
        .map(|row| Sample {
            time_ns: clock.wall_ns(row.time_ns),
            thread: row.thread,
            stack: row.stack.into(),
            cpu_ns: row.cpu_ns,
            samples: row.count,
            failed: row.flags & WALK_FAILED != 0,
        })
        .collect()
}

/// Samples summed up by thread and stack, in ascending order of both.
pub fn summed(samples: impl IntoIterator<Item = Sample>) -> Vec<(u32, u64, Cell)> {
    let mut cells: FxHashMap<(u32, u64), Cell> = Default::default();
    for sample in samples {
        let cell = cells.entry((sample.thread, sample.stack)).or_default();
        cell.cpu_ns = cell.cpu_ns.saturating_add(sample.cpu_ns);
        cell.samples = cell.samples.saturating_add(sample.samples);
    }
    let mut cells: Vec<_> = cells.into_iter().map(|((thread, stack), cell)| (thread, stack, cell)).collect();
    cells.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
    cells
}
