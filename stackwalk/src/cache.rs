//! What earlier walks found out about code and methods, so that a warm walk reads almost nothing.
//!
//! Problem: debug information lies in memory that may go away, read by a system call each; the same few
//! thousand pcs make up nearly all frames of a profile.
//! Approach: two fixed tables, 2-way by address. A pc maps to its decoded scopes, kept in one arena; when the
//! arena is full, everything is forgotten (simple, and rare next to the sample rate).
//! Invariant: a hit is used only if the code at that address still has the same method and compile id, read
//! from the code cache itself; bytecode entries prove themselves (see `hotspot::interpreter`).

use crate::code_age::CodeAges;
use crate::frame::{Bci, Method};
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

/// Memory of decoded code shared by all walks of one thread; about half a megabyte, never grows.
#[derive(Debug)]
pub struct ScopeCache {
    pcs: [Option<CompiledPc>; PCS],
    scopes: [Scope; SCOPES],
    scopes_used: usize,
    bytecodes: [Bytecodes; BYTECODES],
    stats: CacheStats,
    pub(crate) ages: CodeAges,
    /// Block buffers of the decoders; here because they are too large for a signal stack.
    pub(crate) pc_window: Window<1024>,
    pub(crate) scope_windows: ScopeWindows,
}

const _: () = assert!(size_of::<ScopeCache>() <= 640 << 10);

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
    /// An empty cache; constant, so that it can be a static or be boxed.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pcs: [None; PCS],
            scopes: [Scope { method: Method(0), bci: None::<Bci> }; SCOPES],
            scopes_used: 0,
            bytecodes: [Bytecodes::NONE; BYTECODES],
            stats: CacheStats {
                pc_hits: 0,
                pc_misses: 0,
                pc_stale: 0,
                method_hits: 0,
                method_misses: 0,
                flushes: 0,
            },
            ages: CodeAges::NEW,
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
        self.pcs.fill(None);
        self.scopes_used = 0;
        self.bytecodes.fill(Bytecodes::NONE);
    }

    /// The entry for `pc`; `current` reads the identity of the code now at a blob.
    pub(crate) fn find_pc(
        &mut self,
        pc: u64,
        matched: PcMatch,
        current: impl FnOnce(u64) -> Option<Identity>,
    ) -> Option<CompiledPc> {
        let start = slot(pc, PCS);
        let pair = self.pcs.get_mut(start..start + 2)?;
        let held = pair
            .iter_mut()
            .find(|entry| entry.is_some_and(|entry| entry.pc == pc && entry.matched == matched));
        let Some(entry) = held else {
            self.stats.pc_misses += 1;
            return None;
        };
        let found = (*entry)?;
        if current(found.blob) != Some(found.identity) {
            *entry = None;
            self.stats.pc_stale += 1;
            return None;
        }
        self.stats.pc_hits += 1;
        Some(found)
    }

    /// Remembers `entry`, displacing the older of its two slots.
    pub(crate) fn insert_pc(&mut self, entry: CompiledPc) {
        let start = slot(entry.pc, PCS);
        if let Some([newer, older]) = self.pcs.get_mut(start..start + 2) {
            *older = *newer;
            *newer = Some(entry);
        }
    }

    /// Makes room for `count` scopes in a row; returns where they begin.
    pub(crate) fn reserve_scopes(&mut self, count: usize) -> usize {
        if self.scopes_used + count > SCOPES {
            self.pcs.fill(None);
            self.scopes_used = 0;
            self.stats.flushes += 1;
        }
        self.scopes_used
    }

    /// Stores scopes from `first` on, which [`Self::reserve_scopes`] returned.
    pub(crate) fn put_scopes(&mut self, first: usize, scopes: &[Scope]) {
        if let Some(room) = self.scopes.get_mut(first..first + scopes.len()) {
            room.copy_from_slice(scopes);
            self.scopes_used = first + scopes.len();
        }
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
