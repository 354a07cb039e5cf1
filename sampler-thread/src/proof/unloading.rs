//! Detects that the VM may have unloaded classes.
//!
//! Problem: a `Method*` in a stack copy is valid at the time of the sample; once its class is unloaded the same address
//! may hold another method, and a name read there would be wrong.
//! Approach: a *mark* is a number that changes before any metadata is freed. It is the VM's count of unloaded classes,
//! or a count of garbage collection pauses if the VM has no such counter. A class that ran at the time of a sample
//! cannot be unloaded before another pause: every collector keeps what was reachable when its marking began. At the
//! start of a pause the VM thread waits for the sampler ([`PauseWait`]), so that samples from before the pause are
//! named before it frees anything.
//! Invariant: whatever a pause does comes between two different numbers of pauses.
//! Sources: `services/classLoadingService.cpp` (counted in `InstanceKlass::unload_class`, before the purge),
//! `prims/jvmtiExport.cpp` (`JvmtiGCMarker`), JDK 11 to 25.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::histogram::Recorder;
use proto::v1;
use stackwalk::{HotSpot, Memory, PerfCounter};

use crate::native::variables::HiddenSymbols;
use crate::proof::code_freeing::{Ahead, CLASS_COUNTERS, CodeFreeing, Sweeps};
use crate::proof::pause_wait::PauseWait;
use crate::proof::redefinition::{Progress, Redefinition};

/// The source of marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detector {
    /// The VM's counters of unloaded classes, in its memory for `jstat` or in the C heap.
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

    /// Returns the best detector without events of pauses: a VM with `-XX:-UsePerfData` keeps the counters in the C
    /// heap, where the variables among `symbols` lead to them. They are looked for then, which takes milliseconds.
    pub fn choose_without_events(hotspot: &HotSpot, memory: &impl Memory, symbols: &HiddenSymbols) -> Self {
        let chosen = Self::choose(hotspot, memory, false);
        if chosen != Self::Nothing {
            return chosen;
        }
        symbols.prepare();
        let Some(variables) = symbols.unloaded_classes() else { return Self::Nothing };
        let [own, shared] = CLASS_COUNTERS;
        let [own_at, shared_at] = variables;
        let counter = |variable, name| hotspot.perf_counter_of(memory, variable, name);
        match (counter(own_at, own), counter(shared_at, shared)) {
            (Some(own), Some(shared)) => Self::Counters([own, shared]),
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
    wait: PauseWait,
    ticks: fn() -> u64,
    /// Slots of the VM that refer to the loaders that are never unloaded.
    permanent_loaders: Vec<u64>,
    /// Twice the number of ended pauses, plus one during a pause.
    pauses: AtomicU64,
    /// Time stamp when the newest pause continued after the handshake.
    newest_pause: AtomicU64,
    /// The number of [`Self::code_mark`] when a pause ended last; [`NO_MARK`] without one.
    code_mark_before: AtomicU64,
    /// Marks at the ends of pauses.
    observations: Mutex<Vec<Observation>>,
    /// Time by which pauses were prolonged, in nanoseconds.
    added_ns: Mutex<Recorder>,
}

/// Attempts of the VM thread to get the lock of the observations: some microseconds.
const LOCK_ATTEMPTS: u32 = 100;
/// Most observations kept between two drains: a pause takes longer than a millisecond, a drain comes every 400 ms at
/// least.
const MAX_OBSERVATIONS: usize = 512;
/// In place of a mark that cannot be read.
const NO_MARK: u64 = u64::MAX;

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
            wait: PauseWait::new(budget),
            ticks,
            permanent_loaders,
            pauses: AtomicU64::new(0),
            newest_pause: AtomicU64::new(0),
            code_mark_before: AtomicU64::new(NO_MARK),
            observations: Mutex::new(Vec::with_capacity(MAX_OBSERVATIONS)),
            added_ns: Mutex::default(),
        }
    }

    /// Returns the handshake with the VM thread.
    pub fn wait(&self) -> &PauseWait {
        &self.wait
    }

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

    /// Returns a number that changes before a pause frees code; `None` if the VM has no counter. It is read in the
    /// order of [`Self::observe`].
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

    /// Reads how near the next sweep is; `None` if samples may wait for it.
    pub(crate) fn ahead(&self, memory: &impl Memory) -> Option<Ahead> {
        self.freeing.ahead(memory)
    }

    /// Returns whether it is certain for samples of any age what the VM has freed of their classes and code, so that
    /// they can wait; false before the VM's variables are located, where they are needed.
    pub fn is_all_proven(&self) -> bool {
        matches!(self.detector, Detector::Counters(_)) && self.freeing.is_proven()
    }

    /// Returns the number of [`Self::code_mark`] when the last pause ended, if none has continued since: the VM counts
    /// some pauses before they are reported, and nothing is freed while such a pause waits. `None` if it is not known.
    pub fn code_mark_of_last_pause(&self) -> Option<u64> {
        // Acquire: what was read before is read before this number. What a pause frees is freed while it is odd.
        fence(Ordering::Acquire);
        let pauses = self.pauses.load(Ordering::Acquire);
        let mark = self.code_mark_before.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_outside = pauses.is_multiple_of(2) && pauses == self.pauses.load(Ordering::Relaxed);
        Some(mark).filter(|&mark| is_outside && mark != NO_MARK)
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
    pub fn pause_begins(&self, memory: &impl Memory, pending: impl FnOnce() -> bool, wake: impl FnOnce()) {
        let start = Instant::now();
        self.wait.await_drain(start, self.is_freeing_announced(memory), pending, wake);
        // Release, as below: a reader that sees effects of this pause also sees that it began.
        self.newest_pause.store((self.ticks)(), Ordering::Release);
        // Only the VM thread writes. Odd from here on; a second start without an end changes the number, too.
        let count = self.pauses.load(Ordering::Relaxed);
        self.pauses.store((count | 1) + if count % 2 == 1 { 2 } else { 0 }, Ordering::Release);
        // Release: both stores come before all that the pause does.
        fence(Ordering::Release);
        // The sampler thread holds the lock only while it makes a message; then this pause is left out.
        if let Some(mut added_ns) = self.added_ns.try_lock() {
            added_ns.record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Returns whether the VM has counted a pause that may free code since the last one ended: this one.
    ///
    /// Source: `gc/g1/g1VMOperations.cpp` (`VM_G1PauseConcurrent::doit`), JDK 21 and 25: the counters of the pauses
    /// that end a marking grow before GarbageCollectionStart. Those of full collections grow later.
    fn is_freeing_announced(&self, memory: &impl Memory) -> bool {
        // Relaxed: only the VM thread uses it, and the thread that starts the profile before the first pause is
        // reported.
        has_grown(self.code_mark_before.load(Ordering::Relaxed), self.code_mark(memory))
    }

    /// Notes the mark at the end of a pause, before any Java thread runs again.
    pub fn pause_ends(&self, memory: &impl Memory) {
        let count = self.pauses.load(Ordering::Relaxed);
        // Before the number is even: outside of a pause, this is the mark of its end.
        self.note_code_mark(memory);
        self.pauses.store((count | 1) + 1, Ordering::Release);
        self.note_observation(memory);
    }

    /// Notes the mark for the sampler thread: at the end of a pause, and before the first timer runs, because a sample
    /// is certain only if the mark was read before it.
    pub fn note(&self, memory: &impl Memory) {
        self.note_code_mark(memory);
        self.note_observation(memory);
    }

    fn note_code_mark(&self, memory: &impl Memory) {
        self.code_mark_before.store(self.code_mark(memory).unwrap_or(NO_MARK), Ordering::Relaxed);
    }

    fn note_observation(&self, memory: &impl Memory) {
        let observation = self.observe(memory);
        // The sampler holds the lock for an exchange of two pointers. If it has no processor just then, the observation
        // is left out: fewer names are certain.
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

/// Returns whether a mark is another one than `before`, if both are known.
fn has_grown(before: u64, mark: Option<u64>) -> bool {
    before != NO_MARK && mark.is_some_and(|mark| mark != before)
}

/// # For the sampler thread
impl Unloading {
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
    pub fn added_ns(&self) -> v1::Histogram {
        self.added_ns.lock().to_message()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::StackCopy;

    fn unloading() -> Unloading {
        static TICKS: AtomicU64 = AtomicU64::new(1);
        let ticks = || TICKS.fetch_add(1, Ordering::Relaxed);
        let (code, redefinition) = (CodeFreeing::default(), Redefinition::default());
        Unloading::new(Detector::Pauses, code, redefinition, Duration::ZERO, ticks, Vec::new())
    }

    #[test]
    fn the_mark_changes_with_every_pause() {
        let unloading = unloading();
        let memory = StackCopy::new(0, &[]);
        let first = unloading.observe(&memory).mark;
        unloading.pause_begins(&memory, || true, || panic!("no budget"));
        assert_eq!(unloading.observe(&memory).mark, None, "nothing is certain in a pause");
        assert_eq!(unloading.added_ns().count, 1);
        unloading.pause_ends(&memory);
        let [observed] = unloading.take_observations()[..] else { panic!("one observation") };
        assert!(observed.mark.is_some() && observed.mark != first);
        assert_eq!(unloading.observe(&memory).mark, observed.mark);
        // An end whose beginning was missed, and two beginnings in a row.
        unloading.pause_ends(&memory);
        let third = unloading.observe(&memory).mark;
        assert_ne!(third, observed.mark);
        unloading.pause_begins(&memory, || false, || {});
        unloading.pause_begins(&memory, || false, || {});
        unloading.pause_ends(&memory);
        assert_ne!(unloading.observe(&memory).mark, third);
    }

    #[test]
    fn a_pause_is_announced_by_a_mark_that_grows() {
        assert!(has_grown(3, Some(4)) && !has_grown(3, Some(3)));
        assert!(!has_grown(NO_MARK, Some(3)) && !has_grown(3, None), "one is not known");
    }

    #[test]
    fn a_pause_that_waits_has_freed_nothing() {
        let (unloading, memory) = (unloading(), StackCopy::new(0, &[]));
        assert_eq!(unloading.code_mark_of_last_pause(), None, "no pause has ended");
        unloading.code_mark_before.store(3, Ordering::Relaxed);
        assert_eq!(unloading.code_mark_of_last_pause(), Some(3));
        unloading.pause_begins(&memory, || false, || {});
        assert_eq!(unloading.code_mark_of_last_pause(), None, "it has continued");
        unloading.pause_ends(&memory);
        assert_eq!(unloading.code_mark_of_last_pause(), None, "its end has no mark");
    }

    #[test]
    fn the_end_of_a_pause_does_not_wait_for_a_lock() {
        let (unloading, memory) = (unloading(), StackCopy::new(0, &[]));
        let held = unloading.observations.lock();
        // On this thread, which would wait for itself.
        unloading.pause_begins(&memory, || true, || panic!("no budget"));
        unloading.pause_ends(&memory);
        drop(held);
        assert_eq!(unloading.take_observations(), [], "the observation is left out");
        unloading.pause_ends(&memory);
        assert_eq!(unloading.take_observations().len(), 1);
    }
}
