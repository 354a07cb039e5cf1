//! The period of the timers: what it follows, and when it changes.
//!
//! Problem: the period that was right at the start is not for ever: processors are given and taken away (`rate=`), and
//! what sampling costs is known only later (`budget=`).
//! Approach: once a round the shortest period is made anew from the rate and the processors there are now; a budget may
//! lengthen it. The host replaces timers ([`Host::retune_timers`](crate::host::Host::retune_timers)); each request says
//! which period it was fired with, so that no weight depends on when that happens (`design/retuning.md`).
//! Invariant: without rate, budget and hook the period never changes.
//! Source: JDK 25.0.3, `jfrCPUTimeThreadSampler.cpp` (period = processors / rate).

use std::time::Duration;

use crate::period::budget::{Bounds, Budget, Spent};

/// Longest period a budget may lead to: what runs for some seconds is still seen.
const LONGEST_NS: u64 = 1_000_000_000;
/// Shortest and longest period that a rate may lead to.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 10_000..=60_000_000_000;
/// What the hook multiplies the shortest period with, in turn.
const HOOK_FACTORS: [u64; 5] = [1, 3, 2, 5, 4];

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Period at the start, in nanoseconds.
    pub interval_ns: u64,
    /// Samples per second of the whole machine, from which the period is made.
    pub rate: Option<u64>,
    /// Most CPU time the profiler may take, in millionths of the process's.
    pub budget_ppm: Option<u64>,
    /// For tests: how often the period changes for no reason.
    pub hook: Option<Duration>,
}

/// The period, in nanoseconds, at which `processors` busy processors yield `rate` samples a second together.
///
/// `None` if the rate is 0.
pub fn period_of_rate(rate: u64, processors: u64) -> Option<u64> {
    processors.saturating_mul(1_000_000_000).checked_div(rate)
}

/// Chooses the period.
#[derive(Debug, Clone)]
pub struct Tuner {
    tuning: Tuning,
    tick_ns: u64,
    processors: u64,
    shortest_ns: u64,
    period_ns: u64,
    budget: Option<Budget>,
    hooked: usize,
}

impl Tuner {
    /// Starts with the asked interval; `tick_ns` is 0 if the tick is unknown.
    pub fn new(tuning: Tuning, tick_ns: u64, processors: u64, now: Spent) -> Self {
        let budget = tuning.budget_ppm.map(|share_ppm| Budget::new(share_ppm, now));
        let period_ns = tuning.interval_ns;
        Self { tuning, tick_ns, processors, shortest_ns: period_ns, period_ns, budget, hooked: 0 }
    }

    /// The tick was measured, maybe only now; what the kernel says of it is not believed any longer.
    pub fn tick_found(&mut self, tick_ns: u64) {
        self.tick_ns = tick_ns;
    }

    /// Whether rounds make a difference, so that they are worth their system calls.
    pub fn follows_processors(&self) -> bool {
        self.tuning.rate.is_some()
    }

    /// The present period in nanoseconds.
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The shortest period it may have now, in nanoseconds.
    pub fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// Processors that a rate is shared by; 0 without a rate.
    pub fn processors(&self) -> u64 {
        if self.tuning.rate.is_some() { self.processors } else { 0 }
    }

    /// The budget, if there is one.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// Ends a round of about a second; the new period, if it changes.
    pub fn after_round(&mut self, processors: u64, now: Spent) -> Option<u64> {
        let before_ns = self.period_ns;
        self.processors = processors;
        if let Some(rate) = self.tuning.rate
            && let Some(period_ns) = period_of_rate(rate, processors)
        {
            self.shortest_ns = period_ns.clamp(*RATE_RANGE.start(), *RATE_RANGE.end());
        }
        let bounds = Bounds {
            shortest_ns: self.shortest_ns,
            longest_ns: LONGEST_NS.max(self.shortest_ns),
            tick_ns: self.tick_ns,
        };
        match &mut self.budget {
            Some(budget) => self.period_ns = budget.after_round(now, self.period_ns, bounds),
            None if self.tuning.hook.is_none() => self.period_ns = self.shortest_ns,
            None => {}
        }
        (self.period_ns != before_ns).then_some(self.period_ns)
    }

    /// How often [`Tuner::hooked`] is to be called.
    pub fn hook(&self) -> Option<Duration> {
        self.tuning.hook
    }

    /// The next period of a test.
    pub fn hooked(&mut self) -> u64 {
        self.hooked = (self.hooked + 1) % HOOK_FACTORS.len();
        self.period_ns = self.shortest_ns.saturating_mul(HOOK_FACTORS[self.hooked]);
        self.period_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_the_processors() {
        let tuning = Tuning { interval_ns: 4_000_000, rate: Some(500), ..Tuning::default() };
        let mut tuner = Tuner::new(tuning, 0, 2, Spent::default());
        assert_eq!(tuner.after_round(2, Spent::default()), None);
        assert_eq!(tuner.after_round(1, Spent::default()), Some(2_000_000));
        assert_eq!(tuner.after_round(64, Spent::default()), Some(128_000_000));
        assert_eq!((tuner.processors(), tuner.shortest_ns()), (64, 128_000_000));
    }

    #[test]
    fn an_interval_follows_nothing() {
        let tuning = Tuning { interval_ns: 4_000_000, ..Tuning::default() };
        let mut tuner = Tuner::new(tuning, 0, 2, Spent::default());
        let dear = Spent { handlers_ns: 1 << 40, process_ns: 1 << 40, ..Spent::default() };
        assert_eq!((tuner.after_round(1, dear), tuner.after_round(64, dear)), (None, None));
    }

    #[test]
    fn a_rate_is_the_shortest_period_of_a_budget() {
        let tuning = Tuning { interval_ns: 4_000_000, rate: Some(500), budget_ppm: Some(10_000), hook: None };
        let mut tuner = Tuner::new(tuning, 0, 2, Spent::default());
        assert_eq!(tuner.after_round(4, Spent::default()), None, "the start is left out");
        let mut now = Spent::default();
        for _ in 0..8 {
            now.process_ns += 1_000_000_000;
            tuner.after_round(4, now);
        }
        assert_eq!(tuner.period_ns(), 8_000_000);
    }

    #[test]
    fn a_tick_that_is_found_late_counts() {
        let tuning = Tuning { interval_ns: 1_000_000, budget_ppm: Some(10_000), ..Tuning::default() };
        let mut tuners = [1_000_000, 10_000_000].map(|tick_ns| {
            let mut tuner = Tuner::new(tuning, 1_000_000, 2, Spent::default());
            tuner.tick_found(tick_ns);
            tuner
        });
        let mut now = Spent::default();
        for _ in 0..3 {
            now.process_ns += 1_000_000_000;
            now.handlers_ns += 15_000_000;
            for tuner in &mut tuners {
                tuner.after_round(2, now);
            }
        }
        // Half as much again as the time between two samples really is.
        assert_eq!(tuners.map(|tuner| tuner.period_ns()), [1_500_000, 15_000_000]);
    }

    #[test]
    fn a_test_changes_it_all_the_time() {
        let tuning = Tuning { interval_ns: 10, hook: Some(Duration::from_millis(50)), ..Tuning::default() };
        let mut tuner = Tuner::new(tuning, 0, 2, Spent::default());
        let periods: Vec<u64> = (0..6).map(|_| tuner.hooked()).collect();
        assert_eq!(periods, [30, 20, 50, 40, 10, 30]);
        assert_eq!(tuner.after_round(2, Spent::default()), None, "a round does not interfere");
    }
}
