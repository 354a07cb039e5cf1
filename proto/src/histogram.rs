//! The buckets of [`Histogram`] messages: recording, and quantiles.
//!
//! Durations range from a hundred cycles to milliseconds, and both ends matter. So each power of two has eight buckets,
//! and the relative error is at most 1/8. Values below eight have a bucket each; a value `v >= 8` with
//! `e = floor(log2 v)` is in bucket `8 * (e - 2) + ((v >> (e - 3)) & 7)`.

use crate::v1::Histogram;

/// Number of buckets: the largest value, 2^64 - 1, is in bucket 495.
pub const BUCKETS: usize = 496;

/// Returns the bucket of `value`. Allocates nothing and does not panic, so a signal handler may call it.
pub const fn bucket_of(value: u64) -> usize {
    if value < 8 {
        return value as usize;
    }
    let exponent = value.ilog2();
    8 * (exponent as usize - 2) + ((value >> (exponent - 3)) & 7) as usize
}

/// Counts of recorded values, by bucket (4 KB).
#[derive(Clone, Debug)]
pub struct Recorder {
    counts: Box<[u64; BUCKETS]>,
    max: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), max: 0 }
    }
}

impl Recorder {
    /// Records a value; allocates nothing.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.max = self.max.max(value);
    }

    /// Returns the message with the buckets that are not empty, in ascending order.
    pub fn to_message(&self) -> Histogram {
        let filled = (0_u32..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0);
        let (bucket, bucket_count) = filled.unzip();
        Histogram { count: self.counts.iter().sum(), max: self.max, bucket, bucket_count }
    }
}

/// Returns the smallest value of a bucket below [`BUCKETS`].
const fn lowest_in(index: usize) -> u64 {
    if index < 8 { index as u64 } else { (8 + (index as u64 & 7)) << (index / 8 - 1) }
}

/// Returns the smallest and the largest value of a bucket; an `index` beyond the last bucket counts as the last.
pub const fn range_of(index: usize) -> (u64, u64) {
    if index + 1 < BUCKETS {
        (lowest_in(index), lowest_in(index + 1) - 1)
    } else {
        (lowest_in(BUCKETS - 1), u64::MAX)
    }
}

/// Returns the value below which a share `q` of the counted values are; 0 for an empty histogram.
///
/// The result is the middle of that value's bucket, with a relative error of at most 1/16, and at most the largest
/// value counted. `q` is clamped to 0 to 1. Buckets that do not exist are ignored.
pub fn quantile(histogram: &Histogram, q: f64) -> u64 {
    let buckets = histogram.bucket.iter().copied().zip(histogram.bucket_count.iter().copied());
    let mut buckets: Vec<(u32, u64)> =
        buckets.filter(|&(index, count)| (index as usize) < BUCKETS && count > 0).collect();
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
            let (low, high) = range_of(index as usize);
            return (low + (high - low) / 2).min(histogram.max.max(low));
        }
    }
    histogram.max
}
