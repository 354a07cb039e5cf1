//! The tree of calls of a selection, and what follows from it: methods, callers, callees, differences.
//!
//! Approach: CPU time is summed into the nodes of each partition's dictionary, an array in which children follow
//! parents; then the nodes that have any are merged by what is shown of a frame, its text and kind ([`super::growing`]).

use std::ops::Range;

use hashbrown::HashTable;
use proto::v1::FrameKind;
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

    fn columns(&self, kept: &[bool]) -> (Columns<'_>, usize) {
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

    /// Both trees as one, with the CPU time of each node in either.
    ///
    /// Frames are the same if their names are, interpreted or compiled; the kind shown is the first one met. Stacks
    /// that begin with native code and go on in Java are shown from their first Java frame on: how a JVM and the C
    /// library start a thread differs from one release to the next, and is not what the program does.
    pub fn difference(before: &Tree, after: &Tree) -> Difference {
        let mut tree = Tree::empty();
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let sides = [before, after].map(|side| {
            let first_java = side.first_java();
            let rest_ns = side.sums_without(&first_java);
            let mut shown = vec![0u32; side.len()];
            for node in (1..side.len()).filter(|&node| rest_ns[node] > 0) {
                let above = if first_java[node] { 0 } else { shown[side.parents[node] as usize] };
                let name = tree.name(side.text(side.name_of[node]));
                let new = || tree.child(above, name, side.kinds[node]);
                shown[node] = *known.entry((above, name)).or_insert_with(new);
            }
            (side, shown)
        });
        let [before_ns, after_ns] = sides.map(|(side, shown)| {
            let mut own_ns = vec![0u64; tree.len()];
            for (&at, own) in shown.iter().zip(&side.own) {
                own_ns[at as usize] = own_ns[at as usize].saturating_add(own.cpu_ns);
            }
            summed_up(&tree.parents, own_ns, |_| true)
        });
        Difference { tree, before_ns, after_ns }
    }

    /// For each node whether it is a Java frame with nothing but native code on the way to the root, and some of it.
    fn first_java(&self) -> Vec<bool> {
        let mut is_native = vec![true; self.len()];
        let mut first_java = vec![false; self.len()];
        for node in 1..self.len() {
            let parent = self.parents[node] as usize;
            is_native[node] = is_native[parent] && NATIVE_KINDS.contains(&self.kinds[node]);
            first_java[node] = parent != 0 && is_native[parent] && JAVA_KINDS.contains(&self.kinds[node]);
        }
        first_java
    }

    /// CPU time of each node and all below it but what hangs on nodes that are `apart`, which have their own.
    fn sums_without(&self, apart: &[bool]) -> Vec<u64> {
        summed_up(&self.parents, self.own.iter().map(|cell| cell.cpu_ns).collect(), |node| !apart[node])
    }
}

const NATIVE_KINDS: [u8; 3] = [FrameKind::Native as u8, FrameKind::Vm as u8, FrameKind::Stub as u8];
const JAVA_KINDS: [u8; 5] = [
    FrameKind::Interpreted as u8,
    FrameKind::C1 as u8,
    FrameKind::C2 as u8,
    FrameKind::Inlined as u8,
    FrameKind::NativeMethod as u8,
];

/// Adds what each node has to its parent, from the leaves on, if it `counts` there.
fn summed_up(parents: &[u32], mut ns: Vec<u64>, counts: impl Fn(usize) -> bool) -> Vec<u64> {
    for node in (1..ns.len()).rev().filter(|&node| counts(node)) {
        let parent = parents[node] as usize;
        ns[parent] = ns[parent].saturating_add(ns[node]);
    }
    ns
}

/// Two selections in one tree.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Nodes of both; its own sums are empty.
    pub tree: Tree,
    /// CPU time of each node and all below it, before.
    pub before_ns: Vec<u64>,
    /// The same, after.
    pub after_ns: Vec<u64>,
}

impl Difference {
    /// At most `nodes` nodes, those left out that weigh least in both; how many were.
    pub fn columns(&self, nodes: usize) -> (DifferenceColumns<'_>, usize) {
        let weights: Vec<u64> = self
            .before_ns
            .iter()
            .zip(&self.after_ns)
            .map(|(&before, &after)| before.saturating_add(after))
            .collect();
        let kept = heaviest(&weights, nodes);
        let (columns, left_out) = self.tree.columns(&kept);
        let pick =
            |column: &[u64]| kept.iter().zip(column).filter(|(kept, _)| **kept).map(|(_, &ns)| ns).collect();
        let (before_ns, after_ns) = (pick(&self.before_ns), pick(&self.after_ns));
        let Columns { names, parents, frame_names, kinds, .. } = columns;
        (DifferenceColumns { names, parents, frame_names, kinds, before_ns, after_ns }, left_out)
    }
}

/// A [`Difference`] as it is sent.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct DifferenceColumns<'t> {
    pub names: Vec<&'t str>,
    pub parents: Vec<u32>,
    pub frame_names: Vec<u32>,
    pub kinds: Vec<u8>,
    pub before_ns: Vec<u64>,
    pub after_ns: Vec<u64>,
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

/// A method in two selections. Shares are of the CPU time of the whole selection, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct MethodDifference {
    pub name: String,
    pub before_ns: u64,
    pub after_ns: u64,
    pub before_share: f64,
    pub after_share: f64,
    pub change: f64,
}

/// Methods by self time in two selections, normalised by CPU time; the largest changes first.
pub fn method_differences(before: &Tree, after: &Tree) -> Vec<MethodDifference> {
    let mut methods: FxHashMap<String, (u64, u64)> = FxHashMap::default();
    for method in before.methods(Order::SelfTime) {
        methods.entry(method.name).or_default().0 = method.self_ns;
    }
    for method in after.methods(Order::SelfTime) {
        methods.entry(method.name).or_default().1 = method.self_ns;
    }
    let share = |ns, tree: &Tree| crate::quantity::share(ns, tree.total_ns());
    let mut rows: Vec<MethodDifference> = methods
        .into_iter()
        .map(|(name, (before_ns, after_ns))| {
            let (before_share, after_share) = (share(before_ns, before), share(after_ns, after));
            let change = after_share - before_share;
            MethodDifference { name, before_ns, after_ns, before_share, after_share, change }
        })
        .collect();
    rows.sort_by(|a, b| b.change.abs().total_cmp(&a.change.abs()).then_with(|| a.name.cmp(&b.name)));
    rows
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of names with their kinds, each with the CPU time that its end has.
    fn tree(paths: &[(&[(&str, FrameKind)], u64)]) -> Tree {
        let mut tree = Tree::empty();
        for (path, cpu_ns) in paths {
            let node = path.iter().fold(0, |at, &(name, kind)| {
                let name = tree.name(name);
                tree.child(at, name, kind as u8)
            });
            add(&mut tree.own[node as usize], Cell { cpu_ns: *cpu_ns, samples: 1 });
        }
        tree.settle();
        tree
    }

    /// Nodes by their path, with the CPU time of both sides.
    fn paths(difference: &Difference) -> Vec<(String, u64, u64)> {
        let (columns, left_out) = difference.columns(100);
        assert_eq!(left_out, 0);
        let mut texts: Vec<String> = Vec::new();
        for (node, &back) in columns.parents.iter().enumerate() {
            let above = texts.get(node - back as usize).map_or("", String::as_str);
            texts.push(format!("{above}/{}", columns.names[columns.frame_names[node] as usize]));
        }
        let sides = columns.before_ns.iter().zip(&columns.after_ns);
        texts.into_iter().zip(sides).map(|(text, (&before, &after))| (text, before, after)).collect()
    }

    #[test]
    fn java_threads_are_compared_from_their_first_java_frame_on() {
        use FrameKind::{C1, C2, Inlined, Interpreted, Marker, Native, Vm};
        let before = tree(&[
            (&[("start", Native), ("old", Native), ("call", Vm), ("main", Interpreted), ("hot", C1)], 10),
            (&[("start", Native), ("old", Native)], 1),
            (&[("[GC]", Marker), ("start", Native), ("mark", Vm)], 3),
            (&[("[cut]", Marker), ("hot", C2)], 2),
        ]);
        let after = tree(&[
            (&[("start", Native), ("new", Native), ("main", C2), ("hot", Inlined)], 20),
            (&[("start", Native), ("new", Native), ("main", C2), ("lookup", Vm), ("loaded", Interpreted)], 5),
            (&[("main", C2)], 4),
        ]);
        let difference = Tree::difference(&before, &after);
        let expected = [
            ("/all", 16, 29),
            ("/all/start", 1, 0),
            ("/all/start/old", 1, 0),
            ("/all/main", 10, 29),
            ("/all/main/hot", 10, 20),
            ("/all/[GC]", 3, 0),
            ("/all/[GC]/start", 3, 0),
            ("/all/[GC]/start/mark", 3, 0),
            ("/all/[cut]", 2, 0),
            ("/all/[cut]/hot", 2, 0),
            ("/all/main/lookup", 0, 5),
            ("/all/main/lookup/loaded", 0, 5),
        ];
        assert_eq!(
            paths(&difference),
            expected.map(|(text, before, after)| (text.to_owned(), before, after))
        );
    }
}
