//! The tree of calls of a selection, and what follows from it: methods, callers, callees.
//!
//! Approach: CPU time is summed into the nodes of each partition's dictionary, an array in which children follow
//! parents; then the nodes that have any are merged by what is shown of a frame, its text and kind ([`super::growing`]).

use std::ops::Range;

use hashbrown::HashTable;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Wanted;
use super::growing::Bounds;
use super::selection::{QueryError, Selection, Span};
use super::top::{MethodCost, Order};
use crate::profile::Cell;
use crate::quantity::total;
use crate::store::{Scope, Store, View};
use crate::texts::Texts;

/// All stacks of a selection as one tree. Node 0 is the root; parents come before children.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Texts of frames.
    pub(super) names: Texts,
    /// Parent of each node; the root is its own.
    pub parents: Vec<u32>,
    /// Name of each node, by number.
    pub name_of: Vec<u32>,
    /// Kind of each node, as in the protocol.
    pub kinds: Vec<u8>,
    /// CPU time of each node itself.
    pub own: Vec<Cell>,
    /// CPU time of each node and all below it.
    pub totals: Vec<u64>,
    pub(super) children: HashTable<u32>,
    pub(super) bounds: Bounds,
}

impl Tree {
    /// The tree of `selection` in `store`, and the time it covers.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn of(store: &Store, selection: &Selection, now_ns: u64) -> Result<(Tree, Span), QueryError> {
        let span = selection.span(store, now_ns);
        let mut tree = Tree::empty();
        let range_ns = span.from_ns..span.to_ns;
        for view in store.views().iter().filter(|view| view.overlaps(&range_ns)) {
            let sums = sums(view, selection, &range_ns)?;
            if !sums.is_empty() {
                view.dictionary(|dictionary| tree.grow(dictionary, selection, &sums))?;
            }
        }
        tree.settle();
        Ok((tree, span))
    }

    /// Text of a name.
    pub(super) fn text(&self, name: u32) -> &str {
        self.names.get(name).unwrap_or_default()
    }

    /// Number of nodes, root included.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Whether nothing was selected.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// CPU time of all.
    pub fn total_ns(&self) -> u64 {
        self.totals.first().copied().unwrap_or(0)
    }

    /// Number of samples of all.
    pub fn samples(&self) -> u64 {
        total(self.own.iter().map(|cell| cell.samples))
    }

    /// Positions of nodes whose method is not on the path above them already: sums over these count each sample
    /// once, however deep a recursion is.
    fn outermost(&self) -> Vec<bool> {
        let mut first_child = vec![0u32; self.len()];
        let mut sibling = vec![0u32; self.len()];
        for node in (1..self.len()).rev() {
            let parent = self.parents[node] as usize;
            sibling[node] = std::mem::replace(&mut first_child[parent], node as u32);
        }
        let mut outermost = vec![true; self.len()];
        let mut on_path = vec![0u32; self.names.len()];
        let mut node = 0u32;
        loop {
            let name = self.name_of[node as usize] as usize;
            outermost[node as usize] = on_path[name] == 0;
            on_path[name] += 1;
            if first_child[node as usize] != 0 {
                node = first_child[node as usize];
                continue;
            }
            loop {
                on_path[self.name_of[node as usize] as usize] -= 1;
                if node == 0 {
                    return outermost;
                }
                if sibling[node as usize] != 0 {
                    node = sibling[node as usize];
                    break;
                }
                node = self.parents[node as usize];
            }
        }
    }

    /// All methods with their costs, dearest first, then by name.
    pub fn methods(&self, order: Order) -> Vec<MethodCost> {
        self.dearest_methods(order, usize::MAX).0
    }

    /// The first `limit` of [`methods`](Self::methods), and how many more there are.
    pub fn dearest_methods(&self, order: Order, limit: usize) -> (Vec<MethodCost>, usize) {
        let outermost = self.outermost();
        let mut costs = vec![(Cell::default(), 0u64); self.names.len()];
        for node in 1..self.len() {
            let cost = &mut costs[self.name_of[node] as usize];
            add(&mut cost.0, self.own[node]);
            if outermost[node] {
                cost.1 = cost.1.saturating_add(self.totals[node]);
            }
        }
        // The mark above a cut stack is no method: nothing runs in it.
        let is_method = |&name: &u32| {
            let (own, total_ns) = costs[name as usize];
            total_ns > 0 && (own.samples > 0 || !self.text(name).starts_with('['))
        };
        let mut ranked: Vec<u32> = (0..self.names.len() as u32).filter(is_method).collect();
        let key = |name: u32| {
            let (own, total_ns) = costs[name as usize];
            match order {
                Order::SelfTime => (own.cpu_ns, total_ns),
                Order::TotalTime => (total_ns, own.cpu_ns),
            }
        };
        let first = |a: &u32, b: &u32| key(*b).cmp(&key(*a)).then_with(|| self.text(*a).cmp(self.text(*b)));
        let left_out = ranked.len().saturating_sub(limit);
        if left_out > 0 {
            ranked.select_nth_unstable_by(limit, first);
            ranked.truncate(limit);
        }
        ranked.sort_unstable_by(first);
        let row = |name: u32| {
            let (own, total_ns) = costs[name as usize];
            let (self_ns, self_samples) = (own.cpu_ns, own.samples);
            MethodCost { name: self.text(name).to_owned(), self_ns, self_samples, total_ns }
        };
        (ranked.into_iter().map(row).collect(), left_out)
    }

    /// Everything below the method `name`, merged; its root stands for the method.
    pub fn callees(&self, name: &str) -> Tree {
        let mut tree = Tree::empty();
        let Some(wanted) = self.names.find(name) else {
            tree.settle();
            return tree;
        };
        let outermost = self.outermost();
        let mut shown: Vec<Option<u32>> = vec![None; self.len()];
        for node in 1..self.len() {
            let above = shown[self.parents[node] as usize];
            shown[node] = if self.name_of[node] == wanted && outermost[node] {
                Some(0)
            } else if let Some(above) = above {
                let name = tree.name(self.text(self.name_of[node]));
                Some(tree.child(above, name, self.kinds[node]))
            } else {
                None
            };
            if let Some(at) = shown[node] {
                add(&mut tree.own[at as usize], self.own[node]);
            }
        }
        tree.settle();
        tree
    }

    /// Everything above the method `name`, turned around: children are callers, with the CPU time spent in the
    /// method when called from there.
    pub fn callers(&self, name: &str) -> Tree {
        let mut tree = Tree::empty();
        if let Some(wanted) = self.names.find(name) {
            let outermost = self.outermost();
            for node in (1..self.len()).filter(|&node| self.name_of[node] == wanted && outermost[node]) {
                let mut at = 0;
                let mut caller = self.parents[node] as usize;
                while caller != 0 {
                    let name = tree.name(self.text(self.name_of[caller]));
                    at = tree.child(at, name, self.kinds[caller]);
                    caller = self.parents[caller] as usize;
                }
                // Samples are counted by node, not by subtree: what matters here is time.
                add(&mut tree.own[at as usize], Cell { cpu_ns: self.totals[node], samples: 0 });
                tree.keep_small();
            }
        }
        tree.settle();
        tree
    }

    /// The tree with at most `nodes` nodes, the lightest left out; how many were.
    pub fn pruned(&self, nodes: usize) -> (Columns<'_>, usize) {
        self.columns(&heaviest(&self.totals, nodes))
    }

    pub(super) fn columns(&self, kept: &[bool]) -> (Columns<'_>, usize) {
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

/// For each node whether it is among the `nodes` heaviest; the root always is.
///
/// A parent weighs at least what its child does, so no child loses its parent.
pub(super) fn heaviest(weights: &[u64], nodes: usize) -> Vec<bool> {
    let nodes = nodes.max(1);
    if weights.len() <= nodes {
        return vec![true; weights.len()];
    }
    let mut sorted = weights.to_vec();
    let (_, &mut least, _) = sorted.select_nth_unstable_by(nodes, |a, b| b.cmp(a));
    weights.iter().enumerate().map(|(node, &weight)| node == 0 || weight > least).collect()
}

/// A tree as it is sent: columns, parents as distances back.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct Columns<'t> {
    pub names: Vec<&'t str>,
    pub parents: Vec<u32>,
    pub frame_names: Vec<u32>,
    pub kinds: Vec<u8>,
    pub self_ns: Vec<u64>,
    pub total_ns: Vec<u64>,
}

/// CPU time by stack number.
fn sums(view: &View, selection: &Selection, range_ns: &Range<u64>) -> Result<Vec<Cell>, QueryError> {
    let wanted = Wanted::of(view, selection)?;
    let is_wanted = |id: u64| wanted.has(id);
    let scope = Scope { range_ns: range_ns.clone(), sessions: &is_wanted };
    let mut sums: Vec<Cell> = Vec::new();
    let mut put = |stack: u32, cell: Cell| {
        let stack = stack as usize;
        if stack >= sums.len() {
            sums.resize(stack + 1, Cell::default());
        }
        add(&mut sums[stack], cell);
    };
    if selection.filters_threads() {
        let wants = |session, thread| wanted.has_thread(session, thread);
        view.thread_stacks(&scope, wants, |_, _, stack, cell| put(stack, cell))?;
    } else {
        view.stacks(&scope, |_, stack, cell| put(stack, cell))?;
    }
    Ok(sums)
}

pub(super) fn add(sum: &mut Cell, cell: Cell) {
    sum.cpu_ns = sum.cpu_ns.saturating_add(cell.cpu_ns);
    sum.samples = sum.samples.saturating_add(cell.samples);
}
