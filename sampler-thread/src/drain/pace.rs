//! How long the sampler sleeps between two drains.
//!
//! Problem: a queue that fills faster than it is drained loses samples; a handler, which sees it fill, may not make the
//! system call that would wake the sampler.
//! Approach: the drain sees how full the fullest queue was. Where that was half or more, it comes back in
//! half the time, down to 2 ms; where it was less than an eighth, a little later each time, up to the longest period.
//! Between 2 ms and growing queues (`queue::Sizer`) there is no load that a wake-up from the handler would serve better:
//! a CPU timer fires once in a tick of 1 to 10 ms, so the smallest queue lasts 16 ms at the least.
//! A program that unloads classes and frees code again and again takes them from samples that were not walked in time.
//! Where classes were unloaded, or a sample came too late, the drain comes each 5 ms for a second, so that a pause finds
//! little that is not walked.
//! Invariant: the period stays within its bounds, and is fixed where an experiment asked for a fixed one.

use std::time::{Duration, Instant};

/// Longest time between two drains.
pub const LONGEST: Duration = Duration::from_millis(25);
/// Shortest time between two drains.
pub const SHORTEST: Duration = Duration::from_millis(2);

/// Longest time between two drains where the VM frees what samples refer to.
const HURRIED: Duration = Duration::from_millis(5);
/// For how long.
const HURRY: Duration = Duration::from_secs(1);

/// Percent of a queue's entries from which on the drain comes more often.
const HIGH_WATER: u32 = 50;
/// Percent below which it comes less often again.
const LOW_WATER: u32 = 12;

/// What experiments may ask for (`debug=` of the agent's options).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PaceTuning {
    /// Fixed time between two drains, instead of one that follows the load.
    pub period: Option<Duration>,
    /// Drain for this long, then not at all for as long, and so on.
    pub pause: Option<Duration>,
    /// Let the sampler sleep this much too long, once a second.
    pub stall: Option<Duration>,
}

impl PaceTuning {
    /// Whether it says when queues are emptied, so that nobody else may.
    pub fn is_exact(&self) -> bool {
        self.period.is_some() || self.pause.is_some()
    }
}

/// The present pace.
#[derive(Debug, Clone)]
pub struct Pace {
    tuning: PaceTuning,
    period: Duration,
    running: Duration,
    /// Until when drains come more often.
    hurried_until: Option<Instant>,
}

impl Pace {
    /// The longest period, or the fixed one.
    pub fn new(tuning: PaceTuning) -> Self {
        let period = tuning.period.unwrap_or(LONGEST);
        Self { tuning, period, running: Duration::ZERO, hurried_until: None }
    }

    /// Time to sleep before the next drain.
    pub fn period(&self, now: Instant) -> Duration {
        let is_hurried = self.hurried_until.is_some_and(|until| now < until);
        if is_hurried && !self.tuning.is_exact() { self.period.min(HURRIED) } else { self.period }
    }

    /// Takes note of unloaded classes, or of a stack that lacks what the VM has freed before it was walked.
    pub fn hurry(&mut self, now: Instant) {
        self.hurried_until = Some(now + HURRY);
    }

    /// Sleeps on as long as an experiment wants; to be called once a second.
    pub fn oversleep(&self) {
        if let Some(stall) = self.tuning.stall {
            // The hook's purpose is to be away.
            #[expect(clippy::disallowed_methods)]
            std::thread::sleep(stall);
        }
    }

    /// Takes note of a drain that found the fullest queue `fill` percent full.
    pub fn after_drain(&mut self, fill: u32) {
        if self.tuning.period.is_some() {
            return;
        }
        self.period = match fill {
            HIGH_WATER.. => self.period / 2,
            LOW_WATER.. => self.period,
            _ => self.period + self.period / 4,
        };
        self.period = self.period.clamp(SHORTEST, LONGEST);
    }

    /// Whether an experiment keeps the drain from running now; `slept` is the time since the last call.
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
    fn full_queues_are_visited_sooner() {
        let now = Instant::now();
        let mut pace = Pace::new(PaceTuning::default());
        assert_eq!(pace.period(now), LONGEST);
        for _ in 0..10 {
            pace.after_drain(60);
        }
        assert_eq!(pace.period(now), SHORTEST);
        pace.after_drain(30);
        assert_eq!(pace.period(now), SHORTEST, "between the marks it stays");
        for _ in 0..20 {
            pace.after_drain(0);
        }
        assert_eq!(pace.period(now), LONGEST);
    }

    #[test]
    fn experiments_fix_and_pause() {
        let (period, pause) = (Some(Duration::from_millis(5)), Some(Duration::from_millis(20)));
        let tuning = PaceTuning { period, pause, stall: None };
        let now = Instant::now();
        let mut pace = Pace::new(tuning);
        pace.hurry(now);
        pace.after_drain(100);
        assert_eq!(pace.period(now), Duration::from_millis(5));
        let paused: Vec<bool> = (0..12).map(|_| pace.is_paused(pace.period(now))).collect();
        let expected = [false, false, false, true, true, true, true, false, false, false, false, true];
        assert_eq!(paused, expected);
    }

    #[test]
    fn a_drain_that_came_too_late_is_followed_by_others_soon() {
        let now = Instant::now();
        let mut pace = Pace::new(PaceTuning::default());
        pace.hurry(now);
        assert_eq!(pace.period(now), HURRIED);
        assert_eq!(pace.period(now + HURRY), LONGEST);
        pace.hurry(now + HURRY);
        assert_eq!(pace.period(now + HURRY), HURRIED);
        for _ in 0..10 {
            pace.after_drain(60);
        }
        assert_eq!(pace.period(now + HURRY), SHORTEST, "full queues are visited sooner still");
    }
}
