//! Steps that walks have taken from a method into the compiled code that called it.
//!
//! Problem: most frames of a walk are those of code that walks went through before, called by the same method. To find
//! the decoded pc, to prove that it is current and to compare the call with the callee takes lines of four tables and
//! of the code.
//! Approach: one line of the processor's caches for each return address and method called there holds all that the step
//! out of such a frame takes, and the innermost methods where there are few. A pair has two places; of two steps in its
//! way, one that was not used is replaced first.
//! Invariants: a line is used only if the code has the same identity as when the line was made. A pair that is here was
//! not contradicted by the call (`walker::called`), which may have changed since. The code of a line may be used by
//! every walk that is not restricted (`super::codes`).

use super::compiled_pc::{CompiledKind, CompiledPc};
use super::index::hash;
use super::lines::{LINE, Lines};
use crate::cpu::FRAME_RECORD_BYTES;
use crate::hotspot::nmethod::{Compilation, Identity};

/// Scopes that fit a line.
pub(super) const SCOPES: usize = 2;
/// The word of a line with the first of them.
pub(super) const FIRST_SCOPE: usize = 6;
/// Bits of an address; above them, lines have counts and levels.
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// Bit of the word with the method that is set when the step was used.
const USED: u64 = 1 << 63;
/// The bit of a hash that tells the places of a pair apart.
const SECOND_PLACE: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct Steps(Lines);

/// A line: what a step out of Java code with frames of a fixed size takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'c> {
    line: &'c [u64; LINE],
    /// Number of the line.
    pub(crate) position: u32,
}

impl<'c> Step<'c> {
    /// The same as an entry of the cache, whose scopes are at `first`.
    pub(super) fn code(&self, first: u32) -> CompiledPc {
        let (kind, number) = (CompiledKind::Java, self.number());
        let Compilation { blob, identity } = self.compilation();
        let (frame_bytes, level, count) = (self.frame_bytes(), self.level(), self.count() as u16);
        // A return address of a call has scopes of its own.
        CompiledPc { blob, identity, frame_bytes, level, kind, first, count, is_moved: false, number }
    }

    #[inline]
    pub(crate) fn compilation(&self) -> Compilation {
        let identity = Identity { method: self.method(), compile_id: self.line[4] as u32 };
        Compilation { blob: self.line[2] & ADDRESS, identity }
    }

    #[inline]
    pub(crate) fn method(&self) -> u64 {
        self.line[3] & ADDRESS
    }

    #[inline]
    pub(crate) fn level(&self) -> u8 {
        (self.line[3] >> ADDRESS_BITS) as u8
    }

    #[inline]
    pub(crate) fn frame_bytes(&self) -> u32 {
        (self.line[4] >> 32) as u32
    }

    #[inline]
    pub(crate) fn number(&self) -> u32 {
        (self.line[5] >> 32) as u32
    }

    /// The number of scopes.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        u32::from((self.line[2] >> ADDRESS_BITS) as u16)
    }

    /// The scopes, if they fit the line; [`FIRST_SCOPE`] words behind its position.
    #[inline]
    pub(crate) fn scopes(&self) -> Option<&'c [u64]> {
        self.line.get(FIRST_SCOPE..FIRST_SCOPE + self.count() as usize)
    }

    /// The position of the scopes in the memory of decoded pcs.
    #[inline]
    pub(super) fn first(&self) -> u32 {
        self.line[5] as u32
    }
}

impl Steps {
    /// A table of `lines`, a power of two.
    pub(super) fn new(lines: usize) -> Self {
        Self(Lines::new(lines))
    }

    /// The two places of a pair.
    #[inline]
    fn places(&self, pc: u64, callee: u64) -> [usize; 2] {
        let hash = hash(pc ^ callee.rotate_left(24));
        [hash & !SECOND_PLACE, hash | SECOND_PLACE].map(|hash| self.0.position(hash))
    }

    /// The step from `callee` to the return address `pc`.
    #[inline]
    pub(super) fn find(&self, pc: u64, callee: u64) -> Option<Step<'_>> {
        self.places(pc, callee).into_iter().find_map(|place| {
            let step = self.at(place as u32)?;
            (step.line[0] == pc && step.line[1] == callee).then_some(step)
        })
    }

    #[inline]
    pub(super) fn at(&self, position: u32) -> Option<Step<'_>> {
        Some(Step { line: self.0.line(position as usize)?, position })
    }

    /// Notes a step into `code`, with the scopes if they fit a line.
    pub(super) fn insert(&mut self, pc: u64, callee: u64, code: &CompiledPc, scopes: [u64; SCOPES]) {
        let CompiledPc { blob, identity, frame_bytes, level, kind, first, count, is_moved, number } = *code;
        let is_plain = kind == CompiledKind::Java
            && u64::from(frame_bytes) >= FRAME_RECORD_BYTES
            && frame_bytes.is_multiple_of(8);
        if is_moved || !is_plain || blob > ADDRESS || identity.method > ADDRESS {
            return;
        }
        let line = [
            pc,
            callee,
            blob | u64::from(count) << ADDRESS_BITS,
            identity.method | u64::from(level) << ADDRESS_BITS,
            u64::from(identity.compile_id) | u64::from(frame_bytes) << 32,
            u64::from(first) | u64::from(number) << 32,
            scopes[0],
            scopes[1],
        ];
        let places = self.places(pc, callee);
        let [first, second] = places.map(|place| self.0.line(place).copied().unwrap_or_default());
        let is_same = |line: [u64; LINE]| line[0] == pc && line[1] == callee;
        let is_free = |line: [u64; LINE]| line[0] == 0;
        let is_used = |line: [u64; LINE]| line[3] & USED != 0;
        let is_second = is_same(second)
            || !is_same(first) && !is_free(first) && (is_free(second) || is_used(first) && !is_used(second));
        if is_used(first) && is_used(second) {
            self.0.line_mut(places[1]).into_iter().for_each(|line| line[3] &= !USED);
        }
        if let Some(place) = self.0.line_mut(places[usize::from(is_second)]) {
            *place = line;
        }
    }

    /// Notes that the step at a position was used.
    #[inline]
    pub(super) fn touch(&mut self, position: u32) {
        if let Some(line) = self.0.line_mut(position as usize).filter(|line| line[3] & USED == 0) {
            line[3] |= USED;
        }
    }

    #[inline]
    pub(super) fn word(&self, position: usize) -> Option<u64> {
        self.0.word(position)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
