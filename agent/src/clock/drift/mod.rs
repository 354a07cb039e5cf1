//! How far the signals of a thread's perf event are from its CPU clock, and what evens that out.
//!
//! Problem: the kernel counts the time of a perf event from one switch of threads to the next. It includes interrupts and
//! time that other virtual machines took, and lacks the switches themselves, so it differs from the thread's CPU clock, by a
//! third in a thread that sleeps ten thousand times a second.
//! Approach: the control side compares both ten times a second and writes how many periods are to be added or left out
//! altogether. The handler gives the next signals further periods, or none.
//! Invariant: only the slot's own thread changes what was applied, and only the control side what is wanted.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// A signal takes a period more, and one for each so many that are wanted.
const WANTED_PER_FURTHER: u32 = 6;

/// The correction of a slot. All-zero bytes are valid. Relaxed throughout: a difference that is read late is corrected later.
#[derive(Debug, Default)]
pub struct Drift {
    /// Periods to be added in all, less those to be left out.
    wanted: AtomicI64,
    /// Periods that were added, less those that were left out.
    applied: AtomicI64,
    /// True if the last signal counted for nothing.
    has_left_out: AtomicBool,
}

impl Drift {
    /// Returns the periods that the next signal stands for beyond its own; at least -1. No two signals in a row count for
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

    /// Notes that a signal has stood for `further` periods beyond its own. Signal safe.
    #[inline]
    pub fn apply(&self, further: i64) {
        let applied = self.applied.load(Ordering::Relaxed).wrapping_add(further);
        self.applied.store(applied, Ordering::Relaxed);
        self.has_left_out.store(further < 0, Ordering::Relaxed);
    }

    /// Sets the periods that the next signals shall stand for beyond their own. For the control side.
    pub fn want(&self, periods: i64) {
        let applied = self.applied.load(Ordering::Relaxed);
        self.wanted.store(applied.wrapping_add(periods), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests;
