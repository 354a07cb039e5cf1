//! Look-ups of the compiled code at a return address, and of the method that its call was last compared with.
//!
//! Problem: `walker::called` compares each call with the method whose frame it led to, which reads code and headers.
//! Approach: a cache for live stacks keeps a table of [`steps`](super::steps), one line for each pair of caller and callee. Other
//! caches keep the last compared method in the entry of the decoded return address, which a walk reads anyway.

use super::steps::{self, SCOPES};
use super::{BEFORE_SCOPES, CompiledPc, IN_STEPS, ScopeCache, key, without_code};
use crate::hotspot::nmethod::Identity;
use crate::hotspot::pc_desc::PcMatch;

impl ScopeCache {
    /// As [`ScopeCache::find_pc`], for a return address that may be met for the first time, which is no miss yet.
    pub(crate) fn find_caller(
        &mut self,
        pc: u64,
        current: impl FnOnce(u64) -> Option<Identity>,
    ) -> Option<CompiledPc> {
        let key = key(pc, PcMatch::Exact)?;
        self.entry_if_current(key, self.position(key)?, current)
    }

    /// The code at the return address `pc` if a walk has stepped there from `callee`; `current` reads the identity of the code
    /// now at a blob.
    pub(crate) fn find_step(
        &mut self,
        pc: u64,
        callee: u64,
        current: impl FnOnce(u64) -> Option<Identity>,
    ) -> Option<CompiledPc> {
        let steps::Step { code, scopes } = self.steps.find(pc, callee)?;
        if current(code.blob) != Some(code.identity) || self.codes.is_restricted() {
            return None;
        }
        if let Some(scopes) = scopes {
            self.stats.pc_hits += 1;
            return Some(CompiledPc { first: u32::try_from(scopes).ok()? | IN_STEPS, ..code });
        }
        // The memory of pcs may have been given to others, in their order: no scope is lost before the key.
        let at = code.first.checked_sub(BEFORE_SCOPES)?;
        if without_code(self.key_at(at)) != key(pc, PcMatch::Exact)? {
            return None;
        }
        self.stats.pc_hits += 1;
        self.pcs.touch(at);
        Some(code)
    }

    /// True if steps are kept.
    pub(crate) fn keeps_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The method that was called last at the return address of `code` and compared with the call; 0 for none.
    pub(crate) fn callee(&self, code: &CompiledPc) -> u64 {
        code.first.checked_sub(1).and_then(|at| self.pcs.word(at)).unwrap_or(0)
    }

    /// Notes that `callee` was compared with the call before the return address of `code`.
    pub(crate) fn set_callee(&mut self, code: &CompiledPc, callee: u64) {
        if let Some(place) =
            code.first.checked_sub(BEFORE_SCOPES).and_then(|at| self.pcs.payload_mut(at).get_mut(1))
        {
            *place = callee.to_ne_bytes();
        }
    }

    /// Notes a step from `callee` to the return address `pc` in `code`, which is in this cache.
    pub(crate) fn insert_step(&mut self, pc: u64, callee: u64, code: &CompiledPc) {
        let mut scopes = [0; SCOPES];
        let positions = code.first..code.first.saturating_add(u32::from(code.count));
        for (scope, position) in scopes.iter_mut().zip(positions) {
            *scope = self.pcs.word(position).unwrap_or(0);
        }
        self.steps.insert(pc, callee, code, scopes);
    }
}
