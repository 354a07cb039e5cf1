//! The routines that the VM generated, by address: copies of arrays, dispatch stubs, cryptography and others.
//!
//! Problem: hundreds of routines share one blob of the code cache, whose name (`StubRoutines (2)`, `vtable chunks`)
//! says nothing about the one that ran.
//! Approach: the VM reports each routine with its name when it generates it, and all of them on request. The
//! agent adds them here; the sampler thread looks the pc of a stub up. The list of all comes on a thread of the
//! program, which only copies it; whoever looks up next puts it into the table.
//! Invariant: a name is a copy made when the routine was reported; a later routine at the same address replaces it, and
//! names no sample from before its report.
//! Sources: JVMTI 1.2, DynamicCodeGenerated and GenerateEvents; JDK 25 `stubCodeGenerator.cpp` (`StubCodeMark`),
//! `vtableStubs.cpp`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::proof::stub_places::StubPlaces;

/// Most routines, some 100 bytes each: a VM has about 1,000, and one more for each shape of method handle.
const MOST: usize = 1 << 14;

#[derive(Debug, Clone)]
struct Routine {
    /// Address after its last byte.
    end: u64,
    name: Arc<str>,
    /// Time stamp of its report; 0 if it existed before.
    since: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutineName {
    pub name: Arc<str>,
    /// Time stamp from which on it is at this address; 0 if it was there from the start.
    pub since: u64,
}

/// Routines of the list of all that are not in the table yet.
#[derive(Debug, Default)]
struct Listed {
    /// Their addresses, and where each name ends.
    places: Vec<(Range<u64>, usize)>,
    /// All names, one after the other.
    names: String,
}

/// All routines that were reported.
#[derive(Debug)]
pub struct Routines {
    /// The time stamps of samples.
    now: fn() -> u64,
    /// Locked before the table.
    listed: Mutex<Listed>,
    by_start: RwLock<BTreeMap<u64, Routine>>,
    stub_places: RwLock<StubPlaces>,
    /// Number of reports. It grows under the lock, after the report is in the table.
    revision: AtomicU64,
}

impl Default for Routines {
    /// A table without time: all routines were there from the start.
    fn default() -> Self {
        Self::new(|| 0)
    }
}

impl Routines {
    /// An empty table; `now` gives time stamps like those of samples.
    pub fn new(now: fn() -> u64) -> Self {
        Self {
            now,
            listed: Mutex::default(),
            by_start: RwLock::default(),
            stub_places: RwLock::default(),
            revision: AtomicU64::new(0),
        }
    }

    /// Adds a routine of `length` bytes at `start` that was generated just now: what it overlaps is gone.
    pub fn add(&self, start: u64, length: u64, name: &str) {
        self.take_listed();
        let end = start.saturating_add(length);
        let mut routines = self.by_start.write();
        let before = routines.range(..start).next_back();
        let reaches_in = before.filter(|(_, routine)| routine.end > start).map(|(known, _)| *known);
        let gone: Vec<u64> =
            routines.range(start..end.max(start)).map(|(known, _)| *known).chain(reaches_in).collect();
        gone.iter().for_each(|known| _ = routines.remove(known));
        self.insert(&mut routines, start, Routine { end, name: name.into(), since: (self.now)() });
    }

    /// Adds a routine of the list of all, which has blobs around routines as well, after these.
    pub fn add_listed(&self, start: u64, length: u64, name: &str) {
        let mut listed = self.listed.lock();
        if listed.places.len() < MOST {
            listed.names.push_str(name);
            let end = listed.names.len();
            listed.places.push((start..start.saturating_add(length), end));
        }
        // Release: whoever sees the number finds the routine.
        self.revision.fetch_add(1, Ordering::Release);
    }

    /// Puts the list of all into the table.
    fn take_listed(&self) {
        let mut listed = self.listed.lock();
        if listed.places.is_empty() {
            return;
        }
        let Listed { places, names } = std::mem::take(&mut *listed);
        let mut routines = self.by_start.write();
        let mut begin = 0;
        for (place, name_end) in places {
            let name = names.get(std::mem::replace(&mut begin, name_end)..name_end).unwrap_or_default();
            if !routines.contains_key(&place.start) {
                let routine = Routine { end: place.end, name: name.into(), since: 0 };
                self.insert(&mut routines, place.start, routine);
            }
        }
    }

    /// Returns where routines are or were that the VM frees at any time: ascending and apart.
    pub(crate) fn stub_places(&self) -> Arc<[Range<u64>]> {
        self.take_listed();
        self.stub_places.read().all()
    }

    fn insert(&self, routines: &mut BTreeMap<u64, Routine>, start: u64, routine: Routine) {
        if StubPlaces::are_for(&routine.name) {
            self.stub_places.write().add(start..routine.end);
        }
        if routines.len() < MOST {
            routines.insert(start, routine);
        }
        // Release: whoever sees the number finds the routine.
        self.revision.fetch_add(1, Ordering::Release);
    }

    /// Returns the name of the routine with the instruction at `pc`.
    pub fn name_at(&self, pc: u64) -> Option<RoutineName> {
        self.take_listed();
        let routines = self.by_start.read();
        let (_, routine) = routines.range(..=pc).next_back()?;
        let Routine { end, name, since } = routine;
        (pc < *end).then(|| RoutineName { name: Arc::clone(name), since: *since })
    }

    /// Returns a number that changes with each report.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(routines: &Routines, pc: u64) -> Option<String> {
        routines.name_at(pc).map(|routine| routine.name.to_string())
    }

    #[test]
    fn the_innermost_routine_counts() {
        let routines = Routines::default();
        routines.add_listed(100, 20, "copy");
        routines.add_listed(140, 20, "fill");
        routines.add_listed(90, 200, "StubRoutines (2)");
        let names = [89, 90, 100, 119, 120, 140, 159, 160].map(|pc| name(&routines, pc));
        let names = names.each_ref().map(|name| name.as_deref().unwrap_or("-"));
        // Between two routines there is nothing to name but the blob, whose own name is known.
        assert_eq!(names, ["-", "StubRoutines (2)", "copy", "copy", "-", "fill", "fill", "-"]);
    }

    #[test]
    fn a_routine_that_new_code_overlaps_is_gone() {
        let routines = Routines::default();
        routines.add(100, 20, "a");
        routines.add(120, 20, "b");
        routines.add(140, 20, "c");
        let before = routines.revision();
        routines.add(110, 15, "d");
        assert!(routines.revision() > before);
        let names = [105, 112, 124, 130, 150].map(|pc| name(&routines, pc));
        assert_eq!(names, [None, Some("d".into()), Some("d".into()), None, Some("c".into())]);
    }

    #[test]
    fn a_routine_is_dated_by_its_report() {
        let routines = Routines::new(|| 7);
        routines.add_listed(100, 20, "a");
        assert_eq!(routines.name_at(100).map(|routine| routine.since), Some(0));
        routines.add(100, 20, "b");
        assert_eq!(routines.name_at(100).map(|routine| routine.since), Some(7));
    }

    #[test]
    fn the_number_of_routines_is_bounded() {
        let routines = Routines::default();
        (0..2 * MOST as u64).for_each(|start| routines.add(start, 1, "x"));
        assert_eq!(routines.by_start.read().len(), MOST);
        let listed = Routines::default();
        (0..2 * MOST as u64).for_each(|start| listed.add_listed(start, 1, "x"));
        assert_eq!(listed.listed.lock().places.len(), MOST);
    }
}
