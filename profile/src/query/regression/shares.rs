//! The shares of methods in the runs of a comparison, and how much these differ.

use rustc_hash::FxHashMap;

use crate::query::difference::Methods;
use crate::text::quantity::share;

/// Methods with less than this share, on the average of all runs, are not judged.
const LEAST_SHARE: f64 = 0.01;
/// Samples weigh differently, because their distances do: factor of the variance (`design/timers.md`).
const UNEQUAL_WEIGHTS: f64 = 1.06 * 1.06;

/// The shares of the judged methods in all runs; the runs before come first.
pub(super) struct Shares<'m> {
    pub(super) names: Vec<&'m str>,
    /// For each method its share in each run.
    pub(super) of_runs: Vec<Vec<f64>>,
    /// For each method the typical variance of a share: that of sampling alone, times the dispersion of the runs.
    usual: Vec<f64>,
}

impl<'m> Shares<'m> {
    pub(super) fn of(runs: &[&'m Methods]) -> Self {
        let mut all: FxHashMap<&str, Vec<f64>> = FxHashMap::default();
        for (place, run) in runs.iter().enumerate() {
            for method in &run.methods {
                let of_runs = all.entry(&method.name).or_insert_with(|| vec![0.0; runs.len()]);
                of_runs[place] = share(method.total_ns, run.total_ns);
            }
        }
        let mut judged: Vec<(&str, Vec<f64>)> = all
            .into_iter()
            .filter(|(_, of_runs)| sums(of_runs.iter().copied()).mean() >= LEAST_SHARE)
            .collect();
        judged.sort_unstable_by_key(|(name, _)| *name);
        let per_sample =
            runs.iter().map(|run| 1.0 / run.samples.max(1) as f64).sum::<f64>() / runs.len() as f64;
        let sampling = judged.iter().map(|(_, of_runs)| {
            let mean = sums(of_runs.iter().copied()).mean();
            (UNEQUAL_WEIGHTS * mean * (1.0 - mean) * per_sample).max(f64::MIN_POSITIVE)
        });
        let sampling: Vec<f64> = sampling.collect();
        let (names, of_runs): (Vec<_>, Vec<_>) = judged.into_iter().unzip();
        let dispersion = dispersion(&of_runs, &sampling);
        Self { names, of_runs, usual: sampling.iter().map(|by_sampling| dispersion * by_sampling).collect() }
    }

    /// Returns the methods of a division of the runs.
    pub(super) fn divided(&self, is_after: &[bool]) -> Vec<Sides> {
        let methods = self.of_runs.iter().zip(&self.usual);
        methods.map(|(of_runs, &usual)| Sides::of(of_runs, is_after, usual)).collect()
    }
}

/// Returns the median over the methods of the variance between all runs, in relation to that of sampling alone.
fn dispersion(of_runs: &[Vec<f64>], sampling: &[f64]) -> f64 {
    let ratios = of_runs.iter().zip(sampling).map(|(of_runs, by_sampling)| {
        let around = sums(of_runs.iter().copied()).squares_around_mean();
        around / (of_runs.len() - 1) as f64 / by_sampling
    });
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_unstable_by(f64::total_cmp);
    // A spread below that of sampling is chance.
    ratios.get(ratios.len() / 2).copied().unwrap_or(1.0).max(1.0)
}

/// A method in a division of the runs.
#[derive(Clone, Copy)]
pub(super) struct Sides {
    pub(super) before: Sums,
    pub(super) after: Sums,
    /// Mean of the variance of the runs around the means of their sides, and of the usual variance.
    variance: f64,
}

impl Sides {
    fn of(of_runs: &[f64], is_after: &[bool], usual: f64) -> Self {
        let [mut before, mut after] = [Sums::default(); 2];
        for (&share, &is_after) in of_runs.iter().zip(is_after) {
            if is_after { after.add(share) } else { before.add(share) }
        }
        let around = before.squares_around_mean() + after.squares_around_mean();
        Self { before, after, variance: f64::midpoint(around / (of_runs.len() - 2) as f64, usual) }
    }

    /// Returns the standard error of the difference between the means.
    pub(super) fn standard_error(&self) -> f64 {
        (self.variance * (1.0 / self.before.count + 1.0 / self.after.count)).sqrt()
    }

    pub(super) fn deviations(&self) -> f64 {
        (self.after.mean() - self.before.mean()) / self.standard_error()
    }
}

/// Sums of the runs of one side.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) count: f64,
    values: f64,
    squares: f64,
}

impl Sums {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.values += value;
        self.squares += value * value;
    }

    pub(super) fn mean(&self) -> f64 {
        self.values / self.count.max(1.0)
    }

    pub(super) fn squares_around_mean(&self) -> f64 {
        (self.squares - self.values * self.mean()).max(0.0)
    }
}

pub(super) fn sums(values: impl IntoIterator<Item = f64>) -> Sums {
    let mut sums = Sums::default();
    values.into_iter().for_each(|value| sums.add(value));
    sums
}
