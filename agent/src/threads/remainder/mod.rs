//! The unfinished CPU time of ended threads, and how much of it a new thread takes over.
//!
//! Problem: a thread far shorter than a tick rarely meets one. Its CPU time must be in the profile all the same,
//! threads of every length must have their share, and no CPU time may be sampled that was not used.
//! Approach: a new thread starts as if it had always run. It takes over as many waiting periods and as much of a drawn
//! distance as a thread has at a random moment, and the first tick that meets it counts for one tick, however soon it
//! comes. So each tick claims one tick of CPU time in expectation, and claims are in proportion to the lengths of
//! threads, as ticks are (`design/account.md`). The time comes from ended threads, which hand on what is left. This
//! remainder goes up and down by chance, so new threads take a little more of a large one and a little less of a small
//! one.
//! Invariant: no more is taken over than was handed on.

use std::hash::{BuildHasher, RandomState};

use sampler_thread::period::aim::Aim;

/// Earliest first expiration of a timer, in nanoseconds of CPU time: after the return from the system call.
pub(super) const SOONEST_NS: u64 = 3_000;

/// Intended remainder, in intervals: enough for some young threads.
const AIMED_INTERVALS: u64 = 4;
/// One in this many parts of the difference is corrected by each thread: within some hundred ticks in short threads, at
/// the cost of a fraction of an interval in the weights of their samples.
const CORRECTED_PART: i64 = 16;
/// Most intervals that a thread takes over because of a large remainder. If processors are scarce, threads often get
/// one right after a tick, so ticks meet too few short threads and their time adds up.
const MOST_CORRECTED_INTERVALS: u64 = 2;

/// Unfinished CPU time of ended threads, for new ones.
#[derive(Debug, Default)]
pub(super) struct Remainder {
    ns: u64,
    /// Number of random numbers drawn.
    draws: u64,
    random: RandomState,
}

/// State in which a new thread begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Beginning {
    /// CPU time taken over, in nanoseconds.
    pub(super) carried_ns: u64,
    /// CPU time until the signal that is taken, in nanoseconds.
    pub(super) left_ns: i64,
    /// Periods of the first signal that do not count.
    pub(super) uncounted: u32,
    /// State of the slot's generator.
    pub(super) seed: u64,
    /// Delay of the wall clock's expirations, in nanoseconds, which spreads those of threads that start together.
    pub(super) late_ns: u64,
}

impl Remainder {
    /// Adds what an ended thread hands on, in nanoseconds.
    pub(super) fn add(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
    }

    /// Removes what a new thread has taken over, or what was added in excess.
    pub(super) fn remove(&mut self, ns: u64) {
        self.ns = self.ns.saturating_sub(ns);
    }

    /// Returns the state in which a new thread begins; the caller removes what it takes over.
    pub(super) fn beginning(&mut self, aim: &Aim) -> Beginning {
        if aim.is_exact() {
            return self.exact_beginning(aim);
        }
        let (tick_ns, period_ns) = (aim.tick_ns, aim.period_ns.max(1));
        let (age_ns, left_ns) = self.moment(aim.distance_ns());
        // Samples are taken at ticks, so whole ticks have gone by since the last one.
        let waiting_ns = age_ns / tick_ns.max(1) * tick_ns;
        // The first tick claims a whole tick in periods, rounded at random if it is not a multiple of them.
        let periods = waiting_ns.saturating_add(tick_ns) as f64 / period_ns as f64 + self.fraction();
        let claimed_ns = (periods as u64).saturating_mul(period_ns).cast_signed();
        let claimed_ns = claimed_ns.saturating_add(self.correction_ns(aim)).max(0).cast_unsigned();
        let soonest_ns = SOONEST_NS.min(period_ns / 2);
        // Whole periods, so that the first expiration is as soon with a small remainder as with a large one.
        let most_ns = self.ns.saturating_add(soonest_ns) / period_ns * period_ns;
        let carried_ns = claimed_ns.min(most_ns).saturating_sub(soonest_ns);
        let further_ns = tick_ns.saturating_sub(period_ns);
        Beginning {
            carried_ns,
            left_ns: left_ns.cast_signed().saturating_sub_unsigned(further_ns),
            uncounted: u32::try_from(aim.further_periods()).unwrap_or(0),
            seed: self.number() | 1,
            late_ns: 0,
        }
    }

    /// Returns the state for expirations that do not wait for ticks: at a random moment, each part of a thread's period
    /// has the same probability.
    fn exact_beginning(&mut self, aim: &Aim) -> Beginning {
        let period_ns = aim.period_ns.max(1);
        let part_ns = (self.fraction() * period_ns as f64) as i64;
        let excess_ns =
            self.ns.cast_signed().saturating_sub_unsigned(AIMED_INTERVALS.saturating_mul(period_ns));
        let corrected_ns = part_ns.saturating_add(excess_ns / CORRECTED_PART);
        let most_ns = period_ns.saturating_mul(MOST_CORRECTED_INTERVALS).min(self.ns);
        let carried_ns = corrected_ns.max(0).cast_unsigned().min(most_ns);
        // If ended threads left too little, the first period ends at a random moment too, but later.
        let late_ns = part_ns.max(0).cast_unsigned().saturating_sub(carried_ns);
        Beginning { carried_ns, left_ns: 0, uncounted: 0, seed: self.number() | 1, late_ns }
    }

    /// Returns CPU time since the last and until the next sample at a random moment, in nanoseconds; a long distance
    /// contains more moments than a short one.
    fn moment(&mut self, mean_ns: u64) -> (u64, u64) {
        let (least, most) = (mean_ns as f64 / 2.0, mean_ns as f64 * 1.5);
        let distance = (least * least + self.fraction() * (most * most - least * least)).sqrt();
        let age = self.fraction() * distance;
        (age as u64, (distance - age) as u64)
    }

    /// Returns the additional time that a new thread takes over, in nanoseconds, whole periods; negative for less.
    fn correction_ns(&self, aim: &Aim) -> i64 {
        let mean_ns = aim.distance_ns().max(aim.tick_ns);
        let excess_ns =
            self.ns.cast_signed().saturating_sub_unsigned(AIMED_INTERVALS.saturating_mul(mean_ns));
        let most_ns = mean_ns.saturating_mul(MOST_CORRECTED_INTERVALS).cast_signed();
        let period_ns = aim.period_ns.max(1).cast_signed();
        (excess_ns / CORRECTED_PART).min(most_ns) / period_ns * period_ns
    }

    /// Returns a random number between 0 and 1.
    fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn number(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(1);
        self.random.hash_one(self.draws)
    }
}

/// Returns a random number below `limit`; 0 if that is 0.
pub(super) fn random_below(limit: u64) -> u64 {
    RandomState::new().hash_one(0).checked_rem(limit).unwrap_or(0)
}

#[cfg(test)]
mod tests;
