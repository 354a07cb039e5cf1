//! Chooses the period of the timers.
//!
//! Problem: the number of processors changes (`rate=`), and the cost of sampling is known only later (`budget=`).
//! Approach: once a second the shortest period is computed from rate and processors; a budget may lengthen it. Each
//! request has the index of its period, so its weight does not depend on when timers are replaced (`design/timers.md`).
//! Invariant: without rate and budget the period never changes.
//! Source: JDK 25.0.3, `jfrCPUTimeThreadSampler.cpp` (period = processors / rate).

use crate::period::aim::{Aim, Clock};
use crate::period::budget::{Bounds, Budget, Spent};

/// Longest period of a budget, in nanoseconds: code that runs for some seconds still gets samples.
const LONGEST_NS: u64 = 1_000_000_000;
/// Shortest and longest period of a rate, in nanoseconds.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 10_000..=60_000_000_000;

/// Most signals a second to all threads together on the wall clock. A thread that waits is woken for each, at some 10
/// us with its walk, so they take about a hundredth of a processor.
const WALL_RATE: u64 = 1_000;
/// The period on the wall clock changes if it differs by more than this part.
const WALL_TOLERANCE: u64 = 8;

/// The options that determine the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Period at the start, in nanoseconds.
    pub interval_ns: u64,
    /// Samples per second of the whole machine.
    pub rate: Option<u64>,
    /// Most CPU time of the profiler, in millionths of the CPU time of the process.
    pub budget_ppm: Option<u64>,
    /// The source of the signals.
    pub clock: Clock,
}

impl Tuning {
    /// Returns the part of the period that each thread adds on the wall clock, in nanoseconds; 0 on another clock.
    pub fn wall_share_ns(&self) -> u64 {
        match self.clock {
            Clock::Wall { .. } => period_of_rate(self.rate.unwrap_or(WALL_RATE), 1).unwrap_or(0),
            Clock::Ticks | Clock::Events { .. } | Clock::Traces => 0,
        }
    }

    /// Returns the period of `threads` threads on the wall clock, in nanoseconds: not below the interval, and long
    /// enough for the rate of all threads together.
    pub fn wall_period_ns(&self, threads: u64) -> u64 {
        self.wall_share_ns().saturating_mul(threads).max(self.interval_ns).min(*RATE_RANGE.end())
    }
}

/// Returns the number of processors the process may use.
pub fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Returns the period, in nanoseconds, at which `processors` busy processors yield `rate` samples a second together.
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
}

impl Tuner {
    /// Starts with the interval of the options; `tick_ns` is 0 if the tick is unknown.
    pub fn new(tuning: Tuning, tick_ns: u64, processors: u64, now: Spent) -> Self {
        let budget = tuning.budget_ppm.map(|share_ppm| Budget::new(share_ppm, now));
        let period_ns = tuning.interval_ns;
        Self { tuning, tick_ns, processors, shortest_ns: period_ns, period_ns, budget }
    }

    /// Replaces the tick by the measured one.
    pub fn set_tick(&mut self, tick_ns: u64) {
        self.tick_ns = tick_ns;
    }

    /// Returns the aim for an interval; `tick_ns` is the measured tick, 0 if it is unknown.
    pub fn aim(&self, interval_ns: u64, tick_ns: u64) -> Aim {
        self.tuning.clock.aim(interval_ns, tick_ns)
    }

    pub fn clock(&self) -> Clock {
        self.tuning.clock
    }

    pub fn follows_processors(&self) -> bool {
        self.tuning.rate.is_some() && !self.follows_threads()
    }

    pub fn follows_threads(&self) -> bool {
        matches!(self.tuning.clock, Clock::Wall { .. })
    }

    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    pub fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// Returns the number of processors that share the rate; 0 without a rate.
    pub fn processors(&self) -> u64 {
        if self.follows_processors() { self.processors } else { 0 }
    }

    /// Returns the budget, if there is one.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// Ends a round of about a second with this number of processors, or of threads if these matter; returns the new
    /// period if it changes.
    pub fn after_round(&mut self, sharing: u64, now: Spent) -> Option<u64> {
        let before_ns = self.period_ns;
        self.processors = sharing;
        if self.follows_threads() {
            let wanted_ns = self.tuning.wall_period_ns(sharing);
            // A new period is another timer for every thread.
            if wanted_ns.abs_diff(self.shortest_ns) > self.shortest_ns / WALL_TOLERANCE {
                self.shortest_ns = wanted_ns;
            }
        } else if let Some(rate) = self.tuning.rate
            && let Some(period_ns) = period_of_rate(rate, sharing)
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
            None => self.period_ns = self.shortest_ns,
        }
        (self.period_ns != before_ns).then_some(self.period_ns)
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
    fn the_wall_clock_follows_the_threads() {
        let clock = Clock::Wall { factor_ppm: 1_000_000 };
        let tuning = Tuning { interval_ns: 10_000_000, clock, ..Tuning::default() };
        assert_eq!(
            [4, 10, 30, 1_000_000].map(|threads| tuning.wall_period_ns(threads) / 1_000_000),
            [10, 10, 30, 60_000]
        );
        assert_eq!(Tuning { rate: Some(100), ..tuning }.wall_period_ns(4), 40_000_000);
        let mut tuner = Tuner::new(tuning, 0, 2, Spent::default());
        assert_eq!(tuner.after_round(8, Spent::default()), None);
        assert_eq!(tuner.after_round(40, Spent::default()), Some(40_000_000));
        assert_eq!(tuner.after_round(44, Spent::default()), None, "a small difference");
        assert_eq!(tuner.after_round(20, Spent::default()), Some(20_000_000));
        assert_eq!(tuner.processors(), 0);
    }

    #[test]
    fn an_interval_follows_nothing() {
        let tuning = Tuning { interval_ns: 4_000_000, ..Tuning::default() };
        let mut tuner = Tuner::new(tuning, 0, 2, Spent::default());
        let expensive = Spent { handlers_ns: 1 << 40, process_ns: 1 << 40, ..Spent::default() };
        assert_eq!((tuner.after_round(1, expensive), tuner.after_round(64, expensive)), (None, None));
    }

    #[test]
    fn a_rate_is_the_shortest_period_of_a_budget() {
        let tuning =
            Tuning { interval_ns: 4_000_000, rate: Some(500), budget_ppm: Some(10_000), ..Tuning::default() };
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
    fn a_tick_that_is_measured_late_counts() {
        let tuning = Tuning { interval_ns: 1_000_000, budget_ppm: Some(10_000), ..Tuning::default() };
        let mut tuners = [1_000_000, 10_000_000].map(|tick_ns| {
            let mut tuner = Tuner::new(tuning, 1_000_000, 2, Spent::default());
            tuner.set_tick(tick_ns);
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
}
