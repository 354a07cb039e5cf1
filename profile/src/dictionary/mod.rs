//! The dictionary of samples: strings, methods, frames and stacks, each stored once.
//!
//! Many sessions send the same stacks, each under its own numbers. Here rows are numbered densely in the order of first
//! use. A stack is a node of one tree of frames, so a new stack needs memory only for the frames that differ, and sums
//! over stacks become sums over an array in which children follow their parents.
//! Invariant: rows are only appended, so the row of a number never changes, and no session can change the rows of
//! another. Memory is bounded: beyond [`MOST_BYTES`], new entries are counted and shown as unknown until the next
//! partition begins, which happens at once.

pub mod entries;
pub mod frame_parts;
mod session_rows;
pub mod stop;
pub mod symbol;
mod tables;
pub mod texts;

use std::borrow::Cow;
use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use proto::v1::FrameKind;
use rustc_hash::{FxBuildHasher, FxHashMap};
use xxhash_rust::xxh3::xxh3_64;

use crate::dictionary::stop::UNKNOWN;
use crate::text::class_name::class_text;
use crate::text::quantity::table_bytes;

pub use session_rows::SessionRows;
pub use tables::{FrameRow, MethodRow, Node, StackRow, Tables};

/// Number of the string [`UNKNOWN`]. String 0 is empty and stands for "none".
const UNKNOWN_STRING: u32 = 1;

/// Number of the node of the unknown stack.
const UNKNOWN_NODE: u32 = 1;

/// Limit of the memory of a partition's dictionary. Large programs need 10 to 25 MB a day, so dozens of different ones
/// fit; the limit protects the collector from invented names.
const MOST_BYTES: usize = 256 << 20;

/// One part in this many of the limit is reserved for sessions that have sent little, so that a program that invents
/// names, in one session or in hundreds, cannot displace the names of all others.
const KEPT_SHARE: usize = 4;

/// Number of sessions that share the reserve: the maximum number of connections. Each share holds the names of a
/// program's first minutes.
const KEPT_FOR: usize = 256;

/// The dictionary of a partition or of a recording.
#[derive(Clone, Debug)]
pub struct Dictionary {
    tables: Tables,
    index: RowIndex,
    /// True if rows are only looked up by number.
    is_closed: bool,
    /// Limit of [`bytes`](Self::bytes): [`MOST_BYTES`] unless changed.
    pub limit: usize,
    /// Limit for the session whose message is being read; see [`admit`](Self::admit).
    admitted: usize,
    refused: u64,
}

/// Rows that were copied from one dictionary to another: new numbers by old numbers.
#[derive(Debug, Default)]
pub struct Copies {
    nodes: FxHashMap<u32, u32>,
    stacks: FxHashMap<u32, u32>,
}

/// Row numbers by content; only needed while entries are added.
#[derive(Clone, Debug, Default)]
struct RowIndex {
    method_of: FxHashMap<u64, u32>,
    frame_of: FxHashMap<u64, u32>,
    markers: FxHashMap<u32, u32>,
    /// Strings of functions as they are shown, by the symbols that were sent; only where they differ.
    functions: FxHashMap<u32, u32>,
    /// Nodes, by the hash of their rows: there are more of them than of all others.
    children: HashTable<u32>,
    /// Stacks by node and reason; 0 for a stack that was refused.
    stack_at: FxHashMap<(u32, u32), u32>,
}

impl Default for Dictionary {
    fn default() -> Self {
        let unknown = MethodRow { class_name: UNKNOWN_STRING, name: UNKNOWN_STRING, ..MethodRow::default() };
        let mut dictionary = Dictionary {
            tables: Tables { methods: vec![unknown], nodes: vec![Node::default()], ..Tables::default() },
            index: RowIndex::default(),
            is_closed: false,
            limit: MOST_BYTES,
            admitted: usize::MAX,
            refused: 0,
        };
        dictionary.intern("");
        dictionary.intern(UNKNOWN);
        // Frame 0 and stack 0 stand for references without a definition.
        dictionary.marker(UNKNOWN_STRING);
        let node = dictionary.child(0, 0);
        dictionary.tables.stacks.push(StackRow { node, stop: UNKNOWN_STRING });
        dictionary
    }
}

impl Dictionary {
    pub fn string(&self, number: u32) -> &str {
        self.tables.strings.get(number).unwrap_or(UNKNOWN)
    }

    /// Returns a method, or the unknown one if the number is undefined.
    pub fn method(&self, number: u32) -> MethodRow {
        self.tables.methods.get(number as usize).copied().unwrap_or(self.tables.methods[0])
    }

    /// Returns a frame, or the unknown one if the number is undefined.
    pub fn frame(&self, number: u32) -> FrameRow {
        self.tables.frames.get(number as usize).copied().unwrap_or(self.tables.frames[0])
    }

    /// Returns a stack, or the unknown one if the number is undefined.
    pub fn stack(&self, number: u32) -> StackRow {
        self.tables.stacks.get(number as usize).copied().unwrap_or(self.tables.stacks[0])
    }

    /// Returns the kind of a stack's newest frame; kinds of later versions are [`FrameKind::Unspecified`].
    pub fn newest_kind(&self, stack: u32) -> FrameKind {
        let node = self.stack(stack).node as usize;
        let newest = self.nodes().get(node).map(|node| self.frame(node.frame).kind);
        FrameKind::try_from(i32::from(newest.unwrap_or_default())).unwrap_or(FrameKind::Unspecified)
    }

    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Calls `read` to append rows to the tables, each after the rows it refers to. After an error the dictionary must
    /// not be used.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn append<E>(&mut self, read: impl FnOnce(&mut Tables) -> Result<(), E>) -> Result<(), E> {
        let first = self.tables.lens();
        read(&mut self.tables)?;
        if !self.is_closed {
            self.index_rows(first);
        }
        Ok(())
    }

    /// Adds the rows from `first` on to the index by content.
    fn index_rows(&mut self, first: [usize; 5]) {
        let (index, tables) = (&mut self.index, &self.tables);
        let [_, methods, frames, nodes, stacks] = first;
        for (number, row) in (0..).zip(&tables.methods).skip(methods).filter(|(_, row)| row.id != 0) {
            index.method_of.insert(row.id, number);
        }
        for (number, row) in (0..).zip(&tables.frames).skip(frames) {
            if row.id != 0 {
                index.frame_of.insert(row.id, number);
            } else if row.kind == FrameKind::Marker as u8 {
                index.markers.insert(row.symbol, number);
            }
        }
        for (number, row) in (0..).zip(&tables.nodes).skip(nodes) {
            index
                .children
                .insert_unique(hash_of(row), number, |&other| hash_of(&tables.nodes[other as usize]));
        }
        for (number, row) in (0..).zip(&tables.stacks).skip(stacks) {
            index.stack_at.entry((row.node, row.stop)).or_insert(number);
        }
    }

    /// Returns all nodes; children follow their parents.
    pub fn nodes(&self) -> &[Node] {
        &self.tables.nodes
    }

    pub fn stack_count(&self) -> usize {
        self.tables.stacks.len()
    }

    pub fn frame_count(&self) -> usize {
        self.tables.frames.len()
    }

    /// Returns the memory of the rows in bytes without spare capacity: exact if closed, else an upper bound, as hash
    /// tables may have just grown.
    pub fn bytes(&self) -> usize {
        let rows = self.tables.strings.bytes()
            + size_of_val(&*self.tables.methods)
            + size_of_val(&*self.tables.frames)
            + size_of_val(&*self.tables.nodes)
            + size_of_val(&*self.tables.stacks);
        let RowIndex { method_of, frame_of, markers, functions, children, stack_at } = &self.index;
        let by_id = method_of.len() + frame_of.len();
        rows + table_bytes::<(u64, u32)>(by_id)
            + table_bytes::<(u32, u32)>(markers.len() + functions.len())
            + table_bytes::<u32>(children.len())
            + table_bytes::<((u32, u32), u32)>(stack_at.len())
    }

    /// Returns a dictionary without a limit, for one session.
    pub fn unlimited() -> Dictionary {
        Dictionary { limit: usize::MAX, ..Dictionary::default() }
    }

    /// Returns a closed dictionary, to be filled by [`append`](Self::append).
    pub fn for_reading() -> Dictionary {
        let mut dictionary = Dictionary::default();
        dictionary.close();
        dictionary
    }

    /// Returns whether the dictionary accepts no new entries.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Closes the dictionary to new entries and frees the index by content.
    pub fn close(&mut self) {
        self.index = RowIndex::default();
        self.is_closed = true;
        self.tables.strings.close();
        self.tables.methods.shrink_to_fit();
        self.tables.frames.shrink_to_fit();
        self.tables.nodes.shrink_to_fit();
        self.tables.stacks.shrink_to_fit();
    }

    /// Returns the number of entries beyond the limit; references to them are shown as unknown.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Sets the limit for the next entries, of a session that has sent `brought` bytes: three quarters of the memory
    /// are for all sessions, the rest is for sessions that have sent little.
    pub fn admit(&mut self, brought: usize) {
        let shared = self.limit - self.limit / KEPT_SHARE;
        let little = self.limit / KEPT_SHARE / KEPT_FOR;
        self.admitted = shared.max(self.bytes() + little.saturating_sub(brought));
    }

    /// Returns whether only the reserve for sessions that have sent little is left; the next partition should begin
    /// then.
    pub fn is_nearly_full(&self) -> bool {
        self.bytes() >= self.limit - self.limit / KEPT_SHARE
    }

    /// Resets the count of refused entries, which will be sent again.
    pub fn clear_refused(&mut self) {
        self.refused = 0;
    }

    fn is_full(&self) -> bool {
        self.bytes() >= self.limit.min(self.admitted)
    }

    /// Returns whether one more entry fits within the limit, and counts a refused one.
    fn has_room(&mut self) -> bool {
        let has_room = !self.is_full();
        self.refused += u64::from(!has_room);
        has_room
    }

    /// Returns the frame numbers of a stack, leaf first. An incomplete stack has a frame `[reason]` at its root, an
    /// empty stack only that frame.
    pub fn path(&self, stack: u32) -> Vec<u32> {
        let mut frames = Vec::new();
        let mut node = self.stack(stack).node;
        while node != 0 {
            let Node { parent, frame } = self.tables.nodes[node as usize];
            frames.push(frame);
            node = parent;
        }
        frames
    }

    /// Copies a stack of `other` with all rows it refers to, and returns its new number. `copies` must belong to the
    /// same `other`.
    pub fn copy_stack(&mut self, other: &Dictionary, stack: u32, copies: &mut Copies) -> u32 {
        if stack == 0 {
            return 0;
        }
        if let Some(&copy) = copies.stacks.get(&stack) {
            return copy;
        }
        let row = other.stack(stack);
        let stop = self.intern(other.string(row.stop));
        copies.nodes.entry(0).or_insert(0);
        let node = self.copy_node(other, row.node, &mut copies.nodes);
        let next = self.tables.stacks.len() as u32;
        let copy = *self.index.stack_at.entry((node, stop)).or_insert(next);
        if copy == next {
            self.tables.stacks.push(StackRow { node, stop });
        }
        copies.stacks.insert(stack, copy);
        copy
    }

    fn is_marker(&self, node: u32) -> bool {
        let Node { parent, frame } = self.tables.nodes[node as usize];
        let row = self.frame(frame);
        parent == 0 && frame != 0 && row.id == 0 && row.kind == FrameKind::Marker as u8
    }

    /// Returns the text of a frame: `package.Class.method`, or the symbol.
    pub fn frame_text(&self, frame: u32) -> Cow<'_, str> {
        let frame = self.frame(frame);
        if frame.method == 0 {
            return Cow::Borrowed(self.string(frame.symbol));
        }
        let method = self.method(frame.method);
        Cow::Owned(format!("{}.{}", class_text(self.string(method.class_name)), self.string(method.name)))
    }

    fn copy_frame(&mut self, other: &Dictionary, frame: u32) -> u32 {
        let row = other.frame(frame);
        if frame == 0 {
            return 0;
        }
        if let Some(&known) = self.index.frame_of.get(&row.id) {
            return known;
        }
        let method = if row.method == 0 { 0 } else { self.copy_method(other, row.method) };
        let symbol = self.intern(other.string(row.symbol));
        let library = if row.library == 0 { 0 } else { self.intern(other.string(row.library)) };
        self.add_frame(FrameRow { method, symbol, library, ..row })
    }

    fn copy_method(&mut self, other: &Dictionary, method: u32) -> u32 {
        let row = other.method(method);
        if let Some(&known) = self.index.method_of.get(&row.id) {
            return known;
        }
        let mut string = |number| self.intern(other.string(number));
        let (class_name, name) = (string(row.class_name), string(row.name));
        let (signature, source_file) = (string(row.signature), string(row.source_file));
        self.add_method(MethodRow { class_name, name, signature, source_file, ..row })
    }

    /// Returns the number of the row with this id, and appends it if there is none; 0, the unknown method, beyond the
    /// limit. A row with id 0 is always appended.
    fn add_method(&mut self, row: MethodRow) -> u32 {
        if let Some(&known) = self.index.method_of.get(&row.id) {
            return known;
        }
        if !self.has_room() {
            return 0;
        }
        let number = self.tables.methods.len() as u32;
        self.tables.methods.push(row);
        if row.id != 0 {
            self.index.method_of.insert(row.id, number);
        }
        number
    }

    /// Adds a row like [`add_method`](Self::add_method).
    fn add_frame(&mut self, row: FrameRow) -> u32 {
        if let Some(&known) = self.index.frame_of.get(&row.id) {
            return known;
        }
        if !self.has_room() {
            return 0;
        }
        let number = self.tables.frames.len() as u32;
        self.tables.frames.push(row);
        if row.id != 0 {
            self.index.frame_of.insert(row.id, number);
        }
        number
    }

    fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.tables.strings.find(text) {
            return number;
        }
        if !self.has_room() {
            return UNKNOWN_STRING;
        }
        self.tables.strings.add(text)
    }

    /// Returns the marker frame of a text, which is shown in brackets.
    fn marker(&mut self, text: u32) -> u32 {
        if let Some(&frame) = self.index.markers.get(&text) {
            return frame;
        }
        let kind = FrameKind::Marker as u8;
        let number = self.add_frame(FrameRow { kind, symbol: text, bci: -1, ..FrameRow::default() });
        // The first frame is the unknown one.
        if number != 0 || text == UNKNOWN_STRING {
            self.index.markers.insert(text, number);
        }
        number
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let row = Node { parent, frame };
        let (hash, nodes) = (hash_of(&row), &self.tables.nodes);
        if let Some(&node) = self.index.children.find(hash, |&node| nodes[node as usize] == row) {
            return node;
        }
        if !self.has_room() {
            return UNKNOWN_NODE;
        }
        let node = self.tables.nodes.len() as u32;
        self.tables.nodes.push(row);
        let nodes = &self.tables.nodes;
        self.index.children.insert_unique(hash, node, |&other| hash_of(&nodes[other as usize]));
        node
    }
}

fn hash_of(node: &Node) -> u64 {
    FxBuildHasher.hash_one(node)
}

/// Returns the hash of a row's content, which is equal for equal rows of all sessions.
fn content_id<const N: usize>(numbers: [u64; N]) -> u64 {
    xxh3_64(numbers.map(u64::to_le_bytes).as_flattened()).max(1)
}
