//! Tolerances: how far a sampled figure may be from the true one.
//!
//! Problem: a bound that a correct profiler sometimes breaks makes every failure worthless, and a bound that nothing
//! breaks proves nothing.
//! Approach: tests compare with the CPU time that the workload measured on its thread's clock, and the bound follows
//! from the sampling error: that of independent draws, of the two ends of one span, or of the ends of many spans.
//! Invariant: a correct profiler fails a comparison at most once in ten million, so a full run of some two hundred
//! comparisons fails once in 50,000. This holds on slow and busy machines too, because no bound depends on elapsed
//! time.

/// The default sampling interval: the mean weight of a sample.
pub const INTERVAL_NS: u64 = 10_000_000;

/// The usual tick of the scheduler (250 Hz), at which expirations are delivered.
pub const TICK_NS: u64 = 4_000_000;

/// Returns the tick of the scheduler that the kernel reports, in nanoseconds.
///
/// # Panics
/// If the kernel reports none.
pub fn reported_tick_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC_COARSE;
    let resolution = nix::time::clock_getres(clock).expect("the resolution of a clock");
    u64::try_from(resolution.tv_nsec()).expect("a positive time")
}

/// Largest CPU time that passes between an expiration and the tick that delivers it.
///
/// A thread that runs without a break waits for one tick at most. A thread that runs in bursts shorter than a tick is
/// interrupted by chance: the CPU time it burns until then is exponentially distributed with the tick as its mean, and
/// exceeds 15 ticks once in 3 million cases.
pub const MAX_TICK_DELAY_NS: u64 = 15 * TICK_NS;

/// Allowed standard deviations: a normal distribution exceeds 5.5 once in 26 million.
const DEVIATIONS: f64 = 5.5;

/// Returns the largest plausible difference between a true share and the share among `samples` independent samples of
/// equal weight.
pub fn binomial_tolerance(share: f64, samples: u64) -> f64 {
    DEVIATIONS * (share * (1.0 - share) / (samples.max(1) as f64)).sqrt()
}

/// Share of samples whose stack ends early or has a gap, on the safe side: the matrix shows 0.02 % over its programs,
/// single programs up to 0.1 % (`design/measured/matrix.md`).
pub const CUT_SHARE: f64 = 0.001;

/// Returns the number of events that is exceeded by chance at most once in a million times, where each of `count`
/// trials has this small `share` of events.
///
/// The Poisson distribution, whose tail lies above that of the binomial one.
pub fn rare_events(share: f64, count: u64) -> u64 {
    const CHANCE: f64 = 1e-6;
    let mean = share * count as f64;
    // Logarithms, because the probability of no event is no number any more from a mean of 745 on.
    let mut probability_log = -mean;
    let mut above = 1.0 - probability_log.exp();
    let mut events = 0;
    while above >= CHANCE {
        events += 1;
        probability_log += (mean / events as f64).ln();
        above -= probability_log.exp();
    }
    events
}

/// Returns the largest plausible difference between the CPU time of one uninterrupted span of a thread and what was
/// sampled in it.
///
/// The first sample may stand for up to one and a half intervals before the span, as much at its end has no sample yet,
/// and both samples may wait for their tick. The two errors have opposite signs.
pub fn span_tolerance_ns(interval_ns: u64) -> u64 {
    interval_ns / 2 * 3 + MAX_TICK_DELAY_NS
}

/// Returns the largest plausible difference between the CPU time of `spans` separate spans and what was sampled in them
/// every `interval_ns`.
///
/// The time between the last sample before a span and its begin is chance, and so is that at its end. With distances
/// between a half and one and a half intervals, each has a variance of 0.123 squared intervals, together a quarter.
pub fn spans_tolerance_ns(spans: u64, interval_ns: u64) -> u64 {
    (DEVIATIONS * (interval_ns as f64 / 2.0) * (spans.max(1) as f64).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_tolerance_grows_with_the_square_root() {
        assert_eq!(spans_tolerance_ns(1, 10_000_000), 27_500_000);
        assert_eq!(spans_tolerance_ns(4, 10_000_000), 55_000_000);
    }

    #[test]
    fn rare_events_are_those_of_the_poisson_distribution() {
        assert_eq!((rare_events(0.0002, 0), rare_events(0.0002, 750)), (0, 4));
        // A mean of 1: 1 - (1 + 1 + 1/2 + ... + 1/9!)/e is 1.1e-7, and with 1/8! the last 1.1e-6.
        assert_eq!(rare_events(0.001, 1000), 9);
        assert_eq!(rare_events(0.0002, 10_000), 12);
        // About 4.75 deviations of a normal distribution.
        let many = rare_events(0.01, 1_000_000);
        assert!((10_470..10_490).contains(&many), "{many}");
    }

    #[test]
    fn binomial_tolerance_shrinks_with_the_square_root() {
        assert!((binomial_tolerance(0.5, 400) - 0.1375).abs() < 1e-12);
        assert!((binomial_tolerance(0.5, 40_000) - 0.01375).abs() < 1e-12);
    }
}
