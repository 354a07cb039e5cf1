//! Lets the VM thread wait for the sampler thread at the start of a pause, within a budget.
//!
//! Problem: a pause of the garbage collector may free classes and code of samples that are not walked yet.
//! Approach: at its start the VM thread wakes the sampler, which no safepoint stops, and waits until the samples from
//! before the pause are named. Pauses of a VM that counts what it frees, and has freed nothing lately, do not wait.
//! Those of G1 that may free something come while [`MARKER`] works and are counted before they are reported, so they
//! wait all the same. On a machine with more work than processors, a thread that sleeps gets its processor back some
//! milliseconds late: after one such sleep, pauses look for the answer without sleeping.
//! Invariant: the VM thread waits at most for the budget, and only if something is pending. It takes no lock that
//! another thread may hold while it has no processor.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::clock;

/// Name of the thread that leads G1's marking, from its start to the pauses that end it, and sleeps otherwise (`gc/g1`,
/// JDK 11 to 28). From JDK 27 on it is made for the first marking, so it is not known when that one ends.
pub const MARKER: &str = "G1 Main Marker";
/// Time after the budget at which a sleep was too long; an idle processor wakes within 0.1 ms.
const OVERSLEPT: Duration = Duration::from_millis(1);
/// Budgets for which a pause waits while most code is new: a walk through new code takes some 50 us.
const BUDGETS_WHILE_NEW: u32 = 5;
/// Pauses that do not sleep after one that has overslept: at most one in so many waits for a processor.
const SLEEPLESS_PAUSES: u32 = 1000;

/// Shared by the sampler thread and the VM thread.
pub struct PauseWait {
    budget: Duration,
    /// True if requests wait that were taken from their queues.
    has_requests: AtomicBool,
    /// True if the sampler drains queues or walks requests of Java threads.
    draining: AtomicBool,
    /// True if a pause waits that began after the last drain.
    pause_waits: AtomicBool,
    /// Pauses that waited so far; only the VM thread changes it.
    requested: AtomicU32,
    /// The last of these pauses that a drain has answered; the VM thread sleeps on it.
    answered: AtomicU32,
    /// Pauses left that do not sleep while they wait. Relaxed: only the VM thread uses it.
    sleepless: AtomicU32,
    /// True if pauses do not wait. Relaxed: a pause that has an old value waits once too often, or once too little.
    is_calm: AtomicBool,
    /// True while most code is new, so that walks take long. Relaxed: as above.
    is_new: AtomicBool,
    /// Kernel thread id of [`MARKER`], 0 if there is none, and its CPU time at the last pause. Relaxed: numbers of
    /// their own.
    marker: (AtomicI32, AtomicU64),
    /// Pauses that continued before everything was drained.
    cut_short: AtomicU64,
}

impl PauseWait {
    /// With a `budget` of zero no pause waits.
    pub fn new(budget: Duration) -> Self {
        Self {
            budget,
            has_requests: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            pause_waits: AtomicBool::new(false),
            requested: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            sleepless: AtomicU32::new(0),
            is_calm: AtomicBool::new(false),
            is_new: AtomicBool::new(false),
            marker: (AtomicI32::new(0), AtomicU64::new(0)),
            cut_short: AtomicU64::new(0),
        }
    }

    /// Returns the number of pauses that continued before everything was drained.
    pub fn cut_short(&self) -> u64 {
        self.cut_short.load(Ordering::Relaxed)
    }
}

/// # For the VM thread, at a safepoint
///
/// Nothing here waits for a lock, because a thread that holds one may have lost its processor.
impl PauseWait {
    /// Waits at the start of a pause until everything pending is named, or until the budget from `start` on is used up.
    ///
    /// `may_free` is true if the VM has announced that this pause may free something; `pending` returns whether a queue
    /// holds requests; `wake` wakes the sampler.
    pub fn await_drain(
        &self,
        start: Instant,
        may_free: bool,
        pending: impl FnOnce() -> bool,
        wake: impl FnOnce(),
    ) {
        // In the order in which requests are passed on: a flag is set before the one in front of it is cleared.
        let in_progress =
            || self.has_requests.load(Ordering::Acquire) || self.draining.load(Ordering::Acquire);
        let pending = || {
            let pending = pending();
            // Acquire: pairs with the fences of those that clear the flags of queues.
            fence(Ordering::Acquire);
            pending
        };
        let is_calm = !self.is_marking() && !may_free && self.is_calm.load(Ordering::Relaxed);
        if !is_calm && !self.budget.is_zero() && (pending() || in_progress()) {
            let pause = self.requested.load(Ordering::Relaxed).wrapping_add(1);
            // Release: the drain that answers this pause begins after it is requested.
            self.requested.store(pause, Ordering::Release);
            self.pause_waits.store(true, Ordering::Relaxed);
            wake();
            let is_new = self.is_new.load(Ordering::Relaxed);
            let budget = self.budget * if is_new { BUDGETS_WHILE_NEW } else { 1 };
            if !self.await_answer(pause, start + budget) {
                // Relaxed: a statistic.
                self.cut_short.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether G1's marking has gone on since the last pause.
    fn is_marking(&self) -> bool {
        let (marker, before) = &self.marker;
        let tid = marker.load(Ordering::Relaxed);
        // The clock of a thread that has ended cannot be read.
        let now_ns = if tid == 0 { 0 } else { clock::thread_cpu_nanos(tid).unwrap_or(0) };
        before.swap(now_ns, Ordering::Relaxed) != now_ns
    }

    /// Waits until a drain has answered the pause; returns false at the deadline.
    fn await_answer(&self, pause: u32, deadline: Instant) -> bool {
        let sleepless = self.sleepless.load(Ordering::Relaxed);
        self.sleepless.store(sleepless.saturating_sub(1), Ordering::Relaxed);
        loop {
            // Acquire: pairs with `end_drain`.
            let answered = self.answered.load(Ordering::Acquire);
            if !is_before(answered, pause) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(left) = futex::Timespec::try_from(left) else { return false };
            if left.tv_sec == 0 && left.tv_nsec == 0 {
                return false;
            }
            if sleepless > 0 {
                std::hint::spin_loop();
                continue;
            }
            // Ends when the number changes, at the deadline or without reason; the loop checks.
            let _ = futex::wait(&self.answered, futex::Flags::PRIVATE, answered, Some(&left));
            self.slept(Instant::now().saturating_duration_since(deadline));
        }
    }

    /// Notes that a sleep ended so long after the deadline.
    fn slept(&self, late: Duration) {
        if late >= OVERSLEPT {
            self.sleepless.store(SLEEPLESS_PAUSES, Ordering::Relaxed);
        }
    }
}

/// Returns whether one number of a pause comes before another; numbers wrap.
fn is_before(pause: u32, other: u32) -> bool {
    pause.wrapping_sub(other).cast_signed() < 0
}

/// # For the sampler thread
impl PauseWait {
    /// Notes whether pauses need not wait.
    pub fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::Relaxed);
    }

    /// Notes whether most code is new to the profile.
    pub fn set_new(&self, is_new: bool) {
        self.is_new.store(is_new, Ordering::Relaxed);
    }

    /// Notes the kernel thread id of [`MARKER`].
    pub fn set_marker(&self, tid: i32) {
        self.marker.0.store(tid, Ordering::Relaxed);
    }

    /// Begins a drain; returns the pauses it answers, for [`Self::end_drain`].
    pub fn begin_drain(&self) -> u32 {
        self.pause_waits.store(false, Ordering::Relaxed);
        self.draining.store(true, Ordering::Release);
        // Release: a pause that finds the queues empty because the drain took their requests must see this.
        fence(Ordering::Release);
        self.requested.load(Ordering::Acquire)
    }

    /// Notes whether requests wait that were taken from their queues.
    ///
    /// Called by the thread that takes them: the sampler, its substitute, or a thread that ends.
    pub fn set_has_requests(&self, has_requests: bool) {
        self.has_requests.store(has_requests, Ordering::Release);
        // Release: as in `begin_drain`.
        fence(Ordering::Release);
    }

    /// Returns whether a pause waits that no drain has answered; a hint, for work that can be delayed.
    pub fn does_pause_wait(&self) -> bool {
        self.pause_waits.load(Ordering::Relaxed)
    }

    /// Ends a drain: everything that was queued when it began is named.
    pub fn end_drain(&self, requested: u32) {
        self.draining.store(false, Ordering::Release);
        // Relaxed: only the sampler thread changes it.
        if is_before(self.answered.load(Ordering::Relaxed), requested) {
            // Release: what the drain did is visible to the VM thread.
            self.answered.store(requested, Ordering::Release);
            // Fails for invalid arguments only.
            let _ = futex::wake(&self.answered, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_pause_does_not_wait_if_nothing_is_pending() {
        let wait = PauseWait::new(Duration::from_secs(3600));
        wait.await_drain(Instant::now(), false, || false, || panic!("nobody is to be woken"));
        assert_eq!(wait.cut_short(), 0);
    }

    #[test]
    fn a_pause_does_not_wait_in_calm_times() {
        let wait = PauseWait::new(Duration::from_secs(3600));
        wait.set_calm(true);
        wait.await_drain(Instant::now(), false, || true, || panic!("nobody is to be woken"));
        assert_eq!(wait.cut_short(), 0);
    }

    #[test]
    fn a_pause_that_may_free_something_waits_in_calm_times() {
        let wait = PauseWait::new(Duration::from_nanos(1));
        wait.set_calm(true);
        wait.await_drain(Instant::now(), true, || true, || ());
        assert_eq!(wait.cut_short(), 1);
    }

    #[test]
    fn pauses_wait_while_the_marker_works() {
        let wait = PauseWait::new(Duration::from_nanos(1));
        wait.set_calm(true);
        // The thread of this test, which has used CPU time before each pause.
        wait.set_marker(nix::unistd::gettid().as_raw());
        for pause in 1..4 {
            wait.await_drain(Instant::now(), false, || true, || ());
            assert_eq!(wait.cut_short(), pause);
        }
        // A thread that sleeps.
        let (hold, held) = channel::<()>();
        let (send, tid) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                send.send(nix::unistd::gettid().as_raw()).expect("received");
                held.recv()
            });
            wait.set_marker(tid.recv().expect("sent"));
            let waits = (0..1000).filter(|_| {
                let before = wait.cut_short();
                wait.await_drain(Instant::now(), false, || true, || ());
                wait.cut_short() > before
            });
            assert!(waits.count() < 1000, "it has slept during a pause");
            drop(hold);
        });
    }

    #[test]
    fn a_pause_waits_until_the_drain_has_ended() {
        let wait = PauseWait::new(Duration::from_secs(3600));
        let (wake, woken) = channel();
        let has_continued = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (wait, has_continued) = (&wait, &has_continued);
            let sampler = scope.spawn(move || {
                woken.recv().expect("woken");
                let requested = wait.begin_drain();
                let during = has_continued.load(Ordering::Acquire);
                wait.end_drain(requested);
                during
            });
            wait.await_drain(Instant::now(), false, || true, || wake.send(()).expect("the sampler waits"));
            has_continued.store(true, Ordering::Release);
            assert!(
                !sampler.join().expect("no panic"),
                "the pause has not begun before the end of the drain"
            );
        });
        assert_eq!(wait.cut_short(), 0);
    }

    #[test]
    fn pauses_do_not_sleep_after_one_that_overslept() {
        let wait = PauseWait::new(Duration::from_secs(3600));
        wait.slept(OVERSLEPT / 2);
        assert_eq!(wait.sleepless.load(Ordering::Relaxed), 0);
        wait.slept(OVERSLEPT);
        let (wake, woken) = channel();
        std::thread::scope(|scope| {
            let wait = &wait;
            scope.spawn(move || {
                woken.recv().expect("woken");
                // Stores the answer as `end_drain` does, without a wake-up.
                let requested = wait.begin_drain();
                wait.answered.store(requested, Ordering::Release);
            });
            wait.await_drain(Instant::now(), false, || true, || wake.send(()).expect("the sampler waits"));
        });
        assert_eq!(wait.cut_short(), 0);
        assert_eq!(wait.sleepless.load(Ordering::Relaxed), SLEEPLESS_PAUSES - 1);
    }

    #[test]
    fn a_pause_continues_when_its_budget_is_used_up() {
        let (budget, start) = (Duration::from_micros(50), Instant::now());
        let wait = PauseWait::new(budget);
        wait.await_drain(start, false, || true, || {});
        assert_eq!(wait.cut_short(), 1);
        assert!(start.elapsed() >= budget);
    }

    #[test]
    fn pauses_wait_longer_while_most_code_is_new() {
        let (budget, wait) = (Duration::from_micros(50), PauseWait::new(Duration::from_micros(50)));
        wait.set_new(true);
        let start = Instant::now();
        wait.await_drain(start, false, || true, || {});
        assert_eq!(wait.cut_short(), 1);
        assert!(start.elapsed() >= budget * BUDGETS_WHILE_NEW);
    }

    #[test]
    fn a_pause_waits_for_requests_that_were_taken() {
        let wait = PauseWait::new(Duration::from_micros(50));
        let requested = wait.begin_drain();
        assert!(!wait.does_pause_wait());
        wait.await_drain(Instant::now(), false, || false, || {});
        assert_eq!(wait.cut_short(), 1);
        assert!(wait.does_pause_wait(), "the drain began before the pause");
        wait.end_drain(requested);
        wait.await_drain(Instant::now(), false, || false, || panic!("the drain has ended"));
        wait.set_has_requests(true);
        wait.await_drain(Instant::now(), false, || false, || {});
        assert_eq!(wait.cut_short(), 2);
        wait.set_has_requests(false);
        wait.await_drain(Instant::now(), false, || false, || panic!("nothing waits"));
        let taken_just_then = || {
            wait.set_has_requests(true);
            false
        };
        wait.await_drain(Instant::now(), false, taken_just_then, || {});
        assert_eq!(wait.cut_short(), 3);
    }
}
