//! How far a sampled figure may be from the truth.

/// The default sampling interval: the weight of one expiration.
pub const INTERVAL_NS: u64 = 10_000_000;

/// Largest plausible difference between a true share and the share among `samples` independent samples:
/// four standard deviations of a binomial distribution, which a right sampler exceeds once in 16,000 runs.
pub fn binomial_tolerance(share: f64, samples: u64) -> f64 {
    4.0 * (share * (1.0 - share) / (samples.max(1) as f64)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinks_with_the_root_of_the_samples() {
        assert!((binomial_tolerance(0.5, 400) - 0.1).abs() < 1e-12);
        assert!((binomial_tolerance(0.5, 40_000) - 0.01).abs() < 1e-12);
    }
}
