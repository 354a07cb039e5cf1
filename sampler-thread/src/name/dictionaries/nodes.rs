//! The forest of stacks: ids by caller and frame.
//!
//! The hash of a node is made of the contents of its frames, so it is the same in every session; it identifies the
//! stack for others as well.
//!
//! Problem: each frame of each stack is looked up here, among up to a hundred thousand nodes in random order, so the
//! time goes into waiting for memory.
//! Approach: the frames of a new stack get consecutive ids, so most nodes are their caller's next one:
//! [`Nodes::hashes`] has the hashes of the newest nodes by id, and the frames of a stack are compared there one after
//! the other. Only a node with another id than its caller's next is found by a table: its places are lines of the
//! processor's cache with five nodes, which overflow into their neighbours. Both grow with their use and in place,
//! because pages that are touched for the first time cost more than what is in them: the table up to [`MAX_LINES`],
//! from where on the oldest node of a full line is forgotten, the hashes up to [`MAX_PIECES`], from where on the oldest
//! are.
//! Invariants: an id is given to one node only, unless two of all paths have the same hash of 64 bits; a node that was
//! forgotten gets a new id, and readers merge equal stacks.

/// Lines at the start, and at most: 16 KiB and 1 MiB.
const LINES: usize = 1 << 8;
const MAX_LINES: usize = 1 << 14;
/// Nodes in a line.
const WAYS: usize = 5;
/// Hashes in a piece: 64 KiB.
const PIECE: usize = 1 << 13;
/// Most pieces: 1 MiB; programs in their steady state need fewer than 100,000 nodes.
const MAX_PIECES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    pub id: u32,
    hash: u64,
}

/// Nodes that share a place, newest first; 0 is no hash of a node.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    hashes: [u64; WAYS],
    ids: [u32; WAYS],
}

/// Ids by caller and frame; roots have caller 0 and a stop reason instead of a frame.
#[derive(Debug)]
pub(super) struct Nodes {
    lines: Vec<Line>,
    /// Number of nodes in the lines.
    known: usize,
    hashes: NewestHashes,
    /// The first id, and the last.
    first: u32,
    used: u32,
}

/// The hashes of the newest nodes, by id.
#[derive(Debug)]
struct NewestHashes {
    /// Each is full but the last.
    pieces: Vec<Vec<u64>>,
    /// The id of the first hash.
    first: u32,
}

impl NewestHashes {
    /// No hashes; the first one is that of the node with the id `first`.
    fn from(first: u32) -> Self {
        Self { pieces: Vec::new(), first }
    }

    #[inline]
    fn of(&self, id: u32) -> Option<u64> {
        let place = id.checked_sub(self.first)? as usize;
        self.pieces.get(place / PIECE)?.get(place % PIECE).copied()
    }

    /// Adds the hash of the node with the next id.
    fn push(&mut self, hash: u64) {
        match self.pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => last.push(hash),
            None => {
                let mut piece = match self.pieces.len() {
                    MAX_PIECES => {
                        self.first += PIECE as u32;
                        self.pieces.remove(0)
                    }
                    _ => Vec::with_capacity(PIECE),
                };
                piece.clear();
                piece.push(hash);
                self.pieces.push(piece);
            }
        }
    }
}

impl Node {
    /// The caller of roots.
    pub(super) const NONE: Self = Self { id: 0, hash: 0 };

    /// The hash of its content; never 0.
    pub(in crate::name) fn hash(self) -> u64 {
        self.hash
    }
}

impl Nodes {
    /// No nodes; the first gets the id `first`.
    pub(super) fn from(first: u32) -> Self {
        Self {
            lines: vec![Line::default(); LINES],
            known: 0,
            hashes: NewestHashes::from(first),
            first,
            used: first - 1,
        }
    }

    /// Removes all nodes; their ids are not reused.
    pub(super) fn forget(&mut self) {
        *self = Self::from(self.used + 1);
    }

    /// Returns the node of a frame with this hash below its caller, and whether it is new.
    #[inline]
    pub(super) fn child(&mut self, caller: Node, frame: u64) -> (Node, bool) {
        let hash = hash_below(caller.hash, frame);
        let next = caller.id + 1;
        if self.hashes.of(next) == Some(hash) {
            return (Node { id: next, hash }, false);
        }
        self.distant_child(caller, hash)
    }

    /// Finds or adds the node with this hash, which does not have the id behind its caller's, or is new.
    #[inline(never)]
    fn distant_child(&mut self, caller: Node, hash: u64) -> (Node, bool) {
        // If the caller has the last id, no node was made below it since, so the search in the table is left out.
        let is_next = caller.id == self.used && caller.id >= self.first;
        if !is_next && let Some(id) = self.find(hash) {
            return (Node { id, hash }, false);
        }
        let node = self.append(hash);
        if !is_next {
            self.put(node);
            // Fuller, pairs of lines overflow.
            if self.known > self.lines.len() * WAYS * 3 / 10 && self.lines.len() < MAX_LINES {
                self.grow();
            }
        }
        (node, true)
    }

    /// Makes a node with the next id.
    fn append(&mut self, hash: u64) -> Node {
        self.used += 1;
        self.hashes.push(hash);
        Node { id: self.used, hash }
    }

    fn find(&self, hash: u64) -> Option<u32> {
        let place = place(hash, self.lines.len());
        let line = self.lines.get(place)?;
        let next = || self.lines.get(place ^ 1).filter(|_| line.is_full()).and_then(|line| line.find(hash));
        line.find(hash).or_else(next)
    }

    /// Adds a node to its line, to the neighbour of a full line, or in place of the oldest node if both are full.
    fn put(&mut self, node: Node) {
        let place = place(node.hash, self.lines.len());
        let is_free = |place| self.lines.get(place).is_some_and(|line: &Line| !line.is_full());
        let (is_free, is_next_free) = (is_free(place), is_free(place ^ 1));
        let chosen = if is_free || !is_next_free { place } else { place ^ 1 };
        self.known += usize::from(is_free || is_next_free);
        if let Some(line) = self.lines.get_mut(chosen) {
            line.put(node);
        }
    }

    /// Doubles the table: the nodes of each pair of lines go there or to the pair that is as far away as the table was
    /// long.
    fn grow(&mut self) {
        let size = self.lines.len();
        self.lines.resize(2 * size, Line::default());
        self.known = 0;
        for first in (0..size).step_by(2) {
            let pair = [first, first + 1].map(|at| self.lines.get_mut(at).map(std::mem::take));
            for line in pair.into_iter().flatten() {
                // Oldest first, so that the newest stays the newest.
                let nodes = line.hashes.iter().zip(&line.ids).rev().filter(|(hash, _)| **hash != 0);
                nodes.for_each(|(&hash, &id)| self.put(Node { id, hash }));
            }
        }
    }
}

impl Line {
    fn is_full(&self) -> bool {
        self.hashes.last() != Some(&0)
    }

    fn find(&self, hash: u64) -> Option<u32> {
        let way = self.hashes.iter().position(|known| *known == hash)?;
        self.ids.get(way).copied()
    }

    /// Adds a node as the newest; the oldest of a full line is forgotten.
    fn put(&mut self, node: Node) {
        self.hashes.rotate_right(1);
        self.ids.rotate_right(1);
        (self.hashes[0], self.ids[0]) = (node.hash, node.id);
    }
}

/// Returns the line of a hash in a table of `lines`, a power of two.
fn place(hash: u64, lines: usize) -> usize {
    usize::try_from(hash >> 32).unwrap_or(0) & (lines - 1)
}

/// Returns the hash of a frame with the hash `frame` below a caller with the hash `caller`; never 0.
#[inline]
pub(super) fn hash_below(caller: u64, frame: u64) -> u64 {
    // Digits of pi; an odd factor, so that the low half of the product keeps every difference.
    const START: u64 = 0x243f_6a88_85a3_08d3;
    const FACTOR: u64 = 0x1319_8a2e_0370_7345;
    let product = u128::from(caller.wrapping_add(START) ^ frame) * u128::from(FACTOR);
    ((product >> 64) as u64 ^ product as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_whole_path() {
        let mut nodes = Nodes::from(3);
        let (root, is_new) = nodes.child(Node::NONE, 7);
        assert!(is_new && root.id == 3);
        let path = |nodes: &mut Nodes, frames: &[u64]| {
            frames.iter().fold(root, |node, &frame| nodes.child(node, frame).0)
        };
        let one = path(&mut nodes, &[1, 2, 3]);
        assert_eq!(path(&mut nodes, &[1, 2, 3]), one);
        assert_ne!(path(&mut nodes, &[2, 1, 3]).id, one.id);
        assert_ne!(path(&mut nodes, &[1, 2]).id, one.id);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_newest() {
        let mut nodes = Nodes::from(1);
        let (root, _) = nodes.child(Node::NONE, 1);
        let all = (MAX_LINES * WAYS) as u64;
        let mut ids = std::collections::HashSet::new();
        for frame in 0..2 * all {
            let (node, is_new) = nodes.child(root, frame);
            assert!(is_new && ids.insert(node.id), "an id of its own");
        }
        assert_eq!(nodes.lines.len(), MAX_LINES);
        let recent = (2 * all - all / 4..2 * all).filter(|&frame| !nodes.child(root, frame).1).count();
        assert!(recent as u64 > all / 4 * 99 / 100, "{recent} of {} recent nodes are known", all / 4);
    }

    /// Paths that are no chains: each node but the first two has an elder sibling.
    fn branches(count: u64) -> impl Iterator<Item = [u64; 3]> {
        (0..count).map(|branch| [branch % 7, branch % 97, branch])
    }

    fn leaf(nodes: &mut Nodes, root: Node, frames: &[u64]) -> (Node, bool) {
        frames.iter().fold((root, false), |(node, _), &frame| nodes.child(node, frame))
    }

    #[test]
    fn hardly_any_node_is_forgotten_before_the_table_is_full() {
        let mut nodes = Nodes::from(1);
        let root = nodes.child(Node::NONE, 1).0;
        let count = 30_000;
        let leaves: Vec<Node> = branches(count).map(|path| leaf(&mut nodes, root, &path).0).collect();
        let known = branches(count).zip(leaves).filter(|(path, expected)| {
            let (found, is_new) = leaf(&mut nodes, root, path);
            !is_new && found == *expected
        });
        let known = known.count() as u64;
        assert!(known > count * 995 / 1000, "{known} of {count}");
    }

    #[test]
    fn a_chain_of_nodes_takes_one_place_of_the_table() {
        let mut nodes = Nodes::from(1);
        let root = nodes.child(Node::NONE, 1).0;
        let count = 2 * PIECE as u64;
        let ids: Vec<u32> = (0..3)
            .flat_map(|branch| {
                let mut node = nodes.child(root, branch).0;
                (0..count)
                    .map(|frame| {
                        node = nodes.child(node, frame % 97).0;
                        node.id
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(nodes.known, 3, "the root and the branches that are not its next node");
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
        let again = (0..3).flat_map(|branch| {
            let mut node = nodes.child(root, branch).0;
            (0..count)
                .map(|frame| {
                    let (next, is_new) = nodes.child(node, frame % 97);
                    assert!(!is_new);
                    node = next;
                    node.id
                })
                .collect::<Vec<_>>()
        });
        assert!(again.eq(ids));
    }

    #[test]
    fn a_removed_node_gets_a_new_id() {
        let mut nodes = Nodes::from(1);
        let root = nodes.child(Node::NONE, 1).0;
        let old = leaf(&mut nodes, root, &[5, 6]).0;
        // A chain that displaces all hashes, but nothing in the table.
        leaf(&mut nodes, root, &vec![8; MAX_PIECES * PIECE + PIECE]);
        let (new, is_new) = leaf(&mut nodes, root, &[5, 6]);
        assert!(is_new && new.id > old.id);
        assert_eq!(leaf(&mut nodes, root, &[5, 6]), (new, false));
        let last = nodes.used;
        nodes.forget();
        assert_eq!(nodes.child(Node::NONE, 1), (Node { id: last + 1, hash: root.hash }, true));
    }

    #[test]
    fn nodes_are_those_of_a_map() {
        let mut nodes = Nodes::from(3);
        let mut model = std::collections::HashMap::new();
        let mut random = 1_u64;
        for _ in 0..2_000 {
            let (mut node, mut path) = (Node::NONE, Vec::new());
            for _ in 0..12 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                path.push(random >> 62);
                let (next, is_new) = nodes.child(node, random >> 62);
                assert_eq!(is_new, !model.contains_key(&path));
                assert_eq!(*model.entry(path.clone()).or_insert(next), next);
                node = next;
            }
        }
        assert_eq!(model.len(), (nodes.used - 2) as usize);
    }
}
