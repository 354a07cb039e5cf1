//! Determines the kernel's tick, below which a shorter interval yields no more samples.
//!
//! Problem: the kernel reports its configuration, which may differ from the real tick, and a measurement takes up to 9
//! ms of CPU time, as much as all samples of a short program.
//! Approach: timers expire at ticks, so the times of the first samples confirm the reported tick ([`Times`]) or cause a
//! measurement.
//! Invariant: a tick counts as known only if samples have confirmed it or it was measured.

use std::time::Duration;

use crate::clock;
use crate::period::aim::Clock;
use crate::period::interval::Tuning;

/// CPU time for measuring the tick, in nanoseconds: two ticks at 250 Hz.
const MEASURING_NS: u64 = 9_000_000;
/// Rounds of a second in which samples may confirm the tick: an idle machine needs half a second of CPU time at 10 ms.
const PATIENCE: u32 = 10;

#[derive(Debug)]
pub(crate) struct Tick {
    /// In nanoseconds; 0 while it is unknown.
    pub(crate) ns: u64,
    /// Interval of the options, in nanoseconds.
    interval_ns: u64,
    /// CPU time left for measuring, in nanoseconds.
    left_ns: u64,
    /// False for perf events, which do not wait for ticks.
    is_waited_for: bool,
    /// Times of the first samples; `None` once the tick is known or has to be measured.
    times: Option<Times>,
    /// Rounds in which samples have not confirmed the tick.
    rounds: u32,
}

impl Tick {
    /// Measures the tick at the start only if the kernel reports none, and never for perf events, which do not wait for
    /// it.
    pub(crate) fn at_start(tuning: &Tuning, measure: impl FnOnce(u64) -> Option<u64>) -> Self {
        let is_waited_for = tuning.clock == Clock::Ticks;
        let times = Times::new(clock::kernel_tick_nanos()).filter(|_| is_waited_for);
        let left_ns = if is_waited_for { MEASURING_NS } else { 0 };
        let interval_ns = tuning.interval_ns;
        let mut tick = Self { ns: 0, interval_ns, left_ns, is_waited_for, times, rounds: 0 };
        if tick.times.is_none() {
            tick.measure(measure);
        }
        tick
    }

    /// Returns the tick in nanoseconds: the known one, else what the kernel reports; 0 if it reports none, or if
    /// nothing waits for it.
    pub(crate) fn likely_ns(&self) -> u64 {
        if !self.is_waited_for {
            return 0;
        }
        if self.ns == 0 { clock::kernel_tick_nanos() } else { self.ns }
    }

    /// Notes a sample at `time_ns` of the monotonic clock.
    pub(crate) fn note(&mut self, time_ns: u64) {
        if let Some(times) = &mut self.times {
            times.note(time_ns);
        }
    }

    /// Ends a round of a second: notes a tick that the samples confirm, and measures one that they do not.
    pub(crate) fn after_round(&mut self, measure: impl FnOnce(u64) -> Option<u64>) {
        let Some(times) = &self.times else { return self.measure(measure) };
        self.rounds += 1;
        match times.verdict() {
            None if self.rounds < PATIENCE => return,
            Some(true) => self.found(times.reported_ns),
            _ => self.measure(measure),
        }
        self.times = None;
    }

    /// Measures the tick unless it is known or too much CPU time was spent on it.
    fn measure(&mut self, measure: impl FnOnce(u64) -> Option<u64>) {
        if self.ns != 0 || self.left_ns == 0 {
            return;
        }
        let begin_ns = clock::own_cpu_nanos();
        let tick_ns = measure(self.left_ns).unwrap_or(0);
        self.left_ns = self.left_ns.saturating_sub(clock::own_cpu_nanos().saturating_sub(begin_ns));
        self.found(tick_ns);
    }

    /// Notes the tick; logs if it is longer than the interval.
    fn found(&mut self, tick_ns: u64) {
        self.ns = tick_ns;
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

/// Parts of a tick that are told apart.
const PARTS: usize = 16;
/// Samples that are looked at, at most, and those that must match the reported tick.
const MANY: usize = 512;
const ENOUGH: usize = 48;

/// Times of samples, in nanoseconds of the monotonic clock.
///
/// The kernel's ticks are multiples of the tick on that clock, on all processors at once, plus a constant. On a busy
/// machine a thread may lose its processor at a tick and deliver its signal when it gets one again, so some times are
/// arbitrary; these fall into all parts of a tick alike. With another tick than the reported one a second part is as
/// full as the first, or all ticks are multiples of a multiple of the reported one.
/// Source: Linux 6.18, `kernel/time/tick-sched.c` (`tick_setup_sched_timer`; with `skew_tick` the report is not
/// confirmed).
#[derive(Debug)]
struct Times {
    reported_ns: u64,
    noted: Vec<u64>,
}

impl Times {
    /// No times yet; `None` if the kernel reports no tick.
    fn new(reported_ns: u64) -> Option<Self> {
        (reported_ns >= PARTS as u64).then(|| Self { reported_ns, noted: Vec::new() })
    }

    fn note(&mut self, time_ns: u64) {
        if self.noted.len() < MANY {
            self.noted.push(time_ns);
        }
    }

    /// Returns whether the reported tick is the real one; `None` while the samples do not tell.
    fn verdict(&self) -> Option<bool> {
        let tick_ns = self.reported_ns;
        let part_ns = tick_ns / PARTS as u64;
        let mut parts = [0_usize; PARTS];
        for time_ns in &self.noted {
            let part = (time_ns % tick_ns / part_ns) as usize;
            parts[part.min(PARTS - 1)] += 1;
        }
        // Two neighbours, because the ticks may lie on the border of a part.
        let pair = |first: usize| parts[first % PARTS] + parts[(first + 1) % PARTS];
        let fullest = (0..PARTS).max_by_key(|&first| pair(first)).unwrap_or(0);
        let matching = pair(fullest);
        let is_alone = (fullest + 2..fullest + PARTS - 1).all(|other| pair(other) <= matching / 3);
        let begin_ns = fullest as u64 * part_ns;
        let ticks = self.noted.iter().filter_map(|time_ns| {
            let since_ns = time_ns.checked_sub(begin_ns)?;
            (since_ns % tick_ns < 2 * part_ns).then_some(since_ns / tick_ns)
        });
        let is_shortest = [2, 3, 5].into_iter().all(|multiple| {
            let mut rests = [0_usize; 5];
            ticks.clone().for_each(|tick| rests[(tick % multiple) as usize] += 1);
            rests.iter().all(|&count| count <= matching / 4 * 3)
        });
        match matching >= ENOUGH && is_alone && is_shortest {
            true => Some(true),
            false => (self.noted.len() == MANY).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORTED_NS: u64 = 4_000_000;

    /// Returns the verdict on a thread that is sampled at the first tick after each of the distances, of which `noise`
    /// percent of the samples come late by any part of a tick.
    fn verdict(tick_ns: u64, interval_ns: u64, noise: u64) -> Option<bool> {
        let mut times = Times::new(REPORTED_NS).expect("a reported tick");
        let (mut time_ns, mut state) = (0_u64, 88_172_645_463_325_252_u64);
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let phase_ns = random(tick_ns);
        for noted in 1..=MANY {
            // Every tick, or what the handler draws.
            let distance_ns = if interval_ns > tick_ns { interval_ns / 2 + random(interval_ns) } else { 1 };
            time_ns = (time_ns / tick_ns + distance_ns.div_ceil(tick_ns)) * tick_ns;
            let late_ns = if random(100) < noise { random(tick_ns) } else { random(50_000) };
            times.note(phase_ns + time_ns + late_ns);
            if noted.is_multiple_of(32)
                && let verdict @ Some(_) = times.verdict()
            {
                return verdict;
            }
        }
        None
    }

    #[test]
    fn the_reported_tick_is_confirmed_on_idle_and_on_busy_machines() {
        for interval_ns in [1_000_000, 4_000_000, 5_000_000, 6_000_000, 8_000_000, 10_000_000, 20_000_000] {
            for noise in [0, 30, 60] {
                assert_eq!(verdict(REPORTED_NS, interval_ns, noise), Some(true), "{interval_ns} {noise}");
            }
        }
    }

    #[test]
    fn another_tick_is_never_confirmed() {
        for tick_ns in [1_000_000, 2_000_000, 3_333_333, 8_000_000, 10_000_000, 12_000_000, 20_000_000] {
            for interval_ns in [1_000_000, 4_000_000, 6_000_000, 10_000_000, 20_000_000] {
                for noise in [0, 30] {
                    let verdict = verdict(tick_ns, interval_ns, noise);
                    assert_eq!(verdict, Some(false), "{tick_ns} {interval_ns} {noise}");
                }
            }
        }
    }

    #[test]
    fn few_samples_tell_nothing() {
        let mut times = Times::new(REPORTED_NS).expect("a reported tick");
        (0..ENOUGH as u64 - 1).for_each(|tick| times.note(tick * REPORTED_NS));
        assert_eq!(times.verdict(), None);
        assert!(Times::new(0).is_none());
    }
}
