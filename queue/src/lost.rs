//! Counters of lost samples, by cause.
//!
//! Problem: the account of CPU time closes only if every refused request is counted with its time.
//! Approach: a count and a sum of nanoseconds for each cause. Relaxed: they order nothing; a reader may see a count
//! before its nanoseconds.
//! Invariant: all zero bytes are valid counters at zero.

use crate::sync::{AtomicU64, Ordering, array_of, constructor};

/// Reason why a sample was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// The thread's ring had no free entry.
    QueueFull,
    /// The signal arrived after the session had begun to stop.
    Stopping,
    /// The signal arrived after its timer had been replaced; it stands for no time, which the next timer covers.
    Overtaken,
}

impl LostCause {
    /// Number of causes.
    pub const COUNT: usize = 3;

    /// All causes, in the order of [`LostCause::index`].
    pub const ALL: [Self; Self::COUNT] = [Self::QueueFull, Self::Stopping, Self::Overtaken];

    /// Stable name for the wire and for output, in snake_case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Stopping => "stopping",
            Self::Overtaken => "overtaken",
        }
    }

    /// Position in [`LostCause::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Losses to one cause since the counters were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The cause.
    pub cause: LostCause,
    /// Samples.
    pub count: u64,
    /// CPU time they stood for, in nanoseconds.
    pub nanos: u64,
}

/// Samples lost, by cause.
#[repr(C)]
pub struct LostCounters {
    counts: [AtomicU64; LostCause::COUNT],
    nanos: [AtomicU64; LostCause::COUNT],
}

/// # Signal Safe Methods
///
/// A fixed number of atomic additions; callable from any thread and any handler.
impl LostCounters {
    /// Counts one sample lost to `cause`, standing for `nanos` nanoseconds of CPU time.
    #[inline]
    pub fn add(&self, cause: LostCause, nanos: u64) {
        // Both relaxed: statistics pair with nothing.
        if let Some(count) = self.counts.get(cause.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(sum) = self.nanos.get(cause.index()) {
            sum.fetch_add(nanos, Ordering::Relaxed);
        }
    }
}

impl LostCounters {
    constructor! {
        /// Counters at zero.
        pub fn new() -> Self {
            Self { counts: array_of!(AtomicU64::new(0)), nanos: array_of!(AtomicU64::new(0)) }
        }
    }

    /// The totals so far, in the order of [`LostCause::ALL`].
    pub fn snapshot(&self) -> [Lost; LostCause::COUNT] {
        LostCause::ALL.map(|cause| Lost {
            cause,
            // Relaxed: pairs with nothing.
            count: self.counts.get(cause.index()).map_or(0, |count| count.load(Ordering::Relaxed)),
            nanos: self.nanos.get(cause.index()).map_or(0, |sum| sum.load(Ordering::Relaxed)),
        })
    }

    /// Sets all counters to zero for the next thread that uses the queue. The caller ensures that nothing is added
    /// meanwhile.
    pub fn reset(&self) {
        // Relaxed: pairs with nothing.
        self.counts.iter().chain(&self.nanos).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Samples lost to `cause` so far.
    pub fn count(&self, cause: LostCause) -> u64 {
        // Relaxed: pairs with nothing.
        self.counts.get(cause.index()).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Default for LostCounters {
    fn default() -> Self {
        Self::new()
    }
}
