//! Time that the sampler sleeps between two drains.
//!
//! Problem: the first sample of a drain costs some 0.2 ms, because the program has taken the caches meanwhile; but a
//! sample that waits may lose names and frames that the VM frees, and a queue that is drained too rarely loses samples.
//! A handler may not make the system call that would wake the sampler.
//! Approach: the longest period depends on what waiting has cost lately.
//! - [`LONGEST`], if the VM proves that nothing was freed since a sample and nothing was lost by waiting. Less while
//!   most code is new, and before a thread of the VM begins to free code (`drain::next_sweep`).
//! - [`WATCHFUL`] for [`CALM`] after the VM unloaded or redefined classes or a walk may have come too late; always, if
//!   the VM proves nothing.
//! - [`SHORTENED`] for a second after an unloading or a late walk, so that a pause finds few samples that are not
//!   walked.
//!
//! Fuller queues, many requests and large ones halve the period; otherwise it grows by half. Queues grow as well
//! (`queue::Sizer`), and the smallest lasts at least 128 ms, because a CPU timer expires at most once per tick.
//! After a second without a request the period may be [`IDLE`] in any VM, until the next request.
//! Invariant: the period stays within its bounds, and below the time in which a thread fills the smallest queue; a
//! fixed period never changes.

use std::time::{Duration, Instant};

/// Longest time between two drains.
const LONGEST: Duration = Duration::from_millis(400);
/// Longest time between two drains of an idle program.
const IDLE: Duration = Duration::from_millis(100);
/// Longest time between two drains while samples may lose something by waiting.
pub const WATCHFUL: Duration = Duration::from_millis(25);
/// Shortest time between two drains.
pub const SHORTEST: Duration = Duration::from_millis(2);

/// Time between the first two drains. It grows from there, so that a program that ends within some tens of milliseconds
/// waits for few samples.
const FIRST: Duration = Duration::from_millis(5);

/// Consecutive drains without a request after which a program counts as idle, about a second.
const IDLE_DRAINS: u32 = 40;

/// Longest time between two drains while the VM frees what samples refer to.
const SHORTENED: Duration = Duration::from_millis(5);
/// Time for which the period stays shortened.
const SHORTENED_FOR: Duration = Duration::from_secs(1);

/// Time without a loss after which samples may wait for longer than [`WATCHFUL`].
const CALM: Duration = Duration::from_secs(10);
/// Time from the start in which most code that samples meet is new: a walk that comes after a pause which may have
/// freed code steps only through code that was met before.
const NEW: Duration = Duration::from_secs(2);
/// Longest time between two drains meanwhile.
const LONGEST_WHILE_NEW: Duration = Duration::from_millis(40);
const MANY_REQUESTS: u64 = 256;
/// Bytes of their copies that are many: the pool keeps as much again.
const MANY_BYTES: u64 = 2 << 20;

/// Fill in percent from which on drains become more frequent.
const HIGH_WATER: u32 = 75;
/// Fill in percent below which drains become less frequent.
const LOW_WATER: u32 = 50;

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

#[derive(Debug, Clone)]
pub struct Pace {
    tuning: PaceTuning,
    period: Duration,
    running: Duration,
    /// True if the VM can tell that nothing was freed since a sample.
    may_wait: bool,
    /// Time between two looks whether a sweep has begun (`drain::next_sweep`).
    until_look: Duration,
    /// Consecutive drains without a request.
    empty_drains: u32,
    /// Longest period that the smallest queue allows.
    longest: Duration,
    /// Until when the period is shortened.
    shortened_until: Option<Instant>,
    /// Until when samples do not wait for long.
    watchful_until: Option<Instant>,
    /// Until when most code is new.
    new_until: Instant,
}

impl Pace {
    /// Begins with short periods, or with the fixed one.
    pub fn new(tuning: PaceTuning) -> Self {
        let period = tuning.period.unwrap_or(FIRST);
        Self {
            tuning,
            period,
            running: Duration::ZERO,
            may_wait: false,
            until_look: LONGEST,
            empty_drains: 0,
            longest: WATCHFUL,
            shortened_until: None,
            watchful_until: None,
            new_until: Instant::now() + NEW,
        }
    }

    /// Returns whether an experiment decides when drains are.
    pub fn is_exact(&self) -> bool {
        self.tuning.is_exact()
    }

    /// Notes whether the VM can tell that nothing was freed since a sample.
    pub fn set_may_wait(&mut self, may_wait: bool) {
        self.may_wait = may_wait;
    }

    /// Notes when to look whether a sweep has begun; `None` if there are none.
    pub fn set_until_look(&mut self, time: Option<Duration>) {
        self.until_look = time.unwrap_or(LONGEST);
    }

    /// Notes in which time a busy thread fills the smallest queue.
    pub fn set_queue_time(&mut self, time: Duration) {
        // The rest is for threads that start while the sampler sleeps, and for a sampler that wakes late.
        self.longest = (time / 8 * 5).clamp(WATCHFUL, LONGEST);
    }

    /// Returns the time to sleep before the next drain.
    pub fn period(&self, now: Instant) -> Duration {
        let is_before = |until: Option<Instant>| until.is_some_and(|until| now < until);
        match () {
            () if self.tuning.is_exact() => self.period,
            () if is_before(self.shortened_until) => self.period.min(SHORTENED),
            () if is_before(self.watchful_until) => self.period.min(WATCHFUL),
            () => self.period,
        }
    }

    /// Returns the time to sleep until a look whether a sweep has begun, if the next drain is later.
    pub fn until_look(&self) -> Duration {
        if self.tuning.is_exact() { LONGEST.max(self.period) } else { self.until_look }
    }

    /// Returns whether waiting has cost nothing lately, so that samples may wait for longer than [`WATCHFUL`].
    pub fn is_calm(&self, now: Instant) -> bool {
        self.may_wait && !self.tuning.is_exact() && self.watchful_until.is_none_or(|until| now >= until)
    }

    /// Returns whether the profile has just begun, so that most code is new to it.
    pub fn is_new(&self, now: Instant) -> bool {
        now < self.new_until
    }

    /// Shortens the period for a while, after classes were unloaded or a stack was walked too late.
    pub fn shorten(&mut self, now: Instant) {
        self.shortened_until = Some(now + SHORTENED_FOR);
        self.watch(now);
    }

    /// Lets samples wait less for a while, after a walk that failed or a redefinition of classes, whose code is freed
    /// soon: a later walk finds more that has changed.
    pub fn watch(&mut self, now: Instant) {
        self.watchful_until = Some(now + CALM);
    }

    /// Adapts the period after a drain of `requests` with copies of `bytes` bytes in all, which found the fullest queue
    /// `fill` percent full.
    pub fn after_drain(&mut self, requests: u64, bytes: u64, fill: u32) {
        if self.tuning.is_exact() {
            return;
        }
        self.empty_drains = if requests > 0 { 0 } else { self.empty_drains.saturating_add(1) };
        let is_idle = self.empty_drains > IDLE_DRAINS;
        let longest = match () {
            () if self.may_wait => self.longest,
            () if is_idle => self.longest.min(IDLE),
            () => WATCHFUL,
        };
        // Grows from there: the pool of stack copies grows with what a drain finds.
        let longest = if self.is_new(Instant::now()) { longest.min(LONGEST_WHILE_NEW) } else { longest };
        self.period = match fill {
            HIGH_WATER.. => self.period / 2,
            _ if requests > MANY_REQUESTS || bytes > MANY_BYTES => {
                (self.period / 2).max(self.period.min(WATCHFUL))
            }
            LOW_WATER.. => self.period,
            _ => self.period + self.period / 2,
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

    fn after(pace: &mut Pace, drains: u32, requests: u64, fill: u32) -> Duration {
        (0..drains).for_each(|_| pace.after_drain(requests, 0, fill));
        pace.period(Instant::now())
    }

    fn calm(queue: Duration) -> Pace {
        let mut pace = Pace::new(PaceTuning::default());
        pace.period = WATCHFUL;
        pace.set_may_wait(true);
        pace.set_queue_time(queue);
        pace.new_until = Instant::now();
        pace
    }

    #[test]
    fn samples_wait_less_while_code_is_new() {
        let mut pace = Pace { new_until: Instant::now() + NEW, ..calm(Duration::from_millis(640)) };
        assert_eq!(after(&mut pace, 20, 1, 0), LONGEST_WHILE_NEW);
        pace.new_until = Instant::now();
        assert_eq!(after(&mut pace, 1, 1, 0), LONGEST_WHILE_NEW * 3 / 2);
    }

    #[test]
    fn code_is_new_for_two_seconds() {
        let pace = Pace::new(PaceTuning::default());
        let now = Instant::now();
        assert!(pace.is_new(now) && !pace.is_new(now + NEW));
    }

    #[test]
    fn full_queues_are_drained_more_often() {
        let mut pace = Pace::new(PaceTuning::default());
        assert_eq!(pace.period(Instant::now()), FIRST);
        assert_eq!(after(&mut pace, 1, 1, 0), FIRST * 3 / 2);
        assert_eq!(after(&mut pace, 10, 9, 80), SHORTEST);
        assert_eq!(after(&mut pace, 1, 5, 60), SHORTEST, "unchanged between the marks");
        assert_eq!(after(&mut pace, 20, 1, 0), WATCHFUL);
    }

    #[test]
    fn samples_wait_while_nothing_is_known_to_be_freed() {
        for (queue_ms, longest) in [(640, LONGEST), (128, Duration::from_millis(80)), (16, WATCHFUL)] {
            let mut pace = calm(Duration::from_millis(queue_ms));
            assert_eq!(after(&mut pace, 10, MANY_REQUESTS, 40), longest);
            assert!(pace.is_calm(Instant::now()));
            pace.set_may_wait(false);
            assert_eq!(after(&mut pace, 1, 1, 0), WATCHFUL);
            assert!(!pace.is_calm(Instant::now()));
        }
    }

    #[test]
    fn the_sampler_looks_for_sweeps_between_drains() {
        let mut pace = calm(Duration::from_millis(640));
        assert_eq!(pace.until_look(), LONGEST, "without a sweeper");
        pace.set_until_look(Some(SHORTENED));
        assert_eq!(pace.until_look(), SHORTENED);
        assert_eq!(after(&mut pace, 20, 1, 0), LONGEST);
        pace.set_until_look(None);
        assert_eq!(pace.until_look(), LONGEST);
        let period = Some(Duration::from_secs(1));
        let mut fixed = Pace::new(PaceTuning { period, ..PaceTuning::default() });
        fixed.set_until_look(Some(SHORTENED));
        assert_eq!(Some(fixed.until_look()), period);
    }

    #[test]
    fn many_requests_do_not_wait() {
        let mut pace = calm(Duration::from_millis(640));
        assert_eq!(after(&mut pace, 10, 1, 0), LONGEST);
        assert_eq!(after(&mut pace, 1, MANY_REQUESTS + 1, 40), LONGEST / 2);
        assert_eq!(after(&mut pace, 10, MANY_REQUESTS + 1, 40), WATCHFUL);
        assert_eq!(after(&mut pace, 3, 1, 80), WATCHFUL / 8);
        assert_eq!(
            after(&mut pace, 1, MANY_REQUESTS + 1, 40),
            WATCHFUL / 8,
            "full queues have shortened it further"
        );
        let mut pace = calm(Duration::from_millis(640));
        assert_eq!(after(&mut pace, 10, 1, 0), LONGEST);
        pace.after_drain(1, MANY_BYTES + 1, 0);
        assert_eq!(pace.period(Instant::now()), LONGEST / 2, "few large copies");
    }

    #[test]
    fn an_idle_program_is_drained_rarely_until_its_next_request() {
        let mut pace = calm(Duration::from_millis(640));
        pace.set_may_wait(false);
        assert_eq!(after(&mut pace, IDLE_DRAINS, 0, 0), WATCHFUL);
        assert_eq!(after(&mut pace, 10, 0, 0), IDLE);
        assert_eq!(after(&mut pace, 1, 1, 6), WATCHFUL);
    }

    #[test]
    fn an_unloading_or_a_late_walk_shortens_the_period() {
        let mut pace = calm(Duration::from_millis(640));
        assert_eq!(after(&mut pace, 10, 1, 0), LONGEST);
        let now = Instant::now();
        pace.shorten(now);
        for (later, period) in [(0, SHORTENED), (1_000, WATCHFUL), (9_999, WATCHFUL), (10_000, LONGEST)] {
            let then = now + Duration::from_millis(later);
            assert_eq!((pace.period(then), pace.is_calm(then)), (period, period == LONGEST));
        }
        after(&mut pace, 10, 9, 80);
        assert_eq!(pace.period(now), SHORTEST, "full queues shorten it further");
        let mut pace = calm(Duration::from_millis(640));
        after(&mut pace, 10, 1, 0);
        pace.watch(now);
        assert_eq!(pace.period(now), WATCHFUL);
        assert_eq!(pace.period(now + CALM), LONGEST);
    }

    #[test]
    fn experiments_fix_and_pause() {
        let (period, pause) = (Some(Duration::from_millis(5)), Some(Duration::from_millis(20)));
        let tuning = PaceTuning { period, pause };
        let now = Instant::now();
        let mut pace = Pace::new(tuning);
        pace.set_may_wait(true);
        pace.shorten(now);
        pace.after_drain(16, 0, 100);
        assert_eq!(pace.period(now), Duration::from_millis(5));
        assert!(!pace.is_calm(now + 2 * CALM), "pauses wait");
        let paused: Vec<bool> = (0..12).map(|_| pace.is_paused(pace.period(now))).collect();
        let expected = [false, false, false, true, true, true, true, false, false, false, false, true];
        assert_eq!(paused, expected);
    }
}
