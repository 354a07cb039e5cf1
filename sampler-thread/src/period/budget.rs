//! Keeps the profiler within its budget of CPU time.
//!
//! Problem: the cost of a sample depends on stacks, processor and load, and is known only from the running profile.
//! Approach: once a second, the CPU time of handlers and sampler is compared with that of the process. If it is too
//! high, the period grows at once by what the part of the cost that depends on it exceeds. If it is low for several
//! rounds, the period shrinks, at most by half. The cost of waking up and of discovering threads does not lengthen the
//! period.
//! Invariant: the period stays between its bounds.

/// Smallest CPU time of the process in a round that counts, in nanoseconds: a tenth of a processor.
///
/// Waking up alone costs more than 1 % of an idle program.
const LEAST_BASE_NS: u64 = 100_000_000;
/// Rounds that do not count at the start, when symbol tables are read and every name is new.
const SKIPPED_ROUNDS: u32 = 2;
/// Share of the budget below which the cost of a round counts as low.
const LOW: f64 = 0.7;
/// Share of the budget that a shrinking period aims at.
const TARGET: f64 = 0.85;
/// Consecutive rounds of low cost before the period shrinks.
const LOW_ROUNDS: u32 = 3;
/// Largest factor in one round.
const MAX_FACTOR: f64 = 4.0;
/// Smallest factor; less is not worth new timers for every thread.
const MIN_FACTOR: f64 = 1.1;

/// CPU time used since the session began, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// By signal handlers, their delivery included.
    pub handlers_ns: u64,
    /// By drains that found requests.
    pub drains_ns: u64,
    /// By all threads of the profiler, and by the kernel for signals that do not become samples.
    pub threads_ns: u64,
    /// By the whole process, the profiler included.
    pub process_ns: u64,
}

impl Spent {
    fn since(&self, before: &Self) -> Self {
        Self {
            handlers_ns: self.handlers_ns.saturating_sub(before.handlers_ns),
            drains_ns: self.drains_ns.saturating_sub(before.drains_ns),
            threads_ns: self.threads_ns.saturating_sub(before.threads_ns),
            process_ns: self.process_ns.saturating_sub(before.process_ns),
        }
    }

    /// Returns the CPU time of the profiler.
    pub fn own_ns(&self) -> u64 {
        self.handlers_ns.saturating_add(self.threads_ns)
    }

    /// Returns the part that grows with the number of samples.
    fn per_sample_ns(&self) -> u64 {
        self.handlers_ns.saturating_add(self.drains_ns.min(self.threads_ns))
    }
}

/// Bounds of the period, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub shortest_ns: u64,
    pub longest_ns: u64,
    /// Shortest time between two expirations of a timer; 0 if unknown.
    pub tick_ns: u64,
}

/// Measures the cost and chooses the period.
#[derive(Debug, Clone)]
pub struct Budget {
    share_ppm: u64,
    last: Spent,
    /// At the start of the rounds that count.
    begun: Spent,
    rounds: u32,
    low_rounds: u32,
}

impl Budget {
    /// A budget of `share_ppm` millionths of the process's CPU time; rounds start from `now`.
    pub fn new(share_ppm: u64, now: Spent) -> Self {
        Self { share_ppm, last: now, begun: now, rounds: 0, low_rounds: 0 }
    }

    /// Returns the budget, in millionths.
    pub fn share_ppm(&self) -> u64 {
        self.share_ppm
    }

    /// Returns the CPU time of all rounds that count.
    pub fn measured(&self) -> Spent {
        self.last.since(&self.begun)
    }

    /// Ends a round; returns the period for the next one.
    pub fn after_round(&mut self, now: Spent, period_ns: u64, bounds: Bounds) -> u64 {
        let round = now.since(&self.last);
        self.last = now;
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= SKIPPED_ROUNDS {
            self.begun = now;
            return period_ns;
        }
        let factor = self.factor(&round);
        // With a period below the tick, timers expire once per tick, and the cost is that of the tick.
        let true_ns = period_ns.max(bounds.tick_ns);
        let next_ns = match factor {
            1.0 => period_ns,
            factor if factor < 1.0 && period_ns <= bounds.tick_ns => bounds.shortest_ns,
            factor => (true_ns as f64 * factor) as u64,
        };
        next_ns.clamp(bounds.shortest_ns, bounds.longest_ns.max(bounds.shortest_ns))
    }

    /// Returns the factor by which the period changes.
    fn factor(&mut self, round: &Spent) -> f64 {
        let base_ns = round.process_ns.max(LEAST_BASE_NS) as f64;
        let allowed_ns = base_ns * self.share_ppm as f64 / 1e6;
        let (own_ns, per_sample_ns) = (round.own_ns() as f64, round.per_sample_ns() as f64);
        let fixed_ns = own_ns - per_sample_ns;
        if own_ns > allowed_ns {
            self.low_rounds = 0;
            // If waking up alone uses the budget, samples still get a quarter of it.
            let available_ns = (allowed_ns - fixed_ns).max(allowed_ns / 4.0);
            let factor = per_sample_ns / available_ns;
            return if factor <= 1.0 { 1.0 } else { factor.clamp(MIN_FACTOR, MAX_FACTOR) };
        }
        self.low_rounds = if own_ns < LOW * allowed_ns { self.low_rounds + 1 } else { 0 };
        if self.low_rounds < LOW_ROUNDS {
            return 1.0;
        }
        self.low_rounds = 0;
        // Positive: own, which includes fixed, is below 0.7 of allowed.
        let factor = per_sample_ns / (TARGET * allowed_ns - fixed_ns);
        if factor > 1.0 / MIN_FACTOR { 1.0 } else { factor.max(1.0 / 2.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { shortest_ns: 1_000_000, longest_ns: 1_000_000_000, tick_ns: 4_000_000 };

    /// A process of `cpus` busy processors whose samples cost `sample_ns` each, and whose sampler burns `fixed_ns`.
    struct Process {
        spent: Spent,
        cpus: u64,
        sample_ns: u64,
        fixed_ns: u64,
    }

    impl Process {
        /// One second; the cost in millionths.
        fn run(&mut self, period_ns: u64) -> u64 {
            let samples = self.cpus * 1_000_000_000 / period_ns.max(BOUNDS.tick_ns);
            let drains_ns = samples * self.sample_ns * 3 / 4;
            self.spent.handlers_ns += samples * self.sample_ns / 4;
            self.spent.drains_ns += drains_ns;
            self.spent.threads_ns += drains_ns + self.fixed_ns;
            self.spent.process_ns += self.cpus * 1_000_000_000;
            (samples * self.sample_ns + self.fixed_ns) * 1_000_000 / (self.cpus * 1_000_000_000)
        }
    }

    /// Runs the budget on the process; periods and costs by round.
    fn rounds(process: &mut Process, share_ppm: u64, period_ns: u64, count: usize) -> Vec<(u64, u64)> {
        let mut budget = Budget::new(share_ppm, process.spent);
        let mut period_ns = period_ns;
        let mut run = || {
            let cost = process.run(period_ns);
            period_ns = budget.after_round(process.spent, period_ns, BOUNDS);
            (period_ns, cost)
        };
        (0..count).map(|_| run()).collect()
    }

    #[test]
    fn costly_samples_become_fewer_until_they_fit_the_budget() {
        let mut process =
            Process { spent: Spent::default(), cpus: 8, sample_ns: 120_000, fixed_ns: 2_000_000 };
        let rounds = rounds(&mut process, 10_000, 1_000_000, 20);
        let (period_ns, cost) = rounds[19];
        assert!(cost <= 10_000 && cost > 6_000, "{rounds:?}");
        assert!(rounds[12..].iter().all(|round| round.0 == period_ns), "it settles: {rounds:?}");
    }

    #[test]
    fn cheap_samples_change_nothing() {
        let mut process =
            Process { spent: Spent::default(), cpus: 8, sample_ns: 10_000, fixed_ns: 1_000_000 };
        let rounds = rounds(&mut process, 10_000, 1_000_000, 20);
        assert!(rounds.iter().all(|round| round.0 == 1_000_000), "{rounds:?}");
    }

    #[test]
    fn the_period_shrinks_when_the_load_is_gone() {
        let mut process = Process { spent: Spent::default(), cpus: 1, sample_ns: 5_000, fixed_ns: 500_000 };
        let rounds = rounds(&mut process, 10_000, 1_000_000_000, 60);
        assert_eq!(rounds[59].0, 1_000_000, "{rounds:?}");
    }

    #[test]
    fn fixed_cost_does_not_lengthen_the_period() {
        let mut process =
            Process { spent: Spent::default(), cpus: 1, sample_ns: 1_000, fixed_ns: 30_000_000 };
        let rounds = rounds(&mut process, 10_000, 10_000_000, 20);
        assert!(rounds[19].0 <= 12_000_000, "{rounds:?}");
    }

    #[test]
    fn an_idle_process_is_measured_against_a_tenth_of_a_processor() {
        let mut budget = Budget::new(10_000, Spent::default());
        let mut now = Spent::default();
        for _ in 0..10 {
            now.threads_ns += 900_000;
            now.drains_ns += 800_000;
            now.process_ns += 2_000_000;
            assert_eq!(budget.after_round(now, 10_000_000, BOUNDS), 10_000_000);
        }
    }
}
