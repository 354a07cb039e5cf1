//! Measures the kernel's tick, below which a shorter interval yields no more samples.

use std::time::Duration;

use crate::account::clock;
use crate::process::Timers;

/// CPU time for measuring the tick, in nanoseconds: two ticks at 250 Hz.
const MEASURING_NS: u64 = 9_000_000;

/// The kernel's tick.
#[derive(Debug)]
pub(crate) struct Tick {
    /// In nanoseconds; 0 while it is unknown.
    pub(crate) ns: u64,
    /// Interval of the options, in nanoseconds.
    interval_ns: u64,
    /// CPU time left for measuring, in nanoseconds.
    left_ns: u64,
}

impl Tick {
    /// Measures the tick at the start only if it may be longer than the interval.
    ///
    /// Measuring takes up to 9 ms of CPU time, a tenth of a program that prints a line; one that runs for a second can
    /// afford it.
    pub(crate) fn at_start(timers: &impl Timers, interval_ns: u64) -> Self {
        let mut tick = Self { ns: 0, interval_ns, left_ns: MEASURING_NS };
        if matters_at_start(interval_ns, clock::kernel_tick_nanos()) {
            tick.measure(timers);
        }
        tick
    }

    /// Measures the tick unless it is known or too much CPU time was spent on it; logs if it is longer than the interval.
    pub(crate) fn measure(&mut self, timers: &impl Timers) {
        if self.ns != 0 || self.left_ns == 0 {
            return;
        }
        let begin_ns = clock::own_cpu_nanos();
        self.ns = timers.measure_tick(self.left_ns).unwrap_or(0);
        self.left_ns = self.left_ns.saturating_sub(clock::own_cpu_nanos().saturating_sub(begin_ns));
        // Two readings may differ by a twentieth.
        if self.interval_ns < self.ns / 20 * 19 {
            let (interval, tick) = (Duration::from_nanos(self.interval_ns), Duration::from_nanos(self.ns));
            tracing::info!(
                "the interval of {interval:?} is shorter than the kernel's tick: samples come every {tick:?} of CPU \
                 time and have that weight"
            );
        }
    }
}

/// Returns whether the tick may be longer than the interval, if the kernel claims `claimed_ns`, or 0 if it claims
/// nothing.
fn matters_at_start(interval_ns: u64, claimed_ns: u64) -> bool {
    claimed_ns == 0 || interval_ns < claimed_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_measured_at_the_start_only_if_it_matters() {
        assert!(!matters_at_start(10_000_000, 4_000_000) && !matters_at_start(4_000_000, 4_000_000));
        assert!(matters_at_start(1_000_000, 4_000_000) && matters_at_start(10_000_000, 0));
    }
}
