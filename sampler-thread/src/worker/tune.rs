//! The sampler's part in choosing the timers' period: what was spent, and what became of it.
//!
//! Invariant: the period is changed between two drains, by the thread that drains.

use std::time::Duration;

use proto::v1;
use stackwalk::Memory;

use super::Worker;
use crate::account::clock;
use crate::host::{Host, TimerCounts};
use crate::period::budget::{Budget, Spent};

/// CPU time of the kernel for one signal, of its timer and of the return from it, which no handler sees.
const DELIVERY_NS: u64 = 1_500;
/// CPU time for finding out the tick: two ticks at 250 Hz.
const MEASURING_NS: u64 = 9_000_000;

impl<H: Host, M: Memory> Worker<H, M> {
    /// Once a round: the period that processors and budget ask for now.
    pub(super) fn tune(&mut self) {
        self.tick.look_again(&*self.host);
        if self.tick.ns != 0 {
            self.tuner.tick_found(self.tick.ns);
        }
        let processors = if self.tuner.follows_processors() { self.host.processors() } else { 0 };
        let spent = self.spent();
        let (before_ns, shortest_ns) = (self.tuner.period_ns(), self.tuner.shortest_ns());
        // Said again where the host could not follow; a changed period is taken up by threads from the next look on.
        self.tuner.after_round(processors, spent);
        let period_ns = self.tuner.period_ns();
        if !self.host.aim_period(period_ns) || period_ns == before_ns {
            return;
        }
        let after = Duration::from_nanos(period_ns);
        match shortest_ns == self.tuner.shortest_ns() {
            true => tracing::info!("a sample every {after:?} of CPU time, by the budget"),
            false => tracing::info!("a sample every {after:?} of CPU time, for {processors} processors"),
        }
    }

    fn spent(&self) -> Spent {
        let delivered = self.stats.requests.saturating_mul(DELIVERY_NS);
        Spent {
            handlers_ns: self.clock.duration_ns(self.stats.handler_ticks).saturating_add(delivered),
            drains_ns: self.stats.drains_cpu_ns,
            threads_ns: self.own_cpu_ns(),
            process_ns: clock::process_cpu_nanos(),
        }
    }

    /// CPU time of the profiler's own threads, in nanoseconds.
    pub(super) fn own_cpu_ns(&self) -> u64 {
        let others = self.destinations.cpu_ns().saturating_add(self.intake.cpu_ns());
        clock::own_cpu_nanos().saturating_add(others)
    }

    pub(super) fn sampling(&self, timers: &TimerCounts) -> v1::Sampling {
        let budget = self.tuner.budget();
        let watched = budget.map(Budget::watched).unwrap_or_default();
        v1::Sampling {
            period_ns: self.tuner.period_ns(),
            shortest_ns: self.tuner.shortest_ns(),
            changes: timers.changes,
            replaced: timers.replaced,
            stragglers: timers.stragglers,
            tick_ns: self.tick.ns,
            processors: self.tuner.processors(),
            budget_ppm: budget.map_or(0, Budget::share_ppm),
            cost_ns: watched.own_ns(),
            cost_of_ns: watched.process_ns,
        }
    }
}

/// The kernel's tick, found out at the start or a second later.
#[derive(Debug)]
pub(super) struct Tick {
    /// In nanoseconds; 0 while it is unknown.
    pub(super) ns: u64,
    /// CPU time that may still be burnt for it, in nanoseconds.
    left_ns: u64,
}

impl Tick {
    /// Looks for it at once only if samples may be fewer than asked for because of it. A look burns up to 9 ms, which is
    /// a tenth of a program that prints a line; one that runs for a second affords it.
    pub(super) fn look(host: &impl Host) -> Self {
        let mut tick = Self { ns: 0, left_ns: MEASURING_NS };
        if matters_at_once(host.tuning().interval_ns, clock::kernel_tick_nanos()) {
            tick.look_again(host);
        }
        tick
    }

    /// Looks for it once more, unless it is known or enough was spent on it; says so where samples will be fewer than
    /// asked for.
    fn look_again(&mut self, host: &impl Host) {
        if self.ns != 0 || self.left_ns == 0 {
            return;
        }
        let begin_ns = clock::own_cpu_nanos();
        self.ns = host.measure_tick(self.left_ns).unwrap_or(0);
        self.left_ns = self.left_ns.saturating_sub(clock::own_cpu_nanos().saturating_sub(begin_ns));
        let interval_ns = host.tuning().interval_ns;
        // A twentieth is within what two readings may be off.
        if interval_ns < self.ns / 20 * 19 {
            let (asked, tick) = (Duration::from_nanos(interval_ns), Duration::from_nanos(self.ns));
            tracing::info!(
                "an interval of {asked:?} is below the kernel's tick: a sample every {tick:?} of CPU time, and of that \
                 weight"
            );
        }
    }
}

/// Whether the tick may be longer than the interval, from what the kernel says of it, or 0.
fn matters_at_once(interval_ns: u64, claimed_ns: u64) -> bool {
    claimed_ns == 0 || interval_ns < claimed_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_not_burdened_for_a_tick_that_changes_nothing() {
        assert!(!matters_at_once(10_000_000, 4_000_000) && !matters_at_once(4_000_000, 4_000_000));
        assert!(matters_at_once(1_000_000, 4_000_000) && matters_at_once(10_000_000, 0));
    }
}
