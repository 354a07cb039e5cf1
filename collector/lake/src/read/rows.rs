//! Samples that were read, in the form in which queries read them.

use profile::source::Sample;
use proto::v1::{Thread, ThreadKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::times::Times;
use crate::table::samples::{SampleRow, Samples};
use crate::write::interval::Received;

/// The sessions and times whose rows are kept.
#[derive(Debug)]
pub struct Kept {
    /// Ids of sessions.
    pub sessions: FxHashSet<u64>,
    /// Times.
    pub times: Times,
}

/// A thread's session and its number there.
type Key = (u64, u32);

/// Samples with the threads and stacks that they refer to.
#[derive(Debug, Default)]
pub struct Rows {
    /// The samples. The stack of a sample is one more than its place in `stacks`, 0 if it is not known.
    pub samples: Vec<Received>,
    /// Ids of stacks.
    pub stacks: Vec<i64>,
    /// Places of stacks, by their ids.
    places: FxHashMap<i64, u32>,
    /// Threads.
    pub threads: FxHashMap<Key, Thread>,
}

impl Rows {
    /// Returns the rows of `samples` that are kept.
    pub fn of(samples: &Samples, kept: &Kept, unknown_stop: u32) -> Rows {
        let mut rows = Rows::default();
        let mut sessions: FxHashMap<u32, Option<u64>> = FxHashMap::default();
        for row in &samples.rows {
            let session = *sessions.entry(row.session).or_insert_with(|| {
                let id = u64::from_str_radix(&samples.texts.string(row.session), 16).ok();
                id.filter(|id| kept.sessions.contains(id))
            });
            let Some(session) = session.filter(|_| kept.times.contains(row.time_us)) else { continue };
            let thread = row.thread_number.cast_unsigned();
            rows.threads.entry((session, thread)).or_insert_with(|| thread_of(samples, row));
            let stack = if row.stop == unknown_stop { 0 } else { rows.number(row.stack) };
            rows.samples.push(Received {
                sample: Sample {
                    session,
                    time_ns: row.time_us.cast_unsigned().saturating_mul(1000),
                    thread,
                    stack,
                    cpu_ns: row.cpu_ns.cast_unsigned(),
                    count: u32::try_from(row.samples).unwrap_or(u32::MAX),
                },
                sequence: row.sequence.cast_unsigned(),
                row: row.row.cast_unsigned(),
            });
        }
        rows
    }

    /// Returns the number of a stack for samples.
    fn number(&mut self, id: i64) -> u32 {
        *self.places.entry(id).or_insert_with(|| {
            self.stacks.push(id);
            self.stacks.len() as u32
        })
    }

    /// Adds the rows of `other`.
    pub fn append(&mut self, mut other: Rows) {
        let numbers: Vec<u32> = other.stacks.iter().map(|&id| self.number(id)).collect();
        for Received { sample, .. } in &mut other.samples {
            sample.stack = sample.stack.checked_sub(1).map_or(0, |place| numbers[place as usize]);
        }
        self.samples.append(&mut other.samples);
        for (key, thread) in other.threads {
            self.threads.entry(key).or_insert(thread);
        }
    }

    /// Drops samples that are there twice and returns their number; of each two, one with a known stack remains.
    pub fn drop_doubles(&mut self) -> u64 {
        let identity = |one: &Received| (one.sample.session, one.sequence, one.row);
        let before = self.samples.len();
        self.samples.sort_unstable_by_key(|one| (identity(one), one.sample.stack == 0));
        self.samples.dedup_by_key(|one| identity(one));
        (before - self.samples.len()) as u64
    }
}

fn thread_of(samples: &Samples, row: &SampleRow) -> Thread {
    Thread {
        id: row.thread_number.cast_unsigned(),
        tid: u32::try_from(row.thread_id).unwrap_or(0),
        name: samples.texts.string(row.thread),
        kind: kind_of(&samples.texts.string(row.thread_kind)).into(),
        java_id: row.virtual_thread,
        carrier: row.carrier.cast_unsigned(),
    }
}

/// Returns a kind of threads by its name.
fn kind_of(text: &str) -> ThreadKind {
    use profile::session::thread::kind_text;
    let kinds = (0..).map_while(|number| ThreadKind::try_from(number).ok());
    // `native` stands for unknown kinds as well.
    kinds
        .filter(|kind| *kind != ThreadKind::Unspecified)
        .find(|kind| kind_text(*kind) == text)
        .unwrap_or_default()
}
