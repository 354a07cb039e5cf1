//! How far a sampled figure may be from the truth.
//!
//! Problem: a bound that a right profiler breaks now and then makes every failure worthless, and one that nothing
//! breaks proves nothing.
//! Approach: tests compare with what the workload measured of itself, by the clock of its thread, and the bound follows
//! from how sampling errs: independent draws, the ends of a measured stretch, its many turns.
//! Invariant: each comparison fails once in ten million at the most where the profiler is right, so that a whole run of
//! some two hundred comparisons does once in 50,000; on slow and busy machines as well, for nothing here is elapsed time.

/// The default sampling interval: the weight of one expiration.
pub const INTERVAL_NS: u64 = 10_000_000;

/// The usual tick of the scheduler (250 Hz), at which expirations are delivered.
pub const TICK_NS: u64 = 4_000_000;

/// CPU time that an expiration waits for a tick, at the most.
///
/// A thread that always runs waits one tick at most. One that runs in bursts shorter than that is met by chance: what it
/// burns until then is exponential with the tick as its mean, so 15 ticks are exceeded once in 3 million.
pub const LATE_NS: u64 = 15 * TICK_NS;

/// Standard deviations that are allowed: a normal distribution exceeds them once in 26 million.
const DEVIATIONS: f64 = 5.5;

/// Largest plausible difference between a true share and the share among `samples` independent samples of equal weight.
pub fn binomial_tolerance(share: f64, samples: u64) -> f64 {
    DEVIATIONS * (share * (1.0 - share) / (samples.max(1) as f64)).sqrt()
}

/// Largest plausible difference between the CPU time of one stretch of a thread and what was sampled in it.
///
/// The first sample may stand for up to an interval from before it, the last interval has no sample yet, and both may
/// wait for their tick. The two err in opposite directions.
pub fn stretch_tolerance_ns(interval_ns: u64) -> u64 {
    interval_ns + LATE_NS
}

/// Largest plausible difference between the CPU time of `turns` separate pieces of work and what periods of
/// `interval_ns` that began before each of them say of it.
///
/// A piece is met by as many ends of periods as fit into it, or by one more; as chance has it, which is a variance of a
/// quarter of a squared period at most.
pub fn turns_tolerance_ns(turns: u64, interval_ns: u64) -> u64 {
    (DEVIATIONS * (interval_ns as f64 / 2.0) * (turns.max(1) as f64).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_the_root_of_the_turns() {
        assert_eq!(turns_tolerance_ns(1, 10_000_000), 27_500_000);
        assert_eq!(turns_tolerance_ns(4, 10_000_000), 55_000_000);
    }

    #[test]
    fn shrinks_with_the_root_of_the_samples() {
        assert!((binomial_tolerance(0.5, 400) - 0.1375).abs() < 1e-12);
        assert!((binomial_tolerance(0.5, 40_000) - 0.01375).abs() < 1e-12);
    }
}
