//! Dictionary entries, sent once and referred to by ids.
//!
//! Problem: a stack of a hundred frames takes kilobytes, and even a program in its steady state has new stacks, which
//! differ from known ones in a few frames.
//! Approach: strings, methods and frames get ids in the order of their first use. A stack is a node of a forest: a
//! frame below its caller, below a root with the stop reason; a new stack takes as many nodes as it has new frames. A
//! stack that is sampled has an id by its content as well, which is sent with its node: a hash of the texts and numbers
//! of its frames and its stop reason, the same in every session (`design/wire-format.md`).
//! Invariants: an entry is in the pending [`Dictionary`] or was sent before any sample that refers to it; an id is
//! never used for two entries of a kind, even after the sent entries were forgotten.

mod nodes;
mod pending;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use proto::ThreadState;
use proto::v1::{Dictionary, FrameKind, Thread};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use nodes::{Nodes, hash_below};
use pending::{FrameEntry, Pending};

use crate::name::shards::{PARTS, part_of};
pub use crate::walk::vm::MethodText;
pub use nodes::Node;
pub use pending::append;

/// Most sent entries of a kind; beyond, all are forgotten and sent again.
///
/// Minutes of H2, Clojure or a compiler make fewer than 100,000. Nodes have a bound of their own.
const MAX_SENT: usize = 1 << 19;

/// Returns a stack for samples whose stacks a destination had to give up: its entries, and its id.
///
/// These entries have the first ids of each session, which [`Dictionaries`] does not use.
pub fn reserved_stack(frame: &str, stop: &str) -> (Dictionary, u64) {
    let mut pending = Pending::default();
    for (id, text) in (1..).zip([frame, stop]) {
        pending.string(id, text);
    }
    pending.frame(1, FrameEntry::of_symbol(FrameKind::Marker, 1, 0));
    pending.node(1, 0, 2);
    pending.node(2, 1, 1);
    let [frame, stop] = [frame, stop].map(|text| xxh3_64(text.as_bytes()));
    let marker = frame_hash(FrameKind::Marker, 0, -1, 0, [frame, NO_TEXT]);
    pending.stack(2, hash_below(hash_below(Node::NONE.hash(), stop), marker));
    (pending.take().unwrap_or_default(), 2)
}

/// First ids after those of [`reserved_stack`]: strings, methods, frames, nodes.
const FIRST: [u32; 4] = [3, 1, 2, 3];

/// Stacks whose ids by content are known to have been sent; the rest is sent again with its next sample.
const SENT_STACKS: usize = 1 << 13;
const NO_TEXT: u64 = 0;

/// The id of a string, and the hash of its text.
pub(super) type Text = (u32, u64);

/// Ids by a hash of the content, and the hashes by id. Ids are consecutive.
#[derive(Debug)]
struct Ids {
    /// Ids at the places of their hashes, which are not repeated there. One table takes 17 ms or more to grow at
    /// 458,752 ids, one of these 1 to 2 ms.
    known: [HashTable<u32>; PARTS],
    hashes: Vec<u64>,
    /// The id of the first hash.
    first: u32,
}

impl Ids {
    /// No entries; the first one gets the id `first`.
    fn from(first: u32) -> Self {
        Self { known: Default::default(), hashes: Vec::new(), first }
    }

    /// Returns the id of the entry with this hash, and whether it is new.
    fn id(&mut self, hash: u64) -> (u32, bool) {
        let next = self.next();
        let Self { known, hashes, first } = self;
        let hash_of = |&id: &u32| hashes[(id - *first) as usize];
        match known[part_of(hash)].entry(hash, |id| hash_of(id) == hash, hash_of) {
            Entry::Occupied(entry) => (*entry.get(), false),
            Entry::Vacant(entry) => {
                entry.insert(next);
                hashes.push(hash);
                (next, true)
            }
        }
    }

    /// Returns the id of the next new entry.
    fn next(&self) -> u32 {
        self.first + self.hashes.len() as u32
    }

    /// Returns the hash of an entry; the id in place of it if the entry is unknown.
    #[inline]
    fn hash_of(&self, id: u32) -> u64 {
        let place = id.checked_sub(self.first).and_then(|place| self.hashes.get(place as usize));
        place.copied().unwrap_or(id.into())
    }

    /// Removes all entries; their ids are not reused.
    fn forget(&mut self) {
        *self = Self::from(self.next());
    }
}

/// All entries, sent and pending.
#[derive(Debug)]
pub struct Dictionaries {
    strings: Ids,
    methods: Ids,
    frames: Ids,
    nodes: Nodes,
    /// Stacks whose ids by content were sent, each at the place of its number.
    sent_stacks: Vec<u32>,
    pending: Pending,
    was_reset: bool,
}

impl Default for Dictionaries {
    fn default() -> Self {
        let [strings, methods, frames, nodes] = FIRST;
        Self {
            strings: Ids::from(strings),
            methods: Ids::from(methods),
            frames: Ids::from(frames),
            nodes: Nodes::from(nodes),
            sent_stacks: vec![0; SENT_STACKS],
            pending: Pending::default(),
            was_reset: false,
        }
    }
}

impl Dictionaries {
    /// Returns the id of a string; 0 for the empty one.
    pub fn string(&mut self, text: &str) -> u64 {
        self.string_id(text).0.into()
    }

    pub(super) fn string_id(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return (0, NO_TEXT);
        }
        let hash = xxh3_64(text.as_bytes());
        let (id, is_new) = self.strings.id(hash);
        if is_new {
            self.pending.string(id, text);
        }
        (id, hash)
    }

    pub fn method(&mut self, text: &MethodText) -> u64 {
        let strings = [&text.class_name, &text.name, &text.signature, &text.source_file];
        let strings = strings.map(|text| self.string_id(text));
        self.method_of(strings, text.modifiers, text.hidden)
    }

    /// Returns the id of a method by its class, name, signature and source file, its access flags, and whether it
    /// is hidden.
    pub(super) fn method_of(&mut self, strings: [Text; 4], modifiers: u32, hidden: bool) -> u64 {
        let modifiers = modifiers << 1 | u32::from(hidden);
        let [a, b, c, d] = strings.map(|(_, hash)| hash);
        let hash = hash([a, b, c, d, modifiers.into()]);
        let (id, is_new) = self.methods.id(hash);
        if is_new {
            self.pending.method(id, strings.map(|(id, _)| id), modifiers);
        }
        id.into()
    }

    pub fn java_frame(&mut self, kind: FrameKind, method: u64, bci: i32, line: u32) -> u64 {
        let method = narrow(method);
        let hash = frame_hash(kind, self.methods.hash_of(method), bci, line, [NO_TEXT; 2]);
        self.frame(FrameEntry { kind, method, bci, line, symbol: 0, library: 0 }, hash)
    }

    pub fn symbol_frame(&mut self, kind: FrameKind, symbol: &str) -> u64 {
        self.native_frame(kind, symbol, "")
    }

    pub fn native_frame(&mut self, kind: FrameKind, symbol: &str, library: &str) -> u64 {
        let ((symbol, symbol_hash), (library, library_hash)) =
            (self.string_id(symbol), self.string_id(library));
        let frame = FrameEntry::of_symbol(kind, symbol, library);
        let hash = frame_hash(kind, 0, frame.bci, frame.line, [symbol_hash, library_hash]);
        self.frame(frame, hash)
    }

    fn frame(&mut self, frame: FrameEntry, hash: u64) -> u64 {
        let (id, is_new) = self.frames.id(hash);
        if is_new {
            self.pending.frame(id, frame);
        }
        id.into()
    }

    /// Returns the id of a stack with these frames, leaf first, and this stop reason; frames 0 are left out.
    pub fn stack(&mut self, frames: &[u64], stop: &str) -> u64 {
        let root = self.root(stop, None);
        let node = self.leaf(root, frames.iter().rev().copied());
        self.sampled(node)
    }

    /// Returns the node of the last frame of a path, the first called by the frame of node `caller`; frames 0 are left
    /// out.
    pub fn leaf(&mut self, caller: Node, frames: impl Iterator<Item = u64>) -> Node {
        frames.filter(|frame| *frame != 0).fold(caller, |caller, frame| self.child(caller, frame))
    }

    /// Returns the id of the stack with this node, which a sample refers to; its id by content is sent if it was not.
    pub fn sampled(&mut self, node: Node) -> u64 {
        let place = node.id as usize % SENT_STACKS;
        if let Some(sent) = self.sent_stacks.get_mut(place).filter(|sent| **sent != node.id) {
            *sent = node.id;
            self.pending.stack(node.id, node.hash());
        }
        node.id.into()
    }

    /// Returns the root of stacks with a stop reason, and with the state of their thread if it is known.
    pub fn root(&mut self, stop: &str, state: Option<ThreadState>) -> Node {
        let hash = xxh3_64(ThreadState::after(stop, state).as_bytes());
        let (node, is_new) = self.nodes.child(Node::NONE, hash);
        if is_new {
            let (stop, _) = self.string_id(stop);
            self.pending.root(node.id, stop, state.map_or(0, ThreadState::number));
        }
        node
    }

    /// Returns the node of a frame that was called by the frame of node `caller`.
    #[inline]
    pub fn child(&mut self, caller: Node, frame: u64) -> Node {
        let frame = narrow(frame);
        let (node, is_new) = self.nodes.child(caller, self.frames.hash_of(frame));
        if is_new {
            self.pending.node(node.id, caller.id, frame);
        }
        node
    }

    /// Adds the description of a thread.
    pub fn thread(&mut self, thread: Thread) {
        self.pending.thread(thread);
    }

    /// Takes the pending entries, if there are any.
    pub fn take_pending(&mut self) -> Option<Dictionary> {
        self.pending.take()
    }

    /// Takes back the memory of entries that were sent.
    pub fn reuse_memory(&mut self, sent: Dictionary) {
        self.pending.reuse_memory(sent);
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Clears the marks of sent entries, which are then sent again with their next use.
    pub fn forget(&mut self) {
        [&mut self.strings, &mut self.methods, &mut self.frames].into_iter().for_each(Ids::forget);
        self.nodes.forget();
        self.sent_stacks.fill(0);
        self.was_reset = true;
    }

    /// Returns whether the sent entries were forgotten since the last call, by [`forget`](Self::forget) or because
    /// there were too many; callers must then forget all ids.
    pub fn take_reset(&mut self) -> bool {
        if [&self.strings, &self.methods, &self.frames].into_iter().any(|ids| ids.hashes.len() > MAX_SENT) {
            self.forget();
        }
        std::mem::take(&mut self.was_reset)
    }
}

/// Returns an id that was given out as 64 bits.
fn narrow(wide: u64) -> u32 {
    u32::try_from(wide).unwrap_or(0)
}

/// Returns the hash of a frame's content: of the hashes of its method or of its symbol and library, and its numbers.
fn frame_hash(kind: FrameKind, method: u64, bci: i32, line: u32, [symbol, library]: [u64; 2]) -> u64 {
    hash([kind as u64, method, bci.cast_unsigned().into(), line.into(), symbol, library])
}

fn hash<const N: usize>(content: [u64; N]) -> u64 {
    let mut hash = Xxh3::new();
    for word in content {
        hash.update(&word.to_le_bytes());
    }
    hash.digest()
}

#[cfg(test)]
mod tests;
