//! Parts of the account of CPU time that summaries and the list of processes share.

use std::collections::BTreeMap;

use proto::histogram::quantile;
use proto::v1::{Counter, Histogram, Statistics};
use serde::Serialize;

use crate::session::mode::Mode;
use crate::text::quantity::{count, duration, share, total};

/// Cause of CPU time without samples: its thread was not chosen to be profiled.
pub const NOT_CHOSEN: &str = "not_chosen";

/// CPU time of the process, or wall time of its threads: that of the threads' accounts (sampled, lost by cause,
/// unfinished), and the other parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CpuTime {
    pub kernel: u64,
    pub sampled: u64,
    pub lost: BTreeMap<String, u64>,
    pub unfinished: u64,
    pub before_timer: u64,
    pub profiler: u64,
    pub outside: u64,
}

impl CpuTime {
    /// Returns the account of a process with these statistics. They can be older than samples, so `kernel` becomes at
    /// least what is sampled or lost.
    pub fn new(
        mode: Mode,
        kernel: u64,
        sampled: u64,
        lost: BTreeMap<String, u64>,
        statistics: &Statistics,
    ) -> Self {
        let accounted = sampled.saturating_add(total(lost.values().copied()));
        let kernel = kernel.max(accounted);
        let (before_timer, profiler, outside) = match mode {
            // The process has no clock of its own for the lives of its threads.
            Mode::Wall => (statistics.before_timer_ns, 0, 0),
            Mode::CpuTime | Mode::Jvmti => {
                let (before_timer, profiler) = (statistics.before_timer_ns, statistics.sampler_cpu_ns);
                let known = [kernel, before_timer, profiler];
                (before_timer, profiler, statistics.process_cpu_ns.saturating_sub(total(known)))
            }
        };
        CpuTime { kernel, sampled, lost, unfinished: kernel - accounted, before_timer, profiler, outside }
    }

    pub fn process(&self) -> u64 {
        total([self.kernel, self.before_timer, self.profiler, self.outside])
    }

    /// Returns the CPU time without samples by all causes, that of threads that were not chosen included.
    pub fn lost_ns(&self) -> u64 {
        total(self.lost.values().copied())
    }

    /// Returns the CPU time of threads that the user left out.
    pub fn not_chosen_ns(&self) -> u64 {
        self.lost.get(NOT_CHOSEN).copied().unwrap_or(0)
    }

    /// Returns the CPU time that should have samples and has none, by cause.
    pub fn missed(&self) -> BTreeMap<String, u64> {
        let mut missed = self.lost.clone();
        missed.remove(NOT_CHOSEN);
        missed
    }

    /// Returns the CPU time that should have samples and has none.
    pub fn missed_ns(&self) -> u64 {
        self.lost_ns().saturating_sub(self.not_chosen_ns())
    }

    /// Returns the CPU time of the process without that of threads that were not chosen.
    pub fn chosen(&self) -> u64 {
        self.process().saturating_sub(self.not_chosen_ns())
    }

    /// Returns the share of the chosen CPU time that samples represent, 0 to 1.
    pub fn explained(&self) -> f64 {
        share(self.sampled, self.chosen())
    }
}

/// Quantiles of a histogram, exact to 1/16; `max` is exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Distribution {
    pub count: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// Quantiles without the number of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl Distribution {
    /// Returns the quantiles of `histogram`, zero without one.
    pub fn of(histogram: Option<&Histogram>) -> Self {
        let Quantiles { p50, p99, max } = Quantiles::of(histogram);
        Distribution { count: histogram.map_or(0, |histogram| histogram.count), p50, p99, max }
    }
}

impl Quantiles {
    /// Returns the quantiles of `histogram`, zero without one.
    pub fn of(histogram: Option<&Histogram>) -> Self {
        histogram.map_or(Quantiles::default(), |histogram| Quantiles {
            p50: quantile(histogram, 0.5),
            p99: quantile(histogram, 0.99),
            max: histogram.max,
        })
    }
}

/// Timers and threads. Threads share timers if there are fewer timers than threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timers {
    pub threads: u64,
    pub with_timer: u64,
    pub turns: u64,
    pub without_slot: u64,
}

impl Timers {
    /// Reads the latest statistics.
    pub fn new(statistics: &Statistics) -> Self {
        let timers = statistics.timers.unwrap_or_default();
        Timers {
            threads: timers.threads,
            with_timer: timers.with_timer,
            turns: timers.rotations,
            without_slot: timers.without_slot,
        }
    }
}

/// Time in which threads were ready to run and had no processor; no part of the CPU time. `None` is not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiting {
    pub run_delay_ns: Option<u64>,
    pub throttled_periods: Option<u64>,
    pub throttled_ns: Option<u64>,
}

impl Waiting {
    /// Reads the latest statistics.
    pub fn new(statistics: &Statistics) -> Self {
        let waiting = statistics.waiting.as_ref();
        Waiting {
            run_delay_ns: waiting.and_then(|waiting| waiting.run_delay_ns),
            throttled_periods: waiting.and_then(|waiting| waiting.throttled_periods),
            throttled_ns: waiting.and_then(|waiting| waiting.throttled_ns),
        }
    }

    /// Returns the figures in one line of text.
    pub fn sentence(&self) -> String {
        let delay = self.run_delay_ns.map_or_else(
            || "run-queue delay not reported".to_owned(),
            |ns| format!("{} of threads ready to run without a processor", duration(ns)),
        );
        let throttled = match (self.throttled_ns, self.throttled_periods) {
            (Some(ns), Some(periods)) => {
                format!("stopped by the cgroup's limit for {} in {} periods", duration(ns), count(periods))
            }
            _ => "throttling not reported".to_owned(),
        };
        format!("{delay}; {throttled}")
    }
}

pub fn by_name(counters: &[Counter]) -> BTreeMap<String, u64> {
    counters.iter().map(|counter| (counter.name.clone(), counter.count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_that_is_not_reported_is_not_zero() {
        let sentence = |run_delay_ns, throttled_periods, throttled_ns| {
            let waiting =
                proto::v1::Waiting { run_delay_ns, throttled_periods, throttled_ns, ..Default::default() };
            Waiting::new(&Statistics { waiting: Some(waiting), ..Statistics::default() }).sentence()
        };
        assert_eq!(
            sentence(Some(2_500_000_000), Some(12), Some(0)),
            "2.50 s of threads ready to run without a processor; stopped by the cgroup's limit for 0 ms in 12 periods"
        );
        assert_eq!(sentence(None, None, None), "run-queue delay not reported; throttling not reported");
        assert_eq!(Waiting::new(&Statistics::default()), Waiting::default());
    }

    #[test]
    fn wall_time_is_not_compared_with_the_cpu_time_of_the_process() {
        let statistics = Statistics {
            sampler_cpu_ns: 7,
            process_cpu_ns: 1_000,
            before_timer_ns: 5,
            ..Statistics::default()
        };
        let of = |mode| CpuTime::new(mode, 100, 90, BTreeMap::new(), &statistics);
        let cpu = of(Mode::CpuTime);
        assert_eq!((cpu.before_timer, cpu.profiler, cpu.outside, cpu.process()), (5, 7, 888, 1_000));
        let wall = of(Mode::Wall);
        assert_eq!((wall.unfinished, wall.profiler, wall.outside, wall.process()), (10, 0, 0, 105));
    }

    #[test]
    fn counters_by_name() {
        let copy_end = Counter { name: "copy_end".into(), count: 2 };
        assert_eq!(by_name(&[copy_end]), BTreeMap::from([("copy_end".to_owned(), 2)]));
    }
}
