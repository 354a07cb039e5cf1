//! Compilations that walks have met: what all pcs of one share, and how long it has been known.
//!
//! Problem: code is freed and its block reused. The pc of an older sample then lies in code that did not run at that
//! time.
//! Approach: the user counts generations (for example one a drain). A compilation is recorded with the generation in
//! which it was first met, and a walk may be restricted to code that was known before a given generation: a compilation
//! that is the same before and after a moment was there at that moment. Stubs of the foreign function API are freed at
//! any time, so code in the place of one is always restricted in this way.
//! Invariants: an unknown compilation is no proof. A serial number is given to one compilation only, so that what
//! refers to a place by number and serial never means another.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::compiled_pc::CompiledKind;
use super::index::{Index, hash};
use crate::hotspot::nmethod::Identity;

/// Capacity in compilations: twice the hot code of a large application.
pub(super) const CODES: usize = 8192;
pub(super) const CODE_SLOTS: usize = 2 * CODES;
/// Places that a search for an unused one passes: what is used by every sample is soon marked as used again.
const MAX_KEPT: u32 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    pub(crate) blob: u64,
    /// From there to the end of its instructions.
    bytes: u32,
    pub(crate) identity: Identity,
    pub(crate) frame_bytes: u32,
    pub(crate) level: u8,
    pub(crate) kind: CompiledKind,
    /// True if its debug information marks ranges; `None` until that is looked up.
    pub(super) has_ranges: Option<bool>,
    /// Place of the copy of its debug information.
    pub(super) copy: CopyPlace,
    pub(super) serial: u32,
    generation: u32,
    is_used: bool,
}

/// Place of a copy of debug information, or none: four bytes, so that one compilation takes 48.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyPlace(u32);

impl CopyPlace {
    pub(super) const NONE: Self = Self(u32::MAX);

    pub(super) fn get(self) -> Option<u32> {
        (self.0 != u32::MAX).then_some(self.0)
    }
}

impl From<Option<u32>> for CopyPlace {
    fn from(place: Option<u32>) -> Self {
        Self(place.unwrap_or(u32::MAX))
    }
}

impl Code {
    pub(crate) fn new(
        place: Range<u64>,
        identity: Identity,
        frame_bytes: u32,
        level: u8,
        kind: CompiledKind,
    ) -> Self {
        Self {
            blob: place.start,
            bytes: u32::try_from(place.end.saturating_sub(place.start)).unwrap_or(u32::MAX),
            identity,
            frame_bytes,
            level,
            kind,
            has_ranges: None,
            copy: CopyPlace::NONE,
            serial: 0,
            generation: 0,
            is_used: false,
        }
    }

    fn place(&self) -> Range<u64> {
        self.blob..self.blob.saturating_add(u64::from(self.bytes))
    }
}

#[derive(Debug)]
pub(super) struct Codes {
    known: Vec<Code>,
    index: Index,
    /// Next place to be considered for reuse.
    hand: usize,
    serial: u32,
    generation: u32,
    /// Only code known before this generation may be walked.
    restriction: Option<u32>,
    /// Ranges of stubs that may be freed at any time, ascending and disjoint.
    stub_places: Arc<[Range<u64>]>,
    /// Only code known before this generation may be walked there.
    stub_restriction: u32,
}

impl Codes {
    /// An empty table; allocates all its memory.
    pub(super) fn new() -> Self {
        Self {
            known: Vec::with_capacity(CODES),
            index: Index::new(CODE_SLOTS),
            hand: 0,
            serial: 0,
            generation: 0,
            restriction: None,
            stub_places: Arc::from([]),
            stub_restriction: u32::MAX,
        }
    }

    /// Begins a generation; returns its number.
    pub(super) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.saturating_add(1);
        self.generation
    }

    /// Restricts walks to code known before a generation, or lifts the restriction.
    pub(super) fn restrict(&mut self, before: Option<u32>) {
        self.restriction = before;
    }

    /// Restricts walks to code known before a generation where a stub was in its place.
    pub(super) fn restrict_in_stub_places(&mut self, before: u32) {
        self.stub_restriction = before;
    }

    /// Sets where stubs were that may be freed at any time, ascending and apart; returns whether others were known
    /// before.
    pub(super) fn set_stub_places(&mut self, places: Arc<[Range<u64>]>) -> bool {
        let differ = self.stub_places != places;
        self.stub_places = places;
        differ
    }

    /// Returns whether code lies in the place of a stub, so that it may be younger than a sample; true if that is not
    /// known.
    pub(super) fn may_be_young(&self, blob: u64, identity: Identity) -> bool {
        if self.stub_places.is_empty() {
            return false;
        }
        let code = self.find(blob, identity).and_then(|number| self.get(number));
        code.is_none_or(|code| is_among(&self.stub_places, &code.place()))
    }

    /// Returns whether walks may step through this code; see [`Self::restrict`].
    pub(super) fn allows(&self, code: Option<&Code>) -> bool {
        let is_young = |code: &Code| {
            code.generation >= self.stub_restriction && is_among(&self.stub_places, &code.place())
        };
        if !self.stub_places.is_empty() && code.is_some_and(is_young) {
            return false;
        }
        let Some(before) = self.restriction else { return true };
        code.is_some_and(|code| code.generation < before)
    }

    /// Returns whether walks are restricted to some code.
    pub(super) fn is_restricted(&self) -> bool {
        self.restriction.is_some()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Code> {
        self.known.get(number as usize)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Code> {
        self.known.get_mut(number as usize)
    }

    /// Notes that a compilation was used.
    pub(super) fn touch(&mut self, number: u32) {
        if let Some(code) = self.get_mut(number).filter(|code| !code.is_used) {
            code.is_used = true;
        }
    }

    fn at(&self, blob: u64) -> Option<u32> {
        self.index.find(hash(blob), |number| self.get(number).is_some_and(|code| code.blob == blob))
    }

    /// The number of a compilation, if it is known.
    pub(super) fn find(&self, blob: u64, identity: Identity) -> Option<u32> {
        self.at(blob).filter(|&number| self.get(number).is_some_and(|code| code.identity == identity))
    }

    /// Records a compilation that has just been met; returns its number and the one that it replaces.
    pub(super) fn add(&mut self, code: Code) -> (u32, Option<Code>) {
        self.serial = self.serial.wrapping_add(1);
        let code = Code { serial: self.serial, generation: self.generation, ..code };
        let number = match self.at(code.blob) {
            Some(number) => number,
            None => self.free_place(),
        };
        let Some(place) = self.known.get_mut(number as usize) else {
            self.known.push(code);
            self.link(code.blob, number);
            return (number, None);
        };
        let replaced = core::mem::replace(place, code);
        if replaced.blob != code.blob {
            self.index.remove(hash(replaced.blob), number);
            self.link(code.blob, number);
        }
        (number, Some(replaced))
    }

    fn link(&mut self, blob: u64, number: u32) {
        // A displaced entry is found no more; its place is reused like any other.
        self.index.insert(hash(blob), number);
        if self.index.grow() {
            for (code, number) in self.known.iter().zip(0..) {
                self.index.insert(hash(code.blob), number);
            }
        }
    }

    /// A place that is free or was not used for longest.
    fn free_place(&mut self) -> u32 {
        if self.known.len() < CODES {
            return self.known.len() as u32;
        }
        for _ in 0..MAX_KEPT {
            match self.known.get_mut(self.hand) {
                Some(code) if code.is_used => code.is_used = false,
                _ => break,
            }
            self.hand = (self.hand + 1) % CODES;
        }
        let place = self.hand;
        self.hand = (self.hand + 1) % CODES;
        place as u32
    }

    /// Removes the places of copies.
    pub(super) fn forget_copies(&mut self) {
        self.known.iter_mut().for_each(|code| code.copy = CopyPlace::NONE);
    }
}

/// Returns whether `place` has a part in one of `places`, which are ascending and apart.
fn is_among(places: &[Range<u64>], place: &Range<u64>) -> bool {
    let after = places.partition_point(|known| known.start < place.end);
    after.checked_sub(1).and_then(|last| places.get(last)).is_some_and(|known| known.end > place.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(blob: u64, identity: Identity) -> Code {
        Code::new(blob..blob + 32, identity, 0, 4, CompiledKind::Java)
    }

    #[test]
    fn only_the_same_compilation_from_before_is_allowed() {
        let old = Identity { method: 8, compile_id: 1 };
        let new = Identity { method: 8, compile_id: 2 };
        let mut codes = Codes::new();
        let allows = |codes: &Codes, blob, identity| {
            codes.allows(codes.find(blob, identity).and_then(|number| codes.get(number)))
        };
        codes.add(code(64, old));
        let generation = codes.next_generation();
        assert!(allows(&codes, 64, new), "nothing is restricted");
        codes.restrict(Some(generation));
        assert!(allows(&codes, 64, old) && !allows(&codes, 64, new) && !allows(&codes, 128, old));
        codes.add(code(64, new));
        assert!(!allows(&codes, 64, new), "seen in this generation only");
        codes.restrict(Some(generation + 1));
        assert!(allows(&codes, 64, new) && !allows(&codes, 64, old));
    }

    #[test]
    fn used_compilations_survive_a_flood_and_nothing_grows() {
        let mut codes = Codes::new();
        let identity = Identity { method: 8, compile_id: 1 };
        let capacity = codes.known.capacity();
        let (kept, _) = codes.add(code(64, identity));
        let serial = codes.get(kept).map(|code| code.serial);
        for blob in 1..4 * CODES as u64 {
            codes.touch(kept);
            let (number, _) = codes.add(code(64 + blob * 128, identity));
            assert_eq!(codes.find(64 + blob * 128, identity), Some(number));
        }
        assert_eq!(codes.find(64, identity), Some(kept));
        assert_eq!(codes.get(kept).map(|code| code.serial), serial);
        assert_eq!((codes.known.len(), codes.known.capacity()), (CODES, capacity));
    }

    #[test]
    fn code_in_the_place_of_a_stub_counts_for_later_samples_only() {
        let identity = |compile_id| Identity { method: 8, compile_id };
        let mut codes = Codes::new();
        let allows = |codes: &Codes, blob, id| {
            codes.allows(codes.find(blob, identity(id)).and_then(|number| codes.get(number)))
        };
        codes.add(code(0, identity(1)));
        codes.set_stub_places(Arc::from([96..112, 200..208]));
        for (blob, id) in [(64, 2), (80, 3), (100, 4), (112, 5), (190, 6), (208, 7)] {
            codes.add(code(blob, identity(id)));
        }
        let sampled = codes.next_generation();
        let allowed = |codes: &Codes| {
            [(0, 1), (64, 2), (80, 3), (100, 4), (112, 5), (190, 6), (208, 7)]
                .map(|(blob, id)| allows(codes, blob, id))
        };
        assert_eq!(allowed(&codes), [true; 7], "whoever states no time gets all code");
        codes.restrict_in_stub_places(sampled - 1);
        assert_eq!(allowed(&codes), [true, true, false, false, true, false, true]);
        codes.restrict_in_stub_places(sampled);
        assert_eq!(allowed(&codes), [true; 7]);
        // Reported when the code that replaces it is known already.
        codes.set_stub_places(Arc::from([16..24, 40..48]));
        codes.restrict_in_stub_places(0);
        assert_eq!(allowed(&codes), [false, true, true, true, true, true, true]);
    }
}
