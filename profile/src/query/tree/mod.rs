//! The call tree of a selection, with its methods, callers and callees.
//!
//! Approach: CPU time is summed into the nodes of each partition's dictionary, an array in which children follow
//! parents; then the nodes that have any are merged by what is shown of a frame, its text and kind (`build`).

mod build;
mod methods;
mod naming;

use std::ops::Range;

use hashbrown::HashTable;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::dictionary::texts::Texts;
use crate::query::error::QueryError;
use crate::query::matches::Matches;
use crate::query::selection::{Selection, Span};
use crate::source::cell::Cell;
use crate::source::{Part, Scope, Source, with_dictionary};
use crate::text::quantity::total;

pub(in crate::query) use build::sum_up;
pub use methods::{MethodCost, Order};
pub use naming::Naming;

/// Name of nodes that stand for left out nodes.
pub const LEFT_OUT: &str = "[left out]";

/// Bounds of a tree.
#[derive(Clone, Copy, Debug)]
pub(in crate::query) struct Bounds {
    /// Maximum number of nodes taken from a partition, and number of nodes after pruning, which happens at twice as many.
    /// A node takes some 50 bytes, and an answer has 200,000 at most.
    nodes: usize,
    /// Maximum bytes of names after adding a partition; twice as many at any time.
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
    /// Texts of frames.
    pub(in crate::query) names: Texts,
    /// Parent of each node; the root is its own parent.
    pub parents: Vec<u32>,
    /// Name of each node, by number.
    pub name_of: Vec<u32>,
    /// Frame kind of each node, as in the protocol.
    pub kinds: Vec<u8>,
    /// CPU time of each node itself.
    pub own: Vec<Cell>,
    /// CPU time of each node with its subtree.
    pub totals: Vec<u64>,
    pub(in crate::query) children: HashTable<u32>,
    pub(in crate::query) bounds: Bounds,
    pub(in crate::query) naming: Naming,
}

impl Tree {
    /// Returns the tree of `selection` in `source` by method, and the time it covers.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<(Tree, Span), QueryError> {
        Self::named(source, selection, Naming::Method, now_ns)
    }

    /// As [`of`](Self::of), with other names of frames.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn named(
        source: &dyn Source,
        selection: &Selection,
        naming: Naming,
        now_ns: u64,
    ) -> Result<(Tree, Span), QueryError> {
        let span = selection.span(source, now_ns);
        let mut tree = Tree { naming, ..Tree::empty() };
        let range_ns = span.from_ns..span.to_ns;
        for part in source.parts().iter().filter(|part| part.overlaps(&range_ns)) {
            let sums = sums(&**part, selection, &range_ns)?;
            if !sums.is_empty() {
                with_dictionary(&**part, |dictionary| tree.add_part(dictionary, selection, &sums))?;
            }
        }
        tree.sum_totals();
        Ok((tree, span))
    }

    /// Returns the text of a name.
    pub(in crate::query) fn text(&self, name: u32) -> &str {
        self.names.get(name).unwrap_or_default()
    }

    /// Returns the number of nodes with the root.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Returns whether the selection has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Returns the CPU time of all samples.
    pub fn total_ns(&self) -> u64 {
        self.totals.first().copied().unwrap_or(0)
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        total(self.own.iter().map(|cell| cell.samples))
    }

    /// Returns the `nodes` heaviest nodes, and the number of the others.
    pub fn pruned(&self, nodes: usize) -> (Columns<'_>, usize) {
        self.columns(&heaviest(&self.totals, nodes))
    }

    pub(in crate::query) fn columns(&self, kept: &[bool]) -> (Columns<'_>, usize) {
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
        let left_out = self.len() - columns.parents.len();
        (columns, left_out)
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
#[allow(missing_docs, reason = "described in docs/formats.md")]
pub struct Columns<'t> {
    pub names: Vec<&'t str>,
    pub parents: Vec<u32>,
    pub frame_names: Vec<u32>,
    pub kinds: Vec<u8>,
    pub self_ns: Vec<u64>,
    pub total_ns: Vec<u64>,
}

/// Returns CPU time and samples by stack number.
fn sums(part: &dyn Part, selection: &Selection, range_ns: &Range<u64>) -> Result<Vec<Cell>, QueryError> {
    let matches = Matches::of(part, selection)?;
    let is_selected = |id: u64| matches.has_session(id);
    let scope = Scope { range_ns: range_ns.clone(), sessions: &is_selected };
    let mut sums: Vec<Cell> = Vec::new();
    let mut put = |stack: u32, cell: Cell| {
        let stack = stack as usize;
        if stack >= sums.len() {
            sums.resize(stack + 1, Cell::default());
        }
        sums[stack].add(cell);
    };
    if selection.filters_threads() {
        let is_match = |session, thread| matches.has_thread(session, thread);
        part.thread_stacks(&scope, &is_match, &mut |_, _, stack, cell| put(stack, cell))?;
    } else {
        part.stacks(&scope, &mut |_, stack, cell| put(stack, cell))?;
    }
    Ok(sums)
}
