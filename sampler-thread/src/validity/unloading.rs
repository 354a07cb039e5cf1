//! What tells that the VM may have unloaded classes, and the short talk with its thread when a pause begins.
//!
//! Problem: a `Method*` in a stack copy is a promise about the moment of the sample; once its class is unloaded the
//! same address may hold another method, and a name read there would be a wrong one.
//! Approach: a *mark* is a number that moves before any metadata is freed. It is the VM's own count of unloaded classes
//! where there is one, and a count of garbage collection pauses where there is not; a class that ran at the time of a
//! sample cannot be unloaded before another pause: every collector keeps what was reachable when its marking began.
//! At the beginning of a pause the VM's thread waits for the sampler, within a budget, so that samples from before the
//! pause are named before it frees anything. The sampler is no thread of the VM: no safepoint stops it.
//! Invariant: the VM's thread waits at most for the budget, and only if something is pending.
//! Sources: `services/classLoadingService.cpp` (counted in `InstanceKlass::unload_class`, before the purge),
//! `prims/jvmtiExport.cpp` (`JvmtiGCMarker`), JDK 11 to 25.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use queue::Histogram;
use stackwalk::{HotSpot, Memory, PerfCounter};

use crate::validity::code_freeing::CodeFreeing;
use crate::validity::redefinition::{Redefinition, Steps};

/// Counters that together count every unloaded class, archived ones apart from the others.
pub(crate) const CLASS_COUNTERS: [&str; 2] = ["java.cls.unloadedClasses", "java.cls.sharedUnloadedClasses"];

/// What marks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detector {
    /// The VM's counters of unloaded classes.
    Counters([PerfCounter; 2]),
    /// Garbage collection pauses: the VM runs with `-XX:-UsePerfData`.
    Pauses,
    /// Nothing: neither counters nor events. No name but those of permanent classes is certain.
    Nothing,
}

impl Detector {
    /// The best one a VM offers; `events` tells whether pauses will be reported.
    pub fn choose(hotspot: &HotSpot, memory: &impl Memory, events: bool) -> Self {
        match CLASS_COUNTERS.map(|name| hotspot.perf_counter(memory, name)) {
            [Some(loaded), Some(shared)] => Self::Counters([loaded, shared]),
            _ if events => Self::Pauses,
            _ => Self::Nothing,
        }
    }

    /// Name for statistics and people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counters(_) => "unload counters",
            Self::Pauses => "pauses only",
            Self::Nothing => "none",
        }
    }
}

/// A mark and when it was there: later than the reading, so that what happened after `ticks` happened after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Time stamp counter after the reading.
    pub ticks: u64,
    /// The mark; `None` while nothing is certain.
    pub mark: Option<u64>,
    /// How far the VM is in replacing methods; `None` as long as no class was redefined.
    pub steps: Option<Steps>,
}

/// Shared by the sampler thread and the callbacks of the VM.
pub struct Unloading {
    detector: Detector,
    freeing: CodeFreeing,
    redefinition: Redefinition,
    budget: Duration,
    ticks: fn() -> u64,
    /// Slots of the VM that hold the loaders which are never unloaded.
    permanent_loaders: Vec<u64>,
    /// Twice the pauses that ended, plus one while one runs.
    pauses: AtomicU64,
    /// Time stamp counter when the newest pause went on after its drain.
    newest_pause: AtomicU64,
    /// Whether requests wait that are in no queue any more.
    holding: AtomicBool,
    /// Whether the sampler empties queues and walks what Java threads left there.
    draining: AtomicBool,
    /// Whether a pause waits that began after the last drain.
    waits: AtomicBool,
    exchange: Mutex<Exchange>,
    answered: Condvar,
    /// What pauses were prolonged by, in nanoseconds.
    added_ns: Histogram,
    /// Pauses that went on before everything was drained.
    cut_short: AtomicU64,
}

#[derive(Default)]
struct Exchange {
    asked: u64,
    answered: u64,
    seen: Vec<Observation>,
}

/// Observations kept between two looks of the sampler; a pause takes longer than a millisecond, a look comes every 25.
const MAX_SEEN: usize = 64;

impl Unloading {
    /// With a `budget` of zero no pause waits.
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
            holding: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            exchange: Mutex::new(Exchange::default()),
            answered: Condvar::new(),
            added_ns: Histogram::new(),
            cut_short: AtomicU64::new(0),
        }
    }

    /// What marks are made of.
    pub fn detector(&self) -> Detector {
        self.detector
    }

    /// Slots that hold the loaders which are never unloaded.
    pub fn permanent_loaders(&self) -> &[u64] {
        &self.permanent_loaders
    }

    /// Reads the mark.
    pub fn observe(&self, memory: &impl Memory) -> Observation {
        let mark = match self.detector {
            Detector::Counters([own, shared]) => match (own.read(memory), shared.read(memory)) {
                (Ok(own), Ok(shared)) => Some(own.wrapping_add(shared)),
                _ => None,
            },
            // Acquire: pairs with the callbacks; what is read after an even number is read outside of a pause, or
            // the number has moved at the next look.
            Detector::Pauses => Some(self.pauses.load(Ordering::Acquire)).filter(|count| count % 2 == 0),
            Detector::Nothing => None,
        };
        let steps = self.redefinition.steps(memory, self.pauses.load(Ordering::Acquire));
        Observation { ticks: (self.ticks)(), mark, steps }
    }

    /// What tells of redefined classes.
    pub fn redefinition(&self) -> &Redefinition {
        &self.redefinition
    }

    /// Moves before code is freed; `None` if nothing tells.
    pub fn code_mark(&self, memory: &impl Memory) -> Option<u64> {
        self.freeing.mark(memory)
    }

    /// Whether no pause began after `ticks`: code that ran then is where it was.
    pub fn is_code_certain(&self, ticks: u64) -> bool {
        ticks > self.newest_pause.load(Ordering::Acquire)
    }

    /// The time stamp counter.
    pub fn ticks(&self) -> u64 {
        (self.ticks)()
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        // The state is a few numbers; whoever panicked left them whole.
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # For the VM's thread, at a safepoint
///
/// The lock is shared with the sampler thread alone, which the VM never stops, and held for nanoseconds.
impl Unloading {
    /// A pause begins: has everything that is pending named first, as long as the budget lasts.
    ///
    /// `pending` tells whether a queue holds anything; `wake` wakes the sampler.
    pub fn pause_begins(&self, pending: impl FnOnce() -> bool, wake: impl FnOnce()) {
        let start = Instant::now();
        // In the order in which requests are handed on: whoever clears one flag has set the next one before.
        let in_hand = || self.holding.load(Ordering::Acquire) || self.draining.load(Ordering::Acquire);
        if !self.budget.is_zero() && (pending() || in_hand()) {
            let mut exchange = self.exchange();
            exchange.asked += 1;
            let asked = exchange.asked;
            self.waits.store(true, Ordering::Relaxed);
            wake();
            let unanswered = |exchange: &mut Exchange| exchange.answered < asked;
            let (exchange, waited) = self
                .answered
                .wait_timeout_while(exchange, self.budget, unanswered)
                .unwrap_or_else(PoisonError::into_inner);
            drop(exchange);
            if waited.timed_out() {
                // Relaxed: a statistic.
                self.cut_short.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Release, as below: whoever sees what this pause does sees that it began.
        self.newest_pause.store((self.ticks)(), Ordering::Release);
        // Only the VM's thread writes. Odd from here on; a second beginning without an end moves it as well.
        let count = self.pauses.load(Ordering::Relaxed);
        self.pauses.store((count | 1) + if count % 2 == 1 { 2 } else { 0 }, Ordering::Release);
        self.added_ns.record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// A pause ends: notes what the mark is before any Java thread runs again.
    pub fn pause_ends(&self, memory: &impl Memory) {
        let count = self.pauses.load(Ordering::Relaxed);
        self.pauses.store((count | 1) + 1, Ordering::Release);
        let observation = self.observe(memory);
        let seen = &mut self.exchange().seen;
        if seen.len() < MAX_SEEN {
            seen.push(observation);
        }
    }
}

/// # For the sampler thread
impl Unloading {
    /// A drain begins; the answer to hand to [`Self::drained`].
    pub fn drain_begins(&self) -> u64 {
        self.waits.store(false, Ordering::Relaxed);
        // Release: a pause that finds the queues empty because we took their requests must see this.
        self.draining.store(true, Ordering::Release);
        self.exchange().asked
    }

    /// Whether requests wait that were taken from their queues. For whoever takes them: the sampler, its
    /// substitute, or a thread that ends.
    pub fn holds(&self, anything: bool) {
        self.holding.store(anything, Ordering::Release);
    }

    /// Whether a pause waits that no drain has answered yet: a hint, for work that can be put off.
    pub fn is_asked(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// A drain ended: everything that was queued when it began is named.
    pub fn drained(&self, asked: u64) {
        self.draining.store(false, Ordering::Release);
        let mut exchange = self.exchange();
        if exchange.answered < asked {
            exchange.answered = asked;
            self.answered.notify_all();
        }
    }

    /// Observations that callbacks made, oldest first.
    pub fn take_seen(&self) -> Vec<Observation> {
        std::mem::take(&mut self.exchange().seen)
    }

    /// What pauses were prolonged by, in nanoseconds.
    pub fn added_ns(&self) -> &Histogram {
        &self.added_ns
    }

    /// Pauses that went on before everything was drained.
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
    fn nothing_pending_is_not_waited_for() {
        let unloading = unloading(Duration::from_secs(3600));
        unloading.pause_begins(|| false, || panic!("nobody is to be woken"));
        assert_eq!(unloading.cut_short(), 0);
        assert_eq!(unloading.added_ns().snapshot().count(), 1);
    }

    #[test]
    fn a_pause_waits_until_the_drain_has_ended() {
        let unloading = unloading(Duration::from_secs(3600));
        let (wake, woken) = channel();
        std::thread::scope(|scope| {
            let unloading = &unloading;
            let sampler = scope.spawn(move || {
                woken.recv().expect("woken");
                let asked = unloading.drain_begins();
                let during = unloading.observe(&StackCopy::new(0, &[])).mark;
                unloading.drained(asked);
                during
            });
            unloading.pause_begins(|| true, || wake.send(()).expect("the sampler listens"));
            assert_eq!(sampler.join().expect("no panic"), Some(0), "the pause had not begun");
        });
        assert_eq!(unloading.cut_short(), 0);
        assert_eq!(unloading.observe(&StackCopy::new(0, &[])).mark, None, "nothing is certain in a pause");
    }

    #[test]
    fn a_pause_goes_on_when_its_budget_is_over() {
        let unloading = unloading(Duration::from_micros(50));
        unloading.pause_begins(|| true, || {});
        assert_eq!(unloading.cut_short(), 1);
        assert!(unloading.added_ns().snapshot().max() >= 50_000);
    }

    #[test]
    fn requests_in_the_samplers_hands_are_waited_for() {
        let unloading = unloading(Duration::from_micros(50));
        let asked = unloading.drain_begins();
        assert!(!unloading.is_asked());
        unloading.pause_begins(|| false, || {});
        assert_eq!(unloading.cut_short(), 1);
        assert!(unloading.is_asked(), "the drain began before the pause");
        unloading.drained(asked);
        unloading.pause_begins(|| false, || panic!("the drain has ended"));
        unloading.holds(true);
        unloading.pause_begins(|| false, || {});
        assert_eq!(unloading.cut_short(), 2);
        unloading.holds(false);
        unloading.pause_begins(|| false, || panic!("nothing waits"));
        let taken_just_then = || {
            unloading.holds(true);
            false
        };
        unloading.pause_begins(taken_just_then, || {});
        assert_eq!(unloading.cut_short(), 3);
    }

    #[test]
    fn the_mark_moves_with_every_pause() {
        let unloading = unloading(Duration::ZERO);
        let memory = StackCopy::new(0, &[]);
        let first = unloading.observe(&memory).mark;
        unloading.pause_begins(|| true, || panic!("no budget"));
        unloading.pause_ends(&memory);
        let [seen] = unloading.take_seen()[..] else { panic!("one observation") };
        assert!(seen.mark.is_some() && seen.mark != first);
        assert_eq!(unloading.observe(&memory).mark, seen.mark);
        // An end whose beginning was missed, and two beginnings in a row.
        unloading.pause_ends(&memory);
        let third = unloading.observe(&memory).mark;
        assert_ne!(third, seen.mark);
        unloading.pause_begins(|| false, || {});
        unloading.pause_begins(|| false, || {});
        unloading.pause_ends(&memory);
        assert_ne!(unloading.observe(&memory).mark, third);
    }
}
