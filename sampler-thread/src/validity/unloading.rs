//! Detects that the VM may have unloaded classes; the handshake with the VM thread at the start of a pause.
//!
//! Problem: a `Method*` in a stack copy is valid at the time of the sample; once its class is unloaded the same address
//! may hold another method, and a name read there would be wrong.
//! Approach: a *mark* is a number that changes before any metadata is freed. It is the VM's count of unloaded classes, or
//! a count of garbage collection pauses if the VM has no such counter. A class that ran at the time of a sample cannot be
//! unloaded before another pause: every collector keeps what was reachable when its marking began.
//! At the start of a pause the VM thread waits for the sampler, within a budget, so that samples from before the pause
//! are named before it frees anything. The sampler is not a thread of the VM: no safepoint stops it. Pauses of a VM that
//! counts what it frees, and has freed nothing lately, do not wait: nearly all of them free nothing. Pauses of G1 that may free
//! something come while [`MARKER`] works, so these wait all the same.
//! The VM thread sleeps meanwhile. On a machine with more work than processors, a thread that sleeps gets its processor back
//! only after the others' turns, some milliseconds later: after one such sleep, pauses look for the answer without sleeping.
//! Invariant: the VM thread waits at most for the budget, and only if something is pending. It takes no lock that another
//! thread may hold while it has no processor.
//! Sources: `services/classLoadingService.cpp` (counted in `InstanceKlass::unload_class`, before the purge),
//! `prims/jvmtiExport.cpp` (`JvmtiGCMarker`), JDK 11 to 25.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use queue::Histogram;
use rustix::thread::futex;
use stackwalk::{HotSpot, Memory, PerfCounter};

use crate::account::clock;
use crate::validity::code_freeing::{CLASS_COUNTERS, CodeFreeing, Sweeps};
use crate::validity::redefinition::{Progress, Redefinition};

/// The source of marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detector {
    /// The VM's counters of unloaded classes.
    Counters([PerfCounter; 2]),
    /// Garbage collection pauses, if the VM runs with `-XX:-UsePerfData`.
    Pauses,
    /// None: neither counters nor events. Only names of permanent classes are certain.
    Nothing,
}

impl Detector {
    /// Returns the best one of this VM; `events` is whether pauses are reported.
    pub fn choose(hotspot: &HotSpot, memory: &impl Memory, events: bool) -> Self {
        match CLASS_COUNTERS.map(|name| hotspot.perf_counter(memory, name)) {
            [Some(loaded), Some(shared)] => Self::Counters([loaded, shared]),
            _ if events => Self::Pauses,
            _ => Self::Nothing,
        }
    }

    /// Name in statistics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counters(_) => "unload counters",
            Self::Pauses => "pauses only",
            Self::Nothing => "none",
        }
    }
}

/// A mark with a time stamp taken after it was read, so that what happened after `ticks` happened after the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Time stamp counter after the reading.
    pub ticks: u64,
    /// The mark; `None` during a pause or without a source.
    pub mark: Option<u64>,
    /// Progress of the VM in replacing methods; `None` while no class was redefined.
    pub progress: Option<Progress>,
}

/// Shared by the sampler thread and the callbacks of the VM.
pub struct Unloading {
    detector: Detector,
    freeing: CodeFreeing,
    redefinition: Redefinition,
    budget: Duration,
    ticks: fn() -> u64,
    /// Slots of the VM that refer to the loaders that are never unloaded.
    permanent_loaders: Vec<u64>,
    /// Twice the number of ended pauses, plus one during a pause.
    pauses: AtomicU64,
    /// Time stamp when the newest pause continued after the handshake.
    newest_pause: AtomicU64,
    /// True if requests wait that were taken from their queues.
    has_requests: AtomicBool,
    /// True if the sampler drains queues or walks requests of Java threads.
    draining: AtomicBool,
    /// True if a pause waits that began after the last drain.
    pause_waits: AtomicBool,
    /// Pauses that waited so far; only the VM thread changes it.
    requested: AtomicU32,
    /// Of these, the last one that a drain has answered; the VM thread sleeps on it.
    answered: AtomicU32,
    /// Pauses left that do not sleep while they wait. Relaxed: only the VM thread uses it.
    sleepless: AtomicU32,
    /// True if pauses do not wait. Relaxed: a pause that has an old value waits once too often, or once too little.
    is_calm: AtomicBool,
    /// Kernel thread id of [`MARKER`], 0 if there is none, and its CPU time at the last pause. Relaxed: numbers of their own.
    marker: (AtomicI32, AtomicU64),
    /// Marks at the ends of pauses.
    observations: Mutex<Vec<Observation>>,
    /// Time by which pauses were prolonged, in nanoseconds.
    added_ns: Histogram,
    /// Pauses that continued before everything was drained.
    cut_short: AtomicU64,
}

/// Name of the thread that leads G1's marking, from its start to the pauses that end it, and sleeps otherwise (`gc/g1`,
/// JDK 11 to 28).
pub const MARKER: &str = "G1 Main Marker";
/// Time after the budget at which a sleep was too long; an idle processor wakes within 0.1 ms.
const OVERSLEPT: Duration = Duration::from_millis(1);
/// Pauses that do not sleep after one that has overslept: at most one in so many waits for a processor.
const SLEEPLESS_PAUSES: u32 = 1000;
/// Attempts of the VM thread to get the lock of the observations: some microseconds.
const LOCK_ATTEMPTS: u32 = 100;
/// Most observations kept between two drains: a pause takes longer than a millisecond, a drain comes every 100 ms.
const MAX_OBSERVATIONS: usize = 128;

impl Unloading {
    /// Creates the handshake; with a `budget` of zero no pause waits.
    pub fn new(
        detector: Detector,
        freeing: CodeFreeing,
        redefinition: Redefinition,
        budget: Duration,
        ticks: fn() -> u64,
        permanent_loaders: Vec<u64>,
    ) -> Self {
        Self {
            detector,
            freeing,
            redefinition,
            budget,
            ticks,
            permanent_loaders,
            pauses: AtomicU64::new(0),
            newest_pause: AtomicU64::new(0),
            has_requests: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            pause_waits: AtomicBool::new(false),
            requested: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            sleepless: AtomicU32::new(0),
            is_calm: AtomicBool::new(false),
            marker: (AtomicI32::new(0), AtomicU64::new(0)),
            observations: Mutex::new(Vec::with_capacity(MAX_OBSERVATIONS)),
            added_ns: Histogram::new(),
            cut_short: AtomicU64::new(0),
        }
    }

    /// Returns the source of marks.
    pub fn detector(&self) -> Detector {
        self.detector
    }

    /// Returns the slots that refer to the loaders that are never unloaded.
    pub fn permanent_loaders(&self) -> &[u64] {
        &self.permanent_loaders
    }

    /// Reads the mark: after everything that was read before, and before everything that is read afterwards.
    pub fn observe(&self, memory: &impl Memory) -> Observation {
        fence(Ordering::Acquire);
        let mark = match self.detector {
            Detector::Counters([own, shared]) => match (own.read(memory), shared.read(memory)) {
                (Ok(own), Ok(shared)) => Some(own.wrapping_add(shared)),
                _ => None,
            },
            // Acquire: pairs with the callbacks; what is read after an even number is read outside of a pause, or the
            // next observation finds another number.
            Detector::Pauses => Some(self.pauses.load(Ordering::Acquire)).filter(|count| count % 2 == 0),
            Detector::Nothing => None,
        };
        let progress = self.redefinition.progress(memory, self.pauses.load(Ordering::Acquire));
        fence(Ordering::Acquire);
        Observation { ticks: (self.ticks)(), mark, progress }
    }

    /// Returns the detector of redefined classes.
    pub fn redefinition(&self) -> &Redefinition {
        &self.redefinition
    }

    /// Returns a number that changes before a pause frees code; `None` if the VM has no counter. It is read in the order of
    /// [`Self::observe`].
    pub fn code_mark(&self, memory: &impl Memory) -> Option<u64> {
        fence(Ordering::Acquire);
        let mark = self.freeing.mark(memory);
        fence(Ordering::Acquire);
        mark
    }

    /// Returns the sweeper's rounds; `None` if none is known. They are read in the order of [`Self::observe`].
    pub(crate) fn sweeps(&self, memory: &impl Memory) -> Option<Sweeps> {
        fence(Ordering::Acquire);
        let sweeps = self.freeing.sweeps(memory);
        fence(Ordering::Acquire);
        sweeps
    }

    /// Returns whether it is certain for samples of any age what the VM has freed of their classes and code, so that they can
    /// wait; false before the VM's variables are located, where they are needed.
    pub fn is_all_proven(&self) -> bool {
        matches!(self.detector, Detector::Counters(_)) && self.freeing.is_proven()
    }

    /// Returns whether no pause began after `ticks`, so that none has freed code that ran then.
    pub fn is_code_certain(&self, ticks: u64) -> bool {
        ticks > self.newest_pause.load(Ordering::Acquire)
    }

    /// Reads the time stamp counter.
    pub fn ticks(&self) -> u64 {
        (self.ticks)()
    }
}

/// # For the VM thread, at a safepoint
///
/// Nothing here waits for a lock, because a thread that holds one may have lost its processor.
impl Unloading {
    /// Waits at the start of a pause until everything pending is named, or the budget is used up.
    ///
    /// `pending` returns whether a queue holds requests; `wake` wakes the sampler.
    pub fn pause_begins(&self, pending: impl FnOnce() -> bool, wake: impl FnOnce()) {
        let start = Instant::now();
        // In the order in which requests are passed on: a flag is set before the one in front of it is cleared.
        let in_progress =
            || self.has_requests.load(Ordering::Acquire) || self.draining.load(Ordering::Acquire);
        let pending = || {
            let pending = pending();
            // Acquire: pairs with the fences of those that clear the flags of queues.
            fence(Ordering::Acquire);
            pending
        };
        let is_calm = !self.is_marking() && self.is_calm.load(Ordering::Relaxed);
        if !is_calm && !self.budget.is_zero() && (pending() || in_progress()) {
            let pause = self.requested.load(Ordering::Relaxed).wrapping_add(1);
            // Release: the drain that answers this pause begins after it is requested.
            self.requested.store(pause, Ordering::Release);
            self.pause_waits.store(true, Ordering::Relaxed);
            wake();
            if !self.await_answer(pause, start + self.budget) {
                // Relaxed: a statistic.
                self.cut_short.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Release, as below: a reader that sees effects of this pause also sees that it began.
        self.newest_pause.store((self.ticks)(), Ordering::Release);
        // Only the VM thread writes. Odd from here on; a second start without an end changes the number, too.
        let count = self.pauses.load(Ordering::Relaxed);
        self.pauses.store((count | 1) + if count % 2 == 1 { 2 } else { 0 }, Ordering::Release);
        // Release: both stores come before all that the pause does.
        fence(Ordering::Release);
        self.added_ns.record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
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
            // Ends when the number changes, at the deadline or without reason; the loop tells which.
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

    /// Notes the mark at the end of a pause, before any Java thread runs again.
    pub fn pause_ends(&self, memory: &impl Memory) {
        let count = self.pauses.load(Ordering::Relaxed);
        self.pauses.store((count | 1) + 1, Ordering::Release);
        self.note(memory);
    }

    /// Notes the mark for the sampler thread: at the end of a pause, and before the first timer runs, because a sample is
    /// certain only if the mark was read before it.
    pub fn note(&self, memory: &impl Memory) {
        let observation = self.observe(memory);
        // The sampler holds the lock for an exchange of two pointers. If it has no processor just then, the observation is
        // left out: fewer names are certain.
        let lock = (0..LOCK_ATTEMPTS).find_map(|_| {
            let lock = self.observations.try_lock();
            if lock.is_none() {
                std::hint::spin_loop();
            }
            lock
        });
        if let Some(mut observations) = lock
            && observations.len() < MAX_OBSERVATIONS
        {
            observations.push(observation);
        }
    }
}

/// Returns whether one number of a pause comes before another; numbers wrap.
fn is_before(pause: u32, other: u32) -> bool {
    pause.wrapping_sub(other).cast_signed() < 0
}

/// # For the sampler thread
impl Unloading {
    /// Notes whether pauses need not wait.
    pub fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::Relaxed);
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

    /// Takes the observations of callbacks, oldest first.
    pub fn take_observations(&self) -> Vec<Observation> {
        let mut observations = self.observations.lock();
        if observations.is_empty() {
            return Vec::new();
        }
        // With room, because the VM thread must not allocate.
        std::mem::replace(&mut *observations, Vec::with_capacity(MAX_OBSERVATIONS))
    }

    /// Returns the time by which pauses were prolonged, in nanoseconds.
    pub fn added_ns(&self) -> &Histogram {
        &self.added_ns
    }

    /// Returns the number of pauses that continued before everything was drained.
    pub fn cut_short(&self) -> u64 {
        self.cut_short.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::StackCopy;
    use std::sync::mpsc::channel;

    fn unloading(budget: Duration) -> Unloading {
        static TICKS: AtomicU64 = AtomicU64::new(1);
        let none = CodeFreeing::default();
        let redefinition = Redefinition::default();
        Unloading::new(
            Detector::Pauses,
            none,
            redefinition,
            budget,
            || TICKS.fetch_add(1, Ordering::Relaxed),
            Vec::new(),
        )
    }

    #[test]
    fn a_pause_does_not_wait_if_nothing_is_pending() {
        let unloading = unloading(Duration::from_secs(3600));
        unloading.pause_begins(|| false, || panic!("nobody is to be woken"));
        assert_eq!(unloading.cut_short(), 0);
        assert_eq!(unloading.added_ns().snapshot().count(), 1);
    }

    #[test]
    fn a_pause_does_not_wait_in_calm_times() {
        let unloading = unloading(Duration::from_secs(3600));
        unloading.set_calm(true);
        unloading.pause_begins(|| true, || panic!("nobody is to be woken"));
        assert_eq!((unloading.cut_short(), unloading.observe(&StackCopy::new(0, &[])).mark), (0, None));
    }

    #[test]
    fn pauses_wait_while_the_marker_works() {
        let unloading = unloading(Duration::from_nanos(1));
        unloading.set_calm(true);
        // The thread of this test, which has used CPU time before each pause.
        unloading.set_marker(nix::unistd::gettid().as_raw());
        for pause in 1..4 {
            unloading.pause_begins(|| true, || ());
            unloading.pause_ends(&StackCopy::new(0, &[]));
            assert_eq!(unloading.cut_short(), pause);
        }
        // A thread that sleeps.
        let (hold, held) = channel::<()>();
        let (send, tid) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                send.send(nix::unistd::gettid().as_raw()).expect("received");
                held.recv()
            });
            unloading.set_marker(tid.recv().expect("sent"));
            let waits = (0..1000).filter(|_| {
                let before = unloading.cut_short();
                unloading.pause_begins(|| true, || ());
                unloading.cut_short() > before
            });
            assert!(waits.count() < 1000, "it has slept during a pause");
            drop(hold);
        });
    }

    #[test]
    fn a_pause_waits_until_the_drain_has_ended() {
        let unloading = unloading(Duration::from_secs(3600));
        let (wake, woken) = channel();
        std::thread::scope(|scope| {
            let unloading = &unloading;
            let sampler = scope.spawn(move || {
                woken.recv().expect("woken");
                let requested = unloading.begin_drain();
                let during = unloading.observe(&StackCopy::new(0, &[])).mark;
                unloading.end_drain(requested);
                during
            });
            unloading.pause_begins(|| true, || wake.send(()).expect("the sampler waits"));
            assert_eq!(sampler.join().expect("no panic"), Some(0), "the pause had not begun");
        });
        assert_eq!(unloading.cut_short(), 0);
        assert_eq!(unloading.observe(&StackCopy::new(0, &[])).mark, None, "nothing is certain in a pause");
    }

    #[test]
    fn pauses_do_not_sleep_after_one_that_overslept() {
        let unloading = unloading(Duration::from_secs(3600));
        unloading.slept(OVERSLEPT / 2);
        assert_eq!(unloading.sleepless.load(Ordering::Relaxed), 0);
        unloading.slept(OVERSLEPT);
        let (wake, woken) = channel();
        std::thread::scope(|scope| {
            let unloading = &unloading;
            scope.spawn(move || {
                woken.recv().expect("woken");
                // Stores the answer as `end_drain` does, but wakes nobody.
                let requested = unloading.begin_drain();
                unloading.answered.store(requested, Ordering::Release);
            });
            unloading.pause_begins(|| true, || wake.send(()).expect("the sampler waits"));
        });
        assert_eq!(unloading.cut_short(), 0);
        assert_eq!(unloading.sleepless.load(Ordering::Relaxed), SLEEPLESS_PAUSES - 1);
    }

    #[test]
    fn a_pause_continues_when_its_budget_is_used_up() {
        let unloading = unloading(Duration::from_micros(50));
        unloading.pause_begins(|| true, || {});
        assert_eq!(unloading.cut_short(), 1);
        assert!(unloading.added_ns().snapshot().max() >= 50_000);
    }

    #[test]
    fn a_pause_waits_for_requests_that_were_taken() {
        let unloading = unloading(Duration::from_micros(50));
        let requested = unloading.begin_drain();
        assert!(!unloading.does_pause_wait());
        unloading.pause_begins(|| false, || {});
        assert_eq!(unloading.cut_short(), 1);
        assert!(unloading.does_pause_wait(), "the drain began before the pause");
        unloading.end_drain(requested);
        unloading.pause_begins(|| false, || panic!("the drain has ended"));
        unloading.set_has_requests(true);
        unloading.pause_begins(|| false, || {});
        assert_eq!(unloading.cut_short(), 2);
        unloading.set_has_requests(false);
        unloading.pause_begins(|| false, || panic!("nothing waits"));
        let taken_just_then = || {
            unloading.set_has_requests(true);
            false
        };
        unloading.pause_begins(taken_just_then, || {});
        assert_eq!(unloading.cut_short(), 3);
    }

    #[test]
    fn the_mark_changes_with_every_pause() {
        let unloading = unloading(Duration::ZERO);
        let memory = StackCopy::new(0, &[]);
        let first = unloading.observe(&memory).mark;
        unloading.pause_begins(|| true, || panic!("no budget"));
        unloading.pause_ends(&memory);
        let [observed] = unloading.take_observations()[..] else { panic!("one observation") };
        assert!(observed.mark.is_some() && observed.mark != first);
        assert_eq!(unloading.observe(&memory).mark, observed.mark);
        // An end whose beginning was missed, and two beginnings in a row.
        unloading.pause_ends(&memory);
        let third = unloading.observe(&memory).mark;
        assert_ne!(third, observed.mark);
        unloading.pause_begins(|| false, || {});
        unloading.pause_begins(|| false, || {});
        unloading.pause_ends(&memory);
        assert_ne!(unloading.observe(&memory).mark, third);
    }
}
