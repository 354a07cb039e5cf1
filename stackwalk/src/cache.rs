//! Decoded code and methods of earlier walks, so that a warm walk reads almost nothing.
//!
//! Problem: debug information lies in memory that may go away, read by a system call each; the same few
//! thousand pcs make up nearly all frames of a profile.
//! Approach: a 2-way associative map leads from a pc to its decoded code, and that to its scopes. Entries and scopes are
//! appended to memory reserved at the start, so that a profile of few pcs touches few of its pages. When the arena of scopes
//! is full, the whole cache is cleared, which is rare compared with the sample rate.
//! Invariants: a hit is used only if the code at that address has the same method and compile id, read from the code cache
//! itself; bytecode entries are checked against the bytecode pointer (see `hotspot::interpreter`). Nothing is allocated
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

/// Capacity in pcs: the hot code of a large application has one to two thousand distinct frame pcs.
const PCS: usize = 4096;
/// Capacity in scopes: about four per pc, inlining included.
const SCOPES: usize = 16384;
/// Capacity in methods of interpreter frames.
const BYTECODES: usize = 1024;

/// Kind of the frame at a pc in compiled code.
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

/// Counts of cache hits and misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Compiled pcs found.
    pub pc_hits: u64,
    /// Compiled pcs not found: new or displaced.
    pub pc_misses: u64,
    /// Compiled pcs whose code had been replaced.
    pub pc_stale: u64,
    /// Interpreted methods found.
    pub method_hits: u64,
    /// Interpreted methods that had to be read.
    pub method_misses: u64,
    /// Times the cache was cleared because the arena was full.
    pub flushes: u64,
}

/// Cache of decoded code, shared by all walks of one thread; at most half a megabyte.
#[derive(Debug)]
pub struct ScopeCache {
    /// Index of each pc's entry plus 1; 0 for none.
    places: Box<[u16]>,
    /// Entries; one whose code was replaced is `None` until its place is reused.
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
    assert!(PCS <= u16::MAX as usize, "indices of entries fit");
    let full = PCS * (size_of::<u16>() + size_of::<Option<CompiledPc>>())
        + SCOPES * size_of::<Scope>()
        + BYTECODES * size_of::<Bytecodes>();
    assert!(full <= 600 << 10);
    // The value is created on a stack.
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

    /// Lets walks step only through compiled code that was decoded before a generation and has not changed; others end with
    /// [`crate::Stop::CodeReplaced`]. For samples that are older than an event that may have freed code.
    pub fn restrict_to_code_before(&mut self, generation: Option<u32>) {
        self.ages.restrict(generation);
    }

    /// Clears the cache, for example when classes were unloaded or redefined.
    pub fn clear(&mut self) {
        self.clear_code();
        self.bytecodes.fill(Bytecodes::NONE);
    }

    fn clear_code(&mut self) {
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
        let places = self.places.get(start..start + 2)?;
        let found = places.iter().find_map(|&place| {
            let index = usize::from(place).checked_sub(1)?;
            let entry = (*self.entries.get(index)?)?;
            (entry.pc == pc && entry.matched == matched).then_some((index, entry))
        });
        let Some((index, found)) = found else {
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

    /// Inserts `entry`, displacing the older of its two places.
    pub(crate) fn insert_pc(&mut self, entry: CompiledPc) {
        let start = slot(entry.pc, PCS);
        let Some([newer, older]) = self.places.get_mut(start..start + 2) else { return };
        let displaced = usize::from(*older).checked_sub(1);
        *older = *newer;
        match displaced.and_then(|index| self.entries.get_mut(index)) {
            Some(displaced_entry) => {
                *displaced_entry = Some(entry);
                *newer = displaced.map_or(0, |index| index as u16 + 1);
            }
            // Each place adds one entry at most, so the capacity suffices.
            None => {
                self.entries.push(Some(entry));
                *newer = self.entries.len() as u16;
            }
        }
    }

    /// Appends scopes; returns the index of the first, or `None` if they exceed the capacity.
    pub(crate) fn put_scopes(&mut self, scopes: &[Scope]) -> Option<u32> {
        if self.scopes.len() + scopes.len() > SCOPES {
            self.clear_code();
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

    /// The bytecodes of a method if cached and accepted by `fits`.
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
