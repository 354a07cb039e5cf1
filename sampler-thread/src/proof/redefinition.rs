//! Detects that the VM may have freed methods of redefined classes.
//!
//! Problem: redefining a class (Java agents, debuggers, JFR) leaves its old methods behind. The VM frees them later
//! without unloading a class, and the next class of the loader puts its methods there.
//! Approach: the VM frees methods and then loads a class before another method has the same address. It counts both: if
//! both counters grew between two observations, names read before prove nothing. Methods are freed at safepoints only,
//! and of these only in a redefinition and in a collection that looks at the old generation; both are counted before
//! the safepoint ends. Without these counters, and with collectors that free at other safepoints, every safepoint
//! counts. All this matters only once a class was redefined, which the VM notes in a variable that it does not export.
//! Finding that takes 2 ms, so it is done when both counters grew for the first time, or after a while.
//! Invariant: if the variable is not found, any class may have been redefined at any safepoint.
//! Sources: `classfile/classLoaderData.cpp` (`free_deallocate_list` and its callers), `oops/instanceKlass.cpp`
//! (`purge_previous_version_list`), `prims/jvmtiRedefineClasses.cpp`, `prims/jvmtiExport.hpp`,
//! `services/{classLoadingService,runtimeService}.cpp`, JDK 11 to 25.

use std::ops::RangeInclusive;
use std::sync::Arc;

use stackwalk::{HotSpot, Memory, PerfCounter};

use crate::native::variables::{HiddenSymbols, Variable};
use crate::proof::code_freeing::{old_collections, sum};

/// Counters of loaded classes, of loaded archived classes, and of safepoints, each counted when it begins.
const COUNTERS: [&str; 3] = ["java.cls.loadedClasses", "java.cls.sharedLoadedClasses", "sun.rt.safepoints"];

/// The release in which collections alone free methods; a redefinition only puts them on a list.
const ONLY_COLLECTIONS_FREE: u32 = 11;
/// Releases in which a redefinition frees methods, and collections counted by [`old_collections`] before their pause
/// ends. Between 11 and these a later safepoint may free them; newer ones are unexamined (`stackwalk/NEW_JDK.md`).
const REDEFINITIONS_FREE: RangeInclusive<u32> = 17..=25;

/// A number that changes before the VM frees methods or, at the latest, before the safepoint ends that frees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freeing {
    /// Safepoints, or whatever else takes their place.
    Safepoints(u64),
    /// Redefinitions and collections of the old generation.
    Causes(u64),
}

/// Counters of the VM at one moment; a method can only have been replaced by another if both grew since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    loaded: u64,
    freeing: Freeing,
}

impl Progress {
    /// True if a method may have been replaced between `before` and this moment.
    pub fn may_replace_since(self, before: Self) -> bool {
        self.loaded != before.loaded && self.freeing != before.freeing
    }
}

/// The VM's count of redefinitions and its other counters.
#[derive(Debug, Default)]
pub struct Redefinition {
    symbols: Arc<HiddenSymbols>,
    counters: Option<[PerfCounter; 3]>,
    /// Counters of collections that free methods; `None` if other safepoints free them as well.
    collections: Option<Vec<PerfCounter>>,
    jdk_major: u32,
}

impl Redefinition {
    /// Finds the counters of an initialised VM.
    pub fn choose(hotspot: &HotSpot, memory: &impl Memory, symbols: Arc<HiddenSymbols>) -> Self {
        let [loaded, shared, safepoints] = COUNTERS.map(|name| hotspot.perf_counter(memory, name));
        let counters = loaded.zip(shared).zip(safepoints);
        let counters = counters.map(|((loaded, shared), safepoints)| [loaded, shared, safepoints]);
        let jdk_major = hotspot.jdk_major();
        let is_in_pause = jdk_major == ONLY_COLLECTIONS_FREE || REDEFINITIONS_FREE.contains(&jdk_major);
        let collections = old_collections(hotspot, memory).filter(|_| is_in_pause);
        Self { symbols, counters, collections, jdk_major }
    }

    /// Finds the count of redefinitions; takes milliseconds at the first call, so only the sampler thread calls it.
    pub fn prepare(&self) {
        self.symbols.prepare();
    }

    /// A count of redefinitions of this size at `address`.
    #[cfg(test)]
    pub(crate) fn counted_at(address: u64, bytes: u64) -> Self {
        Self { symbols: Arc::new(HiddenSymbols::counted_at(address, bytes)), ..Self::default() }
    }

    /// Returns whether [`Redefinition::prepare`] was called.
    pub fn is_prepared(&self) -> bool {
        self.symbols.is_prepared()
    }

    /// Returns whether a class may have been redefined; true before [`Redefinition::prepare`].
    pub fn may_have_happened(&self, memory: &impl Memory) -> bool {
        self.count(memory) != 0
    }

    fn count(&self, memory: &impl Memory) -> u64 {
        self.known_count(memory).unwrap_or(1)
    }

    /// Returns the VM's count of redefinitions, on JDK 11 whether there was one; `None` before
    /// [`Redefinition::prepare`] and if the count was not found.
    pub fn known_count(&self, memory: &impl Memory) -> Option<u64> {
        let Variable { address, bytes } = self.symbols.redefinitions()?;
        if bytes == 8 { memory.read_u64(address).ok() } else { memory.read_u8(address).ok().map(u64::from) }
    }

    /// Returns the progress of the VM; `None` while no class was redefined.
    ///
    /// Without counters `pauses`, the number of collections, takes their place.
    pub fn progress(&self, memory: &impl Memory, pauses: u64) -> Option<Progress> {
        let count = self.count(memory);
        if count == 0 {
            return None;
        }
        let without = count.wrapping_add(pauses);
        let without = Progress { loaded: without, freeing: Freeing::Safepoints(without) };
        let Some([loaded, shared, safepoints]) = self.counters else { return Some(without) };
        let freeing = match self.causes(memory, count) {
            Some(causes) => Some(Freeing::Causes(causes)),
            None => safepoints.read(memory).ok().map(Freeing::Safepoints),
        };
        Some(match (loaded.read(memory), shared.read(memory), freeing) {
            (Ok(loaded), Ok(shared), Some(freeing)) => {
                Progress { loaded: loaded.wrapping_add(shared), freeing }
            }
            _ => without,
        })
    }

    /// Returns the number of causes for which methods are freed, `count` of them redefinitions; `None` if the VM may
    /// free methods without counting a cause.
    fn causes(&self, memory: &impl Memory, count: u64) -> Option<u64> {
        let collections = sum(self.collections.as_ref()?, memory)?;
        match self.symbols.redefinitions()? {
            Variable { bytes: 8, .. } => Some(collections.wrapping_add(count)),
            Variable { .. } => Some(collections).filter(|_| self.jdk_major == ONLY_COLLECTIONS_FREE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::StackCopy;

    #[test]
    fn nothing_counts_before_the_first_redefinition() {
        let redefinition = Redefinition::counted_at(0x1000, 8);
        let at = |count: u64| {
            let bytes = count.to_le_bytes();
            redefinition.progress(&StackCopy::new(0x1000, &bytes), 0)
        };
        assert_eq!(at(0), None);
        let first = at(1).expect("redefined");
        assert!(at(2).is_some_and(|second| second.may_replace_since(first)));
    }

    #[test]
    fn an_unknown_count_means_possibly_redefined() {
        let redefinition = Redefinition::default();
        redefinition.prepare();
        assert!(redefinition.may_have_happened(&StackCopy::new(0, &[])));
        let memory = StackCopy::new(0, &[]);
        let [before, after] = [0, 2].map(|pauses| redefinition.progress(&memory, pauses).expect("possible"));
        assert!(after.may_replace_since(before) && !before.may_replace_since(before));
    }

    #[test]
    fn causes_count_where_all_are_known() {
        let causes = |counted: Redefinition, jdk_major| {
            let redefinition = Redefinition { collections: Some(Vec::new()), jdk_major, ..counted };
            redefinition.causes(&StackCopy::new(0, &[]), 3)
        };
        let counted = |bytes| Redefinition::counted_at(0x1000, bytes);
        assert_eq!(causes(counted(8), 17), Some(3), "redefinitions free methods");
        assert_eq!(causes(counted(1), 11), Some(0), "they free none");
        assert_eq!(causes(counted(1), 17), None, "they are not counted");
        let unknown = Redefinition::default();
        assert_eq!(unknown.causes(&StackCopy::new(0, &[]), 3), None, "before it is looked for");
        unknown.prepare();
        assert_eq!(causes(unknown, 17), None);
    }

    #[test]
    fn other_counters_than_before_may_have_grown() {
        let progress = |loaded, freeing| Progress { loaded, freeing };
        let before = progress(5, Freeing::Safepoints(7));
        assert!(progress(6, Freeing::Causes(7)).may_replace_since(before));
    }

    #[test]
    fn a_class_and_a_safepoint_are_needed() {
        let progress = |loaded, safepoints| Progress { loaded, freeing: Freeing::Safepoints(safepoints) };
        let before = progress(5, 7);
        assert!(!progress(6, 7).may_replace_since(before) && !progress(5, 9).may_replace_since(before));
        assert!(progress(6, 8).may_replace_since(before));
    }
}
