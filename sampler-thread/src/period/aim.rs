//! Distance between samples and period of the timers, computed from the interval and the kernel's tick.
//!
//! Problem: CPU timers expire at the kernel's ticks only, and a timer whose period is the interval is in phase with
//! programs that have the same rhythm (`design/timers.md`).
//! Approach: timers expire at every tick at which their thread runs, and the handler draws the signals that become
//! samples. A timer's period is a fraction of the tick, so that a thread that ran for part of a tick is not passed
//! over. Perf events expire at any time, so their period is the interval times a factor that is drawn for each profile.

use crate::clock::{self, ThreadClock};

/// Periods of a timer in a tick.
///
/// A thread that runs in short bursts is met by a tick at random times; one that has used less than a period since its
/// last signal gets none. With eight this is one tick in sixteen.
pub const PERIODS_PER_TICK: u64 = 8;
/// The tick where the kernel does not report it: 250 a second.
const USUAL_TICK_NS: u64 = 4_000_000;

/// Shortest period of perf events, in nanoseconds: a signal takes some 3 us.
const SHORTEST_EVENT_NS: u64 = 100_000;

/// The source of the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// Timers on the threads' CPU clocks, which expire at the kernel's ticks.
    #[default]
    Ticks,
    /// Perf events, which expire at any time.
    Events {
        /// Their period in millionths of the interval.
        factor_ppm: u32,
    },
    /// Timers on the wall clock, which expire while threads wait as well.
    Wall {
        /// Their period in millionths of the interval.
        factor_ppm: u32,
    },
    /// No signals: another thread gets stack traces from the VM ([`crate::drain::traces`]).
    Traces,
}

impl Clock {
    pub fn of_threads(self) -> ThreadClock {
        match self {
            Self::Ticks | Self::Events { .. } | Self::Traces => ThreadClock::Cpu,
            Self::Wall { .. } => ThreadClock::Wall,
        }
    }

    /// Returns the aim for an interval; `measured_ns` is the measured tick, 0 if it is unknown.
    pub fn aim(self, interval_ns: u64, measured_ns: u64) -> Aim {
        match self {
            Self::Ticks => Aim::new(interval_ns, measured_ns),
            Self::Traces => Aim { interval_ns, tick_ns: interval_ns, period_ns: interval_ns },
            Self::Events { factor_ppm } | Self::Wall { factor_ppm } => {
                let period_ns = u128::from(interval_ns) * u128::from(factor_ppm) / 1_000_000;
                let period_ns = u64::try_from(period_ns).unwrap_or(u64::MAX).max(SHORTEST_EVENT_NS);
                Aim { interval_ns, tick_ns: period_ns, period_ns }
            }
        }
    }
}

/// Interval, tick and timer period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Aim {
    /// Wanted CPU time between two samples, in nanoseconds.
    pub interval_ns: u64,
    /// CPU time between two signals of a thread that runs, in nanoseconds: the kernel's tick, or the period of perf
    /// events.
    pub tick_ns: u64,
    /// Period of the timers or perf events, in nanoseconds.
    pub period_ns: u64,
}

impl Aim {
    /// Returns the aim for an interval; `measured_ns` is the measured tick, 0 if it is unknown.
    pub fn new(interval_ns: u64, measured_ns: u64) -> Self {
        Self::with_ticks(interval_ns, clock::kernel_tick_nanos(), measured_ns)
    }

    /// Returns [`Aim::new`] on a kernel that reports this tick, or 0.
    fn with_ticks(interval_ns: u64, reported_ns: u64, measured_ns: u64) -> Self {
        // A measurement that confirms the report does not change it: another period is another timer for every thread.
        let is_confirmed = reported_ns.abs_diff(measured_ns) <= reported_ns / 16;
        let tick_ns = match (reported_ns, measured_ns) {
            (0, 0) => USUAL_TICK_NS,
            (reported_ns, 0) => reported_ns,
            (reported_ns, _) if is_confirmed => reported_ns,
            (_, measured_ns) => measured_ns,
        };
        Self { interval_ns, tick_ns, period_ns: (tick_ns / PERIODS_PER_TICK).max(1) }
    }

    /// Returns the mean CPU time between two samples of a thread, in nanoseconds; 0 if every signal is a sample,
    /// because the interval is not longer than the tick. A difference below 5 % counts as none.
    pub fn distance_ns(&self) -> u64 {
        if self.is_exact() {
            return 0;
        }
        if self.interval_ns > self.tick_ns / 20 * 21 { self.interval_ns } else { 0 }
    }

    /// Returns whether signals come at the ends of periods, without waiting for a tick.
    pub fn is_exact(&self) -> bool {
        self.tick_ns == self.period_ns
    }

    /// Returns the periods that begin in a tick beyond the first.
    pub fn further_periods(&self) -> u64 {
        self.tick_ns.div_ceil(self.period_ns.max(1)).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_follows_the_tick_and_not_the_interval() {
        let aim = Aim::with_ticks(10_000_000, 4_000_000, 0);
        assert_eq!((aim.tick_ns, aim.period_ns, aim.further_periods()), (4_000_000, 500_000, 7));
        assert_eq!(aim.distance_ns(), 10_000_000);
        assert_eq!(Aim { interval_ns: 1_000_000, ..aim }, Aim::with_ticks(1_000_000, 4_000_000, 4_030_000));
        for interval_ns in [1_000_000, 4_000_000, 4_100_000] {
            assert_eq!(Aim { interval_ns, ..aim }.distance_ns(), 0, "every tick is a sample");
        }
    }

    #[test]
    fn the_period_of_events_follows_the_interval() {
        let aim = Clock::Events { factor_ppm: 980_000 }.aim(1_000_000, 4_000_000);
        assert_eq!(
            (aim.tick_ns, aim.period_ns, aim.distance_ns(), aim.is_exact()),
            (980_000, 980_000, 0, true)
        );
        let shortest = Clock::Events { factor_ppm: 980_000 }.aim(10_000, 0);
        assert_eq!(shortest.period_ns, SHORTEST_EVENT_NS);
        assert!(!Clock::Ticks.aim(1_000_000, 4_000_000).is_exact());
    }

    #[test]
    fn a_measured_tick_counts_where_it_differs() {
        assert_eq!(Aim::with_ticks(1, 4_000_000, 10_000_000).tick_ns, 10_000_000);
        assert_eq!(Aim::with_ticks(1, 0, 1_000_000).period_ns, 125_000);
        assert_eq!(Aim::with_ticks(1, 0, 0).tick_ns, USUAL_TICK_NS);
    }
}
