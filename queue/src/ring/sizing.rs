//! The size of a thread's ring.
//!
//! Problem: the rate of requests follows the interval, the load and the drain. A guess wastes memory on most threads
//! and loses samples on the others.
//! Approach: start small, and grow at drain time from losses to a full ring only; shrink after a quiet period to twice
//! what was needed in it. A ring grows to as many entries as would have held all requests since the last drain, and a
//! quarter more, in classes that double. (The JDK's own sampler grows by a factor of the ratio of losses to entries and
//! may need two steps; this rule needs one for the same gap between drains.)
//! Invariant: a decision never leaves its [`SizeRange`].
//!
//! Source of the comparison: OpenJDK 25.0.3, `jfrCPUTimeThreadSampler.cpp`, `JfrCPUTimeTraceQueue::resize_if_needed`.

use crate::ring::capacity::Capacity;

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

/// Statistics that decide the size of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizer {
    /// Losses to a full ring at the last drain.
    lost_before: u64,
    /// Most requests found at one drain since the size or the window changed.
    high_water: u32,
    /// Rounds since the last loss or change of size.
    quiet: u16,
    /// True if the queue was made larger since it last had its first size, or a smaller one.
    has_grown: bool,
}

impl Sizer {
    /// A sizer for a queue whose counter of losses is at `lost_full`: losses of an earlier owner do not count.
    pub const fn new(lost_full: u64) -> Self {
        Self { lost_before: lost_full, high_water: 0, quiet: 0, has_grown: false }
    }

    /// Requests refused since the last drain although the queue has grown before; call it before
    /// [`Sizer::after_drain`], with the same `lost_full`.
    pub fn lost_after_growth(&self, lost_full: u64) -> u64 {
        if self.has_grown { lost_full.saturating_sub(self.lost_before) } else { 0 }
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
        let lost = lost_full.saturating_sub(self.lost_before);
        self.lost_before = lost_full;
        if lost == 0 {
            return None;
        }
        self.quiet = 0;
        let size = Capacity::at_least(entries_for_losses(lost, entries)).min(range.most);
        self.has_grown |= size.entries() > entries;
        (size.entries() > entries).then_some(size)
    }

    /// Once a round: the smaller size of a queue of `entries` that was quiet for [`QUIET_ROUNDS`].
    pub fn after_round(&mut self, range: SizeRange, entries: usize) -> Option<Capacity> {
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet < QUIET_ROUNDS {
            return None;
        }
        let needed = self.high_water.saturating_mul(2) as usize;
        *self = Self::new(self.lost_before);
        let size = Capacity::at_least(needed).max(range.start);
        (size.entries() < entries).then_some(size)
    }
}

/// Entries with which a ring of `entries` that refused `lost` requests since the last drain would have held them all,
/// and a quarter more.
fn entries_for_losses(lost: u64, entries: usize) -> usize {
    let needed = entries.saturating_add(usize::try_from(lost).unwrap_or(usize::MAX));
    needed.saturating_add(needed >> 2)
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
    fn one_step_is_enough_for_the_same_gap_again() {
        check_growth(16, 0, None);
        check_growth(16, 1, Some(Capacity::Entries32));
        check_growth(16, 9, Some(Capacity::Entries32)); // 25 and 6
        check_growth(16, 10, Some(Capacity::Entries32));
        check_growth(16, 11, Some(Capacity::Entries64)); // 27 and 6
        check_growth(16, 59, Some(Capacity::Entries128)); // 75 and 18
        check_growth(16, 160, Some(Capacity::Entries256));
        check_growth(16, u64::MAX, Some(Capacity::Entries2048));
        check_growth(1024, 1, Some(Capacity::Entries2048));
        check_growth(2048, 1_000_000, None);
        for start in [16, 32, 64, 128, 256] {
            for lost in 1..=1000 {
                let size = Sizer::new(0).after_drain(RANGE, start, start, lost).map(Capacity::entries);
                assert!(
                    size.is_some_and(|size| size as u64 > start as u64 + lost),
                    "{start} entries lost {lost}"
                );
            }
        }
    }

    #[test]
    fn quiet_queues_shrink_to_twice_their_need() {
        let mut sizer = Sizer::new(0);
        assert_eq!(sizer.after_drain(RANGE, 512, 20, 0), None);
        for _ in 1..QUIET_ROUNDS {
            assert_eq!(sizer.after_round(RANGE, 512), None);
        }
        assert_eq!(sizer.after_round(RANGE, 512), Some(Capacity::Entries64), "twice 20, in a class");
        // A loss restarts the wait.
        assert_eq!(sizer.after_drain(RANGE, 64, 64, 1), Some(Capacity::Entries128));
        for _ in 1..QUIET_ROUNDS {
            assert_eq!(sizer.after_round(RANGE, 128), None);
        }
        assert_eq!(sizer.after_round(RANGE, 128), None, "64 were needed at once");
        for _ in 1..QUIET_ROUNDS {
            assert_eq!(sizer.after_round(RANGE, 128), None);
        }
        assert_eq!(sizer.after_round(RANGE, 128), Some(Capacity::Entries16), "nothing was needed");
    }

    #[test]
    fn only_losses_after_growth_count() {
        let mut sizer = Sizer::new(5);
        assert_eq!(sizer.lost_after_growth(9), 0);
        assert_eq!(sizer.after_drain(RANGE, 16, 16, 9), Some(Capacity::Entries32));
        assert_eq!(sizer.lost_after_growth(9), 0);
        assert_eq!(sizer.lost_after_growth(12), 3);
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
