//! The timer of a slot: its key, the periods claimed under it, and those that wait for a sample.
//!
//! Problem: a thread's timer is replaced when its period changes. A signal of the old one may be on its way, or its
//! handler just beginning; it must count with its own period, exactly once.
//! Approach: each timer has a [`Key`], which its signals carry. One word, the [`Grid`], holds the key of the current
//! timer, the periods of skipped signals, and the periods claimed by samples. The handler changes it by a
//! compare-and-swap: a skipped signal adds to the waiting periods, a sample claims them all. The control side ends a
//! timer by a swap, which returns what was claimed; a later handler claims nothing, and the next timer covers what
//! waited.
//! Invariant: the periods that the control side has read are those of requests pushed or counted as lost.

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

/// Bits of the waiting periods: 131 s of CPU time at a period of 125 us, more than one and a half of the longest
/// interval. 38 bits remain for the claimed ones, a year of CPU time under one timer.
const WAITING_BITS: u32 = 20;
/// Most periods that can wait; a signal beyond them becomes a sample.
pub const MAX_WAITING: u64 = (1 << WAITING_BITS) - 1;
/// Position of the claimed periods.
const CLAIMED_SHIFT: u32 = KEY_BITS + WAITING_BITS;

/// Number of periods in use at one time.
pub const PERIODS: usize = PERIOD_MASK as usize + 1;

/// Identifies one of a thread's timers: the index of its period, and two bits that change with each timer.
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
    /// The signal is skipped; its periods wait.
    Passed,
    /// Another timer has replaced the signal's, and covers its time.
    Overtaken,
}

/// The key of a slot's current timer, its waiting and its claimed periods. All-zero bytes are a valid grid.
#[derive(Debug, Default)]
pub struct Grid(AtomicU64);

impl Grid {
    /// Adds the `periods` of a signal if `key` is the current timer's. `take` claims them and those that wait;
    /// otherwise they wait, unless too many do. Signal safe.
    #[inline]
    pub fn claim(&self, key: Key, periods: u64, take: bool) -> Claim {
        // Relaxed: the word is the only shared state, and every change of it is one exchange.
        let word = self.0.load(Ordering::Relaxed);
        if word & KEY_MASK != u64::from(key.0) {
            return Claim::Overtaken;
        }
        let all = waiting(word).saturating_add(periods);
        let (counted, claim) = if take || all > MAX_WAITING {
            let claimed = (word >> CLAIMED_SHIFT).wrapping_add(all).wrapping_shl(CLAIMED_SHIFT);
            (claimed | u64::from(key.0), Claim::Taken(all))
        } else {
            (word.wrapping_add(periods.wrapping_shl(KEY_BITS)), Claim::Passed)
        };
        // Only the control side competes, and its exchange changes the key.
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

    /// Makes `next` the current timer, with nothing waiting; returns the periods claimed under the former one. For the
    /// control side.
    pub fn switch(&self, next: Key) -> u64 {
        self.0.swap(u64::from(next.0), Ordering::Relaxed) >> CLAIMED_SHIFT
    }

    /// Lets `periods` wait, at most [`MAX_WAITING`], under a timer that is not started yet. For the control side.
    pub fn begin(&self, periods: u64) {
        // No signal of this timer exists yet.
        let word = u64::from(self.key().0) | periods.min(MAX_WAITING).wrapping_shl(KEY_BITS);
        let claimed = self.periods().wrapping_shl(CLAIMED_SHIFT);
        self.0.store(word | claimed, Ordering::Relaxed);
    }
}

#[inline(always)]
fn waiting(word: u64) -> u64 {
    (word >> KEY_BITS) & MAX_WAITING
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "a test may panic")]
mod tests;
