//! Finds growth of CPU time that the differences between equal runs do not explain.
//!
//! Problem: two runs of one program never have equal profiles, and a check with false alarms is soon ignored. Sampling
//! explains only a part of the differences: the JIT inlines and compiles differently each time, so shares of self time
//! vary three times as much as sampling explains, and those of total time twice as much.
//! Approach: the spread is estimated from several runs a side. Methods are judged by total time, which does not depend
//! on inlining, as a share of the run, because CPU times depend on the load of the machine.
//!
//! For a method, with `n` runs before and `m` after: `T = (mean after - mean before) / s`, where `s² = (1/n + 1/m) *
//! (v + d * b) / 2`. `v` is the variance of the runs around the means of their sides. `b` is that of sampling alone,
//! `p (1 - p) / samples`, and `d` the median over the methods of the variance around the common mean divided by `b`.
//! Half of the error is the method's own and half is typical of all methods, so that a few runs that agree by chance
//! do not make a difference look significant.
//!
//! If both sides are equal, every division of the runs into sides of these sizes is as likely as the real one. So in
//! `k` of `D` comparisons the largest |T| of all methods is among the `k` largest of the `D` divisions, whatever the
//! distributions are and however methods depend on each other. The probability of a method is the share of the
//! divisions in which any method has its |T| or more; it holds for all methods together. Both directions count,
//! because the share of one method grows where that of another one shrinks. Five runs a side have 252 divisions, of
//! which two have the differences of the real one, so 0.8 % is the least.
//!
//! The CPU time of the program, one number for each run, is judged by Student's t-test of its logarithm. It gets a
//! fifth of the risk of a false alarm; the methods get the rest.
//!
//! When one method becomes cheaper, the shares of all others rise. Where both sides did the same work and the
//! program takes less time than before, methods must also have grown in CPU time.
//! Source: P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing, 1993, chapter 2 (single-step maxT).

mod shares;
mod splits;
mod student;
mod text;

use serde::Serialize;

use self::shares::{Shares, Sides, Sums, sums};
use self::splits::{least_probability, splits};
use super::difference::Methods;
use crate::text::quantity::percent;

/// Confidence by default: at most 1 in 100 comparisons of equal programs fails.
pub const CONFIDENCE: f64 = 0.99;
/// Part of the risk of a false alarm that the CPU time of the program gets.
const RISK_OF_PROGRAM: f64 = 0.2;
/// Probability below which a program is taken to be faster than before.
const FASTER: f64 = 0.05;
/// Probability that is left out above an interval, and below it, that holds 95 %.
const BEYOND_INTERVAL: f64 = 0.025;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Allowed relative growth, such as 0.05.
    pub limit: f64,
    /// Probability that equal programs pass, such as 0.99.
    pub confidence: f64,
    /// True if all runs did the same work, so that their CPU times can be compared.
    pub same_work: bool,
}

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoVerdict {
    #[error(
        "{before} and {after} runs are too few for a verdict by method at {confidence} confidence, because equal runs differ \
        by more than sampling explains; it needs {least} runs a side"
    )]
    TooFewRuns {
        before: usize,
        after: usize,
        confidence: String,
        /// Least number of runs on each side.
        least: usize,
    },
    #[error("run {run} of the {side} side has no samples, so nothing can be compared")]
    NoSamples {
        /// `first` or `second`.
        side: &'static str,
        /// Number of the run on its side, from 1.
        run: usize,
    },
}

/// A method in the runs of both sides. Shares are of the CPU time of a run, 0 to 1, averaged over the runs of a side.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Growth {
    pub name: String,
    /// Share of total time before.
    pub before_share: f64,
    /// The same, after.
    pub after_share: f64,
    /// Relative change of the share, such as 0.1 for 10 % more; none for a method that was not there before.
    pub change: Option<f64>,
    /// Half of the width of the change's interval of 95 % confidence.
    pub uncertainty: Option<f64>,
    /// Standard error of the difference of the shares.
    pub standard_error: f64,
    /// Difference of the shares in standard errors.
    pub deviations: f64,
    /// Probability that in a comparison of equal programs any method has these deviations or more, up or down.
    pub probability: f64,
    /// True if the method has grown beyond the limit.
    pub has_grown: bool,
}

/// The CPU time of the program in the runs of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProgramGrowth {
    /// CPU time of a run before, the geometric mean.
    pub before_ns: u64,
    /// The same, after.
    pub after_ns: u64,
    pub change: f64,
    /// Half of the width of the change's interval of 95 % confidence.
    pub uncertainty: f64,
    /// Probability of this growth or more in a comparison of equal programs.
    pub probability: f64,
    /// True if it has grown beyond the limit.
    pub has_grown: bool,
}

/// The comparison of two sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// Allowed relative growth.
    pub limit: f64,
    /// Probability that equal programs pass.
    pub confidence: f64,
    /// Runs before and after.
    pub runs: [usize; 2],
    /// Samples before and after.
    pub samples: [u64; 2],
    /// The CPU time of the program, if both sides did the same work.
    pub program: Option<ProgramGrowth>,
    /// Methods that were judged, the largest growth in standard errors first.
    pub methods: Vec<Growth>,
    /// Deviations from which a method counts as grown.
    pub threshold: f64,
}

/// Returns the risk of a false alarm that the methods get.
fn risk_of_methods(confidence: f64) -> f64 {
    (1.0 - confidence) * (1.0 - RISK_OF_PROGRAM)
}

/// Returns the least number of runs a side for a verdict by method.
pub fn least_runs(confidence: f64) -> usize {
    let is_enough = |&runs: &usize| least_probability(runs, runs) <= risk_of_methods(confidence);
    (1..50).find(is_enough).unwrap_or(50)
}

impl ProgramGrowth {
    /// Compares the CPU times of the runs; also returns whether the program takes less time than before.
    fn of(before: &[Methods], after: &[Methods], rules: Rules) -> (Self, bool) {
        let [before, after] =
            [before, after].map(|side| sums(side.iter().map(|run| (run.total_ns.max(1) as f64).ln())));
        let freedom = (before.count + after.count) as usize - 2;
        let variance = (before.squares_around_mean() + after.squares_around_mean()) / freedom as f64;
        let error = (variance * (1.0 / before.count + 1.0 / after.count)).sqrt().max(f64::MIN_POSITIVE);
        let difference = after.mean() - before.mean();
        let probability = student::upper_tail(difference / error, freedom);
        let change = difference.exp_m1();
        let risk = (1.0 - rules.confidence) * RISK_OF_PROGRAM;
        let program = Self {
            before_ns: before.mean().exp() as u64,
            after_ns: after.mean().exp() as u64,
            change,
            uncertainty: student::quantile(BEYOND_INTERVAL, freedom) * error * (1.0 + change),
            probability,
            has_grown: probability <= risk && change > rules.limit,
        };
        (program, 1.0 - probability < FASTER)
    }
}

impl Verdict {
    /// Compares the runs of two sides.
    ///
    /// # Errors
    /// If the runs are too few for a verdict, or one has no samples.
    pub fn of(before: &[Methods], after: &[Methods], rules: Rules) -> Result<Self, NoVerdict> {
        check_samples(before, after)?;
        check_runs(before.len(), after.len(), rules.confidence)?;
        let program = rules.same_work.then(|| ProgramGrowth::of(before, after, rules));
        let is_faster = program.is_some_and(|(_, is_faster)| is_faster);
        let runs: Vec<&Methods> = before.iter().chain(after).collect();
        let shares = Shares::of(&runs);
        let judge = Judge::of(&shares, splits(before.len(), after.len()), rules);
        let mut methods: Vec<Growth> = (0..shares.names.len())
            .map(|method| {
                let mut growth = judge.growth(method);
                growth.has_grown &= !is_faster || judge.time_change(method, &runs) > rules.limit;
                growth
            })
            .collect();
        methods.sort_by(|a, b| b.deviations.total_cmp(&a.deviations).then_with(|| a.name.cmp(&b.name)));
        Ok(Self {
            limit: rules.limit,
            confidence: rules.confidence,
            runs: [before.len(), after.len()],
            samples: [before, after]
                .map(|side| side.iter().map(|run| run.samples).fold(0, u64::saturating_add)),
            program: program.map(|(program, _)| program),
            methods,
            threshold: judge.threshold,
        })
    }

    /// Returns the methods that have grown beyond the limit.
    pub fn grown(&self) -> impl Iterator<Item = &Growth> {
        self.methods.iter().filter(|method| method.has_grown)
    }

    /// Returns whether the program or a method has grown beyond the limit.
    pub fn has_failed(&self) -> bool {
        self.program.is_some_and(|program| program.has_grown) || self.grown().next().is_some()
    }
}

fn check_samples(before: &[Methods], after: &[Methods]) -> Result<(), NoVerdict> {
    for (side, runs) in [("first", before), ("second", after)] {
        if let Some(place) = runs.iter().position(|run| run.samples == 0 || run.total_ns == 0) {
            return Err(NoVerdict::NoSamples { side, run: place + 1 });
        }
    }
    Ok(())
}

/// Checks that so many runs on each side can have a verdict.
///
/// # Errors
/// If they are too few for the confidence.
pub fn check_runs(before: usize, after: usize, confidence: f64) -> Result<(), NoVerdict> {
    match least_probability(before, after) <= risk_of_methods(confidence) {
        true => Ok(()),
        false => {
            let (least, confidence) = (least_runs(confidence), percent(confidence));
            Err(NoVerdict::TooFewRuns { before, after, confidence, least })
        }
    }
}

/// Returns whether `t` is at least `other`, in spite of rounding.
fn is_at_least(t: f64, other: f64) -> bool {
    t >= other * (1.0 - 1e-9)
}

/// The methods of a comparison, with the distribution of their differences under chance.
struct Judge<'s> {
    shares: &'s Shares<'s>,
    /// The methods in the real division.
    methods: Vec<Sides>,
    /// Whether a run belongs to the second side.
    is_after: Vec<bool>,
    /// For each division the largest T of all methods.
    largest: Vec<f64>,
    threshold: f64,
    rules: Rules,
}

impl<'s> Judge<'s> {
    fn of(shares: &'s Shares<'s>, mut divisions: Vec<Vec<bool>>, rules: Rules) -> Self {
        let largest_of = |is_after: &Vec<bool>| {
            let all = shares.divided(is_after).into_iter();
            all.map(|sides| sides.deviations().abs()).fold(0.0, f64::max)
        };
        let largest: Vec<f64> = divisions.iter().map(largest_of).collect();
        let is_real = |t: f64| is_at_least(t, largest[0]) && is_at_least(largest[0], t);
        let mut others: Vec<f64> = largest.iter().copied().filter(|&t| !is_real(t)).collect();
        others.sort_unstable_by(|a, b| b.total_cmp(a));
        let allowed = (risk_of_methods(rules.confidence) * largest.len() as f64) as usize;
        let more = allowed.saturating_sub(largest.len() - others.len());
        let threshold = others.get(more).copied().unwrap_or(0.0);
        let is_after = divisions.swap_remove(0);
        Self { shares, methods: shares.divided(&is_after), is_after, largest, threshold, rules }
    }

    fn growth(&self, method: usize) -> Growth {
        let sides = self.methods[method];
        let (before_share, after_share) = (sides.before.mean(), sides.after.mean());
        let (standard_error, deviations) = (sides.standard_error(), sides.deviations());
        let as_large = self.largest.iter().filter(|&&largest| is_at_least(largest, deviations.abs())).count();
        let probability = as_large as f64 / self.largest.len() as f64;
        let change = (before_share > 0.0).then(|| after_share / before_share - 1.0);
        let interval = student::quantile(BEYOND_INTERVAL, self.is_after.len() - 2);
        Growth {
            name: self.shares.names[method].to_owned(),
            before_share,
            after_share,
            change,
            uncertainty: change.map(|_| interval * standard_error / before_share),
            standard_error,
            deviations,
            probability,
            has_grown: deviations > 0.0
                && probability <= risk_of_methods(self.rules.confidence)
                && change.is_none_or(|change| change > self.rules.limit),
        }
    }

    fn time_change(&self, method: usize, runs: &[&Methods]) -> f64 {
        let mut sides = [Sums::default(); 2];
        for ((share, run), &is_after) in self.shares.of_runs[method].iter().zip(runs).zip(&self.is_after) {
            sides[usize::from(is_after)].add(share * run.total_ns as f64);
        }
        sides[1].mean() / sides[0].mean().max(f64::MIN_POSITIVE) - 1.0
    }
}

#[cfg(test)]
mod tests;
