//! The timer of a slot: its key, and the periods that have expired under it.
//!
//! Problem: a thread's timer is replaced when its period changes. A signal of the old one may be on its way then, or its
//! handler just beginning; it must have the weight of its own period, and be counted exactly once.
//! Approach: each timer has a [`Key`], which its signals carry. The slot's [`Grid`] holds in one word the key of the
//! current timer and the periods that expired under it. The handler claims its periods by a compare-and-swap; the control
//! side ends a timer by a swap, which returns what was claimed to the last period. A handler that comes later claims
//! nothing, and the next timer expires that much sooner.
//! Invariant: the periods the control side has read are those of requests pushed or counted as lost.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of a [`Key`].
const KEY_BITS: u32 = 6;
/// The bits of a signal's value that hold the key.
pub const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
/// Bits of a key that hold the index of its period.
const PERIOD_MASK: u8 = 0xf;

/// Periods that can be in use at one time.
pub const PERIODS: usize = PERIOD_MASK as usize + 1;

/// Identifies one of a thread's timers: the index of its period, and two bits that change from one timer to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Key(u8);

impl Key {
    /// Returns the key in the value of a signal. Signal safe.
    #[inline(always)]
    pub fn in_signal_value(value: u64) -> Self {
        Self((value & KEY_MASK) as u8)
    }

    /// The key's bits, which [`KEY_MASK`] covers.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the key of the timer after this one, which runs with this period.
    #[must_use]
    pub fn next(self, period: u8) -> Self {
        let generation = (self.0 >> 4).wrapping_add(1) & 3;
        Self(generation << 4 | (period & PERIOD_MASK))
    }

    /// Index of the period. Signal safe.
    pub fn period(self) -> u8 {
        self.0 & PERIOD_MASK
    }
}

/// The key of a slot's current timer, and how many of its periods have expired. All-zero bytes are a valid grid.
#[derive(Debug, Default)]
pub struct Grid(AtomicU64);

impl Grid {
    /// Adds `periods` if `key` is the current timer's; returns whether it is. Signal safe.
    #[inline]
    pub fn claim(&self, key: Key, periods: u64) -> bool {
        // Relaxed: the word is the only shared state, and every change of it is one exchange.
        let word = self.0.load(Ordering::Relaxed);
        if word & KEY_MASK != u64::from(key.0) {
            return false;
        }
        let counted = word.wrapping_add(periods.wrapping_shl(KEY_BITS));
        // Only the control side competes, and after its exchange the key is another one.
        self.0.compare_exchange(word, counted, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Key of the current timer. For the control side.
    pub fn key(&self) -> Key {
        Key::in_signal_value(self.0.load(Ordering::Relaxed))
    }

    /// Periods that have expired under the current timer. For the control side.
    pub fn periods(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> KEY_BITS
    }

    /// Makes `next` the current timer; returns the periods that expired under the one before. For the control side.
    pub fn switch(&self, next: Key) -> u64 {
        self.0.swap(u64::from(next.0), Ordering::Relaxed) >> KEY_BITS
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "a test may panic")]
mod tests;
