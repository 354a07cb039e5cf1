//! The forest of stacks: ids by caller and frame.

use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;

/// Ids by caller and frame; roots have caller 0 and a stop reason instead of a frame.
#[derive(Debug)]
pub(super) struct Nodes {
    known: std::collections::HashMap<(u32, u32), u32, BuildHasherDefault<FxHasher>>,
    used: u32,
    /// Frames and nodes of the last stack, from its root on.
    last: Vec<(u32, u32)>,
}

impl Nodes {
    /// No nodes; the first gets the id `first`.
    pub(super) fn from(first: u32) -> Self {
        Self { known: Default::default(), used: first - 1, last: Vec::new() }
    }

    /// Returns the number of known nodes.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets all nodes; their ids are not reused.
    pub(super) fn forget(&mut self) {
        *self = Self::from(self.used + 1);
    }

    /// Returns the node of a stack; passes id, caller and frame of each new node to `add`.
    pub(super) fn leaf(
        &mut self,
        stop: u32,
        frames: impl Iterator<Item = u32>,
        mut add: impl FnMut(u32, u32, u32),
    ) -> u32 {
        let Self { known, used, last } = self;
        let mut caller = 0;
        let mut is_shared = true;
        for (depth, frame) in std::iter::once(stop).chain(frames).enumerate() {
            is_shared = is_shared && last.get(depth).is_some_and(|(own, _)| *own == frame);
            if is_shared {
                caller = last[depth].1;
            } else {
                last.truncate(depth);
                caller = *known.entry((caller, frame)).or_insert_with(|| {
                    *used += 1;
                    add(*used, caller, frame);
                    *used
                });
                last.push((frame, caller));
            }
        }
        caller
    }
}
