//! Shares of a program's phases in samples and at ticks, the distances between samples, and changes of the interval.

use super::*;
use crate::clock::grid::{Claim, Grid, Key};

const TICK_NS: u64 = 4_000_000;
const PERIOD_NS: u64 = 500_000;
const MEAN_NS: u64 = 10_000_000;

/// Runs a thread for `ticks` ticks; returns the CPU time that each phase of the program has at the ticks, and in
/// samples. A phase lasts for `phase_ns`; there are four in turn.
fn run(ticks: u64, phase_ns: u64, mean_ns: u64, seed: u64) -> ([u64; 4], [u64; 4]) {
    let (grid, draw) = (Grid::default(), Draw::default());
    draw.begin(0, seed, 0);
    let (mut met, mut sampled) = ([0; 4], [0; 4]);
    for tick in 1..=ticks {
        let phase = (tick * TICK_NS / phase_ns % 4) as usize;
        met[phase] += TICK_NS;
        let drawn = draw.look(TICK_NS / PERIOD_NS, PERIOD_NS, mean_ns);
        let claim = grid.claim(Key::default(), drawn.periods, drawn.take);
        assert_eq!(drawn.take, claim != Claim::Passed);
        draw.note(drawn, drawn.take, mean_ns);
        if let Claim::Taken(periods) = claim {
            sampled[phase] += periods * PERIOD_NS;
        }
    }
    (met, sampled)
}

fn share(part: u64, all: &[u64; 4]) -> f64 {
    part as f64 / all.iter().sum::<u64>() as f64
}

#[test]
fn phases_are_sampled_as_often_as_ticks_meet_them() {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    // A quarter of the interval is in phase with it; 4 ms are in phase with the tick, 5 ms and 20 ms with multiples.
    for phase_ns in [2_500_000, 4_000_000, 5_000_000, 20_000_000, 6_700_000] {
        for mean_ns in [0, 5_000_000, MEAN_NS, 100_000_000] {
            let samples = 400_000 * TICK_NS / mean_ns.max(TICK_NS);
            let (met, sampled) = run(400_000, phase_ns, mean_ns, SEED);
            for (met_in, sampled_in) in met.iter().zip(&sampled) {
                let (met, sampled) = (share(*met_in, &met), share(*sampled_in, &sampled));
                // Equal weights would give the binomial deviation; those of drawn distances vary by a third more.
                let deviation = (1.5 * met * (1.0 - met) / samples as f64).sqrt();
                let case = (phase_ns, mean_ns);
                assert!((met - sampled).abs() <= 5.5 * deviation, "{case:?}: {sampled}, at the ticks {met}");
            }
        }
    }
}

/// The spread that `design/timers.md` states, of a profile of 15 s.
#[test]
fn shares_of_a_short_profile_spread_as_those_of_independent_samples() {
    const PROFILES: u64 = 1_000;
    const TICKS: u64 = 15_000_000_000 / TICK_NS;
    let mut sums = [(0.0, 0.0); 4];
    for profile in 1..=PROFILES {
        let (_, sampled) = run(TICKS, MEAN_NS / 4, MEAN_NS, profile.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for (sum, sampled_in) in sums.iter_mut().zip(&sampled) {
            let share = share(*sampled_in, &sampled);
            *sum = (sum.0 + share, sum.1 + share * share);
        }
    }
    // Ticks of 4 ms meet one turn of 2.5 ms twice as often as each of the others.
    for (expected, (sum, squares)) in [0.4, 0.2, 0.2, 0.2].into_iter().zip(sums) {
        let (mean, count) = (sum / PROFILES as f64, PROFILES as f64);
        let deviation = (squares / count - mean * mean).sqrt();
        assert!((mean - expected).abs() < 0.002, "{mean}, not {expected}");
        let stated = if expected > 0.3 { 0.014 } else { 0.010 };
        assert!((deviation - stated).abs() < 0.001, "{expected}: {deviation}, not {stated}");
    }
}

#[test]
fn a_sample_comes_once_in_an_interval() {
    let (grid, draw) = (Grid::default(), Draw::default());
    draw.begin(0, 1, 0);
    let mut weights = Vec::new();
    for _ in 0..100_000 {
        let drawn = draw.look(8, PERIOD_NS, MEAN_NS);
        let claim = grid.claim(Key::default(), drawn.periods, drawn.take);
        draw.note(drawn, drawn.take, MEAN_NS);
        if let Claim::Taken(periods) = claim {
            weights.push(periods * PERIOD_NS);
        }
    }
    let mean_ns = weights.iter().sum::<u64>() as f64 / weights.len() as f64;
    assert!((mean_ns - MEAN_NS as f64).abs() < 0.02 * MEAN_NS as f64, "{mean_ns}");
    let (least, most) = (weights.iter().min(), weights.iter().max());
    assert!(least >= Some(&TICK_NS) && most <= Some(&(MEAN_NS * 3 / 2 + TICK_NS)), "{least:?} to {most:?}");
}

#[test]
fn the_interval_may_change_at_any_time() {
    let draw = Draw::default();
    draw.begin(60_000_000_000, 3, 0);
    let cut = draw.look(8, PERIOD_NS, MEAN_NS);
    assert_eq!(cut.left_ns, 15_000_000 - 4_000_000, "a distance of the longer interval is cut");
    assert!(draw.look(8, PERIOD_NS, 0).take, "every signal is a sample");
    draw.begin(60_000_000, 3, 0);
    assert!(draw.look(1 << 31, PERIOD_NS, MEAN_NS).take, "a thread that had no signal for long");
    draw.note(draw.look(1 << 31, PERIOD_NS, MEAN_NS), true, MEAN_NS);
    let left_ns = draw.left_ns.load(Ordering::Relaxed);
    assert!((5_000_000..15_000_000).contains(&left_ns), "{left_ns}");
}

#[test]
fn the_first_signal_of_a_thread_may_count_for_one_period() {
    let draw = Draw::default();
    draw.begin(10_000_000, 3, 7);
    let first = draw.look(5, PERIOD_NS, MEAN_NS);
    assert_eq!((first.periods, draw.look(20, PERIOD_NS, MEAN_NS).periods), (1, 13));
    draw.note(first, false, MEAN_NS);
    assert_eq!(draw.look(5, PERIOD_NS, MEAN_NS).periods, 5);
}
