//! Compares walks that took over frames with walks in full; with the cargo feature `hooks` only.

use stackwalk::{Frame, Memory};

use super::{StackWalker, Walk};
use crate::proof::lifetime::Change;
use crate::walk::snapshot::Snapshot;
use crate::walk::vm::Vm;

/// Differences that are logged; further ones are only counted.
const MAX_LOGGED: u64 = 20;

/// Counts of comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Comparison {
    /// Walks with equal frames and stop reasons.
    pub(crate) equal: u64,
    /// Walks that differ.
    pub(crate) different: u64,
    /// Walks between which the VM may have freed code or unloaded classes.
    pub(crate) apart: u64,
    /// Stacks that got the same id by content.
    pub(crate) named: u64,
    /// Stacks that got another one.
    pub(crate) misnamed: u64,
}

impl Comparison {
    /// Counts a stack by whether it has the same content with the nodes of the previous one and without.
    pub(crate) fn count_ids(&mut self, is_same: bool) {
        if is_same {
            self.named += 1;
        } else {
            self.misnamed += 1;
        }
    }

    /// Logs the counts.
    pub(crate) fn report(&self) {
        let Self { equal, different, apart, named, misnamed } = self;
        tracing::warn!(
            "reused walks: {equal} equal, {different} different, {apart} apart; ids: {named} equal, {misnamed} different"
        );
    }
}

impl StackWalker {
    /// Walks a stack in full if frames of the previous walk were taken over, and compares both.
    pub(super) fn compare<M: Memory>(&mut self, vm: &Vm<M>, snapshot: &Snapshot<'_>, walk: &Walk) {
        if self.comparison.is_none() || walk.reused.is_none() {
            return;
        }
        let (previous, recorder) = (std::mem::take(&mut self.previous), std::mem::take(&mut self.recorder));
        let mut full = self.unwalked(walk.slot, walk.ticks);
        self.walk_with(vm, snapshot, &mut full, None);
        full.frames.end = self.frames.len();
        (self.previous, self.recorder) = (previous, recorder);
        let is_equal = self.frames(&full) == self.frames(walk) && full.stop == walk.stop;
        let is_apart = !is_equal
            && (self.lifetime.observe(&vm.memory) != Change::None
                || self.restriction(vm, walk.ticks).is_some());
        let Some(comparison) = &mut self.comparison else { return };
        match (is_equal, is_apart) {
            (true, _) => comparison.equal += 1,
            (false, true) => comparison.apart += 1,
            (false, false) => comparison.different += 1,
        }
        if !is_equal && !is_apart && comparison.different <= MAX_LOGGED {
            let (one, other) = (self.frames(walk), self.frames(&full));
            let first = one.iter().zip(other).position(|(one, other)| one != other);
            let at = first.unwrap_or(one.len().min(other.len()));
            let show = |frames: &[Frame]| frames.get(at).copied();
            tracing::warn!(
                "a reused walk differs: {:?} of {} frames, stop {:?}; in full {} frames, stop {:?}; at frame {at}: {:?} and {:?}",
                walk.reused,
                one.len(),
                walk.stop,
                other.len(),
                full.stop,
                show(one),
                show(other)
            );
        }
        self.frames.truncate(walk.frames.end);
    }
}
