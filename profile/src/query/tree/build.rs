//! Builds a [`Tree`] within bounds of memory.
//!
//! Problem: the stacks of months, or invented ones, do not fit into memory, and an answer shows only the heaviest.
//! Approach: the tree takes the heaviest nodes of each partition. When it grows to twice that many nodes, or too much
//! text, its lightest nodes are merged: below each caller, one frame [`LEFT_OUT`] gets the CPU time of the merged
//! nodes.
//! Invariant: CPU time and samples of the whole tree, and of each kept node with its subtree, are exact.

use std::borrow::Cow;
use std::hash::{BuildHasher, BuildHasherDefault};

use proto::v1::FrameKind;
use rustc_hash::FxHasher;
use xxhash_rust::xxh3::xxh3_64;

use super::{Bounds, LEFT_OUT, Tree, heaviest};
use crate::dictionary::Dictionary;
use crate::query::node_sums::NodeSums;
use crate::query::roots::is_root;
use crate::source::Sum;

/// Maximum length of a name in bytes; longer ones are shortened. Java classes and methods have a few hundred at most.
const LONG_NAME: usize = 2048;

/// The side of a comparison that a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::query) enum Side {
    /// The first of two sides.
    Before,
    /// The second of two sides, or the only one.
    After,
}

impl Tree {
    pub(in crate::query) fn empty() -> Tree {
        let mut tree = Tree::default();
        let name = tree.name("all");
        tree.parents.push(0);
        tree.name_of.push(name);
        tree.kinds.push(0);
        tree.own.push(Sum::default());
        tree
    }

    pub(in crate::query) fn name(&mut self, text: &str) -> u32 {
        let text = shortened(text);
        if let Some(name) = self.names.find(&text) {
            return name;
        }
        if self.names.text_bytes() > 2 * self.bounds.text_bytes && text != LEFT_OUT {
            return self.name(LEFT_OUT);
        }
        self.names.add(&text)
    }

    pub(in crate::query) fn child(&mut self, parent: u32, name: u32, kind: u8) -> u32 {
        let next = self.parents.len() as u32;
        let Tree { parents, name_of, kinds, children, .. } = self;
        let key = |node: u32| (parents[node as usize], name_of[node as usize], kinds[node as usize]);
        let hash = |key: (u32, u32, u8)| BuildHasherDefault::<FxHasher>::default().hash_one(key);
        let sought = (parent, name, kind);
        if let Some(&node) = children.find(hash(sought), |&node| key(node) == sought) {
            return node;
        }
        children.insert_unique(hash(sought), next, |&node| hash(key(node)));
        parents.push(parent);
        name_of.push(name);
        kinds.push(kind);
        self.own.push(Sum::default());
        next
    }

    /// Returns whether a node stands for others that were left out.
    pub(super) fn is_left_out(&self, node: usize) -> bool {
        self.text(self.name_of[node]) == LEFT_OUT
    }

    /// Returns the node for what is left out below `parent`, for one node more.
    fn left_out(&mut self, parent: u32) -> u32 {
        self.merged += 1;
        let name = self.name(LEFT_OUT);
        if self.name_of[parent as usize] == name {
            return parent;
        }
        self.child(parent, name, FrameKind::Marker as u8)
    }

    pub(in crate::query) fn add_own(&mut self, node: u32, cell: Sum, before_ns: u64) {
        let node = node as usize;
        self.own[node].add(cell);
        if before_ns > 0 {
            if self.before_ns.len() <= node {
                self.before_ns.resize(node + 1, 0);
            }
            self.before_ns[node] = self.before_ns[node].saturating_add(before_ns);
        }
    }

    /// Returns the CPU time of a node itself on either side.
    pub(in crate::query) fn sides_ns(&self, node: usize) -> [u64; 2] {
        let before_ns = self.before_ns.get(node).copied().unwrap_or(0);
        [before_ns, self.own[node].cpu_ns.saturating_sub(before_ns)]
    }

    /// Adds the subtrees of the nodes for which `is_root` holds; this tree's root stands for all of them.
    pub(in crate::query) fn add_part(
        &mut self,
        dictionary: &Dictionary,
        sums: &NodeSums,
        side: Side,
        is_root: impl Fn(usize) -> bool,
    ) {
        const OUTSIDE: u32 = u32::MAX;
        let nodes = dictionary.nodes();
        let kept = self.kept(dictionary, sums);
        let mut shown = vec![OUTSIDE; nodes.len()];
        let mut names = vec![u32::MAX; dictionary.frame_count()];
        for number in sums.used() {
            let node = nodes[number];
            let above = if number == 0 { OUTSIDE } else { shown[node.parent as usize] };
            let at = if is_root(number) {
                0
            } else if above == OUTSIDE {
                continue;
            } else if kept.as_ref().is_some_and(|kept| !kept[number]) {
                self.left_out(above)
            } else {
                let frame = node.frame as usize;
                if names[frame] == u32::MAX {
                    names[frame] = self.name(&dictionary.frame_text(node.frame));
                }
                let kind = self.kind(dictionary, node.frame);
                self.child(above, names[frame], kind)
            };
            let own = sums.own[number];
            self.add_own(at, own, if side == Side::Before { own.cpu_ns } else { 0 });
            shown[number] = at;
        }
        self.prune_if_large();
    }

    /// Returns the kind that keeps a frame apart from others of its name.
    pub(super) fn kind(&self, dictionary: &Dictionary, frame: u32) -> u8 {
        if self.is_plain { 0 } else { dictionary.frame(frame).kind }
    }

    /// Returns which nodes of a part are taken; `None` for all.
    fn kept(&self, dictionary: &Dictionary, sums: &NodeSums) -> Option<Vec<bool>> {
        (sums.used().count() > self.bounds.nodes).then(|| {
            let totals: Vec<u64> = sums.totals(dictionary).iter().map(|cell| cell.cpu_ns).collect();
            heaviest(&totals, self.bounds.nodes)
        })
    }

    /// Merges the lightest nodes if the tree is too large. Returns whether it did, which changes the numbers of names.
    pub(in crate::query) fn prune_if_large(&mut self) -> bool {
        let Bounds { nodes, text_bytes } = self.bounds;
        if self.len() <= 2 * nodes && self.names.text_bytes() <= text_bytes {
            return false;
        }
        let mut left = nodes;
        loop {
            self.prune(left);
            if self.names.text_bytes() <= text_bytes || left == 0 {
                return true;
            }
            left /= 4;
        }
    }

    /// Keeps the `nodes` heaviest nodes and merges the others.
    fn prune(&mut self, nodes: usize) {
        self.sum_totals();
        let kept = heaviest(&self.totals, nodes);
        let Tree { bounds, merged, is_plain, .. } = *self;
        let mut pruned = Tree { bounds, merged, is_plain, ..Tree::empty() };
        let mut shown = vec![0u32; self.len()];
        let mut names = vec![u32::MAX; self.names.len()];
        pruned.add_own(0, self.own[0], self.sides_ns(0)[0]);
        for node in 1..self.len() {
            let above = shown[self.parents[node] as usize];
            let at = if kept[node] {
                let name = self.name_of[node];
                if names[name as usize] == u32::MAX {
                    names[name as usize] = pruned.name(self.text(name));
                }
                pruned.child(above, names[name as usize], self.kinds[node])
            } else {
                // Nodes that were merged before count once.
                pruned.merged = pruned.merged.saturating_sub(u64::from(self.is_left_out(node)));
                pruned.left_out(above)
            };
            pruned.add_own(at, self.own[node], self.sides_ns(node)[0]);
            shown[node] = at;
        }
        *self = pruned;
    }

    pub(in crate::query) fn sum_totals(&mut self) {
        self.totals = self.own.iter().map(|cell| cell.cpu_ns).collect();
        sum_up(&mut self.totals, |_| true, |node| self.parents[node]);
    }
}

pub(in crate::query) fn thread_roots(dictionary: &Dictionary, sums: &NodeSums) -> Vec<bool> {
    let nodes = dictionary.nodes();
    let mut roots = vec![false; nodes.len()];
    roots[0] = true;
    for node in sums.used().skip(1) {
        roots[node] =
            roots[nodes[node].parent as usize] && is_root(&dictionary.frame_text(nodes[node].frame));
    }
    roots
}

/// Adds to each node the totals of its descendants, except the subtrees of nodes for which `counts` is false.
pub(in crate::query) fn sum_up(
    totals: &mut [u64],
    counts: impl Fn(usize) -> bool,
    parent: impl Fn(usize) -> u32,
) {
    for node in (1..totals.len()).rev().filter(|&node| counts(node)) {
        let parent = parent(node) as usize;
        totals[parent] = totals[parent].saturating_add(totals[node]);
    }
}

/// Shortens a name that is too long: a hash of the whole name replaces its middle, so that different names stay
/// different.
pub(in crate::query) fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= LONG_NAME {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(LONG_NAME / 2)];
    let end = &text[text.ceil_char_boundary(text.len() - LONG_NAME / 4)..];
    Cow::Owned(format!("{start}...{:016x}...{end}", xxh3_64(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: u8 = FrameKind::Native as u8;

    /// Builds a tree from paths of names, each with the CPU time of its last node.
    fn tree(bounds: Bounds, paths: &[(&str, u64)]) -> Tree {
        let mut tree = Tree { bounds, ..Tree::empty() };
        for (path, cpu_ns) in paths {
            let node = path.split('/').fold(0, |at, name| {
                let name = tree.name(name);
                tree.child(at, name, OTHER)
            });
            tree.own[node as usize].add(Sum { cpu_ns: *cpu_ns, samples: 1 });
        }
        tree
    }

    /// Returns the nodes by path, with their own CPU time and samples.
    fn paths(tree: &Tree) -> Vec<(String, u64, u64)> {
        let mut texts = vec![String::new()];
        (1..tree.len()).for_each(|node| {
            let above = &texts[tree.parents[node] as usize];
            texts.push(format!("{above}/{}", tree.text(tree.name_of[node])));
        });
        let own = tree.own.iter().map(|cell| (cell.cpu_ns, cell.samples));
        texts.into_iter().zip(own).map(|(text, (cpu_ns, samples))| (text, cpu_ns, samples)).skip(1).collect()
    }

    const ALL: [(&str, u64); 6] = [
        ("main", 1),
        ("main/hot", 50),
        ("main/hot/leaf", 30),
        ("main/cold", 2),
        ("main/cold/deep", 1),
        ("other", 3),
    ];

    #[test]
    fn light_nodes_are_merged_below_their_caller() {
        let small = Bounds { nodes: 4, text_bytes: 1000 };
        let mut pruned = tree(small, &ALL);
        pruned.prune_if_large();
        assert_eq!(pruned.len(), 7, "not twice as many yet");
        pruned.prune(4);
        pruned.sum_totals();
        let expected = [("/main", 1, 1), ("/main/hot", 50, 1), ("/main/hot/leaf", 30, 1)];
        let left_out = [("/main/[left out]", 3, 2), ("/[left out]", 3, 1)];
        let expected: Vec<_> =
            expected.into_iter().chain(left_out).map(|(a, b, c)| (a.to_owned(), b, c)).collect();
        assert_eq!(paths(&pruned), expected);
        assert_eq!((pruned.total_ns(), pruned.samples()), (87, 6));
        // A second pruning keeps merged nodes merged.
        pruned.prune(2);
        pruned.sum_totals();
        let expected = [("/main", 1, 1), ("/main/[left out]", 83, 4), ("/[left out]", 3, 1)];
        assert_eq!(paths(&pruned), expected.map(|(a, b, c)| (a.to_owned(), b, c)));
        assert_eq!((pruned.total_ns(), pruned.samples()), (87, 6));
    }

    #[test]
    fn a_tree_with_too_many_nodes_or_too_much_text_is_pruned() {
        let names: Vec<String> = (0..100).map(|number| format!("main/name{number}")).collect();
        let all: Vec<(&str, u64)> = names.iter().zip(1..).map(|(name, cpu)| (name.as_str(), cpu)).collect();
        for bounds in [Bounds { nodes: 20, text_bytes: 10_000 }, Bounds { nodes: 500, text_bytes: 400 }] {
            let mut small = tree(bounds, &all);
            small.prune_if_large();
            assert!(
                small.len() <= 2 * bounds.nodes && small.names.text_bytes() <= bounds.text_bytes,
                "{small:?}"
            );
            small.sum_totals();
            assert_eq!((small.total_ns(), small.samples()), (5050, 100));
            assert!(paths(&small).iter().any(|(path, ..)| path == "/main/name99"), "{small:?}");
        }
        // Beyond twice the bound of text, new names are left out.
        let small = tree(Bounds { nodes: 500, text_bytes: 10 }, &all);
        assert!(small.names.text_bytes() <= 20 + "name99".len() + LEFT_OUT.len());
        assert!(paths(&small).contains(&("/main/[left out]".into(), (4..=100).sum(), 97)), "{small:?}");
    }

    #[test]
    fn long_names_are_shortened_in_the_middle() {
        let long = "ä".repeat(100_000) + "Class.method";
        let text = shortened(&long);
        assert!(text.len() <= LONG_NAME && text.starts_with("ää") && text.ends_with("äClass.method"));
        assert_eq!(shortened("short"), "short");
        let other = "ä".repeat(50_000) + "o" + &"ä".repeat(50_000) + "Class.method";
        assert_ne!(shortened(&other), text, "they differ in the middle");
    }
}
