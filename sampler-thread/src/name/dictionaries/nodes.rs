//! The forest of stacks: ids by caller and frame.

use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;

/// Ids by caller and frame; roots have caller 0 and a stop reason instead of a frame.
#[derive(Debug)]
pub(super) struct Nodes {
    known: std::collections::HashMap<(u32, u32), u32, BuildHasherDefault<FxHasher>>,
    used: u32,
}

impl Nodes {
    /// No nodes; the first gets the id `first`.
    pub(super) fn from(first: u32) -> Self {
        Self { known: Default::default(), used: first - 1 }
    }

    /// Returns the number of known nodes.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets all nodes; their ids are not reused.
    pub(super) fn forget(&mut self) {
        *self = Self::from(self.used + 1);
    }

    /// Returns the node of a frame below its caller, and whether it is new.
    pub(super) fn child(&mut self, caller: u32, frame: u32) -> (u32, bool) {
        let Self { known, used } = self;
        let mut is_new = false;
        let node = *known.entry((caller, frame)).or_insert_with(|| {
            is_new = true;
            *used += 1;
            *used
        });
        (node, is_new)
    }
}
