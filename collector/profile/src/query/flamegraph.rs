//! The tree of calls.
//!
//! The tree is kept as two columns, parent and frame of each node, with parents before children; samples hang
//! on it by thread. This is also what the flame graph page receives: it can select threads, turn the tree
//! around and sum it up without asking again.

use proto::v1::FrameKind;
use rustc_hash::FxHashMap;

use crate::{Cell, NameId, NamedFrame, Naming, Profile};

/// Samples of one thread that ended at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSamples {
    /// Thread number ([`proto::v1::Thread::id`]).
    pub thread: u32,
    /// Position of the node in the columns of [`CallTree`].
    pub node: u32,
    /// The samples.
    pub cell: Cell,
}

/// All stacks of a profile as one tree; node 0 is the root, which stands for no frame.
///
/// A method that ran in several ways (interpreted, compiled, inlined) below the same parent has a node for each.
#[derive(Clone, Debug)]
pub struct CallTree {
    /// Parent of each node; the root is its own.
    pub parents: Vec<u32>,
    /// Frame of each node, as a position in `frames`; 0 for the root.
    pub frame_of: Vec<u32>,
    /// Distinct frames; the first is the root's.
    pub frames: Vec<NamedFrame>,
    /// Texts of frames by [`NameId`].
    pub names: Vec<String>,
    /// Samples by node and thread, in ascending order of both.
    pub samples: Vec<NodeSamples>,
    /// Distinct ids that stacks refer to but the session never defined.
    pub unknown_ids: usize,
}

impl CallTree {
    /// Builds the tree of all stacks in `profile`. Stacks whose walk was cut hang below a frame that says why.
    pub fn new(profile: &Profile) -> Self {
        let mut naming = Naming::new(profile);
        let root = NamedFrame { name: naming.intern("all"), kind: FrameKind::Marker };
        let mut tree = CallTree {
            parents: vec![0],
            frame_of: vec![0],
            frames: vec![root],
            names: Vec::new(),
            samples: Vec::new(),
            unknown_ids: 0,
        };
        let mut cells: Vec<(u32, u64, Cell)> = profile.cells().collect();
        // Tables of the profile have no order of their own; output must not differ from run to run.
        cells.sort_unstable_by_key(|&(thread, stack, _)| (stack, thread));
        let mut frame_numbers: FxHashMap<NamedFrame, u32> = FxHashMap::default();
        let mut children: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut last: Option<(u64, u32)> = None;
        for (thread, stack, cell) in cells {
            let node = match last {
                Some((known, node)) if known == stack => node,
                _ => naming.rooted_stack(stack).into_iter().fold(0, |parent, frame| {
                    let frame = *frame_numbers.entry(frame).or_insert_with(|| {
                        tree.frames.push(frame);
                        (tree.frames.len() - 1) as u32
                    });
                    *children.entry((parent, frame)).or_insert_with(|| {
                        tree.parents.push(parent);
                        tree.frame_of.push(frame);
                        (tree.parents.len() - 1) as u32
                    })
                }),
            };
            last = Some((stack, node));
            tree.samples.push(NodeSamples { thread, node, cell });
        }
        tree.samples.sort_unstable_by_key(|samples| (samples.node, samples.thread));
        tree.names = naming.texts().to_vec();
        tree.unknown_ids = naming.unknown_ids();
        tree
    }

    /// Number of nodes, root included.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Whether there is no stack in the tree.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Text of a frame's name.
    pub fn name(&self, name: NameId) -> &str {
        &self.names[name.0 as usize]
    }

    /// CPU time of each node and all below it.
    pub fn totals_ns(&self) -> Vec<u64> {
        let mut totals = vec![0u64; self.len()];
        for samples in &self.samples {
            let total = &mut totals[samples.node as usize];
            *total = total.saturating_add(samples.cell.cpu_ns);
        }
        // Children come after their parents, so going backwards each node is complete when it is added.
        for node in (1..self.len()).rev() {
            let parent = self.parents[node] as usize;
            totals[parent] = totals[parent].saturating_add(totals[node]);
        }
        totals
    }
}
