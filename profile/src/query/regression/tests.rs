//! Random runs of programs with a known spread.

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

    /// Returns a factor whose logarithm has this standard deviation: Irwin and Hall's sum of twelve uniform numbers.
    fn factor(&mut self, deviation: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| self.next()).sum::<f64>() - 6.0;
        (deviation * normal).exp()
    }
}

/// How runs of a program differ from each other besides sampling.
#[derive(Clone, Copy)]
struct Spread {
    /// Relative standard deviation of the weight of a method.
    methods: f64,
    /// The same of the CPU time of a run.
    time: f64,
}

/// Spread of six runs of H2 (`java-tests/measure gate-rates` measures real programs).
const REAL: Spread = Spread { methods: 0.13, time: 0.1 };
const LITTLE: Spread = Spread { methods: 0.01, time: 0.01 };

/// Draws a run in which methods have these weights; their sum decides about its CPU time.
fn drawn(dice: &mut Dice, weights: &[f64], spread: Spread, samples: u64) -> Methods {
    let time = weights.iter().sum::<f64>() * dice.factor(spread.time);
    let weights: Vec<f64> = weights.iter().map(|weight| weight * dice.factor(spread.methods)).collect();
    let ends: Vec<f64> = weights
        .iter()
        .scan(0.0, |end, weight| {
            *end += weight;
            Some(*end)
        })
        .collect();
    let total = ends[ends.len() - 1];
    let mut counts = vec![0u64; weights.len()];
    for _ in 0..samples {
        let at = dice.next() * total;
        counts[ends.partition_point(|&end| end <= at)] += 1;
    }
    let weight_ns = (time * 1e8 / samples as f64) as u64;
    let cost = |(method, &count): (usize, &u64)| MethodCost {
        name: format!("m{method}"),
        self_ns: 0,
        self_samples: 0,
        total_ns: count * weight_ns,
        total_samples: count,
    };
    let methods = counts.iter().enumerate().map(cost).collect();
    Methods { total_ns: samples * weight_ns, samples, methods, ..Methods::default() }
}

fn side(dice: &mut Dice, weights: &[f64], spread: Spread, samples: u64) -> Vec<Methods> {
    (0..5).map(|_| drawn(dice, weights, spread, samples)).collect()
}

/// A method of 20 %, twenty of 3 % and ten of 2 %.
fn usual() -> Vec<f64> {
    let mut weights = vec![20.0];
    weights.extend([3.0; 20]);
    weights.extend([2.0; 10]);
    weights
}

const COMPARISONS: usize = 200;
const RULES: Rules = Rules { limit: 0.05, confidence: CONFIDENCE, same_work: true };

fn verdict(before: &[Methods], after: &[Methods], rules: Rules) -> Verdict {
    Verdict::of(before, after, rules).expect("enough runs")
}

fn names(verdict: &Verdict) -> Vec<&str> {
    verdict.grown().map(|method| method.name.as_str()).collect()
}

#[test]
fn equal_runs_with_a_real_spread_rarely_differ() {
    let mut dice = Dice(1);
    let weights = usual();
    let alarms = (0..COMPARISONS).filter(|_| {
        let [before, after] = [(); 2].map(|()| side(&mut dice, &weights, REAL, 700));
        verdict(&before, &after, RULES).has_failed()
    });
    let alarms = alarms.count();
    assert!(alarms <= COMPARISONS / 100, "{alarms} of {COMPARISONS}");
}

#[test]
fn a_tenth_more_of_a_fifth_is_found() {
    let mut dice = Dice(2);
    let (before, mut after) = (usual(), usual());
    after[0] *= 1.1;
    let (mut found, mut others) = (0, 0);
    let comparisons = COMPARISONS / 2;
    for _ in 0..comparisons {
        let sides = [&before, &after].map(|weights| side(&mut dice, weights, LITTLE, 16_000));
        let verdict = verdict(&sides[0], &sides[1], RULES);
        found += usize::from(names(&verdict).contains(&"m0"));
        others += usize::from(names(&verdict).iter().any(|&name| name != "m0"));
    }
    assert!(found * 100 >= comparisons * 95 && others <= 1, "{found} of {comparisons}, and {others} others");
}

/// The machine's speed differs between runs by more than the growth: only shares can show it.
#[test]
fn the_program_and_its_methods_are_judged_apart() {
    let mut dice = Dice(3);
    let noisy = Spread { methods: 0.01, time: 0.3 };
    let mut larger = usual();
    larger[0] *= 1.5;
    let sides = [&usual(), &larger].map(|weights| side(&mut dice, weights, noisy, 8_000));
    let found = verdict(&sides[0], &sides[1], RULES);
    assert_eq!(names(&found), ["m0"]);
    assert!(found.program.is_some_and(|program| !program.has_grown), "{found:?}");

    let all_slower: Vec<f64> = usual().iter().map(|weight| 1.3 * weight).collect();
    let sides = [&usual(), &all_slower].map(|weights| side(&mut dice, weights, LITTLE, 8_000));
    let found = verdict(&sides[0], &sides[1], RULES);
    assert!(found.has_failed() && names(&found).is_empty(), "{found:?}");
    let program = found.program.expect("the same work");
    assert!((program.change - 0.3).abs() < 0.03 && program.uncertainty < 0.03, "{program:?}");
    assert!(found.sentence().starts_with("The program takes "), "{}", found.sentence());
    let others = Rules { same_work: false, ..RULES };
    assert_eq!(verdict(&sides[0], &sides[1], others).program, None);
}

#[test]
fn other_methods_do_not_grow_when_one_improves() {
    let mut dice = Dice(4);
    let mut better = usual();
    better[0] /= 2.0;
    let sides = [&usual(), &better].map(|weights| side(&mut dice, weights, LITTLE, 20_000));
    assert!(names(&verdict(&sides[0], &sides[1], RULES)).is_empty());
    let shares_only = Rules { same_work: false, ..RULES };
    assert!(!names(&verdict(&sides[0], &sides[1], shares_only)).is_empty(), "all other shares have risen");
}

#[test]
fn new_methods_are_judged_and_methods_below_a_hundredth_are_not() {
    let mut dice = Dice(5);
    let before = side(&mut dice, &[100.0, 0.0, 0.2], LITTLE, 10_000);
    let after = side(&mut dice, &[100.0, 5.0, 0.8], LITTLE, 10_000);
    let found = verdict(&before, &after, RULES);
    let grown: Vec<_> = found.grown().map(|method| (method.name.as_str(), method.change)).collect();
    assert_eq!(grown, [("m1", None)], "m2 is below a hundredth");
    let table = found.table(9, true);
    assert!(
        table.lines().any(|row| row.contains("| new | ") && row.ends_with("| grown | `m1` |")),
        "{table}"
    );
    assert!(found.table(9, false).contains("CPU time of the program"));
}

#[test]
fn few_runs_are_refused_with_the_number_that_is_needed() {
    let mut dice = Dice(6);
    let runs = side(&mut dice, &usual(), REAL, 700);
    let refused = Verdict::of(&runs[..1], &runs[1..2], RULES).expect_err("one run a side").to_string();
    assert!(refused.contains("1 and 1 runs") && refused.contains("5 runs a side"), "{refused}");
    assert!(Verdict::of(&runs[..4], &runs[..4], RULES).is_err());
    assert_eq!([0.999, 0.995, 0.99, 0.95, 0.9, 0.8].map(least_runs), [7, 6, 5, 4, 4, 3]);
    let none = Verdict::of(&runs, &[Methods::default()], RULES).expect_err("no samples").to_string();
    assert_eq!(none, "run 1 of the second side has no samples, so nothing can be compared");
}
