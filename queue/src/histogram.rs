//! A histogram that a signal handler can record into.
//!
//! Problem: the full distribution of the handler's run time and of the copied stack sizes is needed, and only the
//! handler can measure them.
//! Approach: buckets that are exact below 8 and then eight to each power of two, so that a bucket's width is at
//! most an eighth of its lower bound for every value a `u64` can hold; recording is one relaxed addition.
//! Invariant: all zero bytes are a valid histogram without values. Every `u64` has exactly one bucket and the
//! buckets are contiguous.
//!
//! Source: the log-linear layout of HdrHistogram with three bits of precision.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::sync::{AtomicU64, Ordering, array_of, constructor};

/// Counts of values by logarithmic bucket; any unit.
#[repr(C)]
pub struct Histogram {
    buckets: [AtomicU64; Histogram::BUCKETS],
    max: AtomicU64,
}

/// # Signal Safe Methods
///
/// A fixed number of atomic operations; callable from any thread and any handler.
impl Histogram {
    /// Counts `value`.
    #[inline]
    pub fn record(&self, value: u64) {
        // Relaxed throughout: statistics pair with nothing.
        if let Some(bucket) = self.buckets.get(Self::bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        // `fetch_max` is a compare-and-swap loop on x86-64, and new maxima are rare.
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
    }
}

impl Histogram {
    /// Number of buckets: 8 exact ones and 8 for each of the exponents 3 to 63.
    pub const BUCKETS: usize = 496;

    constructor! {
        /// A histogram without values.
        pub fn new() -> Self {
            Self { buckets: array_of!(AtomicU64::new(0)), max: AtomicU64::new(0) }
        }
    }

    /// The bucket that counts `value`.
    #[inline]
    pub const fn bucket_of(value: u64) -> usize {
        if value < 8 {
            return value as usize;
        }
        let exponent = value.ilog2();
        // The exponent is at least 3 here and at most 63, so nothing wraps; the three bits below the leading
        // one choose among the eight buckets of the exponent.
        let eighth = (value >> exponent.wrapping_sub(3)) & 7;
        (exponent.wrapping_sub(2) as usize).wrapping_mul(8).wrapping_add(eighth as usize)
    }

    /// The smallest value bucket `index` counts; `u64::MAX` for an index that is no bucket.
    pub const fn bucket_low(index: usize) -> u64 {
        if index < 8 {
            return index as u64;
        }
        if index >= Self::BUCKETS {
            return u64::MAX;
        }
        // The inverse of `bucket_of`: 8 + eighth, shifted back to the exponent, which is index / 8 + 2.
        let shift = (index / 8).wrapping_sub(1);
        ((index % 8) as u64 | 8) << shift
    }

    /// The largest value bucket `index` counts; `u64::MAX` for an index that is no bucket.
    pub const fn bucket_high(index: usize) -> u64 {
        let next = index.saturating_add(1);
        if next >= Self::BUCKETS { u64::MAX } else { Self::bucket_low(next).wrapping_sub(1) }
    }

    /// A copy of the counts; concurrently recorded values may be missing.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut counts = [0; Self::BUCKETS];
        for (count, bucket) in counts.iter_mut().zip(&self.buckets) {
            // Relaxed: pairs with nothing.
            *count = bucket.load(Ordering::Relaxed);
        }
        HistogramSnapshot { counts, max: self.max.load(Ordering::Relaxed) }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// The counts of a [`Histogram`] at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: [u64; Histogram::BUCKETS],
    max: u64,
}

impl HistogramSnapshot {
    /// The buckets that counted something: index and count, by ascending value.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter().copied().enumerate().filter(|&(_, count)| count != 0)
    }

    /// Values recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The largest value recorded, exact; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// An upper bound of the `q`-quantile (`q` in 0..=1), at most an eighth above it; `None` without values.
    ///
    /// The smallest bucket bound that at least `q * count` values do not exceed, and never above [`Self::max`].
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        // Rounded up by hand, as `f64::ceil` is not in `core`; the cast saturates and takes NaN to 0.
        let exact = q.clamp(0.0, 1.0) * count as f64;
        let floor = exact as u64;
        let rank = if (floor as f64) < exact { floor.saturating_add(1) } else { floor };
        let mut below: u64 = 0;
        for (index, bucket) in self.iter() {
            below = below.saturating_add(bucket);
            if below >= rank {
                return Some(Histogram::bucket_high(index).min(self.max));
            }
        }
        Some(self.max)
    }
}
