//! Threads of all lengths on one processor, with the handler's arithmetic.

use super::*;
use crate::clock::grid::{Claim, Grid, Key};
use crate::handler::draw::Draw;

const TICK_NS: u64 = 4_000_000;

/// CPU time that a thread burns before its timer is started and after it is deleted: some 0.1 ms for a Java thread.
const UNSEEN_NS: u64 = 110_000;

/// A processor on which threads run one after the other.
struct Processor {
    aim: Aim,
    remainder: Remainder,
    /// Time of the next tick.
    tick_ns: u64,
    now_ns: u64,
    used_ns: u64,
    claimed_ns: u64,
    samples: u64,
}

impl Processor {
    fn new(aim: Aim) -> Self {
        Self {
            aim,
            remainder: Remainder::default(),
            tick_ns: TICK_NS,
            now_ns: 0,
            used_ns: 0,
            claimed_ns: 0,
            samples: 0,
        }
    }

    /// Runs a thread of this length; returns the CPU time of its samples.
    fn thread(&mut self, length_ns: u64) -> u64 {
        let (period_ns, mean_ns) = (self.aim.period_ns, self.aim.distance_ns());
        let beginning = self.remainder.beginning(&self.aim);
        self.remainder.remove(beginning.carried_ns);
        let (grid, draw) = (Grid::default(), Draw::default());
        draw.begin(beginning.left_ns, beginning.seed, beginning.uncounted);
        grid.begin(beginning.carried_ns / period_ns);
        let first_ns = (period_ns - beginning.carried_ns % period_ns).max(SOONEST_NS);
        let (begin_ns, mut expired, mut claimed_ns) = (self.now_ns, 0, 0);
        while self.tick_ns < begin_ns + length_ns {
            let at_ns = self.tick_ns.saturating_sub(begin_ns);
            let is_running = self.tick_ns >= begin_ns;
            self.tick_ns += TICK_NS;
            if !is_running || at_ns < first_ns {
                continue;
            }
            let periods = 1 + (at_ns - first_ns) / period_ns - expired;
            expired += periods;
            let drawn = draw.look(periods, period_ns, mean_ns);
            let claim = grid.claim(Key::default(), drawn.periods, drawn.take);
            draw.note(drawn, claim != Claim::Passed, mean_ns);
            if let Claim::Taken(periods) = claim {
                claimed_ns += periods * period_ns;
                self.samples += 1;
            }
        }
        let known_ns = beginning.carried_ns + length_ns;
        assert!(claimed_ns <= known_ns, "more claimed than burnt");
        self.remainder.add(known_ns - claimed_ns);
        self.now_ns += length_ns + UNSEEN_NS;
        self.used_ns += length_ns;
        self.claimed_ns += claimed_ns;
        claimed_ns
    }
}

/// Runs threads of these lengths in random order, and compares their shares in the samples with those of their CPU
/// time.
#[track_caller]
fn assert_shares(interval_ns: u64, lengths_us: &[u64], threads: u64) {
    let aim = Aim { interval_ns, tick_ns: TICK_NS, period_ns: TICK_NS / 8 };
    let mut processor = Processor::new(aim);
    let mut order = Remainder::default();
    let mut of_length = vec![(0_u64, 0_u64); lengths_us.len()];
    let mut most_ns = 0;
    for _ in 0..threads {
        let kind = order.number() as usize % lengths_us.len();
        let length_ns = lengths_us[kind] * 1_000;
        of_length[kind].0 += length_ns;
        // The first expiration comes after the return from the system call, before the thread's own code.
        of_length[kind].1 += processor.thread(SOONEST_NS + length_ns);
        most_ns = most_ns.max(processor.remainder.ns);
    }
    let case = (interval_ns, lengths_us);
    let all_ns: u64 = of_length.iter().map(|(used_ns, _)| used_ns).sum();
    for ((used_ns, claimed_ns), length_us) in of_length.iter().zip(lengths_us) {
        let burnt = *used_ns as f64 / all_ns as f64;
        let claimed = *claimed_ns as f64 / processor.claimed_ns as f64;
        // Weights vary as drawn distances and corrections do; the binomial deviation is that of equal ones.
        let deviation = (1.5 * burnt * (1.0 - burnt) / processor.samples as f64).sqrt();
        assert!(
            (claimed - burnt).abs() <= 5.5 * deviation,
            "{case:?}: threads of {length_us} us have {burnt} of the time and {claimed} of the samples"
        );
    }
    let explained = processor.claimed_ns as f64 / processor.used_ns as f64;
    assert!(explained <= 1.0, "{case:?}: {explained}");
    let mean_ns = interval_ns.max(TICK_NS);
    assert!(most_ns < 60 * mean_ns, "{case:?}: the remainder was {} ms", most_ns / 1_000_000);
    eprintln!("{case:?}: explained {explained:.4}, remainder at most {} ms", most_ns / 1_000_000);
}

#[test]
fn short_threads_have_the_share_of_their_time() {
    for interval_ns in [1_000_000, 4_000_000, 10_000_000, 40_000_000] {
        assert_shares(interval_ns, &[42, 84, 168, 336], 400_000);
        assert_shares(interval_ns, &[20, 900, 3_000], 100_000);
        assert_shares(interval_ns, &[100, 5_000, 30_000], 30_000);
    }
}

#[test]
fn a_large_remainder_becomes_small() {
    for period_ns in [TICK_NS / 8, 1_500_000] {
        let mut processor = Processor::new(Aim { interval_ns: 10_000_000, tick_ns: TICK_NS, period_ns });
        // The processor's ticks meet no thread of a second and a half.
        processor.remainder.add(1_500_000_000);
        let mut order = Remainder::default();
        for _ in 0..2_000 {
            processor.thread(1_000_000 + order.number() % 4_000_000);
        }
        let left_ms = processor.remainder.ns / 1_000_000;
        assert!(left_ms < 400, "periods of {period_ns} ns leave {left_ms} ms");
    }
}

#[test]
fn a_new_thread_takes_no_more_than_there_is() {
    let aim = Aim { interval_ns: 10_000_000, tick_ns: TICK_NS, period_ns: TICK_NS / 8 };
    let mut remainder = Remainder::default();
    assert_eq!(remainder.beginning(&aim).carried_ns, 0);
    remainder.add(1_000);
    for _ in 0..100 {
        assert!(remainder.beginning(&aim).carried_ns <= 1_000);
    }
    // With the remainder that is aimed at, it takes over what a thread has at a random moment: 0 to 14 ms waiting, and
    // a tick that has all but expired.
    remainder.add(40_000_000 - 1_000);
    let mut sum_ns = 0;
    for _ in 0..10_000 {
        let beginning = remainder.beginning(&aim);
        assert_eq!(beginning.carried_ns % aim.period_ns, aim.period_ns - SOONEST_NS);
        assert!((TICK_NS - SOONEST_NS..=16_000_000).contains(&beginning.carried_ns), "{beginning:?}");
        assert_eq!(beginning.uncounted, 7);
        sum_ns += beginning.carried_ns;
    }
    // The mean age is 5.4 ms, cut to whole ticks.
    assert!((sum_ns / 10_000).abs_diff(7_400_000) < 300_000, "{}", sum_ns / 10_000);
}

/// Perf events expire at the ends of periods: threads of all lengths are shown with their share, and as much is claimed
/// as was used.
#[test]
fn exact_periods_show_threads_of_all_lengths() {
    const LENGTHS_NS: [u64; 5] = [42_000, 84_000, 168_000, 336_000, 5_000_000];
    const THREADS: u64 = 100_000;
    let aim = Aim { interval_ns: 1_000_000, tick_ns: 1_000_000, period_ns: 1_000_000 };
    let mut remainder = Remainder::default();
    let mut claimed_ns = [0; LENGTHS_NS.len()];
    for index in 0..THREADS {
        let place = remainder.number() as usize % LENGTHS_NS.len();
        let Beginning { carried_ns, left_ns, uncounted, .. } = remainder.beginning(&aim);
        assert_eq!((left_ns, uncounted), (0, 0), "thread {index}");
        remainder.remove(carried_ns);
        let known_ns = carried_ns + LENGTHS_NS[place];
        let claims = known_ns / aim.period_ns;
        claimed_ns[place] += claims * aim.period_ns;
        remainder.add(known_ns % aim.period_ns);
    }
    assert!(remainder.ns < 40 * aim.period_ns, "{}", remainder.ns);
    let threads = THREADS / LENGTHS_NS.len() as u64;
    for (claimed_ns, length_ns) in claimed_ns.into_iter().zip(LENGTHS_NS) {
        let used_ns = threads * length_ns;
        // 840 samples of the shortest, of independent threads, and a number of threads that varies by 1 %.
        let tolerance = if length_ns < 100_000 { 0.15 } else { 0.08 };
        let ratio = claimed_ns as f64 / used_ns as f64;
        assert!((ratio - 1.0).abs() < tolerance, "{length_ns} ns: {ratio}");
    }
}
