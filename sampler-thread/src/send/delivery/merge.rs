//! Merges samples in the backlog: sums by (time, thread, stack), coarser in time the more there are.
//!
//! Problem: an hour without the collector must take bounded memory and lose no CPU time.
//! Approach: the times of rows are rounded to a resolution that doubles whenever there are too many rows. At the
//! coarsest, stacks are given up, which leaves one row for each thread; [`super::threads`] limits the number of
//! threads.
//! Invariant: sums of CPU time and of counts stay the same.

use std::hash::BuildHasherDefault;

use proto::rows::rows;
use proto::v1::SampleBatch;
use rustc_hash::FxHasher;

use crate::send::batch::{Batch, Sample};

/// Most rows; each takes about 100 bytes with the spare capacity of the map.
const MAX_ROWS: usize = 100_000;
/// Finest resolution, that of the collector.
const FINEST_NS: u64 = 1_000_000_000;
/// Coarsest resolution before stacks are given up.
const COARSEST_NS: u64 = FINEST_NS << 12;
/// Most rows of one message.
const ROWS_PER_MESSAGE: usize = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    bucket: u64,
    thread: u32,
    stack: u64,
    flags: u32,
}

#[derive(Clone, Copy, Default)]
struct Row {
    last_ns: u64,
    cpu_ns: u64,
    count: u64,
}

type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;
type Rows = Map<Key, Row>;

pub struct Merged {
    rows: Rows,
    max_rows: usize,
    /// Number of rows beyond which they are merged further: `max_rows`, or more if that had no effect.
    fold_threshold: usize,
    resolution_ns: u64,
    /// Stack of rows whose stacks were given up.
    merged_stack: u64,
    unnamed_ns: u64,
    merged: u64,
    coarsest_ns: u64,
}

impl Merged {
    /// No rows; `merged_stack` is the id of the stack for rows whose stacks were given up.
    pub fn new(merged_stack: u64) -> Self {
        Self::with_rows(merged_stack, MAX_ROWS)
    }

    fn with_rows(merged_stack: u64, max_rows: usize) -> Self {
        Self {
            rows: Rows::default(),
            max_rows,
            fold_threshold: max_rows,
            resolution_ns: FINEST_NS,
            merged_stack,
            unnamed_ns: 0,
            merged: 0,
            coarsest_ns: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the number of samples merged so far.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Returns the coarsest resolution so far, in nanoseconds; 0 before the first merge.
    pub fn coarsest_ns(&self) -> u64 {
        self.coarsest_ns
    }

    /// Returns the CPU time whose stacks were given up, in nanoseconds.
    pub fn unnamed_ns(&self) -> u64 {
        self.unnamed_ns
    }

    /// Adds the rows of a batch.
    ///
    /// `is_known` is whether a stack's entry was or will be sent; `id` returns the id under which a thread's rows are
    /// kept.
    pub fn add(&mut self, batch: &SampleBatch, is_known: impl Fn(u64) -> bool, id: impl Fn(u32) -> u32) {
        for sample in rows(batch) {
            let count = sample.count;
            let stack = sample.stack.into();
            let stack = if is_known(stack) { stack } else { self.merged_stack };
            if stack == self.merged_stack {
                self.unnamed_ns += sample.cpu_ns;
            }
            self.merged += count;
            let row = Row { last_ns: sample.time_ns, cpu_ns: sample.cpu_ns, count };
            let key = Key { bucket: 0, thread: id(sample.thread), stack, flags: sample.flags };
            insert(&mut self.rows, key, row, self.resolution_ns);
            while self.rows.len() > self.fold_threshold && self.coarsen() {}
        }
        self.coarsest_ns = self.coarsest_ns.max(self.resolution_ns);
    }

    /// Merges rows further; returns false if no resolution is left to give up.
    fn coarsen(&mut self) -> bool {
        let give_up_stacks = self.resolution_ns >= COARSEST_NS;
        if !give_up_stacks {
            self.resolution_ns *= 2;
        }
        let before = self.rows.len();
        for (mut key, row) in std::mem::take(&mut self.rows) {
            if give_up_stacks && key.stack != self.merged_stack {
                key.stack = self.merged_stack;
                self.unnamed_ns += row.cpu_ns;
            }
            insert(&mut self.rows, key, row, self.resolution_ns);
        }
        if give_up_stacks {
            // Merging visits every row. If threads alone make up half of the limit, the next time is when there are
            // twice as many rows.
            let left = self.rows.len();
            self.fold_threshold =
                if left > self.max_rows / 2 { left.saturating_mul(2) } else { self.max_rows };
        }
        !give_up_stacks || self.rows.len() < before
    }

    /// Returns the CPU time of the rows by thread, in nanoseconds.
    pub fn cpu_by_thread(&self) -> Map<u32, u64> {
        let mut sums = Map::default();
        for (key, row) in &self.rows {
            *sums.entry(key.thread).or_default() += row.cpu_ns;
        }
        sums
    }

    /// Gives up the stacks that are `lost`.
    pub fn give_up_stacks(&mut self, lost: impl Fn(u64) -> bool) {
        let merged_stack = self.merged_stack;
        let given_up =
            self.change(|key| lost(key.stack) && key.stack != merged_stack, |key| key.stack = merged_stack);
        self.unnamed_ns += given_up;
    }

    /// Moves rows of threads to others, as given by `into`.
    pub fn fold_threads(&mut self, into: &Map<u32, u32>) {
        self.change(
            |key| into.contains_key(&key.thread),
            |key| key.thread = into.get(&key.thread).copied().unwrap_or(key.thread),
        );
    }

    /// Changes the keys of the rows for which `fits` holds; returns their CPU time.
    fn change(&mut self, fits: impl Fn(&Key) -> bool, change: impl Fn(&mut Key)) -> u64 {
        let changed: Vec<(Key, Row)> = self.rows.extract_if(|key, _| fits(key)).collect();
        let mut cpu_ns = 0;
        for (mut key, row) in changed {
            cpu_ns += row.cpu_ns;
            change(&mut key);
            insert(&mut self.rows, key, row, self.resolution_ns);
        }
        cpu_ns
    }

    /// Passes rows to `send` as messages, oldest first, as long as it returns true.
    pub fn release(&mut self, mut send: impl FnMut(SampleBatch) -> bool) {
        let mut rows: Vec<(Key, Row)> = self.rows.drain().collect();
        rows.sort_unstable_by_key(|(key, row)| (row.last_ns, *key));
        let mut rows = rows.into_iter().peekable();
        let mut more = true;
        while more && rows.peek().is_some() {
            more = send(message(rows.by_ref().take(ROWS_PER_MESSAGE)));
        }
        self.rows.extend(rows);
        self.fold_threshold = self.max_rows;
        if self.rows.is_empty() {
            self.resolution_ns = FINEST_NS;
        }
    }
}

fn insert(rows: &mut Rows, key: Key, row: Row, resolution_ns: u64) {
    let key = Key { bucket: row.last_ns / resolution_ns, ..key };
    let into = rows.entry(key).or_default();
    into.last_ns = into.last_ns.max(row.last_ns);
    into.cpu_ns += row.cpu_ns;
    into.count += row.count;
}

fn message(rows: impl Iterator<Item = (Key, Row)>) -> SampleBatch {
    let mut batch = Batch::default();
    for (key, row) in rows {
        let Key { thread, stack, flags, .. } = key;
        let Row { last_ns, cpu_ns, count } = row;
        batch.push(Sample { time_ns: last_ns, thread, stack, cpu_ns, flags, count });
    }
    batch.take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const MERGED_STACK: u64 = 99;

    fn batch(samples: impl IntoIterator<Item = (u64, u32, u64)>) -> SampleBatch {
        let mut batch = Batch::default();
        for (time_ns, thread, stack) in samples {
            batch.push(Sample { time_ns, thread, stack, cpu_ns: 10, flags: 0, count: 1 });
        }
        batch.take().expect("filled")
    }

    fn all(merged: &mut Merged) -> Vec<SampleBatch> {
        let mut out = Vec::new();
        merged.release(|message| {
            out.push(message);
            true
        });
        assert!(merged.is_empty());
        out
    }

    fn sums(messages: &[SampleBatch]) -> (u64, u64) {
        let rows = messages.iter().flat_map(rows);
        rows.fold((0, 0), |(cpu_ns, count), row| (cpu_ns + row.cpu_ns, count + row.count))
    }

    #[test]
    fn equal_stacks_within_a_second_are_one_row() {
        let mut merged = Merged::new(MERGED_STACK);
        merged.add(
            &batch([(5_000, 1, 7), (6_000, 1, 7), (7_000, 2, 7), (SECOND + 1_000, 1, 7)]),
            |_| true,
            |thread| thread,
        );
        let out = all(&mut merged);
        assert_eq!(out.len(), 1);
        assert_eq!((&out[0].thread[..], &out[0].count[..]), (&[1, 2, 1][..], &[2, 1, 1][..]));
        let times: Vec<u64> = rows(&out[0]).map(|row| row.time_ns).collect();
        assert_eq!(times, [6_000, 7_000, SECOND + 1_000]);
        assert_eq!((merged.merged(), merged.coarsest_ns()), (4, SECOND));
    }

    #[test]
    fn an_hour_fits_into_few_rows_and_keeps_its_sums_and_stacks() {
        let mut merged = Merged::with_rows(MERGED_STACK, 1000);
        let wanted = 36_000;
        for tenth in 0..wanted {
            merged.add(&batch([(tenth * SECOND / 10, 1, 1 + tenth % 7)]), |_| true, |thread| thread);
            assert!(merged.rows.len() <= 1000);
        }
        assert_eq!(merged.unnamed_ns(), 0);
        assert!(merged.coarsest_ns() >= 16 * SECOND, "{}", merged.coarsest_ns());
        assert_eq!(sums(&all(&mut merged)), (wanted * 10, wanted));
        assert_eq!(merged.resolution_ns, FINEST_NS);
    }

    #[test]
    fn stacks_are_given_up_last_and_no_time_is_lost() {
        let mut merged = Merged::with_rows(MERGED_STACK, 100);
        merged.add(&batch((0..5000).map(|n| (n, 1 + (n % 3) as u32, n))), |_| true, |thread| thread);
        assert!(merged.rows.len() <= 100);
        assert!(merged.unnamed_ns() > 0);
        let out = all(&mut merged);
        assert_eq!(sums(&out), (50_000, 5000));
    }

    #[test]
    fn more_threads_than_rows_are_not_merged_for_each_sample() {
        let mut merged = Merged::with_rows(MERGED_STACK, 100);
        merged.add(&batch((0..5000).map(|n| (n, 1 + n as u32, n))), |_| true, |thread| thread);
        assert_eq!(merged.rows.len(), 5000);
        assert!(merged.fold_threshold >= 5000, "merged for every row beyond {}", merged.fold_threshold);
        assert_eq!(sums(&all(&mut merged)), (50_000, 5000));
        assert_eq!(merged.fold_threshold, 100);
    }

    #[test]
    fn an_unknown_stack_is_counted_for_its_thread() {
        let mut merged = Merged::new(MERGED_STACK);
        merged.add(&batch([(1, 1, 7), (2, 1, 8)]), |stack| stack == 7, |thread| thread);
        let out = all(&mut merged);
        assert_eq!(out[0].node, [7, MERGED_STACK as u32]);
        assert_eq!(merged.unnamed_ns(), 10);
    }

    #[test]
    fn rows_that_are_not_sent_stay() {
        let mut merged = Merged::new(MERGED_STACK);
        merged.add(&batch((0..50_000).map(|n| (n, 1, n))), |_| true, |thread| thread);
        let mut first = Vec::new();
        merged.release(|message| {
            first.push(message);
            false
        });
        assert_eq!(first[0].thread.len(), ROWS_PER_MESSAGE);
        first.extend(all(&mut merged));
        assert_eq!(sums(&first), (500_000, 50_000));
    }
}
