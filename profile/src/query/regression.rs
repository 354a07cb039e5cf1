//! Finds methods that take more CPU time than before, beyond what sampling explains.
//!
//! Problem: two runs of the same program never have equal profiles, and a check that fails without a cause is soon ignored.
//! Approach: samples are independent draws (`design/timers.md`), so the share of a method has a known standard error. With
//! several runs a side, the spread of the runs around their mean scales it (quasi-binomial dispersion): whatever else
//! differs between runs counts as well.
//! A method has grown if its share exceeds the share before by more than the limit and by more than [`DEVIATIONS`] standard
//! errors.
//! Source: P. McCullagh and J. A. Nelder, Generalized Linear Models, chapter 4.5 (overdispersion).

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::difference::Methods;
use crate::text::quantity::{count, percent, share};

/// Standard errors that count as a difference. Of equal methods 3 in 100,000 are beyond it upwards, so that a comparison of
/// [`LEAST_SHARE`]'s 100 methods fails in 0.3 % of the cases.
pub const DEVIATIONS: f64 = 4.0;
/// Methods with less than this share on both sides are not judged.
pub const LEAST_SHARE: f64 = 0.01;
/// Standard errors of an interval that holds 95 %.
const INTERVAL: f64 = 1.96;
/// Standard errors beyond [`DEVIATIONS`] at which a growth is found in 95 % of the cases.
const POWER: f64 = 1.65;
/// Samples weigh differently, because their distances do: factor of the standard error (`design/timers.md`).
const UNEQUAL_WEIGHTS: f64 = 1.06;

/// A method in the runs of both sides. Shares are of the CPU time of a side, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Growth {
    /// Name of the method.
    pub name: String,
    /// Share of self time before.
    pub before_share: f64,
    /// The same after.
    pub after_share: f64,
    /// Relative change of the share, such as 0.1 for 10 % more; none for a method that was not there before.
    pub change: Option<f64>,
    /// Half of the width of the change's interval of 95 % confidence.
    pub uncertainty: Option<f64>,
    /// Difference of the shares in standard errors.
    pub deviations: f64,
    /// True if the method has grown beyond the limit.
    pub has_grown: bool,
}

/// The comparison of two sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// Relative growth that is allowed.
    pub limit: f64,
    /// Runs before and after.
    pub runs: [usize; 2],
    /// Samples before and after.
    pub samples: [u64; 2],
    /// Variance between runs in relation to that of sampling alone; 1 with one run a side.
    pub dispersion: f64,
    /// Methods that were judged, the largest growth in standard errors first.
    pub methods: Vec<Growth>,
}

/// Sums of one side.
struct Side<'m> {
    runs: Vec<Run<'m>>,
    total_ns: u64,
    samples: u64,
}

struct Run<'m> {
    self_ns: FxHashMap<&'m str, u64>,
    total_ns: u64,
    samples: u64,
}

impl<'m> Side<'m> {
    fn of(runs: &'m [Methods]) -> Self {
        let runs: Vec<Run<'m>> = runs
            .iter()
            .map(|run| Run {
                self_ns: run.methods.iter().map(|method| (method.name.as_str(), method.self_ns)).collect(),
                total_ns: run.total_ns,
                samples: run.methods.iter().fold(0, |sum, method| sum.saturating_add(method.self_samples)),
            })
            .collect();
        let sum = |of: fn(&Run<'m>) -> u64| runs.iter().map(of).fold(0, u64::saturating_add);
        Self { total_ns: sum(|run| run.total_ns), samples: sum(|run| run.samples), runs }
    }

    fn share(&self, method: &str) -> f64 {
        let self_ns = self.runs.iter().map(|run| run.self_ns(method)).fold(0, u64::saturating_add);
        share(self_ns, self.total_ns)
    }

    /// Returns Pearson's statistic of the runs around their mean, and its degrees of freedom.
    fn spread(&self, method: &str) -> (f64, usize) {
        let mean = self.share(method);
        let of_run = |run: &Run<'_>| {
            let off = share(run.self_ns(method), run.total_ns) - mean;
            off * off / variance(mean, run.samples).max(f64::MIN_POSITIVE)
        };
        match mean > 0.0 && mean < 1.0 {
            true => (self.runs.iter().map(of_run).sum(), self.runs.len().saturating_sub(1)),
            false => (0.0, 0),
        }
    }
}

impl Run<'_> {
    fn self_ns(&self, method: &str) -> u64 {
        self.self_ns.get(method).copied().unwrap_or(0)
    }
}

/// Returns the variance of a share of independent samples.
fn variance(share: f64, samples: u64) -> f64 {
    UNEQUAL_WEIGHTS * UNEQUAL_WEIGHTS * share * (1.0 - share) / samples.max(1) as f64
}

impl Verdict {
    /// Compares the runs of two sides; `limit` is the relative growth that is allowed, such as 0.05.
    pub fn of(before: &[Methods], after: &[Methods], limit: f64) -> Self {
        let sides = [Side::of(before), Side::of(after)];
        let names: FxHashSet<&str> =
            sides.iter().flat_map(|side| &side.runs).flat_map(|run| run.self_ns.keys().copied()).collect();
        let judged =
            names.into_iter().filter(|name| sides.iter().any(|side| side.share(name) >= LEAST_SHARE));
        let judged: Vec<&str> = judged.collect();
        let spreads = sides.iter().flat_map(|side| judged.iter().map(|name| side.spread(name)));
        let (statistic, freedom) =
            spreads.fold((0.0, 0), |(sum, degrees), (one, free)| (sum + one, degrees + free));
        // Less spread than that of sampling is luck.
        let dispersion = if freedom == 0 { 1.0 } else { (statistic / freedom as f64).max(1.0) };
        let [before, after] = &sides;
        let mut methods: Vec<Growth> = judged
            .iter()
            .map(|name| {
                let (old, new) = (before.share(name), after.share(name));
                let samples = (before.samples + after.samples).max(1) as f64;
                let pooled = (old * before.samples as f64 + new * after.samples as f64) / samples;
                let equal = variance(pooled, before.samples) + variance(pooled, after.samples);
                let apart = variance(old, before.samples) + variance(new, after.samples);
                let deviations = (new - old) / (dispersion * equal).sqrt().max(f64::MIN_POSITIVE);
                let change = (old > 0.0).then(|| new / old - 1.0);
                Growth {
                    name: (*name).to_owned(),
                    before_share: old,
                    after_share: new,
                    change,
                    uncertainty: change.map(|_| INTERVAL * (dispersion * apart).sqrt() / old),
                    deviations,
                    has_grown: deviations > DEVIATIONS && change.is_none_or(|change| change > limit),
                }
            })
            .collect();
        methods.sort_by(|a, b| b.deviations.total_cmp(&a.deviations).then_with(|| a.name.cmp(&b.name)));
        Self {
            limit,
            runs: [before.runs.len(), after.runs.len()],
            samples: [before.samples, after.samples],
            dispersion,
            methods,
        }
    }

    /// Returns the methods that have grown beyond the limit.
    pub fn grown(&self) -> impl Iterator<Item = &Growth> {
        self.methods.iter().filter(|method| method.has_grown)
    }

    /// Returns the result in words.
    pub fn sentence(&self) -> String {
        let grown = self.grown().count();
        let [before, after] = self.samples.map(count);
        let basis = format!("{before} samples before and {after} after");
        let runs = match self.runs {
            [1, 1] => "one run a side, so that the spread between runs is not known".to_owned(),
            [before, after] => format!(
                "{before} and {after} runs, whose spread is {:.1} times that of sampling",
                self.dispersion.sqrt()
            ),
        };
        let limit = format!("{:.1} %", 100.0 * self.limit);
        let hint = self.too_coarse().map_or(String::new(), |(name, visible)| {
            let visible = 100.0 * visible;
            format!("\nThese are few samples: of {name}, {visible:.0} % more would be seen, less may not be.")
        });
        match grown {
            0 => format!("No method has grown by more than {limit} ({basis}; {runs}).{hint}"),
            1 => format!("One method has grown by more than {limit} ({basis}; {runs})."),
            _ => format!("{grown} methods have grown by more than {limit} ({basis}; {runs})."),
        }
    }

    /// Returns the growth of the heaviest method that this many samples would usually show, if it is more than the limit.
    fn too_coarse(&self) -> Option<(&str, f64)> {
        let heaviest = self.methods.iter().max_by(|a, b| a.before_share.total_cmp(&b.before_share))?;
        let share = heaviest.before_share;
        let equal = self.samples.map(|samples| variance(share, samples)).iter().sum::<f64>();
        let visible = (DEVIATIONS + POWER) * (self.dispersion * equal).sqrt() / share.max(f64::MIN_POSITIVE);
        (visible > self.limit).then_some((heaviest.name.as_str(), visible))
    }

    /// Returns a table of at most `limit` methods, the largest growth first, as plain text or Markdown.
    pub fn table(&self, limit: usize, markdown: bool) -> String {
        let row = |cells: [String; 5]| match markdown {
            true => format!("| {} |\n", cells.join(" | ")),
            false => {
                let [before, after, change, judged, name] = cells;
                format!("{before:>8} {after:>8} {change:>18} {judged:>6}  {name}\n")
            }
        };
        let heading =
            ["before", "after", "change", "", "method (self time, share of all)"].map(str::to_owned);
        let mut text = row(heading);
        if markdown {
            text.push_str("|---|---|---|---|---|\n");
        }
        for method in self.methods.iter().take(limit) {
            let change = match (method.change, method.uncertainty) {
                (Some(change), Some(off)) => format!("{:+.1} % ± {:.1}", 100.0 * change, 100.0 * off),
                _ => "new".to_owned(),
            };
            let judged = if method.has_grown { "grown" } else { "" }.to_owned();
            let name = if markdown { format!("`{}`", method.name) } else { method.name.clone() };
            text.push_str(&row([
                percent(method.before_share),
                percent(method.after_share),
                change,
                judged,
                name,
            ]));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::flat::MethodCost;

    /// Uniform numbers from 0 to 1 (xorshift64*).
    struct Dice(u64);

    impl Dice {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Draws a profile in which methods have these weights.
    fn drawn(dice: &mut Dice, weights: &[f64], samples: u64) -> Methods {
        let total: f64 = weights.iter().sum();
        let mut counts = vec![0; weights.len()];
        for _ in 0..samples {
            let mut at = dice.next() * total;
            let method = weights.iter().position(|weight| {
                at -= weight;
                at < 0.0
            });
            counts[method.unwrap_or(0)] += 1;
        }
        let cost = |(method, &count): (usize, &u64)| MethodCost {
            name: format!("m{method}"),
            self_ns: count * 10_000_000,
            self_samples: count,
            total_ns: count * 10_000_000,
            total_samples: count,
        };
        Methods { total_ns: samples * 10_000_000, methods: counts.iter().enumerate().map(cost).collect() }
    }

    /// A method of 20 %, twenty of 3 % and ten of 2 %.
    fn usual() -> Vec<f64> {
        let mut weights = vec![20.0];
        weights.extend([3.0; 20]);
        weights.extend([2.0; 10]);
        weights
    }

    const COMPARISONS: u32 = 200;
    const LIMIT: f64 = 0.05;

    #[test]
    fn equal_runs_rarely_differ() {
        let mut dice = Dice(1);
        let weights = usual();
        let alarms = (0..COMPARISONS).filter(|_| {
            let [before, after] = [(); 2].map(|()| drawn(&mut dice, &weights, 3_000));
            Verdict::of(&[before], &[after], LIMIT).grown().next().is_some()
        });
        assert!(alarms.count() <= 2, "at most 1 % of {COMPARISONS}");
    }

    #[test]
    fn a_tenth_more_of_a_fifth_is_found() {
        let mut dice = Dice(2);
        let (before, mut after) = (usual(), usual());
        after[0] *= 1.1;
        let found = (0..COMPARISONS).filter(|_| {
            let sides = [drawn(&mut dice, &before, 50_000), drawn(&mut dice, &after, 50_000)];
            let [before, after] = sides.map(|side| [side]);
            let verdict = Verdict::of(&before, &after, LIMIT);
            let names: Vec<&str> = verdict.grown().map(|method| method.name.as_str()).collect();
            names == ["m0"]
        });
        let found = found.count();
        assert!(found >= 190, "{found} of {COMPARISONS}");
    }

    /// Runs whose shares differ by far more than samples do: the spread of the runs is the error.
    #[test]
    fn spread_between_runs_counts() {
        let mut dice = Dice(3);
        let run = |dice: &mut Dice| {
            let mut weights = usual();
            for weight in &mut weights {
                *weight *= 1.0 + 0.2 * (dice.next() - 0.5);
            }
            drawn(dice, &weights, 20_000)
        };
        let (mut alarms, mut alarms_of_one) = (0, 0);
        for _ in 0..COMPARISONS / 4 {
            let [before, after] = [(); 2].map(|()| [(); 5].map(|()| run(&mut dice)));
            let verdict = Verdict::of(&before, &after, 0.0);
            assert!(verdict.dispersion > 2.0, "{}", verdict.dispersion);
            alarms += u32::from(verdict.grown().next().is_some());
            alarms_of_one += u32::from(Verdict::of(&before[..1], &after[..1], 0.0).grown().next().is_some());
        }
        assert!(alarms <= 1 && alarms_of_one > 10, "{alarms}, with one run a side {alarms_of_one}");
    }

    #[test]
    fn new_and_small_methods() {
        let mut dice = Dice(4);
        let mut weights = vec![100.0, 0.0, 0.2];
        let before = [drawn(&mut dice, &weights, 10_000)];
        (weights[1], weights[2]) = (5.0, 0.8);
        let after = [drawn(&mut dice, &weights, 10_000)];
        let verdict = Verdict::of(&before, &after, LIMIT);
        let grown: Vec<_> = verdict.grown().map(|method| (method.name.as_str(), method.change)).collect();
        assert_eq!(grown, [("m1", None)], "m2 is below a hundredth");
        assert!(verdict.table(9, true).contains("| new | grown | `m1` |"), "{}", verdict.table(9, true));
        let sentence = Verdict::of(&before, &before, LIMIT).sentence();
        assert!(!sentence.contains("few samples"), "m0 has nearly all: {sentence}");
        let few = Verdict::of(&[drawn(&mut dice, &usual(), 500)], &[drawn(&mut dice, &usual(), 500)], LIMIT);
        assert!(few.sentence().contains("few samples: of m0, "), "{}", few.sentence());
        let nothing = Verdict::of(&[Methods::default()], &[Methods::default()], LIMIT);
        assert!(nothing.methods.is_empty());
    }
}
