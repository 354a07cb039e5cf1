//! What tells that the VM may have freed methods of classes that were redefined.
//!
//! Problem: a class that is redefined (Java agents, debuggers, JFR) leaves its old methods behind. They are freed at some
//! later safepoint, of a collection or of another redefinition, without any class being unloaded, and even in loaders
//! whose classes are never unloaded; the next class of the loader puts its methods there.
//! Approach: two things must have happened before another method can lie where one was: a safepoint, which the VM counts
//! before it frees anything, and a class that was read after it, which it counts as loaded. Both have moved between two
//! looks: names read before are believed no more. That is often so while a program starts, so it counts only once the
//! VM has redefined a class at all, which it notes in a variable that the symbol table of its library tells. To look
//! that up takes 2 ms, so it is done when both have moved for the first time, or after a while.
//! Invariant: where that variable is not found, a class may have been redefined.
//! Sources: `oops/instanceKlass.cpp` (`purge_previous_version_list`), `classfile/classLoaderDataGraph.cpp`
//! (`clean_deallocate_lists`), `prims/jvmtiRedefineClasses.cpp`, `prims/jvmtiExport.hpp`,
//! `services/{classLoadingService,runtimeService}.cpp`, JDK 11 to 25.

use std::path::PathBuf;
use std::sync::OnceLock;

use stackwalk::{HotSpot, Memory, PerfCounter};

use crate::walk::native::variables;

/// Counted at each class that is read, archived ones apart from the others, and at each safepoint when it begins.
const COUNTERS: [&str; 3] = ["java.cls.loadedClasses", "java.cls.sharedLoadedClasses", "sun.rt.safepoints"];

/// `JvmtiExport::_redefinition_count` (seen in JDK 17, 21, 25) or `JvmtiExport::_has_redefined_a_class` (11), with their bytes.
const VARIABLES: [(&str, u64); 2] =
    [("_ZN11JvmtiExport19_redefinition_countE", 8), ("_ZN11JvmtiExport22_has_redefined_a_classE", 1)];

/// How far the VM was at one moment; a method can only have been replaced by another if both numbers have grown since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    loaded: u64,
    safepoints: u64,
}

impl Steps {
    /// Whether a method may have been replaced between `before` and this moment.
    pub fn may_replace_since(self, before: Self) -> bool {
        self.loaded != before.loaded && self.safepoints != before.safepoints
    }
}

/// The VM's word for whether any class was redefined.
#[derive(Debug, Clone, Copy)]
enum Noted {
    At { address: u64, bytes: u64 },
    Nowhere,
}

/// Where to look.
#[derive(Debug, Default)]
pub struct Redefinition {
    /// File of the VM's library, and what to add to the addresses it was linked at.
    library: Option<(PathBuf, u64)>,
    noted: OnceLock<Noted>,
    counters: Option<[PerfCounter; 3]>,
}

impl Redefinition {
    /// What this VM offers; usable once it is initialised.
    pub fn choose(hotspot: &HotSpot, memory: &impl Memory, library: Option<(PathBuf, u64)>) -> Self {
        let [loaded, shared, safepoints] = COUNTERS.map(|name| hotspot.perf_counter(memory, name));
        let counters = loaded.zip(shared).zip(safepoints);
        let counters = counters.map(|((loaded, shared), safepoints)| [loaded, shared, safepoints]);
        Self { library, noted: OnceLock::new(), counters }
    }

    /// Looks for the VM's variable, once, which takes milliseconds; for the sampler thread.
    pub fn prepare(&self) {
        self.noted.get_or_init(|| {
            let found = self.library.as_ref().and_then(|(path, bias)| {
                let (address, bytes) = variables::find(path, &VARIABLES)?;
                Some(Noted::At { address: address.wrapping_add(*bias), bytes })
            });
            found.unwrap_or_else(|| {
                tracing::info!("the VM does not tell whether classes were redefined: they may have been");
                Noted::Nowhere
            })
        });
    }

    /// The variable, of 8 bytes, is here.
    #[cfg(test)]
    pub(crate) fn noted_at(address: u64) -> Self {
        Self { noted: OnceLock::from(Noted::At { address, bytes: 8 }), ..Self::default() }
    }

    /// Whether the VM's variable was looked for.
    pub fn is_prepared(&self) -> bool {
        self.noted.get().is_some()
    }

    /// Whether a class may have been redefined so far; true as long as the VM's variable was not looked for.
    pub fn may_have_happened(&self, memory: &impl Memory) -> bool {
        self.count(memory) != 0
    }

    fn count(&self, memory: &impl Memory) -> u64 {
        match self.noted.get() {
            Some(&Noted::At { address, bytes: 8 }) => memory.read_u64(address).unwrap_or(1),
            Some(&Noted::At { address, .. }) => memory.read_u8(address).unwrap_or(1).into(),
            Some(Noted::Nowhere) | None => 1,
        }
    }

    /// How far the VM is; `None` as long as no class was redefined. `pauses` are the collections so far, which stand in
    /// where there are no counters.
    pub fn steps(&self, memory: &impl Memory, pauses: u64) -> Option<Steps> {
        let count = self.count(memory);
        if count == 0 {
            return None;
        }
        let without = count.wrapping_add(pauses);
        let Some([loaded, shared, safepoints]) = self.counters else {
            return Some(Steps { loaded: without, safepoints: without });
        };
        match (loaded.read(memory), shared.read(memory), safepoints.read(memory)) {
            (Ok(loaded), Ok(shared), Ok(safepoints)) => {
                Some(Steps { loaded: loaded.wrapping_add(shared), safepoints })
            }
            _ => Some(Steps { loaded: without, safepoints: without }),
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
        assert!(redefinition.noted.set(Noted::At { address: 0x1000, bytes: 8 }).is_ok());
        let at = |count: u64| {
            let bytes = count.to_le_bytes();
            redefinition.steps(&StackCopy::new(0x1000, &bytes), 0)
        };
        assert_eq!(at(0), None);
        let first = at(1).expect("redefined");
        assert!(at(2).is_some_and(|second| second.may_replace_since(first)));
    }

    #[test]
    fn what_is_not_told_may_have_happened() {
        let redefinition = Redefinition::default();
        redefinition.prepare();
        assert!(redefinition.may_have_happened(&StackCopy::new(0, &[])));
        let memory = StackCopy::new(0, &[]);
        let [before, after] = [0, 2].map(|pauses| redefinition.steps(&memory, pauses).expect("possible"));
        assert!(after.may_replace_since(before) && !before.may_replace_since(before));
    }

    #[test]
    fn a_class_and_a_safepoint_are_needed() {
        let steps = |loaded, safepoints| Steps { loaded, safepoints };
        let before = steps(5, 7);
        assert!(!steps(6, 7).may_replace_since(before) && !steps(5, 9).may_replace_since(before));
        assert!(steps(6, 8).may_replace_since(before));
    }
}
