//! Detects that the VM may have freed methods of redefined classes.
//!
//! Problem: redefining a class (Java agents, debuggers, JFR) leaves its old methods behind. The VM frees them at a later
//! safepoint, of a collection or of another redefinition, without unloading a class, and even in loaders whose classes
//! are never unloaded; the next class of the loader puts its methods there.
//! Approach: two events precede another method at the same address: a safepoint, which the VM counts before it frees
//! anything, and the loading of a class after it, which it counts as well. If both counters grew between two
//! observations, names read before are no proof. Both grow while a program starts, so this counts only once the VM has
//! redefined a class, which it notes in a variable that is found through the symbol table of its library. Finding it
//! takes 2 ms, so it is done when both counters grew for the first time, or after a while.
//! Invariant: if that variable is not found, any class may have been redefined.
//! Sources: `oops/instanceKlass.cpp` (`purge_previous_version_list`), `classfile/classLoaderDataGraph.cpp`
//! (`clean_deallocate_lists`), `prims/jvmtiRedefineClasses.cpp`, `prims/jvmtiExport.hpp`,
//! `services/{classLoadingService,runtimeService}.cpp`, JDK 11 to 25.

use std::path::PathBuf;
use std::sync::OnceLock;

use stackwalk::{HotSpot, Memory, PerfCounter};

use crate::validity::variables;

/// Counters of loaded classes, of loaded archived classes, and of safepoints, each counted when it begins.
const COUNTERS: [&str; 3] = ["java.cls.loadedClasses", "java.cls.sharedLoadedClasses", "sun.rt.safepoints"];

/// `JvmtiExport::_redefinition_count` (seen in JDK 17, 21, 25) or `JvmtiExport::_has_redefined_a_class` (11), with their bytes.
const VARIABLES: [(&str, u64); 2] =
    [("_ZN11JvmtiExport19_redefinition_countE", 8), ("_ZN11JvmtiExport22_has_redefined_a_classE", 1)];

/// Counters of the VM at one moment; a method can only have been replaced by another if both grew since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    loaded: u64,
    safepoints: u64,
}

impl Progress {
    /// Whether a method may have been replaced between `before` and this moment.
    pub fn may_replace_since(self, before: Self) -> bool {
        self.loaded != before.loaded && self.safepoints != before.safepoints
    }
}

/// Where the VM counts redefinitions.
#[derive(Debug, Clone, Copy)]
enum Counter {
    At { address: u64, bytes: u64 },
    NotFound,
}

/// The VM's count of redefinitions and its other counters.
#[derive(Debug, Default)]
pub struct Redefinition {
    /// File of the VM's library, and its load bias.
    library: Option<(PathBuf, u64)>,
    counter: OnceLock<Counter>,
    counters: Option<[PerfCounter; 3]>,
}

impl Redefinition {
    /// Finds the counters of an initialised VM.
    pub fn choose(hotspot: &HotSpot, memory: &impl Memory, library: Option<(PathBuf, u64)>) -> Self {
        let [loaded, shared, safepoints] = COUNTERS.map(|name| hotspot.perf_counter(memory, name));
        let counters = loaded.zip(shared).zip(safepoints);
        let counters = counters.map(|((loaded, shared), safepoints)| [loaded, shared, safepoints]);
        Self { library, counter: OnceLock::new(), counters }
    }

    /// Finds the count of redefinitions; takes milliseconds at the first call, so only the sampler thread calls it.
    pub fn prepare(&self) {
        self.counter.get_or_init(|| {
            let found = self.library.as_ref().and_then(|(path, bias)| {
                let (address, bytes) = variables::find(path, &VARIABLES)?;
                Some(Counter::At { address: address.wrapping_add(*bias), bytes })
            });
            found.unwrap_or_else(|| {
                tracing::info!(
                    "the VM's count of redefined classes was not found; any class may have been redefined"
                );
                Counter::NotFound
            })
        });
    }

    /// A count of redefinitions of 8 bytes at `address`.
    #[cfg(test)]
    pub(crate) fn counted_at(address: u64) -> Self {
        Self { counter: OnceLock::from(Counter::At { address, bytes: 8 }), ..Self::default() }
    }

    /// Whether [`Redefinition::prepare`] was called.
    pub fn is_prepared(&self) -> bool {
        self.counter.get().is_some()
    }

    /// Whether a class may have been redefined; true before [`Redefinition::prepare`].
    pub fn may_have_happened(&self, memory: &impl Memory) -> bool {
        self.count(memory) != 0
    }

    fn count(&self, memory: &impl Memory) -> u64 {
        match self.counter.get() {
            Some(&Counter::At { address, bytes: 8 }) => memory.read_u64(address).unwrap_or(1),
            Some(&Counter::At { address, .. }) => memory.read_u8(address).unwrap_or(1).into(),
            Some(Counter::NotFound) | None => 1,
        }
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
        let Some([loaded, shared, safepoints]) = self.counters else {
            return Some(Progress { loaded: without, safepoints: without });
        };
        match (loaded.read(memory), shared.read(memory), safepoints.read(memory)) {
            (Ok(loaded), Ok(shared), Ok(safepoints)) => {
                Some(Progress { loaded: loaded.wrapping_add(shared), safepoints })
            }
            _ => Some(Progress { loaded: without, safepoints: without }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::StackCopy;

    #[test]
    fn nothing_counts_before_the_first_redefinition() {
        let redefinition = Redefinition::default();
        assert!(redefinition.counter.set(Counter::At { address: 0x1000, bytes: 8 }).is_ok());
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
    fn a_class_and_a_safepoint_are_needed() {
        let progress = |loaded, safepoints| Progress { loaded, safepoints };
        let before = progress(5, 7);
        assert!(!progress(6, 7).may_replace_since(before) && !progress(5, 9).may_replace_since(before));
        assert!(progress(6, 8).may_replace_since(before));
    }
}
