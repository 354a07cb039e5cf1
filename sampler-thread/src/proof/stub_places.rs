//! Places of stubs that the VM frees at any time.
//!
//! Problem: the VM frees the stub of an upcall when the program closes its arena, and in JDK 21 and 25 that of a
//! downcall with its `NativeEntryPoint`, without a report. Code may be compiled there before a sample of the stub is
//! walked.
//! Approach: the VM reports each stub when it makes it. Compiled code in its place was made after the stub was freed,
//! so it proves something for samples only from when it was met on.
//! Invariants: a place is never removed; beyond a number of them the nearest are joined, with what lies between.
//! Sources: `UpcallStub::create` and `UpcallStub::free` in `code/codeBlob.cpp`, `prims/nativeEntryPoint.cpp`, JDK 21
//! and 25.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Parts of the names of such stubs (`UpcallStub - upcall_stub`, `nep_invoker_blob`).
const NAMES: [&str; 3] = ["UpcallStub", "upcall_stub", "nep_invoker"];

/// Bytes that may lie between two places that are joined: the header of a stub.
const APART: u64 = 512;

/// Most places.
const MOST: usize = 256;

/// The places, apart from each other.
#[derive(Debug, Default)]
pub(crate) struct StubPlaces {
    /// Their ends, by their starts.
    places: BTreeMap<u64, u64>,
}

impl StubPlaces {
    /// Returns whether the VM frees stubs of this name at any time.
    pub(crate) fn are_for(name: &str) -> bool {
        NAMES.iter().any(|part| name.contains(part))
    }

    pub(crate) fn add(&mut self, place: Range<u64>) {
        let Range { mut start, mut end } = place;
        while let Some((&known, &known_end)) = self.places.range(..=end.saturating_add(APART)).next_back()
            && known_end.saturating_add(APART) >= start
        {
            self.places.remove(&known);
            (start, end) = (start.min(known), end.max(known_end));
        }
        self.places.insert(start, end);
        if self.places.len() > MOST {
            self.join_nearest();
        }
    }

    fn join_nearest(&mut self) {
        let pairs = self.places.iter().zip(self.places.iter().skip(1));
        let gap = |(one, next): &((&u64, &u64), (&u64, &u64))| next.0.saturating_sub(*one.1);
        let nearest = pairs.min_by_key(gap).map(|((start, _), (next, end))| (*start, *next, *end));
        if let Some((start, next, end)) = nearest {
            self.places.remove(&next);
            self.places.insert(start, end);
        }
    }

    pub(crate) fn all(&self) -> Arc<[Range<u64>]> {
        self.places.iter().map(|(start, end)| *start..*end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &[Range<u64>]) -> StubPlaces {
        let mut all = StubPlaces::default();
        places.iter().for_each(|place| all.add(place.clone()));
        all
    }

    #[test]
    fn stubs_of_the_foreign_function_api() {
        for (name, expected) in [
            ("UpcallStub - upcall_stub_(JJ)J", true),
            ("optimized_upcall_stub", true),
            ("RuntimeStub - nep_invoker_blob", true),
            ("jbyte_disjoint_arraycopy", false),
        ] {
            assert_eq!(StubPlaces::are_for(name), expected, "{name}");
        }
    }

    #[test]
    fn near_places_are_one() {
        let all = of(&[10_000..10_100, 20_000..20_100, 10_300..10_400, 9_000..9_900]);
        assert_eq!(&*all.all(), [9_000..10_400, 20_000..20_100]);
        let all = of(&[10_000..10_100, 12_000..12_100, 30_000..30_100, 9_000..13_000]);
        assert_eq!(&*all.all(), [9_000..13_000, 30_000..30_100], "around both");
    }

    #[test]
    fn no_place_is_lost_when_there_are_too_many() {
        let place = |n: u64| n * n * 1000..n * n * 1000 + 100;
        let added: Vec<_> = (1..2 * MOST as u64).map(place).collect();
        let all = of(&added).all();
        assert_eq!(all.len(), MOST);
        assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "ascending and apart");
        let holds =
            |place: &Range<u64>| all.iter().any(|all| all.start <= place.start && place.end <= all.end);
        assert!(added.iter().all(holds));
    }
}
