//! Measures the cost of the profiler and sets the period of the timers.
//!
//! Invariant: the period changes between two drains, on the thread that drains.

use std::time::Duration;

use proto::v1;
use stackwalk::Memory;

use super::Worker;
use crate::clock;
use crate::period::budget::{Budget, Spent};
use crate::period::interval;
use crate::process::{Process, TimerCounts};

/// CPU time of the kernel for one signal, in nanoseconds: its timer, delivery and return, which no handler measures.
const DELIVERY_NS: u64 = 1_500;
/// CPU time of a signal that does not become a sample, in nanoseconds, an estimate: its delivery, and a handler run
/// with cold caches that ends at the draw.
const PASSED_OVER_NS: u64 = DELIVERY_NS + 1_200;

impl<P: Process, M: Memory> Worker<P, M> {
    /// Sets the period that processors and budget require; to be called once a second.
    pub(super) fn tune(&mut self) {
        self.tick.after_round(|max_cpu_ns| self.process.measure_tick(max_cpu_ns));
        if self.tick.ns != 0 {
            self.tuner.set_tick(self.tick.ns);
        }
        let sharing = if self.tuner.follows_processors() {
            interval::processors()
        } else if self.tuner.follows_threads() {
            self.process.timer_counts().sharing
        } else {
            0
        };
        let spent = self.spent();
        let (before_ns, shortest_ns) = (self.tuner.period_ns(), self.tuner.shortest_ns());
        // Set again in every round, because it may have been impossible; threads adopt it at the next discovery.
        self.tuner.after_round(sharing, spent);
        let period_ns = self.tuner.period_ns();
        self.set_queue_time();
        let aim = self.tuner.aim(period_ns, self.tick.ns);
        if !self.process.aim(aim) || period_ns == before_ns {
            return;
        }
        let after = Duration::from_nanos(period_ns);
        if self.tuner.follows_threads() {
            tracing::info!("the interval is {after:?} of wall time, for {sharing} threads");
            return;
        }
        match shortest_ns == self.tuner.shortest_ns() {
            true => tracing::info!("the interval is {after:?} of CPU time, because of the budget"),
            false => tracing::info!("the interval is {after:?} of CPU time, for {sharing} processors"),
        }
    }

    /// Adapts the pace to the time in which a thread may fill its queue.
    pub(super) fn set_queue_time(&mut self) {
        let entries = self.intake.with_state(|_, state| state.queue_sizes.smallest()) as u64;
        let period_ns = self.tuner.period_ns();
        let aim = self.tuner.aim(period_ns, self.tick.likely_ns());
        // Two samples of a thread are at least a tick, and on average an interval, apart.
        let queue_ns = period_ns.max(aim.tick_ns).saturating_mul(entries);
        self.pace.set_queue_time(Duration::from_nanos(queue_ns));
    }

    fn spent(&self) -> Spent {
        let delivered = self.stats.requests.saturating_mul(DELIVERY_NS);
        let process_ns = clock::process_cpu_nanos();
        let aim = self.tuner.aim(self.tuner.period_ns(), self.tick.ns);
        // A thread that runs gets a signal at each tick, whatever the interval is.
        let passed_over = match aim.distance_ns() {
            0 => 0,
            _ => (process_ns / aim.tick_ns.max(1)).saturating_sub(self.stats.requests),
        };
        Spent {
            handlers_ns: self.clock.duration_ns(self.stats.handler_ticks).saturating_add(delivered),
            drains_ns: self.stats.drains_cpu_ns,
            threads_ns: self.own_cpu_ns().saturating_add(passed_over.saturating_mul(PASSED_OVER_NS)),
            process_ns,
        }
    }

    /// Returns the CPU time of the profiler's own threads, in nanoseconds.
    pub(super) fn own_cpu_ns(&self) -> u64 {
        let traces_ns = self.traces.as_ref().map_or(0, |traces| traces.cpu_ns());
        let others =
            self.destinations.cpu_ns().saturating_add(self.intake.cpu_ns()).saturating_add(traces_ns);
        clock::own_cpu_nanos().saturating_add(others)
    }

    pub(super) fn sampling(&self, timers: &TimerCounts) -> v1::Sampling {
        let budget = self.tuner.budget();
        let measured = budget.map(Budget::measured).unwrap_or_default();
        v1::Sampling {
            period_ns: self.tuner.period_ns(),
            shortest_ns: self.tuner.shortest_ns(),
            changes: timers.changes,
            replaced: timers.replaced,
            outdated: timers.outdated,
            tick_ns: self.tick.likely_ns(),
            processors: self.tuner.processors(),
            budget_ppm: budget.map_or(0, Budget::share_ppm),
            cost_ns: measured.own_ns(),
            cost_of_ns: measured.process_ns,
        }
    }
}
