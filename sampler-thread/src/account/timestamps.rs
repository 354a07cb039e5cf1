//! From the time stamp counter to CLOCK_MONOTONIC.
//!
//! Problem: reading a clock costs the handler a thousand cycles when caches are cold, so requests have the processor's
//! counter; messages contain nanoseconds.
//! Approach: the sampler reads both clocks whenever it has taken requests, and maps time stamps by the line through the
//! first and the newest reading.
//! Invariant: the time of a request is never after the newest reading.
//! Source: Intel SDM vol. 3, "Invariant TSC"; `constant_tsc nonstop_tsc` in /proc/cpuinfo.

/// One reading of both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Time stamp counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub ns: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct TickClock {
    first: Reading,
    newest: Reading,
}

impl TickClock {
    /// A mapping with one reading; it is usable after the second.
    pub fn new(first: Reading) -> Self {
        Self { first, newest: first }
    }

    pub fn read(&mut self, reading: Reading) {
        self.newest = reading;
    }

    /// Returns the duration of `ticks` of the counter in nanoseconds; 0 before the second reading.
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        let ticks_run = self.newest.ticks.saturating_sub(self.first.ticks);
        let ns_run = self.newest.ns.saturating_sub(self.first.ns);
        let ns = u128::from(ticks) * u128::from(ns_run) / u128::from(ticks_run.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Returns CLOCK_MONOTONIC, in nanoseconds, at counter reading `ticks`.
    pub fn nanos(&self, ticks: u64) -> u64 {
        let ticks_run = self.newest.ticks.saturating_sub(self.first.ticks);
        let ns_run = self.newest.ns.saturating_sub(self.first.ns);
        let age = self.newest.ticks.saturating_sub(ticks);
        if ticks_run == 0 {
            return self.newest.ns;
        }
        let age_ns = u128::from(age) * u128::from(ns_run) / u128::from(ticks_run);
        self.newest.ns.saturating_sub(u64::try_from(age_ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_line_through_both_readings() {
        let mut clock = TickClock::new(Reading { ticks: 1_000, ns: 50 });
        assert_eq!(clock.nanos(2_000), 50);
        clock.read(Reading { ticks: 27_000, ns: 10_050 });
        assert_eq!(clock.nanos(27_000), 10_050);
        assert_eq!(clock.nanos(14_000), 5_050);
        assert_eq!(clock.duration_ns(2_600), 1_000);
        assert_eq!(clock.nanos(28_000), 10_050, "never after the newest reading");
    }
}
