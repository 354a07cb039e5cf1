//! How far a sampled figure may be from the truth.

/// The default sampling interval: the weight of one expiration.
pub const INTERVAL_NS: u64 = 10_000_000;

/// Largest plausible difference between a true share and the share among `samples` independent samples:
/// four standard deviations of a binomial distribution, which a right sampler exceeds once in 16,000 runs.
pub fn binomial_tolerance(share: f64, samples: u64) -> f64 {
    4.0 * (share * (1.0 - share) / (samples.max(1) as f64)).sqrt()
}

/// Largest plausible difference between the CPU time of `turns` separate pieces of work and what periods of
/// `interval_ns` that began before each of them say of it.
///
/// A piece is met by as many ends of periods as fit into it, or by one more; as chance has it, which is a variance of a
/// quarter of a squared period at most. 4.5 standard deviations: a right sampler exceeds that once in 100,000 runs.
pub fn turns_tolerance_ns(turns: u64, interval_ns: u64) -> u64 {
    (4.5 * (interval_ns as f64 / 2.0) * (turns.max(1) as f64).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_the_root_of_the_turns() {
        assert_eq!(turns_tolerance_ns(1, 10_000_000), 22_500_000);
        assert_eq!(turns_tolerance_ns(4, 10_000_000), 45_000_000);
    }

    #[test]
    fn shrinks_with_the_root_of_the_samples() {
        assert!((binomial_tolerance(0.5, 400) - 0.1).abs() < 1e-12);
        assert!((binomial_tolerance(0.5, 40_000) - 0.01).abs() < 1e-12);
    }
}
