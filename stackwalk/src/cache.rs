//! What earlier walks found out about code and methods, so that a warm walk reads almost nothing.
//!
//! Problem: debug information lies in memory that may go away, read by a system call each; the same few
//! thousand pcs make up nearly all frames of a profile.
//! Approach: a pc maps to its decoded code, 2-way by address, and that to its scopes. Entries and scopes are appended
//! to memory reserved at the start, so that a profile of few pcs touches few of its pages; when the room for scopes is
//! full, everything is forgotten (simple, and rare next to the sample rate).
//! Invariants: a hit is used only if the code at that address still has the same method and compile id, read
//! from the code cache itself; bytecode entries prove themselves (see `hotspot::interpreter`). Nothing is allocated
//! after [`ScopeCache::new`].

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::code_age::CodeAges;
use crate::hotspot::interpreter::Bytecodes;
use crate::hotspot::nmethod::Identity;
use crate::hotspot::pc_desc::PcMatch;
use crate::hotspot::scope_desc::{Scope, ScopeWindows};
use crate::memory::Window;

/// Pcs remembered: the hot code of a large application has one to two thousand distinct frame pcs.
const PCS: usize = 4096;
/// Scopes remembered: about four per pc, inlining included.
const SCOPES: usize = 16384;
/// Methods remembered for interpreter frames.
const BYTECODES: usize = 1024;

/// What the frame of a pc in compiled code is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompiledKind {
    Java,
    Native,
    /// Native wrapper at the bottom of a mounted virtual thread.
    ContinuationEntry,
    /// Native wrapper through which a virtual thread unmounts.
    ContinuationYield,
}

/// Decoded compiled code at one pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CompiledPc {
    pub(crate) pc: u64,
    pub(crate) matched: PcMatch,
    pub(crate) blob: u64,
    pub(crate) identity: Identity,
    pub(crate) frame_bytes: u32,
    pub(crate) level: u8,
    pub(crate) kind: CompiledKind,
    /// Scopes in the arena, innermost first.
    pub(crate) first: u32,
    pub(crate) count: u16,
}

/// How often the cache answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Compiled pcs answered.
    pub pc_hits: u64,
    /// Compiled pcs never seen or displaced.
    pub pc_misses: u64,
    /// Compiled pcs whose code had been replaced.
    pub pc_stale: u64,
    /// Interpreted methods answered.
    pub method_hits: u64,
    /// Interpreted methods read anew.
    pub method_misses: u64,
    /// Times everything was forgotten because the arena was full.
    pub flushes: u64,
}

/// Memory of decoded code shared by all walks of one thread; half a megabyte when full, never more.
#[derive(Debug)]
pub struct ScopeCache {
    /// Numbers of the pcs' entries, counted from 1; 0 for none.
    places: Box<[u16]>,
    /// Entries; one whose code was replaced is `None` until its place is used again.
    entries: Vec<Option<CompiledPc>>,
    scopes: Vec<Scope>,
    bytecodes: Box<[Bytecodes]>,
    stats: CacheStats,
    pub(crate) ages: CodeAges,
    /// Block buffers of the decoders; here because they are too large for a signal stack.
    pub(crate) pc_window: Window<1024>,
    pub(crate) scope_windows: ScopeWindows,
}

const _: () = {
    assert!(PCS <= u16::MAX as usize, "numbers of entries fit");
    let full = PCS * (size_of::<u16>() + size_of::<Option<CompiledPc>>())
        + SCOPES * size_of::<Scope>()
        + BYTECODES * size_of::<Bytecodes>();
    assert!(full <= 600 << 10);
    // Where it is made, it lies on a stack.
    assert!(size_of::<ScopeCache>() <= 8 << 10);
};

impl Default for ScopeCache {
    fn default() -> Self {
        Self::new()
    }
}

/// First of the two slots that may hold `key` in a table of `slots`.
fn slot(key: u64, slots: usize) -> usize {
    // Fibonacci hashing: the golden ratio times 2^64 spreads neighbouring addresses.
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (usize::try_from(mixed).unwrap_or(0) % (slots / 2)) * 2
}

impl ScopeCache {
    /// An empty cache; allocates all it will ever need.
    #[must_use]
    pub fn new() -> Self {
        Self {
            places: vec![0; PCS].into_boxed_slice(),
            entries: Vec::with_capacity(PCS),
            scopes: Vec::with_capacity(SCOPES),
            bytecodes: vec![Bytecodes::NONE; BYTECODES].into_boxed_slice(),
            stats: CacheStats {
                pc_hits: 0,
                pc_misses: 0,
                pc_stale: 0,
                method_hits: 0,
                method_misses: 0,
                flushes: 0,
            },
            ages: CodeAges::new(),
            pc_window: Window::EMPTY,
            scope_windows: ScopeWindows::EMPTY,
        }
    }

    /// Hits and misses so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Begins a generation of code, see [`Self::restrict_to_code_before`]; returns its number.
    pub fn next_generation(&mut self) -> u32 {
        self.ages.next_generation()
    }

    /// Lets walks step only through compiled code that was decoded before a generation and is the same still; others
    /// end with [`crate::Stop::CodeReplaced`]. For samples that are older than something that may have freed code.
    pub fn restrict_to_code_before(&mut self, generation: Option<u32>) {
        self.ages.restrict(generation);
    }

    /// Forgets everything, for example when classes were unloaded or redefined.
    pub fn clear(&mut self) {
        self.forget_code();
        self.bytecodes.fill(Bytecodes::NONE);
    }

    fn forget_code(&mut self) {
        self.places.fill(0);
        self.entries.clear();
        self.scopes.clear();
    }

    /// The entry for `pc`; `current` reads the identity of the code now at a blob.
    pub(crate) fn find_pc(
        &mut self,
        pc: u64,
        matched: PcMatch,
        current: impl FnOnce(u64) -> Option<Identity>,
    ) -> Option<CompiledPc> {
        let start = slot(pc, PCS);
        let numbers = self.places.get(start..start + 2)?;
        let held = numbers.iter().find_map(|&number| {
            let index = usize::from(number).checked_sub(1)?;
            let entry = (*self.entries.get(index)?)?;
            (entry.pc == pc && entry.matched == matched).then_some((index, entry))
        });
        let Some((index, found)) = held else {
            self.stats.pc_misses += 1;
            return None;
        };
        if current(found.blob) != Some(found.identity) {
            *self.entries.get_mut(index)? = None;
            self.stats.pc_stale += 1;
            return None;
        }
        self.stats.pc_hits += 1;
        Some(found)
    }

    /// Remembers `entry`, displacing the older of its two places.
    pub(crate) fn insert_pc(&mut self, entry: CompiledPc) {
        let start = slot(entry.pc, PCS);
        let Some([newer, older]) = self.places.get_mut(start..start + 2) else { return };
        let displaced = usize::from(*older).checked_sub(1);
        *older = *newer;
        match displaced.and_then(|index| self.entries.get_mut(index)) {
            Some(room) => {
                *room = Some(entry);
                *newer = displaced.map_or(0, |index| index as u16 + 1);
            }
            // Each of the places has brought one entry at most, so there is room without growing.
            None => {
                self.entries.push(Some(entry));
                *newer = self.entries.len() as u16;
            }
        }
    }

    /// Remembers scopes in a row; returns where they begin, and nothing if they are more than there is room for.
    pub(crate) fn put_scopes(&mut self, scopes: &[Scope]) -> Option<u32> {
        if self.scopes.len() + scopes.len() > SCOPES {
            self.forget_code();
            self.stats.flushes += 1;
        }
        let first = u32::try_from(self.scopes.len()).ok()?;
        if scopes.len() > SCOPES {
            return None;
        }
        self.scopes.extend_from_slice(scopes);
        Some(first)
    }

    pub(crate) fn scope(&self, index: u32) -> Option<Scope> {
        self.scopes.get(index as usize).copied()
    }

    /// The bytecodes of a method if remembered and accepted by `fits`.
    pub(crate) fn find_bytecodes(
        &mut self,
        method: u64,
        fits: impl Fn(&Bytecodes) -> bool,
    ) -> Option<Bytecodes> {
        let start = slot(method, BYTECODES);
        let found = self
            .bytecodes
            .get(start..start + 2)?
            .iter()
            .find(|entry| method != 0 && entry.method == method && fits(entry));
        match found {
            Some(entry) => {
                self.stats.method_hits += 1;
                Some(*entry)
            }
            None => {
                self.stats.method_misses += 1;
                None
            }
        }
    }

    pub(crate) fn insert_bytecodes(&mut self, entry: Bytecodes) {
        let start = slot(entry.method, BYTECODES);
        if let Some([newer, older]) = self.bytecodes.get_mut(start..start + 2) {
            if newer.method != entry.method {
                *older = *newer;
            }
            *newer = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pc: u64) -> CompiledPc {
        CompiledPc {
            pc,
            matched: PcMatch::Exact,
            blob: pc ^ 1,
            identity: Identity { method: 8, compile_id: 3 },
            frame_bytes: 0,
            level: 4,
            kind: CompiledKind::Java,
            first: 0,
            count: 1,
        }
    }

    #[test]
    fn the_newest_are_found_and_nothing_grows() {
        let mut cache = ScopeCache::new();
        let capacity = (cache.entries.capacity(), cache.scopes.capacity());
        let current = |blob: u64| Some(entry(blob ^ 1).identity);
        let mut newest = std::collections::HashMap::<usize, Vec<u64>>::new();
        for round in 0..20 * PCS as u64 {
            let pc = 0x7000_0000 + round * 13;
            cache.insert_pc(entry(pc));
            newest.entry(slot(pc, PCS)).or_default().push(pc);
        }
        assert_eq!(newest.len(), PCS / 2, "every place was used");
        for pcs in newest.values() {
            let [.., third, second, first] = pcs[..] else { continue };
            for pc in [first, second] {
                assert_eq!(cache.find_pc(pc, PcMatch::Exact, current), Some(entry(pc)));
            }
            assert_eq!(cache.find_pc(third, PcMatch::Exact, current), None, "displaced");
        }
        let scope = Scope { method: crate::frame::Method(8), bci: None };
        for round in 0..2 * SCOPES {
            assert_eq!(cache.put_scopes(&[scope]), Some((round % SCOPES) as u32));
        }
        assert_eq!(cache.stats().flushes, 1);
        assert_eq!((cache.entries.capacity(), cache.scopes.capacity()), capacity);
    }

    #[test]
    fn replaced_code_is_forgotten_and_its_place_used_again() {
        let mut cache = ScopeCache::new();
        cache.insert_pc(entry(0x40));
        assert_eq!(cache.find_pc(0x40, PcMatch::Exact, |_| None), None);
        assert_eq!((cache.stats().pc_stale, cache.entries[0]), (1, None));
        for _ in 0..3 {
            cache.insert_pc(entry(0x40));
            assert_eq!(cache.find_pc(0x40, PcMatch::Exact, |_| Some(entry(0).identity)), Some(entry(0x40)));
        }
        assert_eq!(cache.entries.len(), 2);
    }
}
