//! Decides how long the sampler sleeps between two drains.
//!
//! Problem: a queue that fills faster than it is drained loses samples; a handler may not make the system call that would
//! wake the sampler.
//! Approach: a drain measures how full the fullest queue was. From a half on the period is halved, down to 2 ms; below an
//! eighth it grows a little each time, up to the longest period. With growing queues (`queue::Sizer`) no load would
//! profit from a wake-up by the handler: a CPU timer fires at most once per tick of 1 to 10 ms, so the smallest queue
//! lasts at least 16 ms.
//! In a program that unloads classes or frees code, samples that are walked late lose names and frames. After an unloading
//! or a late sample the sampler drains every 5 ms for a second, so that a pause finds few samples that are not walked.
//! While drains find few requests, the period grows to what the queues allow, so that a wake-up serves several samples; not
//! for [`CALM`] after an unloading or a late sample.
//! After a second without a request the period grows to [`IDLE`], so that an idle program is hardly ever disturbed; it
//! stays below the time in which a thread fills the smallest queue. The first request ends that.
//! Invariant: the period stays within its bounds; a fixed period never changes.

use std::time::{Duration, Instant};

/// Longest time between two drains.
pub const LONGEST: Duration = Duration::from_millis(25);
/// Shortest time between two drains.
pub const SHORTEST: Duration = Duration::from_millis(2);

/// Longest time between two drains of an idle program, that of the search for threads.
const IDLE: Duration = Duration::from_millis(100);
/// Consecutive drains without a request after which a program counts as idle, a second.
const IDLE_DRAINS: u32 = 40;

/// Longest time between two drains while the VM frees what samples refer to.
const SHORTENED: Duration = Duration::from_millis(5);
/// Time for which the period stays shortened.
const SHORTENED_FOR: Duration = Duration::from_secs(1);

/// Time without an unloading and a late sample after which the period may be longer than [`LONGEST`].
const CALM: Duration = Duration::from_secs(10);
/// Requests of a drain that are few: a drain every [`LONGEST`] finds twelve with two busy threads at a tick of 4 ms, so a pause
/// never waits for more of them than it does there.
const FEW: u64 = 6;

/// Fill in percent from which on drains become more frequent.
const HIGH_WATER: u32 = 50;
/// Fill in percent below which drains become less frequent.
const LOW_WATER: u32 = 12;

/// Overrides for experiments (`debug=` of the agent's options).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PaceTuning {
    /// Fixed time between two drains.
    pub period: Option<Duration>,
    /// Drain for this long, then pause for as long, and so on.
    pub pause: Option<Duration>,
}

impl PaceTuning {
    /// Returns whether the times of drains are fixed, so that only the sampler may empty queues.
    pub fn is_exact(&self) -> bool {
        self.period.is_some() || self.pause.is_some()
    }
}

/// The current pace.
#[derive(Debug, Clone)]
pub struct Pace {
    tuning: PaceTuning,
    period: Duration,
    running: Duration,
    /// Requests of a drain that are few; 0 if the period never grows because of them.
    few: u64,
    /// Consecutive drains without a request.
    empty_drains: u32,
    /// Longest period of an idle program, and of one with few requests.
    idle: Duration,
    /// Until when the period is shortened.
    shortened_until: Option<Instant>,
}

impl Pace {
    /// Begins with the longest period, or with the fixed one.
    pub fn new(tuning: PaceTuning) -> Self {
        let period = tuning.period.unwrap_or(LONGEST);
        Self {
            tuning,
            period,
            running: Duration::ZERO,
            few: FEW,
            empty_drains: 0,
            idle: LONGEST,
            shortened_until: None,
        }
    }

    /// The same pace for a VM that frees code at any time, so that a sample should not wait because there are few of them.
    pub fn without_waiting(self) -> Self {
        Self { few: 0, ..self }
    }

    /// Notes in which time a busy thread fills the smallest queue.
    pub fn set_queue_time(&mut self, time: Duration) {
        // The rest is for threads that start while the sampler sleeps, and for a sampler that wakes late.
        self.idle = (time / 8 * 5).clamp(LONGEST, IDLE);
    }

    /// Returns the time to sleep before the next drain.
    pub fn period(&self, now: Instant) -> Duration {
        match self.shortened_until {
            Some(_) if self.tuning.is_exact() => self.period,
            Some(until) if now < until => self.period.min(SHORTENED),
            Some(until) if now < until + CALM => self.period.min(LONGEST),
            _ => self.period,
        }
    }

    /// Shortens the period for a while, after classes were unloaded or a stack was walked too late.
    pub fn shorten(&mut self, now: Instant) {
        self.shortened_until = Some(now + SHORTENED_FOR);
    }

    /// Adapts the period after a drain of `requests` that found the fullest queue `fill` percent full.
    pub fn after_drain(&mut self, requests: u64, fill: u32) {
        if self.tuning.is_exact() {
            return;
        }
        let was_idle = self.empty_drains > IDLE_DRAINS;
        self.empty_drains = if requests > 0 { 0 } else { self.empty_drains.saturating_add(1) };
        let longest = match requests {
            0 if self.empty_drains > IDLE_DRAINS => self.idle,
            0 => self.period.max(LONGEST),
            _ if requests <= self.few && !was_idle => self.idle,
            _ => LONGEST,
        };
        self.period = match fill {
            HIGH_WATER.. => self.period / 2,
            LOW_WATER.. => self.period,
            _ => self.period + self.period / 4,
        };
        self.period = self.period.clamp(SHORTEST, longest);
    }

    /// Returns whether an experiment pauses drains; `slept` is the time since the last call.
    pub fn is_paused(&mut self, slept: Duration) -> bool {
        let Some(pause) = self.tuning.pause.filter(|pause| !pause.is_zero()) else { return false };
        self.running += slept;
        (self.running.as_nanos() / pause.as_nanos()) % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queues_are_drained_more_often() {
        let now = Instant::now();
        let mut pace = Pace::new(PaceTuning::default());
        assert_eq!(pace.period(now), LONGEST);
        for _ in 0..10 {
            pace.after_drain(9, 60);
        }
        assert_eq!(pace.period(now), SHORTEST);
        pace.after_drain(5, 30);
        assert_eq!(pace.period(now), SHORTEST, "unchanged between the marks");
        for _ in 0..20 {
            pace.after_drain(1, 0);
        }
        assert_eq!(pace.period(now), LONGEST);
    }

    #[test]
    fn an_idle_program_is_drained_rarely_until_its_next_request() {
        let now = Instant::now();
        let mut pace = Pace::new(PaceTuning::default());
        for (queue_ms, longest) in [(160, IDLE), (64, Duration::from_millis(40)), (16, LONGEST)] {
            pace.set_queue_time(Duration::from_millis(queue_ms));
            (0..IDLE_DRAINS).for_each(|_| pace.after_drain(0, 0));
            assert_eq!(pace.period(now), LONGEST);
            (0..10).for_each(|_| pace.after_drain(0, 0));
            assert_eq!(pace.period(now), longest);
            pace.after_drain(1, 6);
            assert_eq!(pace.period(now), LONGEST);
        }
    }

    #[test]
    fn few_requests_are_drained_together_unless_the_vm_unloads() {
        let now = Instant::now();
        let mut pace = Pace::new(PaceTuning::default());
        pace.set_queue_time(Duration::from_millis(64));
        let longest = Duration::from_millis(40);
        (0..10).for_each(|_| pace.after_drain(FEW, 6));
        assert_eq!(pace.period(now), longest);
        pace.after_drain(0, 0);
        assert_eq!(pace.period(now), longest, "between two requests");
        pace.after_drain(FEW + 1, 6);
        assert_eq!(pace.period(now), LONGEST);
        let mut without_waiting = pace.clone().without_waiting();
        (0..10).for_each(|_| without_waiting.after_drain(1, 6));
        assert_eq!(without_waiting.period(now), LONGEST);
        (0..10).for_each(|_| pace.after_drain(1, 6));
        pace.shorten(now);
        for (later, period) in [(0, SHORTENED), (1_000, LONGEST), (10_999, LONGEST), (11_000, longest)] {
            assert_eq!(pace.period(now + Duration::from_millis(later)), period);
        }
    }

    #[test]
    fn experiments_fix_and_pause() {
        let (period, pause) = (Some(Duration::from_millis(5)), Some(Duration::from_millis(20)));
        let tuning = PaceTuning { period, pause };
        let now = Instant::now();
        let mut pace = Pace::new(tuning);
        pace.shorten(now);
        pace.after_drain(16, 100);
        assert_eq!(pace.period(now), Duration::from_millis(5));
        let paused: Vec<bool> = (0..12).map(|_| pace.is_paused(pace.period(now))).collect();
        let expected = [false, false, false, true, true, true, true, false, false, false, false, true];
        assert_eq!(paused, expected);
    }

    #[test]
    fn a_late_sample_shortens_the_period() {
        let now = Instant::now();
        let mut pace = Pace::new(PaceTuning::default());
        pace.shorten(now);
        assert_eq!(pace.period(now), SHORTENED);
        assert_eq!(pace.period(now + SHORTENED_FOR), LONGEST);
        pace.shorten(now + SHORTENED_FOR);
        assert_eq!(pace.period(now + SHORTENED_FOR), SHORTENED);
        for _ in 0..10 {
            pace.after_drain(9, 60);
        }
        assert_eq!(pace.period(now + SHORTENED_FOR), SHORTEST, "full queues shorten it further");
    }
}
