//! The timer of a slot: its key, the periods that were claimed under it, and those that wait for a sample.
//!
//! Problem: a thread's timer is replaced when its period changes. A signal of the old one may be on its way then, or its
//! handler just beginning; it must have the weight of its own period, and be counted exactly once.
//! Approach: each timer has a [`Key`], which its signals carry. The slot's [`Grid`] holds in one word the key of the
//! current timer, the periods of signals that were passed over, and the periods claimed by samples. The handler changes it
//! by a compare-and-swap: a signal that is passed over adds to the waiting periods, a sample claims them all. The control
//! side ends a timer by a swap, which returns what was claimed to the last period. A handler that comes later claims
//! nothing, and what waited begins under the next timer.
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

/// Bits of the waiting periods: 131 s of CPU time at a period of 125 us (1000 ticks a second), more than the longest
/// interval and a half. 38 bits remain for the claimed ones, a year of a thread's CPU time under one timer.
const WAITING_BITS: u32 = 20;
/// Most periods that can wait; a signal beyond them is a sample.
pub const MAX_WAITING: u64 = (1 << WAITING_BITS) - 1;
/// Position of the claimed periods.
const CLAIMED_SHIFT: u32 = KEY_BITS + WAITING_BITS;

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

/// Outcome of a claim for one signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The signal is a sample, which stands for this many periods.
    Taken(u64),
    /// The signal is passed over; its periods wait.
    Passed,
    /// Another timer has replaced the signal's own, and covers its time.
    Overtaken,
}

/// The key of a slot's current timer, its waiting and its claimed periods. All-zero bytes are a valid grid.
#[derive(Debug, Default)]
pub struct Grid(AtomicU64);

impl Grid {
    /// Adds the `periods` of a signal if `key` is the current timer's: `take` claims them and those that wait, otherwise
    /// they wait, unless too many do. Signal safe.
    #[inline]
    pub fn claim(&self, key: Key, periods: u64, take: bool) -> Claim {
        // Relaxed: the word is the only shared state, and every change of it is one exchange.
        let word = self.0.load(Ordering::Relaxed);
        if word & KEY_MASK != u64::from(key.0) {
            return Claim::Overtaken;
        }
        let all = waiting(word).saturating_add(periods);
        let (counted, claim) = match take || all > MAX_WAITING {
            true => {
                let claimed = (word >> CLAIMED_SHIFT).wrapping_add(all).wrapping_shl(CLAIMED_SHIFT);
                (claimed | u64::from(key.0), Claim::Taken(all))
            }
            false => (word.wrapping_add(periods.wrapping_shl(KEY_BITS)), Claim::Passed),
        };
        // Only the control side competes, and after its exchange the key is another one.
        match self.0.compare_exchange(word, counted, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => claim,
            Err(_) => Claim::Overtaken,
        }
    }

    /// Key of the current timer. For the control side.
    pub fn key(&self) -> Key {
        Key::in_signal_value(self.0.load(Ordering::Relaxed))
    }

    /// Periods that were claimed under the current timer. For the control side.
    pub fn periods(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> CLAIMED_SHIFT
    }

    /// Makes `next` the current timer, with nothing waiting; returns the periods claimed under the one before. For the
    /// control side.
    pub fn switch(&self, next: Key) -> u64 {
        self.0.swap(u64::from(next.0), Ordering::Relaxed) >> CLAIMED_SHIFT
    }

    /// Lets `periods` wait, at most [`MAX_WAITING`], under a timer that has not been started. For the control side.
    pub fn begin(&self, periods: u64) {
        // No signal of this timer exists, and handlers with other keys change nothing.
        let word = u64::from(self.key().0) | periods.min(MAX_WAITING).wrapping_shl(KEY_BITS);
        let claimed = self.periods().wrapping_shl(CLAIMED_SHIFT);
        self.0.store(word | claimed, Ordering::Relaxed);
    }
}

/// Returns the waiting periods in a word.
#[inline(always)]
fn waiting(word: u64) -> u64 {
    (word >> KEY_BITS) & MAX_WAITING
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "a test may panic")]
mod tests;
