//! Look-ups of the step from a method to the compiled code that called it.

use super::steps::{FIRST_SCOPE, SCOPES, Step};
use super::{BEFORE_SCOPES, CompiledPc, IN_STEPS, ScopeCache, key, without_code};
use crate::hotspot::nmethod::Identity;
use crate::hotspot::pc_desc::PcMatch;

impl ScopeCache {
    /// Returns whether steps may be used: restricted walks look at the age of all code.
    pub(crate) fn has_steps(&self) -> bool {
        self.uses_steps && !self.codes.is_restricted()
    }

    /// The step from `callee` to the return address `pc` if a walk has taken it before, for a walk that may use steps;
    /// `current` reads the identity of the code now at a blob.
    #[inline]
    pub(crate) fn find_step(
        &self,
        pc: u64,
        callee: u64,
        current: impl FnOnce(u64) -> Option<Identity>,
    ) -> Option<Step<'_>> {
        let step = self.steps.find(pc, callee)?;
        let code = step.compilation();
        let is_same = current(code.blob) == Some(code.identity);
        (is_same && (step.scopes().is_some() || self.has_kept_scopes(pc, step))).then_some(step)
    }

    /// Returns whether the scopes of a step that do not fit its line are still there. Their memory is given to other
    /// pcs in its order, so the key is overwritten before the scopes.
    #[inline]
    fn has_kept_scopes(&self, pc: u64, step: Step<'_>) -> bool {
        let at = step.first().wrapping_sub(BEFORE_SCOPES);
        key(pc, PcMatch::Exact).is_some_and(|key| without_code(self.key_at(at)) == key)
    }

    #[inline]
    pub(crate) fn step(&self, position: u32) -> Option<Step<'_>> {
        self.steps.at(position)
    }

    pub(crate) fn step_code(&self, position: u32) -> Option<CompiledPc> {
        let step = self.steps.at(position)?;
        let first = match step.scopes() {
            Some(_) => (position + FIRST_SCOPE as u32) | IN_STEPS,
            None => step.first(),
        };
        Some(step.code(first))
    }

    /// The scopes of a step that do not fit its line, innermost first.
    #[inline]
    pub(crate) fn kept_scopes(&self, step: Step<'_>) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.pcs.words(step.first(), step.count())
    }

    /// Notes that the step at a position was used.
    #[inline]
    pub(crate) fn touch_step(&mut self, position: u32) {
        self.stats.pc_hits += 1;
        self.steps.touch(position);
        let Some(step) = self.steps.at(position).filter(|step| step.scopes().is_none()) else { return };
        self.pcs.touch(step.first().wrapping_sub(BEFORE_SCOPES));
    }

    /// Notes a step from `callee` to the return address `pc` in `code`, which is in this cache.
    pub(crate) fn insert_step(&mut self, pc: u64, callee: u64, code: &CompiledPc) {
        if self.codes.may_be_young(code.blob, code.identity) {
            return;
        }
        let mut scopes = [0; SCOPES];
        let words = self.pcs.words(code.first, code.count.into());
        scopes.iter_mut().zip(words).for_each(|(scope, word)| *scope = word);
        self.steps.insert(pc, callee, code, scopes);
    }
}
