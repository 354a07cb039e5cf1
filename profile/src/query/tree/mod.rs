//! The call tree of a selection, or of the callers or callees of a method, as it is drawn.
//!
//! Approach: CPU time is summed into the nodes of each partition's dictionary, an array in which children follow
//! parents; then the nodes that have any are merged by what is shown of a frame, its text and kind (`build`).
//! A tree is bounded and reports what it leaves out; tables are computed from all samples (`flat`).

mod build;
mod method;
mod naming;

use hashbrown::HashTable;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::dictionary::texts::Texts;
use crate::query::error::QueryError;
use crate::query::node_sums::each_part;
use crate::query::selection::Selection;
use crate::query::span::Span;
use crate::source::Source;
use crate::source::Sum;
use crate::text::quantity::total;

pub(in crate::query) use build::{Side, shortened, sum_up, thread_roots};
pub use naming::Naming;

/// Name of nodes that stand for left out nodes.
pub const LEFT_OUT: &str = "[left out]";

#[derive(Clone, Copy, Debug)]
pub(in crate::query) struct Bounds {
    /// Maximum number of nodes taken from a partition, and number of nodes after pruning, which happens at twice as
    /// many. A node takes some 50 bytes, and an answer has 200,000 at most.
    nodes: usize,
    /// Maximum bytes of names after adding a partition; meanwhile, twice as many.
    text_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { nodes: 1 << 20, text_bytes: 128 << 20 }
    }
}

/// All stacks of a selection as one tree. Node 0 is the root; parents come before children.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub(in crate::query) names: Texts,
    /// Parent of each node; the root is its own parent.
    pub parents: Vec<u32>,
    /// Name of each node, by number.
    pub name_of: Vec<u32>,
    /// Frame kind of each node, as in the protocol.
    pub kinds: Vec<u8>,
    /// CPU time of each node itself.
    pub own: Vec<Sum>,
    /// CPU time of each node with its subtree.
    pub totals: Vec<u64>,
    /// CPU time of each node itself on the first of two sides; shorter where the last nodes have none.
    pub(in crate::query) before_ns: Vec<u64>,
    pub(in crate::query) children: HashTable<u32>,
    pub(in crate::query) bounds: Bounds,
    /// Number of nodes that were merged into nodes [`LEFT_OUT`].
    pub(in crate::query) merged: u64,
    /// True to merge frames with one name whatever their kind, and to leave out the roots of threads, as text does.
    pub(in crate::query) is_plain: bool,
}

/// Nodes of a tree that an answer leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of nodes.
    pub nodes: u64,
    /// CPU time of these nodes themselves.
    pub cpu_ns: u64,
}

impl Tree {
    /// Returns the tree of `selection` in `source` by method, and the time it covers.
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<(Tree, Span), QueryError> {
        let mut tree = Tree::empty();
        let span = each_part(source, selection, now_ns, |dictionary, sums| {
            tree.add_part(dictionary, sums, Side::After, |node| node == 0);
        })?;
        tree.sum_totals();
        Ok((tree, span))
    }

    /// Returns the tree from the first method of each thread on, with one node for a method whatever its kind of code.
    pub fn plain(
        source: &dyn Source,
        selection: &Selection,
        now_ns: u64,
    ) -> Result<(Tree, Span), QueryError> {
        let mut tree = Tree { is_plain: true, ..Tree::empty() };
        let span = each_part(source, selection, now_ns, |dictionary, sums| {
            let is_root = thread_roots(dictionary, sums);
            tree.add_part(dictionary, sums, Side::After, |node| is_root[node]);
        })?;
        tree.sum_totals();
        Ok((tree, span))
    }

    /// Returns one tree with two selections, and the times they cover. It keeps the nodes that are heaviest on both
    /// sides together, so that each node has all of its CPU time of either side.
    pub(crate) fn of_both(
        source: &dyn Source,
        before: &Selection,
        after: &Selection,
        now_ns: u64,
    ) -> Result<(Tree, [Span; 2]), QueryError> {
        let mut tree = Tree::empty();
        let mut add = |selection, side| {
            each_part(source, selection, now_ns, |dictionary, sums| {
                tree.add_part(dictionary, sums, side, |node| node == 0);
            })
        };
        let spans = [add(before, Side::Before)?, add(after, Side::After)?];
        tree.sum_totals();
        Ok((tree, spans))
    }

    pub(in crate::query) fn text(&self, name: u32) -> &str {
        self.names.get(name).unwrap_or_default()
    }

    pub fn name_text(&self, node: usize) -> &str {
        self.text(self.name_of[node])
    }

    /// Returns the number of nodes with the root.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Returns the CPU time of all samples.
    pub fn total_ns(&self) -> u64 {
        self.totals.first().copied().unwrap_or(0)
    }

    pub fn samples(&self) -> u64 {
        total(self.own.iter().map(|cell| cell.samples))
    }

    /// Returns the `nodes` heaviest nodes, and what is left out.
    pub fn pruned(&self, nodes: usize) -> (Columns<'_>, LeftOut) {
        let kept = heaviest(&self.totals, nodes);
        let left_out = self.left_out_of(&kept);
        (self.columns(&kept), left_out)
    }

    /// Returns what is left out if only the `kept` nodes are shown.
    pub fn left_out_of(&self, kept: &[bool]) -> LeftOut {
        let mut left_out = LeftOut { nodes: self.merged, cpu_ns: 0 };
        for (node, &is_kept) in kept.iter().enumerate() {
            left_out.nodes += u64::from(!is_kept);
            if !is_kept || self.is_left_out(node) {
                left_out.cpu_ns = left_out.cpu_ns.saturating_add(self.own[node].cpu_ns);
            }
        }
        left_out
    }

    pub(in crate::query) fn columns(&self, kept: &[bool]) -> Columns<'_> {
        let mut columns = Columns::default();
        let mut position = vec![0u32; self.len()];
        let mut names: FxHashMap<u32, u32> = FxHashMap::default();
        for node in (0..self.len()).filter(|&node| kept[node]) {
            let at = columns.parents.len() as u32;
            position[node] = at;
            let next = names.len() as u32;
            let name = *names.entry(self.name_of[node]).or_insert(next);
            if name == next {
                columns.names.push(self.text(self.name_of[node]));
            }
            columns.parents.push(at - position[self.parents[node] as usize]);
            columns.frame_names.push(name);
            columns.kinds.push(self.kinds[node]);
            columns.self_ns.push(self.own[node].cpu_ns);
            columns.total_ns.push(self.totals.get(node).copied().unwrap_or(0));
        }
        columns
    }
}

/// Returns for each node whether it is among the `nodes` heaviest; the root always is.
///
/// A parent is at least as heavy as its child, so no child loses its parent.
pub(in crate::query) fn heaviest(weights: &[u64], nodes: usize) -> Vec<bool> {
    let nodes = nodes.max(1);
    if weights.len() <= nodes {
        return vec![true; weights.len()];
    }
    let mut sorted = weights.to_vec();
    let (_, &mut least, _) = sorted.select_nth_unstable_by(nodes, |a, b| b.cmp(a));
    weights.iter().enumerate().map(|(node, &weight)| node == 0 || weight > least).collect()
}

/// A tree in columns for an answer; parents are distances back.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Columns<'t> {
    pub names: Vec<&'t str>,
    pub parents: Vec<u32>,
    pub frame_names: Vec<u32>,
    pub kinds: Vec<u8>,
    pub self_ns: Vec<u64>,
    pub total_ns: Vec<u64>,
}
