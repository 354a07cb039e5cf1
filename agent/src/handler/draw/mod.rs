//! Draws which signals of a thread become samples.
//!
//! Problem: samples at fixed distances meet a program that runs in step with the interval at the same phases each time:
//! methods get several times their share, or nothing.
//! Approach: the timer expires at every tick of the kernel, and the handler skips signals until a random distance
//! between half and one and a half intervals has passed. Skipped time joins the weight of the next sample. The
//! distances do not depend on the program, so every tick has the same chance and the same expected weight
//! (`design/timers.md`, with proof and alternatives).
//! Invariant: only the slot's thread changes a draw, or the registry before the slot has a timer.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Distances that one signal may cover; the rest of a longer one is dropped.
const MAX_DISTANCES: u32 = 4;
/// Random bits that choose a distance; with 36 bits of nanoseconds they fit 64.
const DISTANCE_BITS: u32 = 24;

/// The state of a slot's draws. All-zero bytes are valid: the next signal is taken. Relaxed throughout, see the
/// invariant.
#[derive(Debug, Default)]
pub struct Draw {
    /// CPU time until the next sample, in nanoseconds; not positive if the next signal is one.
    left_ns: AtomicI64,
    /// State of the generator (xorshift, 64 bits); 0 yields equal distances.
    state: AtomicU64,
    /// Periods of the next signal that do not count (`crate::threads::remainder`).
    uncounted: AtomicU32,
}

/// The outcome of one signal before it is claimed.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// Periods that the signal counts for.
    pub periods: u64,
    /// True if the signal becomes a sample.
    pub take: bool,
    left_ns: i64,
}

impl Draw {
    /// Returns the outcome for a signal of `periods` and changes nothing; `mean_ns` is the mean distance, 0 if every
    /// signal is a sample. Signal safe.
    #[inline(always)]
    pub fn look(&self, periods: u64, period_ns: u64, mean_ns: u64) -> Drawn {
        let uncounted = u64::from(self.uncounted.load(Ordering::Relaxed)).min(periods.saturating_sub(1));
        let periods = periods.saturating_sub(uncounted);
        // A distance drawn for a longer interval is cut.
        let most_ns = mean_ns.saturating_add(mean_ns >> 1).cast_signed();
        let left_ns = self.left_ns.load(Ordering::Relaxed).min(most_ns);
        let left_ns = left_ns.saturating_sub_unsigned(periods.saturating_mul(period_ns));
        Drawn { periods, take: left_ns <= 0, left_ns }
    }

    /// Notes a claimed signal, as a sample if it `is_taken`. Signal safe.
    #[inline(always)]
    pub fn note(&self, drawn: Drawn, is_taken: bool, mean_ns: u64) {
        self.uncounted.store(0, Ordering::Relaxed);
        let left_ns = if is_taken { self.next(drawn.left_ns, mean_ns) } else { drawn.left_ns };
        self.left_ns.store(left_ns, Ordering::Relaxed);
    }

    /// Returns the CPU time to the end of the first drawn distance that has not passed. Signal safe.
    #[inline]
    fn next(&self, left_ns: i64, mean_ns: u64) -> i64 {
        if mean_ns == 0 {
            return 0;
        }
        let mut left_ns = left_ns;
        for _ in 0..MAX_DISTANCES {
            let distance_ns = self.distance_ns(mean_ns);
            left_ns = left_ns.saturating_add_unsigned(distance_ns);
            if left_ns > 0 {
                return left_ns;
            }
        }
        self.distance_ns(mean_ns).cast_signed()
    }

    /// Draws a distance between half and one and a half of `mean_ns`. Signal safe.
    #[inline(always)]
    fn distance_ns(&self, mean_ns: u64) -> u64 {
        let mut state = self.state.load(Ordering::Relaxed);
        state ^= state.wrapping_shl(13);
        state ^= state.wrapping_shr(7);
        state ^= state.wrapping_shl(17);
        self.state.store(state, Ordering::Relaxed);
        let fraction = state.wrapping_shr(64 - DISTANCE_BITS);
        (mean_ns >> 1).saturating_add(fraction.saturating_mul(mean_ns) >> DISTANCE_BITS)
    }

    /// Begins for a new thread; for the registry, before the slot has a timer.
    pub fn begin(&self, left_ns: i64, seed: u64, uncounted: u32) {
        self.left_ns.store(left_ns, Ordering::Relaxed);
        self.state.store(seed, Ordering::Relaxed);
        self.uncounted.store(uncounted, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
