//! The forest of stacks: ids by caller and frame.
//!
//! The hash of a node is made of the contents of its frames, so it is the same in every session; it identifies the stack for
//! others as well.
//!
//! Problem: each new frame of each stack is looked up here, among up to a hundred thousand nodes in random order, so the
//! time goes into waiting for memory.
//! Approach: a node is found by a hash of all frames down from its root, which is computed without looking at memory, so
//! that the processor loads the places of a whole stack at once. A place is one line of the processor's cache with five
//! nodes, which overflows into its neighbour. The table doubles with its use up to [`MAX_LINES`]; from then on the oldest
//! node of a full line is forgotten.
//! Invariants: an id is given to one node only, unless two of all paths have the same hash of 64 bits; a node that was
//! forgotten gets a new id, and readers merge equal stacks.

/// Lines at the start, and at most: 16 KiB and 2 MiB; programs in their steady state need fewer than 100,000 nodes.
const LINES: usize = 1 << 8;
const MAX_LINES: usize = 1 << 15;
/// Nodes in a line.
const WAYS: usize = 5;

/// A node of the forest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its id.
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
    known: usize,
    used: u32,
}

impl Node {
    /// The caller of roots.
    pub(super) const NONE: Self = Self { id: 0, hash: 0 };

    /// The hash of its content; never 0.
    pub(super) fn hash(self) -> u64 {
        self.hash
    }
}

impl Nodes {
    /// No nodes; the first gets the id `first`.
    pub(super) fn from(first: u32) -> Self {
        Self { lines: vec![Line::default(); LINES], known: 0, used: first - 1 }
    }

    /// Forgets all nodes; their ids are not reused.
    pub(super) fn forget(&mut self) {
        *self = Self::from(self.used + 1);
    }

    /// Appends nodes without ids for the frames of a path below `caller`, by their hashes; 0 repeats the node before.
    ///
    /// The loads of their lines do not depend on each other, so the processor makes many at once. Lookups that follow
    /// would wait for each line in turn, because what is found decides on the next instructions.
    pub(super) fn begin_path(&self, caller: Node, frames: impl Iterator<Item = u64>, path: &mut Vec<Node>) {
        let mut hash = caller.hash;
        let mut loaded = 0;
        path.extend(frames.map(|frame| {
            if frame != 0 {
                hash = hash_below(hash, frame);
                let line = self.lines.get(place(hash, self.lines.len()));
                loaded ^= line.map_or(0, |line| line.hashes[0]);
            }
            Node { id: 0, hash }
        }));
        std::hint::black_box(loaded);
    }

    /// Returns the node of a frame with this hash below its caller, and whether it is new.
    pub(super) fn child(&mut self, caller: Node, frame: u64) -> (Node, bool) {
        self.with_hash(hash_below(caller.hash, frame))
    }

    /// Returns the node with this hash, and whether it is new.
    pub(super) fn with_hash(&mut self, hash: u64) -> (Node, bool) {
        if let Some(id) = self.find(hash) {
            return (Node { id, hash }, false);
        }
        self.used += 1;
        let node = Node { id: self.used, hash };
        self.put(node);
        // Fuller, pairs of lines overflow.
        if self.known > self.lines.len() * WAYS * 2 / 5 && self.lines.len() < MAX_LINES {
            self.grow();
        }
        (node, true)
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

    fn grow(&mut self) {
        let size = 2 * self.lines.len();
        let old = std::mem::replace(&mut self.lines, vec![Line::default(); size]);
        self.known = 0;
        for line in old {
            // Oldest first, so that the newest stays the newest.
            let nodes = line.hashes.iter().zip(&line.ids).rev().filter(|(hash, _)| **hash != 0);
            nodes.for_each(|(&hash, &id)| self.put(Node { id, hash }));
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

    #[test]
    fn hardly_any_node_is_forgotten_before_the_table_is_full() {
        let mut nodes = Nodes::from(1);
        let mut node = nodes.child(Node::NONE, 1).0;
        let count = 40_000_u64;
        let path: Vec<Node> = (0..count)
            .map(|frame| {
                node = nodes.child(node, frame % 97).0;
                node
            })
            .collect();
        let mut node = nodes.child(Node::NONE, 1).0;
        let known = (0..count)
            .filter(|&frame| {
                let (next, is_new) = nodes.child(node, frame % 97);
                node = next;
                !is_new && path.get(frame as usize) == Some(&next)
            })
            .count();
        assert!(known as u64 > count * 995 / 1000, "{known} of {count}");
    }
}
