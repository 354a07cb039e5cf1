//! The log-linear buckets of [`Histogram`] messages.
//!
//! Problem: durations range from a hundred cycles to milliseconds, and both ends matter.
//! Approach: eight buckets for each power of two, so that the relative error is at most 1/8; values below eight have a
//! bucket each. A value `v >= 8` with `e = floor(log2 v)` lies in bucket
//! `8 * (e - 2) + ((v >> (e - 3)) & 7)`.
//! Invariant: bucket numbers ascend with the values, and every `u64` has a bucket below [`BUCKETS`].

use crate::v1::Histogram;

/// Number of buckets: the largest value, 2^64 - 1, lies in bucket 495.
pub const BUCKETS: usize = 496;

/// Returns the bucket of `value`. It neither allocates nor panics, so a signal handler may call it.
pub const fn bucket_of(value: u64) -> usize {
    if value < 8 {
        return value as usize;
    }
    let exponent = value.ilog2();
    8 * (exponent as usize - 2) + ((value >> (exponent - 3)) & 7) as usize
}

/// Returns the smallest value of a bucket; an `index` beyond the last bucket counts as the last.
pub const fn lowest_in(index: usize) -> u64 {
    if index < 8 {
        return index as u64;
    }
    let index = if index < BUCKETS { index } else { BUCKETS - 1 };
    let exponent = index / 8 + 2;
    (8 + (index as u64 & 7)) << (exponent - 3)
}

/// Returns the largest value of a bucket; an `index` beyond the last bucket counts as the last.
pub const fn highest_in(index: usize) -> u64 {
    if index + 1 < BUCKETS { lowest_in(index + 1) - 1 } else { u64::MAX }
}

/// A histogram that values are added to, one counter for each bucket (4 KB).
#[derive(Clone, Debug)]
pub struct Recorder {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    max: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder { counts: Box::new([0; BUCKETS]), count: 0, max: 0 }
    }
}

impl Recorder {
    /// Adds one value.
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Adds `value` `count` times.
    pub fn record_many(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        let slot = &mut self.counts[bucket_of(value)];
        *slot = slot.saturating_add(count);
        self.count = self.count.saturating_add(count);
        self.max = self.max.max(value);
    }

    /// Adds all values of a message; buckets that do not exist are ignored.
    pub fn add(&mut self, histogram: &Histogram) {
        for (&index, &count) in histogram.bucket.iter().zip(&histogram.bucket_count) {
            if let Some(slot) = self.counts.get_mut(index as usize) {
                *slot = slot.saturating_add(count);
                self.count = self.count.saturating_add(count);
            }
        }
        self.max = self.max.max(histogram.max);
    }

    /// Returns the message with the buckets that are not empty, in ascending order.
    pub fn to_message(&self) -> Histogram {
        let (bucket, bucket_count) = (0u32..)
            .zip(self.counts.iter())
            .filter(|&(_, &count)| count > 0)
            .map(|(index, &count)| (index, count))
            .unzip();
        Histogram { count: self.count, max: self.max, bucket, bucket_count }
    }
}

/// Adds the values of `from` to `into`; buckets that do not exist are ignored.
pub fn merge(into: &mut Histogram, from: &Histogram) {
    let mut sum = Recorder::default();
    sum.add(into);
    sum.add(from);
    *into = sum.to_message();
}

/// Returns the value below which a share `q` (0 to 1) of the counted values lie; 0 for an empty histogram.
///
/// The result is the middle of that value's bucket, with a relative error of at most 1/16, and at most the largest
/// value counted. `q` is clamped to 0 to 1.
pub fn quantile(histogram: &Histogram, q: f64) -> u64 {
    let mut buckets: Vec<(u32, u64)> = histogram
        .bucket
        .iter()
        .copied()
        .zip(histogram.bucket_count.iter().copied())
        .filter(|&(index, count)| (index as usize) < BUCKETS && count > 0)
        .collect();
    // The agent writes buckets in order; other senders may not.
    buckets.sort_unstable_by_key(|&(index, _)| index);
    let total = buckets.iter().fold(0u64, |sum, &(_, count)| sum.saturating_add(count));
    if total == 0 {
        return 0;
    }
    let q = if q.is_nan() { 0.0 } else { q.clamp(0.0, 1.0) };
    let rank = ((q * total as f64).ceil() as u64).clamp(1, total);
    let mut seen = 0u64;
    for (index, count) in buckets {
        seen = seen.saturating_add(count);
        if seen >= rank {
            let (low, high) = (lowest_in(index as usize), highest_in(index as usize));
            let middle = low + (high - low) / 2;
            return middle.min(histogram.max.max(low));
        }
    }
    histogram.max
}
