//! Steps that walks have taken from a method into the compiled code that called it.
//!
//! Problem: a decoded pc is found by lines of three tables, and the call before it is read to compare it with the method that
//! was called, by the map of the code and the header of other code. After a while in which the program runs, each of these lines
//! comes from memory.
//! Approach: one line for a return address and the method called there holds all that a step needs, and the innermost methods
//! where there are few. Each line is the only place for its pairs; the last one stays.
//! Invariants: a line is used only if the code has the same identity as when the line was made. A pair that is here was not
//! contradicted by the call (`walker::called`), which may lead elsewhere by now.

use super::compiled_pc::{CompiledKind, CompiledPc};
use super::index::hash;
use super::lines::Lines;
use crate::hotspot::nmethod::Identity;

/// Scopes that fit a line.
pub(super) const SCOPES: usize = 2;
/// The word of a line with the first of them.
const FIRST_SCOPE: usize = 6;

/// The table.
#[derive(Debug)]
pub(super) struct Steps(Lines);

/// A line that was found.
pub(super) struct Step {
    /// Its content; the position of the scopes is one of [`ScopeCache`](super::ScopeCache)'s if they do not fit the line.
    pub(super) code: CompiledPc,
    /// The place of the scopes, if they fit the line.
    pub(super) scopes: Option<usize>,
}

const KINDS: [CompiledKind; 5] = [
    CompiledKind::Java,
    CompiledKind::JavaKeepingSize,
    CompiledKind::Native,
    CompiledKind::ContinuationEntry,
    CompiledKind::ContinuationYield,
];

impl Steps {
    pub(super) fn new(lines: usize) -> Self {
        Self(Lines::new(lines))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, pc: u64, callee: u64) -> Option<usize> {
        self.0.position(hash(pc ^ callee.rotate_left(24)))
    }

    /// The step from `callee` to the return address `pc`.
    pub(super) fn find(&self, pc: u64, callee: u64) -> Option<Step> {
        let position = self.position(pc, callee)?;
        let &[known_pc, known_callee, blob, method, sizes, place, ..] = self.0.line(position)?;
        if known_pc != pc || known_callee != callee {
            return None;
        }
        let count = (place >> 32) as u16;
        let code = CompiledPc {
            blob,
            identity: Identity { method, compile_id: sizes as u32 },
            frame_bytes: (sizes >> 32) as u32,
            level: (place >> 48) as u8,
            kind: *KINDS.get((place >> 56) as usize)?,
            first: place as u32,
            count,
            // A return address of a call has scopes of its own.
            is_moved: false,
        };
        let scopes = (usize::from(count) <= SCOPES).then_some(position + FIRST_SCOPE);
        Some(Step { code, scopes })
    }

    /// Notes a step, with the scopes if they fit a line.
    pub(super) fn insert(&mut self, pc: u64, callee: u64, code: &CompiledPc, scopes: [u64; SCOPES]) {
        let CompiledPc { blob, identity, frame_bytes, level, kind, first, count, is_moved } = *code;
        let line = self.position(pc, callee).and_then(|position| self.0.line_mut(position));
        let Some(line) = line.filter(|_| !is_moved) else { return };
        let sizes = u64::from(identity.compile_id) | u64::from(frame_bytes) << 32;
        let place = u64::from(first) | u64::from(count) << 32 | u64::from(level) << 48 | (kind as u64) << 56;
        *line = [pc, callee, blob, identity.method, sizes, place, scopes[0], scopes[1]];
    }

    /// The word at a position in the table.
    pub(super) fn word(&self, position: usize) -> Option<u64> {
        self.0.word(position)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
