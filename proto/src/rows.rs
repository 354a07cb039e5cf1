//! The samples of a batch, one by one.
//!
//! A batch has columns, and columns whose values are all equal are left out. Every row that all mandatory columns have
//! is visited once; an optional column that is empty or too short yields its default.

use crate::v1::SampleBatch;

/// Bit of `SampleBatch.flags`: the newest Java frame is that of a later point than the one that was running or calling.
pub const BIASED: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time_ns: u64,
    /// `Thread.id`.
    pub thread: u32,
    /// Number of the stack: of its leaf node.
    pub stack: u32,
    /// CPU time of the sample, nanoseconds.
    pub cpu_ns: u64,
    /// `SampleBatch.flags`.
    pub flags: u32,
    /// Samples merged into the row.
    pub count: u64,
}

impl Row {
    /// Returns whether the newest Java frame is that of a later point than the one that was running or calling.
    pub fn is_biased(&self) -> bool {
        self.flags & BIASED != 0
    }
}

/// Returns whether all columns have the same length; a column with a default may also be empty.
pub fn has_equal_columns(batch: &SampleBatch) -> bool {
    let rows = batch.thread.len();
    let optional = [batch.time_delta_us.len(), batch.cpu_units.len(), batch.flags.len(), batch.count.len()];
    batch.node.len() == rows && optional.iter().all(|len| [0, rows].contains(len))
}

pub fn rows(batch: &SampleBatch) -> impl ExactSizeIterator<Item = Row> + '_ {
    let mut rows = batch.thread.len().min(batch.node.len());
    if !batch.cpu_units.is_empty() {
        rows = rows.min(batch.cpu_units.len());
    }
    let mut time_ns = batch.first_time_ns;
    (0..rows).map(move |row| {
        let delta_us = batch.time_delta_us.get(row).copied().unwrap_or(0);
        time_ns = time_ns.wrapping_add(delta_us.wrapping_mul(1000));
        Row {
            time_ns,
            thread: batch.thread[row],
            stack: batch.node[row],
            cpu_ns: batch.cpu_unit_ns.saturating_mul(batch.cpu_units.get(row).copied().unwrap_or(1)),
            flags: batch.flags.get(row).copied().unwrap_or(0),
            count: batch.count.get(row).copied().unwrap_or(1),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_columns_have_their_defaults() {
        let full = SampleBatch {
            first_time_ns: 5_000,
            time_delta_us: vec![0, 2, 0],
            thread: vec![1, 2, 1],
            node: vec![7, 8, 7],
            cpu_unit_ns: 20,
            cpu_units: vec![1, 1, 3],
            flags: vec![0, 1, 0],
            count: vec![1, 1, 3],
            clock_shift_ms: 0,
        };
        let row = |time_ns, thread, stack, cpu_ns, flags, count| Row {
            time_ns,
            thread,
            stack,
            cpu_ns,
            flags,
            count,
        };
        assert!(has_equal_columns(&full));
        let expected = [row(5_000, 1, 7, 20, 0, 1), row(7_000, 2, 8, 20, 1, 1), row(7_000, 1, 7, 60, 0, 3)];
        assert_eq!(rows(&full).collect::<Vec<_>>(), expected);
        assert_eq!(rows(&full).len(), 3);
        let short = SampleBatch {
            time_delta_us: Vec::new(),
            cpu_units: Vec::new(),
            flags: Vec::new(),
            count: Vec::new(),
            ..full
        };
        assert!(has_equal_columns(&short));
        let expected = [1, 2, 1].into_iter().zip([7, 8, 7]);
        let expected: Vec<Row> =
            expected.map(|(thread, stack)| row(5_000, thread, stack, 20, 0, 1)).collect();
        assert_eq!(rows(&short).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_short_column_is_reported() {
        let batch = SampleBatch { thread: vec![1; 3], node: vec![7; 3], ..SampleBatch::default() };
        for (len, is_equal) in [(3, true), (2, false)] {
            let with = |change: fn(&mut SampleBatch, usize)| {
                let mut batch = batch.clone();
                change(&mut batch, len);
                has_equal_columns(&batch)
            };
            let results = [
                with(|batch, len| batch.node = vec![7; len]),
                with(|batch, len| batch.time_delta_us = vec![1; len]),
                with(|batch, len| batch.cpu_units = vec![2; len]),
                with(|batch, len| batch.flags = vec![2; len]),
                with(|batch, len| batch.count = vec![2; len]),
            ];
            assert_eq!(results, [is_equal; 5]);
        }
    }

    #[test]
    fn columns_of_different_length_lose_no_row_they_share() {
        let mut batch = SampleBatch { thread: vec![1, 2, 3], node: vec![4, 5], ..SampleBatch::default() };
        assert!(!has_equal_columns(&batch));
        assert_eq!(rows(&batch).map(|row| (row.thread, row.count)).collect::<Vec<_>>(), [(1, 1), (2, 1)]);
        batch.cpu_units = vec![u64::MAX];
        batch.cpu_unit_ns = 2;
        batch.time_delta_us = vec![u64::MAX];
        assert_eq!(rows(&batch).map(|row| row.cpu_ns).collect::<Vec<_>>(), [u64::MAX]);
    }
}
