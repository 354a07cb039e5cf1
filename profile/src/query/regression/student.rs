//! Student's distribution, by integration over the angle whose tangent is `t / sqrt(freedom)`.

use std::f64::consts::FRAC_PI_2;

/// Steps of Simpson's rule, an even number.
const STEPS: u32 = 400;

/// Returns the probability of a value above `t`, with `freedom` degrees of freedom (at least 1).
pub fn upper_tail(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    area(angle, freedom) / area(-FRAC_PI_2, freedom)
}

/// Returns the value that is exceeded with a probability between 0 and one half.
pub fn quantile(above: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while upper_tail(high, freedom) > above {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        match upper_tail(middle, freedom) > above {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Returns the integral of the density's shape, a power of the cosine, from `angle` to the right angle.
fn area(angle: f64, freedom: usize) -> f64 {
    let width = (FRAC_PI_2 - angle) / f64::from(STEPS);
    let exponent = i32::try_from(freedom).unwrap_or(i32::MAX) - 1;
    let shape = |step: u32| (angle + width * f64::from(step)).cos().max(0.0).powi(exponent);
    let weight = |step: u32| match step {
        0 | STEPS => 1.0,
        step if step % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=STEPS).map(|step| weight(step) * shape(step)).sum::<f64>() * width / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of printed tables.
    #[test]
    fn tables_agree() {
        for (freedom, above, t) in
            [(1, 0.05, 6.314), (2, 0.025, 4.303), (8, 0.025, 2.306), (8, 0.001, 4.501), (30, 0.005, 2.750)]
        {
            assert!((quantile(above, freedom) - t).abs() < 0.001, "{freedom} {above}");
            assert!((upper_tail(t, freedom) / above - 1.0).abs() < 0.01, "{freedom} {above}");
            assert!((upper_tail(-t, freedom) + upper_tail(t, freedom) - 1.0).abs() < 1e-9);
        }
    }
}
