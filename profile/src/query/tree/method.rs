//! Callers and callees of a method as trees.

use super::Tree;
use crate::dictionary::Dictionary;
use crate::query::error::QueryError;
use crate::query::node_sums::{NodeSums, each_part};
use crate::query::selection::Selection;
use crate::query::span::Span;
use crate::query::tree::{Side, shortened, thread_roots};
use crate::source::Source;

impl Tree {
    /// Returns the merged subtrees of the method `name`, which is the root.
    pub fn callees(
        source: &dyn Source,
        selection: &Selection,
        name: &str,
        now_ns: u64,
    ) -> Result<(Tree, Span), QueryError> {
        let mut tree = Tree::empty();
        let span = each_part(source, selection, now_ns, |dictionary, sums| {
            let outermost = outermost(dictionary, sums, name);
            tree.add_part(dictionary, sums, Side::After, |node| outermost[node]);
        })?;
        tree.sum_totals();
        Ok((tree, span))
    }

    /// Returns the tree of callers of the method `name`: children are callers, with the CPU time of the method in calls
    /// from there.
    pub fn callers(
        source: &dyn Source,
        selection: &Selection,
        name: &str,
        now_ns: u64,
    ) -> Result<(Tree, Span), QueryError> {
        Self::empty().with_callers(source, selection, name, now_ns)
    }

    /// Returns the tree of callers up to the first method of each thread, with one node for a method whatever its kind
    /// of code.
    pub fn plain_callers(
        source: &dyn Source,
        selection: &Selection,
        name: &str,
        now_ns: u64,
    ) -> Result<(Tree, Span), QueryError> {
        Tree { is_plain: true, ..Tree::empty() }.with_callers(source, selection, name, now_ns)
    }

    fn with_callers(
        mut self,
        source: &dyn Source,
        selection: &Selection,
        name: &str,
        now_ns: u64,
    ) -> Result<(Tree, Span), QueryError> {
        let span = each_part(source, selection, now_ns, |dictionary, sums| {
            self.add_callers(dictionary, sums, name);
        })?;
        self.sum_totals();
        Ok((self, span))
    }

    fn add_callers(&mut self, dictionary: &Dictionary, sums: &NodeSums, method: &str) {
        let (nodes, totals) = (dictionary.nodes(), sums.totals(dictionary));
        let outermost = outermost(dictionary, sums, method);
        let mut names = vec![u32::MAX; dictionary.frame_count()];
        let roots = self.is_plain.then(|| thread_roots(dictionary, sums));
        let is_end = |node: u32| node == 0 || roots.as_ref().is_some_and(|roots| roots[node as usize]);
        for node in sums.used().filter(|&node| outermost[node]) {
            let mut at = 0;
            let mut caller = nodes[node].parent;
            while !is_end(caller) {
                let frame = nodes[caller as usize].frame;
                let name = &mut names[frame as usize];
                if *name == u32::MAX {
                    *name = self.name(&dictionary.frame_text(frame));
                }
                let kind = self.kind(dictionary, frame);
                at = self.child(at, *name, kind);
                caller = nodes[caller as usize].parent;
            }
            self.own[at as usize].add(totals[node]);
            if self.prune_if_large() {
                names.fill(u32::MAX);
            }
        }
    }
}

/// Returns for each used node whether it is the first of the method `name` on the path to it, so that sums over these
/// nodes count each sample once in spite of recursion.
fn outermost(dictionary: &Dictionary, sums: &NodeSums, name: &str) -> Vec<bool> {
    let nodes = dictionary.nodes();
    let is_named = |frame: u32| shortened(&dictionary.frame_text(frame)) == name;
    let is_method: Vec<bool> = (0..dictionary.frame_count() as u32).map(is_named).collect();
    let mut is_inside = vec![false; nodes.len()];
    let mut outermost = vec![false; nodes.len()];
    for node in sums.used().skip(1) {
        let is_below = is_inside[nodes[node].parent as usize];
        let is_this = is_method[nodes[node].frame as usize];
        outermost[node] = is_this && !is_below;
        is_inside[node] = is_this || is_below;
    }
    outermost
}
