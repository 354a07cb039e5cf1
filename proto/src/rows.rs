//! The samples of a batch, one by one, in whichever form its columns have.
//!
//! Problem: wire version 1 spells out every column, version 2 leaves out what is the same for all rows, and recordings
//! of both are read.
//! Invariant: every row that the columns for thread and stack have in common is visited, once; what other columns lack
//! takes its usual value.

use crate::v1::SampleBatch;

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time_ns: u64,
    /// `Thread.id`.
    pub thread: u32,
    /// `Stack.id`, or the number of a node where [`is_numbered`].
    pub stack: u64,
    /// CPU time it stands for, nanoseconds.
    pub cpu_ns: u64,
    /// As `SampleBatch.flags`.
    pub flags: u32,
    /// Samples merged into it.
    pub count: u64,
}

/// Whether stacks are nodes of `Numbered`, and not ids.
pub fn is_numbered(batch: &SampleBatch) -> bool {
    !batch.node.is_empty()
}

/// Whether columns that must be of one length are; those that may be left out are of that length or empty.
pub fn is_even(batch: &SampleBatch) -> bool {
    let rows = batch.thread.len();
    let (whole, optional) = if is_numbered(batch) {
        ([batch.node.len(), rows], [batch.time_delta_us.len(), batch.cpu_units.len()])
    } else {
        ([batch.stack.len(), batch.cpu_ns.len()], [batch.time_delta_ns.len(), 0])
    };
    let [times, units] = optional;
    whole.iter().all(|&len| len == rows)
        && [times, units, batch.flags.len(), batch.count.len()].iter().all(|len| [0, rows].contains(len))
}

/// The rows of `batch`.
pub fn rows(batch: &SampleBatch) -> impl ExactSizeIterator<Item = Row> + '_ {
    let numbered = is_numbered(batch);
    let rows = match (numbered, batch.cpu_units.len()) {
        (true, 0) => batch.thread.len().min(batch.node.len()),
        (true, units) => batch.thread.len().min(batch.node.len()).min(units),
        (false, _) => batch.thread.len().min(batch.stack.len()).min(batch.cpu_ns.len()),
    };
    let mut time_ns = batch.first_time_ns;
    (0..rows).map(move |row| {
        // A batch without times has all its samples at its beginning.
        let (delta_ns, stack, cpu_ns) = if numbered {
            let units = batch.cpu_units.get(row).copied().unwrap_or(1);
            let delta_us = batch.time_delta_us.get(row).copied().unwrap_or(0);
            let cpu_ns = batch.cpu_unit_ns.saturating_mul(units);
            (delta_us.wrapping_mul(1000), u64::from(batch.node[row]), cpu_ns)
        } else {
            let delta_ns = batch.time_delta_ns.get(row).copied().unwrap_or(0);
            (delta_ns.cast_unsigned(), batch.stack[row], batch.cpu_ns[row])
        };
        time_ns = time_ns.wrapping_add(delta_ns);
        Row {
            time_ns,
            thread: batch.thread[row],
            stack,
            cpu_ns,
            flags: batch.flags.get(row).copied().unwrap_or(0),
            count: batch.count.get(row).copied().unwrap_or(1),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let spelt_out = SampleBatch {
            first_time_ns: 5_000,
            time_delta_ns: vec![0, 2_000, 0],
            thread: vec![1, 2, 1],
            stack: vec![7, 8, 7],
            cpu_ns: vec![20, 20, 60],
            flags: vec![0, 0, 0],
            ..SampleBatch::default()
        };
        let short = SampleBatch {
            first_time_ns: 5_000,
            time_delta_us: vec![0, 2, 0],
            thread: vec![1, 2, 1],
            node: vec![7, 8, 7],
            cpu_unit_ns: 20,
            cpu_units: vec![1, 1, 3],
            ..SampleBatch::default()
        };
        assert!(is_even(&spelt_out) && is_even(&short) && is_numbered(&short));
        assert_eq!(rows(&short).collect::<Vec<_>>(), rows(&spelt_out).collect::<Vec<_>>());
        assert_eq!(rows(&short).len(), 3);
    }

    #[test]
    fn a_column_that_ends_early_is_uneven_whichever_it_is() {
        let numbered = SampleBatch { thread: vec![1; 3], node: vec![7; 3], ..SampleBatch::default() };
        let with_ids = SampleBatch {
            thread: vec![1; 3],
            stack: vec![7; 3],
            cpu_ns: vec![20; 3],
            ..SampleBatch::default()
        };
        for batch in [&numbered, &with_ids] {
            assert!(is_even(batch));
            for is_whole in [true, false] {
                let len = if is_whole { 3 } else { 2 };
                let of = |change: fn(&mut SampleBatch, usize)| {
                    let mut batch = batch.clone();
                    change(&mut batch, len);
                    is_even(&batch)
                };
                let times = if is_numbered(batch) {
                    of(|batch, len| batch.time_delta_us = vec![1; len])
                } else {
                    of(|batch, len| batch.time_delta_ns = vec![1; len])
                };
                let flags = of(|batch, len| batch.flags = vec![2; len]);
                let counts = of(|batch, len| batch.count = vec![2; len]);
                assert_eq!((times, flags, counts), (is_whole, is_whole, is_whole));
            }
        }
    }

    #[test]
    fn columns_of_different_length_lose_no_row_they_share() {
        let mut batch = SampleBatch { thread: vec![1, 2, 3], node: vec![4, 5], ..SampleBatch::default() };
        assert!(!is_even(&batch));
        assert_eq!(rows(&batch).map(|row| (row.thread, row.count)).collect::<Vec<_>>(), [(1, 1), (2, 1)]);
        batch.cpu_units = vec![u64::MAX];
        batch.cpu_unit_ns = 2;
        batch.time_delta_us = vec![u64::MAX];
        assert_eq!(rows(&batch).map(|row| row.cpu_ns).collect::<Vec<_>>(), [u64::MAX]);
    }
}
