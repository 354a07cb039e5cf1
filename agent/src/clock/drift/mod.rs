//! Corrects the signals of a thread's perf event by the thread's CPU clock.
//!
//! Problem: the kernel counts a perf event's time from one switch of threads to the next. That includes interrupts and
//! time taken by other virtual machines, but not the switches, so it differs from the thread's CPU clock, by a third in
//! a thread that sleeps ten thousand times a second.
//! Approach: the control side compares both ten times a second and sets how many periods to add or leave out in all.
//! The handler gives the next signals additional periods, or none.
//! Invariant: only the slot's thread changes what was applied, and only the control side what is wanted.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// A signal takes one additional period, and one more for each 2^6 that are wanted.
const WANTED_PER_FURTHER: u32 = 6;

/// The correction of a slot. All-zero bytes are valid. Relaxed throughout, because a late reading only corrects later.
#[derive(Debug, Default)]
pub struct Drift {
    /// Periods to add in all, less those to leave out.
    wanted: AtomicI64,
    /// Periods that were added, less those that were left out.
    applied: AtomicI64,
    /// True if the last signal did not count.
    has_left_out: AtomicBool,
}

impl Drift {
    /// Returns how many periods the next signal counts in addition, at least -1. No two consecutive signals count for
    /// nothing. Signal safe.
    #[inline]
    pub fn next(&self) -> i64 {
        let wanted = self.wanted.load(Ordering::Relaxed).wrapping_sub(self.applied.load(Ordering::Relaxed));
        match wanted {
            0 => 0,
            1.. => wanted.wrapping_shr(WANTED_PER_FURTHER).saturating_add(1),
            _ if self.has_left_out.load(Ordering::Relaxed) => 0,
            _ => -1,
        }
    }

    /// Notes that a signal has counted for `further` additional periods. Signal safe.
    #[inline]
    pub fn apply(&self, further: i64) {
        let applied = self.applied.load(Ordering::Relaxed).wrapping_add(further);
        self.applied.store(applied, Ordering::Relaxed);
        self.has_left_out.store(further < 0, Ordering::Relaxed);
    }

    /// Sets how many periods the next signals count in addition. For the control side.
    pub fn want(&self, periods: i64) {
        let applied = self.applied.load(Ordering::Relaxed);
        self.wanted.store(applied.wrapping_add(periods), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests;
