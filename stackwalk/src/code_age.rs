//! Age of compiled code, so that a late walk can distinguish old code from its successor.
//!
//! Problem: code is freed and its block reused. The pc of an older sample then lies in code that did not run at that time.
//! Approach: the user counts generations (for example one a drain). Code is recorded with the generation in which it was
//! first decoded, and a walk may be restricted to code that was known before a given generation: a compilation that is the
//! same before and after a moment was there at that moment.
//! Invariant: a displaced or unknown entry is no proof.

use alloc::boxed::Box;
use alloc::vec;

use crate::hotspot::nmethod::Identity;

/// Capacity in compilations; hot code of a large application is about as many.
const CODES: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Known {
    blob: u64,
    identity: Identity,
    generation: u32,
}

/// Ages of compiled code.
#[derive(Debug)]
pub(crate) struct CodeAges {
    known: Box<[Option<Known>]>,
    generation: u32,
    /// Only code known before this generation may be walked.
    restriction: Option<u32>,
}

impl CodeAges {
    /// An empty table; allocates all its memory.
    pub(crate) fn new() -> Self {
        Self { known: vec![None; CODES].into_boxed_slice(), generation: 0, restriction: None }
    }

    /// Begins a generation; returns its number.
    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.saturating_add(1);
        self.generation
    }

    /// Restricts walks to code known before a generation, or lifts the restriction.
    pub(crate) fn restrict(&mut self, before: Option<u32>) {
        self.restriction = before;
    }

    /// Records code that has just been decoded.
    pub(crate) fn record(&mut self, blob: u64, identity: Identity) {
        let generation = self.generation;
        let Some(entry) = self.known.get_mut(place(blob)) else { return };
        if !entry.is_some_and(|known| known.blob == blob && known.identity == identity) {
            *entry = Some(Known { blob, identity, generation });
        }
    }

    /// Whether this code may be walked.
    pub(crate) fn allows(&self, blob: u64, identity: Identity) -> bool {
        let Some(before) = self.restriction else { return true };
        let known = self.known.get(place(blob)).copied().flatten();
        known.is_some_and(|known| {
            known.blob == blob && known.identity == identity && known.generation < before
        })
    }
}

fn place(blob: u64) -> usize {
    // As in `cache`: the golden ratio times 2^64.
    usize::try_from(blob.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or(0) % CODES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_compilation_from_before_is_allowed() {
        let old = Identity { method: 8, compile_id: 1 };
        let new = Identity { method: 8, compile_id: 2 };
        let mut ages = CodeAges::new();
        ages.record(64, old);
        let generation = ages.next_generation();
        assert!(ages.allows(64, new), "nothing is restricted");
        ages.restrict(Some(generation));
        assert!(ages.allows(64, old) && !ages.allows(64, new) && !ages.allows(128, old));
        ages.record(64, new);
        assert!(!ages.allows(64, new), "seen in this generation only");
        ages.restrict(Some(generation + 1));
        assert!(ages.allows(64, new) && !ages.allows(64, old));
    }
}
