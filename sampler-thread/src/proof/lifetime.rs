//! Decides whether a `Method*` of a sample is still the method of that time.
//!
//! Problem: between a sample and its walk the VM may unload the class and put another method at the same address.
//! Approach: [`Unloading`] returns marks that change before anything is freed. If the mark did not change from before
//! the sample until after a name was read, the name is right, and stays right until the mark changes.
//! Methods of the boot, platform and system loaders are never freed with a class; once such a method is known, no
//! mark is needed for samples taken later, unless classes are redefined (`crate::proof::redefinition`).
//! Invariant: a sample is called certain only if a mark read before it equals one read after it.

use std::sync::Arc;

use stackwalk::{LoadedBy, Memory};

use crate::proof::code_freeing::CodeMark;
use crate::proof::redefinition::Progress;
use crate::proof::unloading::{Detector, Observation, Unloading};

/// Names that became uncertain since the last observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Change {
    #[default]
    None,
    /// Methods whose classes may be unloaded.
    Unloaded,
    Replaced,
}

/// The current mark and the time for which it is known.
pub struct Lifetime {
    unloading: Arc<Unloading>,
    mark: Option<u64>,
    /// Time stamp after the first reading of the mark.
    since: u64,
    /// Time stamp before the last reading of the mark.
    until: u64,
    code: CodeMark,
    /// Progress of the VM when methods may last have been replaced; `None` before the first redefinition.
    progress: Option<Progress>,
    /// The VM's count of redefinitions at the last call of [`Lifetime::take_redefined`].
    redefinitions: u64,
    /// `ClassLoaderData` of loaders that are known to be permanent.
    permanent: Vec<u64>,
    /// Names that became uncertain since the last [`Lifetime::take_change`].
    change: Change,
}

impl Lifetime {
    /// Nothing is known yet.
    pub fn new(unloading: Arc<Unloading>) -> Self {
        Self {
            unloading,
            mark: None,
            since: 0,
            until: 0,
            code: CodeMark::default(),
            progress: None,
            redefinitions: 0,
            permanent: Vec::new(),
            change: Change::None,
        }
    }

    /// Reads the mark; returns whether the VM's counters show that classes were unloaded.
    pub(crate) fn begin_drain(&mut self, memory: &impl Memory) -> bool {
        let change = self.observe(memory);
        // Other marks change in every pause.
        matches!(self.unloading.detector(), Detector::Counters(_)) && change != Change::None
    }

    /// Reads the mark; returns what became uncertain because it changed or is unknown.
    pub(crate) fn observe(&mut self, memory: &impl Memory) -> Change {
        let before = self.unloading.ticks();
        let mut change = Change::None;
        for observation in self.unloading.take_observations() {
            change = change.max(self.apply(observation, memory));
        }
        change = change.max(self.apply(self.unloading.observe(memory), memory));
        self.until = before;
        // While a pause waits that is counted already, the mark from before it: nothing is freed yet.
        let of_last_pause = self.unloading.code_mark_of_last_pause();
        let code = of_last_pause.or_else(|| self.unloading.code_mark(memory));
        self.code.note(code, self.unloading.sweeps(memory), self.unloading.ticks());
        self.change = self.change.max(change);
        change
    }

    /// Returns what became uncertain since the last call.
    pub(crate) fn take_change(&mut self) -> Change {
        std::mem::take(&mut self.change)
    }

    /// Returns whether classes were redefined since the last call; false while that is not known.
    pub(crate) fn take_redefined(&mut self, memory: &impl Memory) -> bool {
        let known = self.unloading.redefinition().known_count(memory);
        let now = known.unwrap_or(self.redefinitions);
        std::mem::replace(&mut self.redefinitions, now) != now
    }

    fn apply(&mut self, Observation { ticks, mark, progress }: Observation, memory: &impl Memory) -> Change {
        let redefinition = self.unloading.redefinition();
        let is_replaced = match (self.progress, progress) {
            (_, None) => {
                self.progress = None;
                false
            }
            // Progress noted before the VM's count of redefinitions was found; that count is newer.
            (None, Some(_)) => !redefinition.is_prepared() || redefinition.may_have_happened(memory),
            (Some(before), Some(now)) => {
                now.may_replace_since(before) && {
                    redefinition.prepare();
                    redefinition.may_have_happened(memory)
                }
            }
        };
        if is_replaced {
            self.progress = progress;
        } else if mark.is_some() && mark == self.mark {
            return Change::None;
        }
        (self.mark, self.since) = (mark, ticks);
        if is_replaced { Change::Replaced } else { Change::Unloaded }
    }

    /// Finds the VM's counts of redefinitions and of sweeps before they are needed.
    pub(crate) fn prepare(&self) {
        self.unloading.redefinition().prepare();
    }

    /// Returns whether the last reading came after `ticks`.
    pub(crate) fn covers(&self, ticks: u64) -> bool {
        ticks <= self.until
    }

    /// Returns whether everything that was loaded at `ticks` is still loaded.
    pub(crate) fn is_certain(&self, ticks: u64) -> bool {
        self.mark.is_some() && ticks >= self.since && ticks <= self.until
    }

    /// Reads the time stamp counter.
    pub(crate) fn now(&self) -> u64 {
        self.unloading.ticks()
    }

    /// Returns whether no code that ran at `ticks` was freed since: no pause began, or none that frees code, and no
    /// sweep may have freed it.
    pub(crate) fn is_code_certain(&self, ticks: u64, memory: &impl Memory) -> bool {
        let is_kept = self.code.is_kept_since(ticks, self.unloading.sweeps(memory));
        let is_same = |mark| self.code.is_same_since(ticks, mark);
        let in_no_pause = || {
            self.unloading.is_code_certain(ticks)
                || is_same(self.unloading.code_mark(memory))
                || is_same(self.unloading.code_mark_of_last_pause())
        };
        is_kept && in_no_pause()
    }

    /// Returns whether a class that is kept alive by `loaded_by` can never be unloaded.
    pub(crate) fn is_permanent(&mut self, memory: &impl Memory, loaded_by: Option<LoadedBy>) -> bool {
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

    /// Returns whether `slot` refers to a permanent loader.
    ///
    /// Equal contents of two slots mean the same object if the collector moved nothing between the readings. A loader
    /// that is not recognised is checked again with its next method.
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
    use crate::proof::code_freeing::CodeFreeing;
    use crate::proof::redefinition::Redefinition;
    use crate::proof::unloading::Detector;
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
        assert_eq!(lifetime.observe(&memory), Change::Replaced, "the first mark");
        let sample = now();
        assert!(!lifetime.is_certain(sample), "no mark was read after it");
        assert_eq!(lifetime.observe(&memory), Change::None);
        assert!(lifetime.is_certain(sample));
        assert!(!lifetime.is_certain(too_early), "no mark is known from before it");

        unloading.pause_begins(&memory, || false, || {});
        assert_ne!(lifetime.observe(&memory), Change::None);
        assert!(!lifetime.is_certain(sample), "a pause may have unloaded it");
        unloading.pause_ends(&memory);
        let after_the_pause = now();
        assert_ne!(lifetime.observe(&memory), Change::None);
        assert!(lifetime.is_certain(after_the_pause), "the end of the pause was observed before it");
        assert!(!lifetime.is_certain(sample));
    }

    /// Counts pauses where it has no counters, so every pause is progress.
    fn lifetime_of(redefinition: Redefinition) -> (Arc<Unloading>, Lifetime) {
        let no_code = CodeFreeing::default();
        let (none, pauses) = (Duration::ZERO, Detector::Pauses);
        let unloading = Arc::new(Unloading::new(pauses, no_code, redefinition, none, now, Vec::new()));
        (Arc::clone(&unloading), Lifetime::new(unloading))
    }

    #[test]
    fn the_count_of_redefinitions_is_looked_up_when_needed() {
        let memory = StackCopy::new(0, &[]);
        let (unloading, mut lifetime) = lifetime_of(Redefinition::default());
        lifetime.observe(&memory);
        assert_eq!(lifetime.observe(&memory), Change::None);
        assert!(!unloading.redefinition().is_prepared(), "nothing has changed");
        unloading.pause_begins(&memory, || false, || {});
        unloading.pause_ends(&memory);
        assert_eq!(lifetime.observe(&memory), Change::Replaced, "there is no variable");
        assert!(unloading.redefinition().is_prepared());
    }

    #[test]
    fn progress_without_a_redefinition_replaces_nothing() {
        let count = [0_u8; 8];
        let memory = StackCopy::new(0x1000, &count);
        let (unloading, mut lifetime) = lifetime_of(Redefinition::counted_at(0x1000, 8));
        let before = Observation { ticks: now(), mark: Some(1), progress: None };
        lifetime.apply(before, &memory);
        // Observed in a pause before the variable was known, applied after.
        let default = Redefinition::default();
        let queued =
            |pauses| Observation { ticks: 1, mark: Some(1), progress: default.progress(&memory, pauses) };
        assert_eq!(lifetime.apply(queued(0), &memory), Change::None);
        assert_eq!(lifetime.apply(queued(2), &memory), Change::None);
        let count = [1_u8, 0, 0, 0, 0, 0, 0, 0];
        let memory = StackCopy::new(0x1000, &count);
        assert_eq!(lifetime.apply(unloading.observe(&memory), &memory), Change::Replaced);
    }

    #[test]
    fn redefinitions_are_reported_once() {
        let told = |lifetime: &mut Lifetime, count: u8| {
            let count = [count, 0, 0, 0, 0, 0, 0, 0];
            lifetime.take_redefined(&StackCopy::new(0x1000, &count))
        };
        let (_, mut lifetime) = lifetime_of(Redefinition::counted_at(0x1000, 8));
        assert_eq!([0, 2, 2, 3].map(|count| told(&mut lifetime, count)), [false, true, false, true]);
        let (_, mut unknown) = lifetime_of(Redefinition::default());
        assert!(!told(&mut unknown, 2));
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
        assert_ne!(lifetime.observe(&memory), Change::None);
        assert!(!lifetime.is_certain(sample));
    }
}
