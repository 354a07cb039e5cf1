//! How large a thread's ring should be.
//!
//! Problem: the rate of requests is known to nobody in advance: it follows the interval, the load and how often the
//! drain gets to run. A guess wastes memory on most threads and loses samples on the others.
//! Approach: start small, grow from losses that a full ring has caused and from nothing else, at drain time; shrink
//! after a quiet period to twice what was needed in it.
//! The rule of growth is the one the JDK's own CPU-time sampler has used since its queues size themselves: by the ratio
//! of requests lost since the last look to the entries of the ring, so that a queue that loses a lot reaches its size
//! in one or two steps.
//! Invariant: a decision never leaves its [`SizeRange`].
//!
//! Source: OpenJDK 25.0.3, `jfrThreadLocal`/`jfrCPUTimeThreadSampler.cpp`, `JfrCPUTimeTraceQueue::resize_if_needed`.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::Capacity;

/// Sizes a queue may take; with equal ends it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// Size of a fresh queue, and the smallest.
    pub start: Capacity,
    /// The largest.
    pub most: Capacity,
}

/// Rounds without a loss after which a queue may shrink.
pub const QUIET_ROUNDS: u16 = 10;

/// What decides about the size of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizer {
    /// Losses to a full ring at the last look.
    lost_seen: u64,
    /// Most requests found at one drain since the size or the window changed.
    high_water: u32,
    /// Rounds since the last loss or change of size.
    quiet: u16,
}

impl Sizer {
    /// A sizer for a queue whose counter of losses stands at `lost_full`: those of an earlier owner do not count.
    pub const fn new(lost_full: u64) -> Self {
        Self { lost_seen: lost_full, high_water: 0, quiet: 0 }
    }

    /// After a drain that found `found` requests in a ring of `entries`: the larger size the queue should have.
    ///
    /// `lost_full` is the cumulative number of requests refused by the full ring.
    pub fn after_drain(
        &mut self,
        range: SizeRange,
        entries: usize,
        found: usize,
        lost_full: u64,
    ) -> Option<Capacity> {
        self.high_water = self.high_water.max(u32::try_from(found).unwrap_or(u32::MAX));
        let lost = lost_full.saturating_sub(self.lost_seen);
        self.lost_seen = lost_full;
        if lost == 0 {
            return None;
        }
        self.quiet = 0;
        let wanted = entries.saturating_mul(growth_factor(lost, entries));
        let size = Capacity::at_least(wanted).min(range.most);
        (size.entries() > entries).then_some(size)
    }

    /// Once a round: the smaller size of a queue of `entries` that was quiet for [`QUIET_ROUNDS`].
    pub fn after_round(&mut self, range: SizeRange, entries: usize) -> Option<Capacity> {
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet < QUIET_ROUNDS {
            return None;
        }
        let needed = self.high_water.saturating_mul(2) as usize;
        *self = Self::new(self.lost_seen);
        let size = Capacity::at_least(needed).max(range.start);
        (size.entries() < entries).then_some(size)
    }
}

/// By how much a ring of `entries` that refused `lost` requests since the last look should grow.
fn growth_factor(lost: u64, entries: usize) -> usize {
    let entries = (entries as u64).max(1);
    let exceeds = |numerator: u64, denominator: u64| {
        lost.saturating_mul(denominator) > entries.saturating_mul(numerator)
    };
    if exceeds(8, 1) {
        usize::try_from(lost.checked_div(entries).unwrap_or(1)).unwrap_or(usize::MAX)
    } else if exceeds(2, 1) {
        8
    } else if exceeds(1, 2) {
        4
    } else if exceeds(1, 100) {
        2
    } else {
        1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const RANGE: SizeRange = SizeRange { start: Capacity::Entries16, most: Capacity::Entries2048 };

    #[track_caller]
    fn check_growth(entries: usize, lost: u64, expected: Option<Capacity>) {
        assert_eq!(Sizer::new(7).after_drain(RANGE, entries, entries, lost.saturating_add(7)), expected);
    }

    #[test]
    fn growth_follows_the_ratio_of_losses() {
        check_growth(16, 0, None);
        check_growth(1024, 10, None); // below one percent
        check_growth(1024, 11, Some(Capacity::Entries2048));
        check_growth(16, 8, Some(Capacity::Entries32));
        check_growth(16, 9, Some(Capacity::Entries64));
        check_growth(16, 32, Some(Capacity::Entries64));
        check_growth(16, 33, Some(Capacity::Entries128));
        check_growth(16, 128, Some(Capacity::Entries128));
        check_growth(16, 160, Some(Capacity::Entries256)); // ten times
        check_growth(16, u64::MAX, Some(Capacity::Entries2048));
        check_growth(2048, 1_000_000, None);
    }

    #[test]
    fn quiet_queues_shrink_to_twice_their_need() {
        let mut sizer = Sizer::new(0);
        assert_eq!(sizer.after_drain(RANGE, 512, 20, 0), None);
        for _ in 1..QUIET_ROUNDS {
            assert_eq!(sizer.after_round(RANGE, 512), None);
        }
        assert_eq!(sizer.after_round(RANGE, 512), Some(Capacity::Entries64), "twice 20, in a class");
        // A loss starts the wait anew.
        assert_eq!(sizer.after_drain(RANGE, 64, 64, 1), Some(Capacity::Entries128));
        for _ in 1..QUIET_ROUNDS {
            assert_eq!(sizer.after_round(RANGE, 128), None);
        }
        assert_eq!(sizer.after_round(RANGE, 128), None, "64 were needed at once");
        for _ in 1..QUIET_ROUNDS {
            assert_eq!(sizer.after_round(RANGE, 128), None);
        }
        assert_eq!(sizer.after_round(RANGE, 128), Some(Capacity::Entries16), "nothing since");
    }

    #[test]
    fn a_fixed_size_stays() {
        let fixed = SizeRange { start: Capacity::Entries64, most: Capacity::Entries64 };
        let mut sizer = Sizer::new(0);
        assert_eq!(sizer.after_drain(fixed, 64, 64, 10_000), None);
        for _ in 0..3 * QUIET_ROUNDS {
            assert_eq!(sizer.after_round(fixed, 64), None);
        }
    }
}
