//! What samples refer to: strings, methods, frames and stacks, each once.
//!
//! Problem: the same stacks come from many sessions, millions of times, each time under numbers of that session.
//! Approach: rows in the order of first use, numbered densely; a stack is a node of one tree of frames, so that a
//! stack costs what distinguishes it from those already known, and sums over stacks become sums over an array in
//! which children follow their parents.
//! Invariant: rows are only ever appended, hence a number once given means the same for as long as the partition
//! lives; and no session can change what another one sent. Memory is bounded: beyond [`MOST_BYTES`], what is new is
//! counted and shown as unknown, until the next partition begins, which is at once.

mod session_rows;

use std::borrow::Cow;

use proto::v1::FrameKind;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::class_name::class_text;
use crate::quantity::table_bytes;
use crate::stop::UNKNOWN;
use crate::texts::Texts;

pub use session_rows::SessionRows;

/// Number of the string [`UNKNOWN`]; 0 is the empty one, "none".
const UNKNOWN_STRING: u32 = 1;

/// Number of the node of the unknown stack.
const UNKNOWN_NODE: u32 = 1;

/// Rough memory of a partition's dictionary. Large programs fill 10 to 25 MB a day, so dozens of different ones fit;
/// names that somebody makes up must not fill the memory of the collector.
const MOST_BYTES: usize = 256 << 20;

/// The share of them, one in so many, that is kept for sessions that have brought little: whoever makes up names, in one
/// session or in hundreds, must not take the names of all the others.
const KEPT_SHARE: usize = 4;

/// Sessions that may bring a share of it, the names of a program's first minutes, before it is used up: as many as have a
/// connection at a time, which is more than there can be until the next partition begins.
const KEPT_FOR: usize = 256;

/// A method; strings by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in proto/proto/profiler.proto")]
pub struct MethodRow {
    pub id: u64,
    pub class_name: u32,
    pub name: u32,
    pub signature: u32,
    pub source_file: u32,
    pub modifiers: u32,
    pub hidden: bool,
}

/// A frame; `method` 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in proto/proto/profiler.proto")]
pub struct FrameRow {
    pub id: u64,
    pub kind: u8,
    pub method: u32,
    pub bci: i32,
    pub line: u32,
    pub symbol: u32,
}

/// A frame below its caller; node 0 is the root, which is no frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Node of the caller, always less than this node's number.
    pub parent: u32,
    /// Frame number.
    pub frame: u32,
}

/// A stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackRow {
    /// Its leaf.
    pub node: u32,
    /// String number of the reason its walk ended.
    pub stop: u32,
}

/// The dictionary of a partition or of a recording.
#[derive(Clone, Debug)]
pub struct Dictionary {
    tables: Tables,
    known: Known,
    /// Whether rows are only looked up by number.
    is_closed: bool,
    /// Limit of [`bytes`](Self::bytes): [`MOST_BYTES`] unless changed.
    pub limit: usize,
    /// What it may reach for the session whose message is taken in; see [`admit`](Self::admit).
    admitted: usize,
    refused: u64,
}

/// Rows of one dictionary that were copied to another: numbers there by numbers here.
#[derive(Debug, Default)]
pub struct Copies {
    nodes: FxHashMap<u32, u32>,
    stacks: FxHashMap<u32, u32>,
}

/// The rows, by number.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Texts; 0 is the empty one and stands for "none".
    pub strings: Texts,
    /// Methods; 0 is the unknown one.
    pub methods: Vec<MethodRow>,
    /// Frames; 0 is the unknown one.
    pub frames: Vec<FrameRow>,
    /// Nodes; 0 is the root, 1 the node of the unknown stack.
    pub nodes: Vec<Node>,
    /// Stacks; 0 is the unknown one.
    pub stacks: Vec<StackRow>,
}

impl Tables {
    /// Number of rows of each table, in the order of the fields.
    pub fn lens(&self) -> [usize; 5] {
        [self.strings.len(), self.methods.len(), self.frames.len(), self.nodes.len(), self.stacks.len()]
    }
}

/// Where rows are that were told before; needed for as long as more comes.
#[derive(Clone, Debug, Default)]
struct Known {
    method_of: FxHashMap<u64, u32>,
    frame_of: FxHashMap<u64, u32>,
    markers: FxHashMap<u32, u32>,
    children: FxHashMap<(u32, u32), u32>,
    /// By node and reason; 0 for one that is not to be had.
    stack_at: FxHashMap<(u32, u32), u32>,
}

impl Default for Dictionary {
    fn default() -> Self {
        let unknown = MethodRow { class_name: UNKNOWN_STRING, name: UNKNOWN_STRING, ..MethodRow::default() };
        let mut dictionary = Dictionary {
            tables: Tables { methods: vec![unknown], nodes: vec![Node::default()], ..Tables::default() },
            known: Known::default(),
            is_closed: false,
            limit: MOST_BYTES,
            admitted: usize::MAX,
            refused: 0,
        };
        dictionary.intern("");
        dictionary.intern(UNKNOWN);
        // Frame 0 and stack 0 are what was referred to but never defined.
        dictionary.marker(UNKNOWN_STRING);
        let node = dictionary.child(0, 0);
        dictionary.tables.stacks.push(StackRow { node, stop: UNKNOWN_STRING });
        dictionary
    }
}

impl Dictionary {
    /// Text of a string.
    pub fn string(&self, number: u32) -> &str {
        self.tables.strings.get(number).unwrap_or(UNKNOWN)
    }

    /// A method, the unknown one if there is none of this number.
    pub fn method(&self, number: u32) -> MethodRow {
        self.tables.methods.get(number as usize).copied().unwrap_or(self.tables.methods[0])
    }

    /// A frame, the unknown one if there is none of this number.
    pub fn frame(&self, number: u32) -> FrameRow {
        self.tables.frames.get(number as usize).copied().unwrap_or(self.tables.frames[0])
    }

    /// A stack, the unknown one if there is none of this number.
    pub fn stack(&self, number: u32) -> StackRow {
        self.tables.stacks.get(number as usize).copied().unwrap_or(self.tables.stacks[0])
    }

    /// All rows.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Lets `read` append rows to the tables, each after the rows it refers to. After an error the dictionary must not be
    /// used.
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

    /// Makes the rows from `first` on those that are found when their content comes again.
    fn index_rows(&mut self, first: [usize; 5]) {
        let (known, tables) = (&mut self.known, &self.tables);
        let [_, methods, frames, nodes, stacks] = first;
        for (number, row) in (methods as u32..).zip(&tables.methods[methods..]).filter(|(_, row)| row.id != 0)
        {
            known.method_of.insert(row.id, number);
        }
        for (number, row) in (frames as u32..).zip(&tables.frames[frames..]) {
            if row.id != 0 {
                known.frame_of.insert(row.id, number);
            } else if row.kind == FrameKind::Marker as u8 {
                known.markers.insert(row.symbol, number);
            }
        }
        for (number, row) in (nodes as u32..).zip(&tables.nodes[nodes..]) {
            known.children.insert((row.parent, row.frame), number);
        }
        for (number, row) in (stacks as u32..).zip(&tables.stacks[stacks..]) {
            known.stack_at.entry((row.node, row.stop)).or_insert(number);
        }
    }

    /// All nodes; children follow their parents.
    pub fn nodes(&self) -> &[Node] {
        &self.tables.nodes
    }

    /// Number of stacks.
    pub fn stack_count(&self) -> usize {
        self.tables.stacks.len()
    }

    /// Number of frames.
    pub fn frame_count(&self) -> usize {
        self.tables.frames.len()
    }

    /// Most memory of the rows in bytes, room for more aside: exact when it is closed, and else as much as the tables
    /// take that have just grown.
    pub fn bytes(&self) -> usize {
        let rows = self.tables.strings.bytes()
            + size_of_val(&*self.tables.methods)
            + size_of_val(&*self.tables.frames)
            + size_of_val(&*self.tables.nodes)
            + size_of_val(&*self.tables.stacks);
        let Known { method_of, frame_of, markers, children, stack_at } = &self.known;
        let by_id = method_of.len() + frame_of.len();
        rows + table_bytes::<(u64, u32)>(by_id)
            + table_bytes::<(u32, u32)>(markers.len())
            + table_bytes::<((u32, u32), u32)>(children.len() + stack_at.len())
    }

    /// A dictionary without a limit, for one session.
    pub fn unlimited() -> Dictionary {
        Dictionary { limit: usize::MAX, ..Dictionary::default() }
    }

    /// A dictionary to read rows into that nobody adds to.
    pub fn for_reading() -> Dictionary {
        let mut dictionary = Dictionary::default();
        dictionary.close();
        dictionary
    }

    /// Whether nothing comes to it any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Gives back what is needed only to find rows again that were told before: nothing more comes.
    pub fn close(&mut self) {
        self.known = Known::default();
        self.is_closed = true;
        self.tables.strings.close();
        self.tables.methods.shrink_to_fit();
        self.tables.frames.shrink_to_fit();
        self.tables.nodes.shrink_to_fit();
        self.tables.stacks.shrink_to_fit();
    }

    /// Entries there was no room for; what refers to them is shown as unknown.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What comes next is of a session that has brought `brought` bytes: all but a quarter is for everybody, the rest for
    /// those that have brought little.
    pub fn admit(&mut self, brought: usize) {
        let shared = self.limit - self.limit / KEPT_SHARE;
        let little = self.limit / KEPT_SHARE / KEPT_FOR;
        self.admitted = shared.max(self.bytes() + little.saturating_sub(brought));
    }

    /// Whether only what is kept for sessions that bring little is left: time for the next partition.
    pub fn is_nearly_full(&self) -> bool {
        self.bytes() >= self.limit - self.limit / KEPT_SHARE
    }

    /// Forgets entries that were refused, for they will be sent again.
    pub fn clear_refused(&mut self) {
        self.refused = 0;
    }

    fn is_full(&self) -> bool {
        self.bytes() >= self.limit.min(self.admitted)
    }

    /// Whether one more entry may be taken; one that may not is counted.
    fn has_room(&mut self) -> bool {
        let has_room = !self.is_full();
        self.refused += u64::from(!has_room);
        has_room
    }

    /// Frame numbers of a stack, leaf first. A stack whose walk was cut has a frame `[reason]` at its root, an empty one
    /// that frame alone.
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

    /// As [`path`](Self::path), without the frame `[reason]`.
    pub fn frames_of(&self, stack: u32) -> Vec<u32> {
        let mut frames = self.path(stack);
        let is_mark = |&frame: &u32| {
            let row = self.frame(frame);
            frame != 0 && row.id == 0 && row.kind == FrameKind::Marker as u8
        };
        if frames.last().is_some_and(is_mark) {
            frames.pop();
        }
        frames
    }

    /// Copies a stack of `other` with everything it refers to, and returns its number here; `copies` are of the same
    /// `other`.
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
        let node = self.adopt_node(other, row.node, &mut copies.nodes);
        let next = self.tables.stacks.len() as u32;
        let copy = *self.known.stack_at.entry((node, stop)).or_insert(next);
        if copy == next {
            self.tables.stacks.push(StackRow { node, stop });
        }
        copies.stacks.insert(stack, copy);
        copy
    }

    /// Whether a node is no frame but says why walks ended above it.
    fn is_mark(&self, node: u32) -> bool {
        let Node { parent, frame } = self.tables.nodes[node as usize];
        let row = self.frame(frame);
        parent == 0 && frame != 0 && row.id == 0 && row.kind == FrameKind::Marker as u8
    }

    /// A frame as it is shown: `package.Class.method`, or the symbol.
    pub fn frame_text(&self, frame: u32) -> Cow<'_, str> {
        let frame = self.frame(frame);
        if frame.method == 0 {
            return Cow::Borrowed(self.string(frame.symbol));
        }
        let method = self.method(frame.method);
        Cow::Owned(format!("{}.{}", class_text(self.string(method.class_name)), self.string(method.name)))
    }

    fn adopt_frame(&mut self, other: &Dictionary, frame: u32) -> u32 {
        let row = other.frame(frame);
        if frame == 0 {
            return 0;
        }
        if row.id != 0
            && let Some(&known) = self.known.frame_of.get(&row.id)
        {
            return known;
        }
        let method = if row.method == 0 { 0 } else { self.adopt_method(other, row.method) };
        let symbol = self.intern(other.string(row.symbol));
        let number = self.push_frame(FrameRow { method, symbol, ..row });
        if row.id != 0 && number != 0 {
            self.known.frame_of.insert(row.id, number);
        }
        number
    }

    fn adopt_method(&mut self, other: &Dictionary, method: u32) -> u32 {
        let row = other.method(method);
        if row.id != 0
            && let Some(&known) = self.known.method_of.get(&row.id)
        {
            return known;
        }
        let mut string = |number| self.intern(other.string(number));
        let row = MethodRow {
            class_name: string(row.class_name),
            name: string(row.name),
            signature: string(row.signature),
            source_file: string(row.source_file),
            ..row
        };
        let number = self.push_method(row);
        if row.id != 0 && number != 0 {
            self.known.method_of.insert(row.id, number);
        }
        number
    }

    /// A new row; 0, the unknown method, if there is no room.
    fn push_method(&mut self, row: MethodRow) -> u32 {
        if !self.has_room() {
            return 0;
        }
        self.tables.methods.push(row);
        (self.tables.methods.len() - 1) as u32
    }

    /// A new row; 0, the unknown frame, if there is no room.
    fn push_frame(&mut self, row: FrameRow) -> u32 {
        if !self.has_room() {
            return 0;
        }
        self.tables.frames.push(row);
        (self.tables.frames.len() - 1) as u32
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

    /// The frame that shows a text of ours in brackets.
    fn marker(&mut self, text: u32) -> u32 {
        if let Some(&frame) = self.known.markers.get(&text) {
            return frame;
        }
        let kind = FrameKind::Marker as u8;
        let number = self.push_frame(FrameRow { kind, symbol: text, bci: -1, ..FrameRow::default() });
        // The first frame of all is the unknown one.
        if number != 0 || text == UNKNOWN_STRING {
            self.known.markers.insert(text, number);
        }
        number
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        if let Some(&node) = self.known.children.get(&(parent, frame)) {
            return node;
        }
        if !self.has_room() {
            return UNKNOWN_NODE;
        }
        let node = self.tables.nodes.len() as u32;
        self.known.children.insert((parent, frame), node);
        self.tables.nodes.push(Node { parent, frame });
        node
    }
}

/// Returns the hash by which rows of equal content are found, whichever session they come from.
fn content_id<const N: usize>(numbers: [u64; N]) -> u64 {
    xxh3_64(numbers.map(u64::to_le_bytes).as_flattened()).max(1)
}
