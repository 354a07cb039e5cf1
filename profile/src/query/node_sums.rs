//! CPU time of a selection by node of each part's dictionary. Tables of methods and call trees are computed from these
//! sums.

use std::ops::Range;

use crate::dictionary::Dictionary;
use crate::query::error::QueryError;
use crate::query::matches::Matches;
use crate::query::selection::Selection;
use crate::query::span::Span;
use crate::source::Sum;
use crate::source::{Part, Scope, Source, with_dictionary};

pub(in crate::query) struct NodeSums {
    /// CPU time of each node itself.
    pub(in crate::query) own: Vec<Sum>,
    /// Whether a node has samples, itself or below it.
    pub(in crate::query) is_used: Vec<bool>,
}

impl NodeSums {
    /// Returns the sums of the stacks of `selection` by node, from sums by stack.
    fn of(dictionary: &Dictionary, selection: &Selection, stacks: &[Sum]) -> Self {
        let matching = selection.filters_stacks().then(|| selection.matching_stacks(dictionary));
        let is_match = |stack: usize| match &matching {
            Some(matching) => matching.get(stack).copied().unwrap_or(false),
            None => true,
        };
        let nodes = dictionary.nodes();
        let mut own = vec![Sum::default(); nodes.len()];
        let mut is_used = vec![false; nodes.len()];
        for (stack, cell) in stacks.iter().enumerate().filter(|(_, cell)| cell.samples > 0) {
            if is_match(stack) {
                let node = dictionary.stack(stack as u32).node as usize;
                own[node].add(*cell);
                is_used[node] = true;
            }
        }
        for node in (1..nodes.len()).rev() {
            is_used[nodes[node].parent as usize] |= is_used[node];
        }
        Self { own, is_used }
    }

    /// Returns the used nodes, callers first.
    pub(in crate::query) fn used(&self) -> impl Iterator<Item = usize> {
        (0..self.own.len()).filter(|&node| self.is_used[node])
    }

    /// Returns the sums of each node with its subtree.
    pub(in crate::query) fn totals(&self, dictionary: &Dictionary) -> Vec<Sum> {
        let mut totals = self.own.clone();
        for node in (1..totals.len()).rev() {
            let below = totals[node];
            totals[dictionary.nodes()[node].parent as usize].add(below);
        }
        totals
    }
}

/// Calls `visit` with the sums of each part that has samples of `selection`, and returns the time that it covers.
pub(in crate::query) fn each_part(
    source: &dyn Source,
    selection: &Selection,
    now_ns: u64,
    mut visit: impl FnMut(&Dictionary, &NodeSums),
) -> Result<Span, QueryError> {
    let span = selection.span_with_modes(source, now_ns)?;
    let range_ns = span.range_ns();
    for part in source.parts().iter().filter(|part| part.overlaps(&range_ns)) {
        let stacks = by_stack(&**part, selection, &range_ns)?;
        if !stacks.is_empty() {
            with_dictionary(&**part, |dictionary| {
                visit(dictionary, &NodeSums::of(dictionary, selection, &stacks));
            })?;
        }
    }
    Ok(span)
}

/// Returns CPU time and samples by stack number.
fn by_stack(part: &dyn Part, selection: &Selection, range_ns: &Range<u64>) -> Result<Vec<Sum>, QueryError> {
    let matches = Matches::of(part, selection)?;
    let is_selected = |id: u64| matches.has_session(id);
    let scope = Scope { range_ns: range_ns.clone(), sessions: &is_selected };
    let mut sums: Vec<Sum> = Vec::new();
    let mut put = |stack: u32, cell: Sum| {
        let stack = stack as usize;
        if stack >= sums.len() {
            sums.resize(stack + 1, Sum::default());
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
