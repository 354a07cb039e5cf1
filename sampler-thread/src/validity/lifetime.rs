//! Whether a `Method*` of a sample still means what it meant when the sample was taken.
//!
//! Problem: between a sample and its walk the VM may unload the class and put another method at the same address.
//! Approach: [`Unloading`] gives marks that move before anything is freed. If the mark did not move from before the
//! sample until after a name was read, the name is right, and stays right while the mark stays.
//! Methods of the boot, platform and system loaders are never freed with a class; once such a method is known, no
//! mark is needed for samples taken later, unless classes are redefined (`crate::validity::redefinition`).
//! Invariant: a sample is called certain only if a mark read before it equals one read after it.

use std::sync::Arc;

use stackwalk::{LoadedBy, Memory};

use crate::validity::code_freeing::CodeMark;
use crate::validity::redefinition::Steps;
use crate::validity::unloading::{Detector, Observation, Unloading};

/// What an observation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moved {
    /// Nothing.
    No,
    /// What was certain about classes that may be unloaded.
    Unloaded,
    /// What was certain about any method.
    Replaced,
}

/// The present mark and the time it is known for.
pub(crate) struct Lifetime {
    unloading: Arc<Unloading>,
    mark: Option<u64>,
    /// The mark was read before these ticks.
    since: u64,
    /// And was still the same after these ticks.
    until: u64,
    code: CodeMark,
    /// Where the VM was when methods may last have been replaced; `None` before the first redefinition.
    steps: Option<Steps>,
    /// `ClassLoaderData` of loaders that were recognised as permanent.
    permanent: Vec<u64>,
}

impl Lifetime {
    pub fn new(unloading: Arc<Unloading>) -> Self {
        let code = CodeMark::default();
        Self { unloading, mark: None, since: 0, until: 0, code, steps: None, permanent: Vec::new() }
    }

    /// Reads the mark, and tells what it ends if it moved (or is unknown).
    pub fn observe(&mut self, memory: &impl Memory) -> Moved {
        let before = self.unloading.ticks();
        let mut moved = Moved::No;
        for observation in self.unloading.take_seen() {
            moved = moved.max(self.apply(observation, memory));
        }
        moved = moved.max(self.apply(self.unloading.observe(memory), memory));
        self.until = before;
        let code = self.unloading.code_mark(memory);
        self.code.note(code, self.unloading.ticks());
        moved
    }

    fn apply(&mut self, Observation { ticks, mark, steps }: Observation, memory: &impl Memory) -> Moved {
        let redefinition = self.unloading.redefinition();
        let is_replaced = match (self.steps, steps) {
            (_, None) => {
                self.steps = None;
                false
            }
            // Steps that were taken before the VM's word was known; that word is younger.
            (None, Some(_)) => !redefinition.is_prepared() || redefinition.may_have_happened(memory),
            (Some(before), Some(now)) => {
                now.may_replace_since(before) && {
                    redefinition.prepare();
                    redefinition.may_have_happened(memory)
                }
            }
        };
        if is_replaced {
            self.steps = steps;
        } else if mark.is_some() && mark == self.mark {
            return Moved::No;
        }
        (self.mark, self.since) = (mark, ticks);
        if is_replaced { Moved::Replaced } else { Moved::Unloaded }
    }

    /// Whether marks move only if something was unloaded, and not in every pause.
    pub fn is_counted(&self) -> bool {
        matches!(self.unloading.detector(), Detector::Counters(_))
    }

    /// Looks up early what is needed once methods may have been replaced.
    pub fn prepare(&self) {
        self.unloading.redefinition().prepare();
    }

    /// Whether the last reading came after `ticks`.
    pub fn covers(&self, ticks: u64) -> bool {
        ticks <= self.until
    }

    /// Whether everything that was loaded at `ticks` is loaded still.
    pub fn is_certain(&self, ticks: u64) -> bool {
        self.mark.is_some() && ticks >= self.since && ticks <= self.until
    }

    /// The time stamp counter.
    pub fn now(&self) -> u64 {
        self.unloading.ticks()
    }

    /// Whether code that ran at `ticks` is where it was: no pause began since, or none that frees code.
    pub fn is_code_certain(&self, ticks: u64, memory: &impl Memory) -> bool {
        self.unloading.is_code_certain(ticks)
            || self.code.is_same_since(ticks, self.unloading.code_mark(memory))
    }

    /// Whether a class can never be unloaded, from who keeps it alive; it was alive when that was read.
    pub fn is_permanent(&mut self, memory: &impl Memory, loaded_by: Option<LoadedBy>) -> bool {
        match loaded_by {
            Some(LoadedBy::Boot) => true,
            Some(LoadedBy::Loader { data, slot }) => {
                let known = self.permanent.contains(&data);
                if !known && self.holds_permanent_loader(memory, slot) {
                    self.permanent.push(data);
                    return true;
                }
                known
            }
            Some(LoadedBy::Itself) | None => false,
        }
    }

    /// Equal contents of two slots mean the same object, if the collector moved nothing between the readings; a
    /// loader that is not recognised now is asked about again with its next method.
    fn holds_permanent_loader(&self, memory: &impl Memory, slot: u64) -> bool {
        let read = |slot| memory.read_u64(slot).ok().filter(|&oop| oop != 0);
        self.unloading.permanent_loaders().iter().any(|&permanent| {
            let before = read(permanent);
            before.is_some() && read(slot) == before && read(permanent) == before
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validity::code_freeing::CodeFreeing;
    use crate::validity::redefinition::Redefinition;
    use crate::validity::unloading::Detector;
    use stackwalk::StackCopy;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    static TICKS: AtomicU64 = AtomicU64::new(1);

    fn now() -> u64 {
        TICKS.fetch_add(1, Ordering::Relaxed)
    }

    #[test]
    fn certain_between_two_equal_marks_only() {
        let memory = StackCopy::new(0, &[]);
        let unloading = Arc::new(Unloading::new(
            Detector::Pauses,
            CodeFreeing::default(),
            Redefinition::default(),
            Duration::ZERO,
            now,
            Vec::new(),
        ));
        let mut lifetime = Lifetime::new(Arc::clone(&unloading));
        let too_early = now();
        assert_eq!(lifetime.observe(&memory), Moved::Replaced, "the first mark is news");
        let sample = now();
        assert!(!lifetime.is_certain(sample), "nothing was read after it yet");
        assert_eq!(lifetime.observe(&memory), Moved::No);
        assert!(lifetime.is_certain(sample));
        assert!(!lifetime.is_certain(too_early), "no mark is known from before it");

        unloading.pause_begins(|| false, || {});
        assert_ne!(lifetime.observe(&memory), Moved::No);
        assert!(!lifetime.is_certain(sample), "a pause may have unloaded it");
        unloading.pause_ends(&memory);
        let after_the_pause = now();
        assert_ne!(lifetime.observe(&memory), Moved::No);
        assert!(lifetime.is_certain(after_the_pause), "the end of the pause was observed before it");
        assert!(!lifetime.is_certain(sample));
    }

    /// Counts pauses where it has no counters, so every pause is a step.
    fn lifetime_of(redefinition: Redefinition) -> (Arc<Unloading>, Lifetime) {
        let no_code = CodeFreeing::default();
        let (none, pauses) = (Duration::ZERO, Detector::Pauses);
        let unloading = Arc::new(Unloading::new(pauses, no_code, redefinition, none, now, Vec::new()));
        (Arc::clone(&unloading), Lifetime::new(unloading))
    }

    #[test]
    fn the_word_of_the_vm_is_looked_up_when_it_matters_first() {
        let memory = StackCopy::new(0, &[]);
        let (unloading, mut lifetime) = lifetime_of(Redefinition::default());
        lifetime.observe(&memory);
        assert_eq!(lifetime.observe(&memory), Moved::No);
        assert!(!unloading.redefinition().is_prepared(), "nothing has moved");
        unloading.pause_begins(|| false, || {});
        unloading.pause_ends(&memory);
        assert_eq!(lifetime.observe(&memory), Moved::Replaced, "there is no variable");
        assert!(unloading.redefinition().is_prepared());
    }

    #[test]
    fn steps_without_a_redefinition_replace_nothing() {
        let count = [0_u8; 8];
        let memory = StackCopy::new(0x1000, &count);
        let (unloading, mut lifetime) = lifetime_of(Redefinition::noted_at(0x1000));
        let before = Observation { ticks: now(), mark: Some(1), steps: None };
        lifetime.apply(before, &memory);
        // Seen by a pause before the variable was known, looked at after.
        let default = Redefinition::default();
        let queued = |pauses| Observation { ticks: 1, mark: Some(1), steps: default.steps(&memory, pauses) };
        assert_eq!(lifetime.apply(queued(0), &memory), Moved::No);
        assert_eq!(lifetime.apply(queued(2), &memory), Moved::No);
        let count = [1_u8, 0, 0, 0, 0, 0, 0, 0];
        let memory = StackCopy::new(0x1000, &count);
        assert_eq!(lifetime.apply(unloading.observe(&memory), &memory), Moved::Replaced);
    }

    #[test]
    fn without_detector_nothing_is_certain() {
        let memory = StackCopy::new(0, &[]);
        let unloading = Arc::new(Unloading::new(
            Detector::Nothing,
            CodeFreeing::default(),
            Redefinition::default(),
            Duration::ZERO,
            now,
            Vec::new(),
        ));
        let mut lifetime = Lifetime::new(unloading);
        lifetime.observe(&memory);
        let sample = now();
        assert_ne!(lifetime.observe(&memory), Moved::No);
        assert!(!lifetime.is_certain(sample));
    }
}
