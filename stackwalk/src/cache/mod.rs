//! Decoded code and methods of earlier walks, so that a warm walk reads almost nothing and a cold one reads in bulk.
//!
//! Problem: debug information lies in memory that may go away, from JDK 23 on read by a system call each; a program
//! that is warming up shows tens of thousands of pcs in thousands of nmethods.
//! Approach: three memories, each appended to as code is met, each giving up what was not used for longest. [`codes`]
//! holds what all pcs of a compilation share. `copies` holds the debug information of compilations whose blocks lie
//! outside the code cache, read whole when the first pc is met. `pcs` holds decoded pcs: 24 bytes and 8 for each method
//! inlined there. A lookup reads a line of the index, a line of `pcs`, one of `codes`, and the identity in the code
//! cache.
//! Invariants: a hit is used only if the code at that address has the same method and compile id, read from the code
//! cache itself; bytecode entries are checked against the bytecode pointer (see `hotspot::interpreter`). Nothing is
//! allocated after [`ScopeCache::new`], and memory is not touched before it is used. Positions of scopes are valid
//! until the next pc is inserted.

mod callers;
mod codes;
mod compiled_pc;
mod index;
mod lines;
mod ring;
mod steps;
mod ways;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::RefCell;
use core::ops::Range;

use crate::hotspot::debug_bytes::{Copied, Windows};
use crate::hotspot::interpreter::{Bytecodes, PackedBytecodes};
use crate::hotspot::nmethod::{DebugInfo, Identity};
use crate::hotspot::pc_desc::PcMatch;
use crate::hotspot::scope_desc::{PACKED_MARK, Scope};
use crate::limits::MAX_INLINE_DEPTH;
use crate::memory::Span;

pub(crate) use codes::Code;
use codes::{CODE_SLOTS, CODES, Codes, CopyPlace};
pub(crate) use compiled_pc::{CompiledKind, CompiledPc};
use index::{Index, hash};
use lines::{LINE, Lines};
use ring::{Cell, Reclaimed, Ring};
pub(crate) use steps::Step as KnownStep;
use steps::Steps;
use ways::Ways;

/// Memory for decoded pcs: 1 MiB, 22,000 pcs with three methods each.
const PC_CELLS: usize = 1 << 17;
/// Slots of their index: three times as many as such pcs.
const PC_SLOTS: usize = 1 << 16;
/// Memory for copied debug information: 1 MiB, some 250 compilations at a time.
const COPY_CELLS: usize = 1 << 17;
/// Largest debug information that is copied, a sixteenth of that memory; larger ones are read in blocks.
const MAX_COPY: u64 = 64 << 10;
/// Capacity in methods of interpreter frames: Spark SQL has ten thousand, and one that was given up costs system calls.
const BYTECODES: usize = 16_384;
/// Places that may hold one method: a line of the processor's caches.
const BYTECODE_WAYS: usize = LINE / 2;
/// Steps that are kept, of which a line each: 1 MiB.
const STEPS: usize = 16_384;
/// Cells of a decoded pc in front of its scopes: the ring's, and two of the payload.
const BEFORE_SCOPES: u32 = 3;
/// Positions of scopes that lie in the table of steps have this bit.
const IN_STEPS: u32 = 1 << 31;

/// Counts of cache hits and misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Compiled pcs found.
    pub pc_hits: u64,
    /// Compiled pcs not found: new or given up.
    pub pc_misses: u64,
    /// Compiled pcs whose code had been replaced.
    pub pc_stale: u64,
    /// Compiled pcs given up because the memory was full.
    pub pc_evictions: u64,
    /// Compilations whose debug information was copied.
    pub copies: u64,
    /// Copies given up because the memory was full.
    pub copy_evictions: u64,
    /// Interpreted methods found.
    pub method_hits: u64,
    /// Interpreted methods that had to be read.
    pub method_misses: u64,
}

/// Cache of decoded code, shared by all walks of one thread; at most 4.2 MB.
#[derive(Debug)]
pub struct ScopeCache {
    codes: Codes,
    /// Decoded pcs. Owner: the serial of their code. Payload: the key, the number, then the scopes.
    pcs: Ring,
    /// The last number of a decoded pc.
    last_number: u32,
    index: Index,
    /// Copied debug information. Owner: the number of its code. Payload: sizes of pcs and scopes, pcs, scopes,
    /// metadata.
    copies: Ring,
    bytecodes: Lines,
    steps: Steps,
    /// True if walks may use them.
    uses_steps: bool,
    stats: CacheStats,
    /// Block buffers of the decoders; here because they are too large for a signal stack.
    pub(crate) windows: Windows,
    /// Buffer for the scopes of one pc, for the same reason.
    pub(crate) scopes: Option<Box<[u64; MAX_INLINE_DEPTH]>>,
    /// Buffer for the code around a pc, for the same reason. Borrowed by one search at a time.
    pub(crate) code: RefCell<Box<[u8; CODE_BUFFER]>>,
    ways: Ways,
}

/// Bytes of code that a search reads at once, as many as the longest needs.
pub(crate) const CODE_BUFFER: usize = 2048;

const _: () = {
    assert!(PC_CELLS < 1 << 20 && COPY_CELLS < 1 << 20 && CODES < 1 << CODE_BITS, "positions fit");
    let full = (PC_CELLS + COPY_CELLS) * size_of::<Cell>()
        + (PC_SLOTS + CODE_SLOTS) * size_of::<u32>()
        + CODES * size_of::<Code>()
        + BYTECODES * size_of::<PackedBytecodes>();
    assert!(full + STEPS * 8 * LINE <= 4_200_000);
    assert!(2 * (MAX_COPY as usize + 64) <= COPY_CELLS * size_of::<Cell>(), "a copy fits");
    // The value is created on a stack.
    assert!(size_of::<ScopeCache>() <= 8 << 10);
};

/// Key of a decoded pc: the pc in 48 bits, the match in 2, the number of its code in 14.
const MATCH_SHIFT: u32 = 48;
const CODE_SHIFT: u32 = 50;
const CODE_BITS: u32 = 64 - CODE_SHIFT;

/// The key of a pc without its code; `None` if no code can be there.
fn key(pc: u64, matched: PcMatch) -> Option<u64> {
    (pc >> MATCH_SHIFT == 0).then_some(pc | (matched as u64) << MATCH_SHIFT)
}

fn without_code(key: u64) -> u64 {
    key & ((1 << CODE_SHIFT) - 1)
}

impl Default for ScopeCache {
    fn default() -> Self {
        Self::new()
    }
}

impl ScopeCache {
    /// An empty cache; reserves all it will ever need.
    #[must_use]
    pub fn new() -> Self {
        Self {
            codes: Codes::new(),
            pcs: Ring::new(PC_CELLS),
            last_number: 0,
            index: Index::new(PC_SLOTS),
            copies: Ring::new(COPY_CELLS),
            bytecodes: Lines::new(BYTECODES / BYTECODE_WAYS),
            steps: Steps::new(STEPS),
            uses_steps: true,
            stats: CacheStats::default(),
            windows: Windows::EMPTY,
            scopes: Some(Box::new([0; MAX_INLINE_DEPTH])),
            code: RefCell::new(Box::new([0; CODE_BUFFER])),
            ways: Ways::new(),
        }
    }

    /// Returns whether control may get from `entry` to `to`, both in routines of the VM, as remembered or as `search`
    /// returns. `None` if that is not known, which is not remembered.
    pub(crate) fn way(&self, entry: u64, to: u64, search: impl FnOnce() -> Option<bool>) -> Option<bool> {
        self.ways.find(entry, to, search)
    }

    /// Hits and misses so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Begins a generation of code, see [`Self::restrict_to_code_before`]; returns its number.
    pub fn next_generation(&mut self) -> u32 {
        self.codes.next_generation()
    }

    /// Lets walks take the steps of earlier ones, or look at each frame by itself.
    pub(crate) fn use_steps(&mut self, uses_steps: bool) {
        self.uses_steps = uses_steps;
    }

    /// Lets walks step only through compiled code that was met before a generation and has not changed; others end with
    /// [`crate::Stop::CodeReplaced`]. For samples that are older than an event that may have freed code.
    pub fn restrict_to_code_before(&mut self, generation: Option<u32>) {
        self.codes.restrict(generation);
    }

    /// The same for code where a stub was that the VM may have freed without a pause, see [`Self::set_stub_places`].
    pub fn restrict_in_stub_places(&mut self, generation: u32) {
        self.codes.restrict_in_stub_places(generation);
    }

    /// Sets the places of such stubs: ascending and apart.
    pub fn set_stub_places(&mut self, places: Arc<[Range<u64>]>) {
        if self.codes.set_stub_places(places) {
            self.steps.clear();
        }
    }

    /// Clears the cache, for example when classes were unloaded or redefined. When code was met first stays known.
    pub fn clear(&mut self) {
        self.pcs.clear();
        self.index.clear();
        self.copies.clear();
        self.codes.forget_copies();
        self.bytecodes.clear();
        self.steps.clear();
    }

    /// The number of a compilation that was met before.
    pub(crate) fn find_code(&self, blob: u64, identity: Identity) -> Option<u32> {
        self.codes.find(blob, identity)
    }

    /// Returns whether walks may step through this compilation; `None`, a compilation that was not met, is allowed
    /// unless walks are restricted.
    pub(crate) fn allows(&self, number: Option<u32>) -> bool {
        self.codes.allows(number.and_then(|number| self.codes.get(number)))
    }

    /// Records a compilation that has just been met; returns its number.
    pub(crate) fn add_code(&mut self, code: Code) -> u32 {
        let (number, replaced) = self.codes.add(code);
        if let Some(copy) = replaced.and_then(|code| code.copy.get()) {
            self.copies.remove(copy);
        }
        number
    }

    fn key_at(&self, at: u32) -> u64 {
        self.pcs.word(at.wrapping_add(1)).unwrap_or(0)
    }

    /// Position of the entry with this key.
    fn position(&self, key: u64) -> Option<u32> {
        self.index.find(hash(key), |at| without_code(self.key_at(at)) == key)
    }

    fn forget(&mut self, key: u64, at: u32) {
        self.pcs.remove(at);
        self.index.remove(hash(key), at);
    }

    /// The entry for `pc` if walks may step through it; `current` reads the identity of the code now at a blob.
    pub(crate) fn find_pc(
        &mut self,
        pc: u64,
        matched: PcMatch,
        current: impl FnOnce(u64) -> Option<Identity>,
    ) -> Option<CompiledPc> {
        let key = key(pc, matched)?;
        let Some(at) = self.position(key) else {
            self.stats.pc_misses += 1;
            return None;
        };
        self.entry_if_current(key, at, current)
    }

    fn entry_if_current(
        &mut self,
        key: u64,
        at: u32,
        current: impl FnOnce(u64) -> Option<Identity>,
    ) -> Option<CompiledPc> {
        let number = (self.key_at(at) >> CODE_SHIFT) as u32;
        let code = self.codes.get(number).filter(|code| code.serial == self.pcs.owner(at));
        let Some(code) = code.filter(|code| current(code.blob) == Some(code.identity)) else {
            self.forget(key, at);
            self.stats.pc_stale += 1;
            return None;
        };
        let entry = self.codes.allows(Some(code)).then(|| self.entry(code, at));
        self.stats.pc_hits += 1;
        self.pcs.touch(at);
        self.codes.touch(number);
        entry
    }

    fn entry(&self, code: &Code, at: u32) -> CompiledPc {
        let Code { blob, identity, frame_bytes, level, kind, .. } = *code;
        let count = self.pcs.payload(at).len().saturating_sub(2) as u16;
        let first = at.wrapping_add(BEFORE_SCOPES);
        let is_moved = self.pcs.word(first).is_some_and(|scope| scope & PACKED_MARK != 0);
        let number = self.pcs.word(first.wrapping_sub(1)).unwrap_or(0) as u32;
        CompiledPc { blob, identity, frame_bytes, level, kind, first, count, is_moved, number }
    }

    /// Inserts a decoded pc with its packed scopes; `None` if it cannot be kept.
    pub(crate) fn insert_pc(
        &mut self,
        pc: u64,
        matched: PcMatch,
        number: u32,
        scopes: &[u64],
    ) -> Option<CompiledPc> {
        let key = key(pc, matched)?;
        let code = *self.codes.get(number)?;
        if let Some(at) = self.position(key) {
            self.forget(key, at);
        }
        while let Some(reclaimed) = self.pcs.make_room(scopes.len() + BEFORE_SCOPES as usize) {
            match reclaimed {
                Reclaimed::Moved { from, to } => {
                    self.index.replace(hash(without_code(self.key_at(to))), from, to);
                }
                Reclaimed::Evicted(at) => {
                    self.index.remove(hash(without_code(self.key_at(at))), at);
                    self.stats.pc_evictions += 1;
                }
            }
        }
        let at = self.pcs.append(code.serial, scopes.len() + 2)?;
        self.last_number = self.last_number.checked_add(1).unwrap_or(1);
        let head = [key | u64::from(number) << CODE_SHIFT, self.last_number.into()];
        let words = head.into_iter().chain(scopes.iter().copied());
        for (cell, word) in self.pcs.payload_mut(at).iter_mut().zip(words) {
            *cell = word.to_ne_bytes();
        }
        self.link(key, at);
        self.codes.touch(number);
        Some(self.entry(&code, at))
    }

    fn link(&mut self, key: u64, at: u32) {
        if let Some(displaced) = self.index.insert(hash(key), at) {
            self.pcs.remove(displaced);
            self.stats.pc_evictions += 1;
        }
        if self.index.grow() {
            let Self { pcs, index, .. } = self;
            for at in pcs.live() {
                let key = without_code(pcs.word(at.wrapping_add(1)).unwrap_or(0));
                index.insert(hash(key), at);
            }
        }
    }

    #[inline]
    pub(crate) fn scope(&self, position: u32) -> Option<Scope> {
        let word = match position.checked_sub(IN_STEPS) {
            Some(position) => self.steps.word(position as usize),
            None => self.pcs.word(position),
        };
        word.map(Scope::unpack)
    }

    /// True if a compilation's debug information marks ranges; `None` until that is looked up.
    pub(crate) fn has_ranges(&self, number: u32) -> Option<bool> {
        self.codes.get(number)?.has_ranges
    }

    /// Stores whether a compilation's debug information marks ranges.
    pub(crate) fn set_has_ranges(&mut self, number: u32, has_ranges: Option<bool>) {
        if let Some(code) = self.codes.get_mut(number) {
            code.has_ranges = has_ranges;
        }
    }

    /// The copy of a compilation's debug information.
    pub(crate) fn copy(&self, number: u32) -> Option<Copied<'_>> {
        let (sizes, parts) = self.copies.payload(self.codes.get(number)?.copy.get()?).split_first()?;
        let sizes = u64::from_ne_bytes(*sizes);
        let (pcs, rest) = parts.as_flattened().split_at_checked((sizes & 0xffff_ffff) as usize)?;
        let scopes_size = (sizes >> 32) as usize;
        let scopes = rest.get(..scopes_size)?;
        Some(Copied { pcs, scopes, metadata: rest.get(scopes_size.next_multiple_of(8)..)? })
    }

    /// Marks the copy of a compilation as used.
    pub(crate) fn touch_copy(&mut self, number: u32) {
        if let Some(at) = self.codes.get(number).and_then(|code| code.copy.get()) {
            self.copies.touch(at);
        }
    }

    /// Makes room for a copy of this debug information; returns where pcs and scopes go, and where the metadata goes.
    /// `None` if it is too large or its parts do not lie one behind the other.
    pub(crate) fn reserve_copy(&mut self, number: u32, debug: &DebugInfo) -> Option<(&mut [u8], &mut [u8])> {
        let size = |span: Span| span.end.checked_sub(span.start).filter(|&size| size <= MAX_COPY);
        let (pcs, scopes, metadata) = (size(debug.pcs)?, size(debug.scopes)?, size(debug.metadata)?);
        let total = pcs + scopes.next_multiple_of(8) + metadata;
        let regular =
            pcs.is_multiple_of(8) && metadata.is_multiple_of(8) && debug.pcs.end == debug.scopes.start;
        if total > MAX_COPY || !regular {
            return None;
        }
        let payload = usize::try_from(total / 8).ok()? + 1;
        while let Some(reclaimed) = self.copies.make_room(payload + 1) {
            let (at, copy) = match reclaimed {
                Reclaimed::Moved { to, .. } => (to, Some(to)),
                Reclaimed::Evicted(at) => (at, None),
            };
            self.stats.copy_evictions += u64::from(copy.is_none());
            let owner = self.copies.owner(at);
            if let Some(code) = self.codes.get_mut(owner) {
                code.copy = copy.into();
            }
        }
        let at = self.copies.append(number, payload)?;
        self.codes.get_mut(number)?.copy = Some(at).into();
        self.stats.copies += 1;
        let (sizes, parts) = self.copies.payload_mut(at).split_first_mut()?;
        *sizes = (pcs | scopes << 32).to_ne_bytes();
        let (first, metadata) =
            parts.as_flattened_mut().split_at_mut_checked((pcs + scopes.next_multiple_of(8)) as usize)?;
        Some((first.get_mut(..(pcs + scopes) as usize)?, metadata))
    }

    pub(crate) fn drop_copy(&mut self, number: u32) {
        let Some(code) = self.codes.get_mut(number) else { return };
        let copy = core::mem::replace(&mut code.copy, CopyPlace::NONE);
        if let Some(at) = copy.get() {
            self.copies.remove(at);
        }
    }

    fn bytecode_set(&mut self, method: u64) -> &mut [PackedBytecodes] {
        let set = self.bytecodes.line_mut(self.bytecodes.position(hash(method)));
        set.map(|set| set.as_chunks_mut().0).unwrap_or_default()
    }

    /// The bytecodes of a method if cached and accepted by `fits`.
    pub(crate) fn find_bytecodes(
        &mut self,
        method: u64,
        fits: impl Fn(&Bytecodes) -> bool,
    ) -> Option<Bytecodes> {
        let set = self.bytecode_set(method);
        let found = set
            .iter()
            .map(|&entry| Bytecodes::unpack(entry))
            .position(|entry| method != 0 && entry.method == method && fits(&entry));
        let Some(found) = found else {
            self.stats.method_misses += 1;
            return None;
        };
        // The last of a set is replaced first.
        let set = set.get_mut(..=found)?;
        set.rotate_right(1);
        let entry = Bytecodes::unpack(*set.first()?);
        self.stats.method_hits += 1;
        Some(entry)
    }

    pub(crate) fn insert_bytecodes(&mut self, entry: Bytecodes) {
        let Some(packed) = entry.pack() else { return };
        let set = self.bytecode_set(entry.method);
        let replaced = set.iter().position(|&known| Bytecodes::unpack(known).method == entry.method);
        if let Some(set) = set.get_mut(..=replaced.unwrap_or(BYTECODE_WAYS - 1)) {
            set.rotate_right(1);
            if let Some(first) = set.first_mut() {
                *first = packed;
            }
        }
    }
}

#[cfg(test)]
mod tests;
