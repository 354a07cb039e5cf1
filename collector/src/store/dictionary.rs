//! What samples refer to: strings, methods, frames and stacks, each once.
//!
//! Problem: the same stacks come from many sessions, millions of times, under 64-bit ids derived from content.
//! Approach: rows in the order of first use, numbered densely; a stack is a node of one tree of frames, so that a
//! stack costs what distinguishes it from those already known, and sums over stacks become sums over an array in
//! which children follow their parents.
//! Invariant: rows are only ever appended, hence a number once given means the same for as long as the partition
//! lives. An id is shared between sessions only if it is the hash of its content (`design/wire-format.md`): no
//! agent can rename what another one sent. Other ids are valid for their session, until the collector ends.

use std::borrow::Cow;

use proto::v1::{Dictionary as Definitions, FrameKind};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::column::{BlockError, BlockReader, BlockWriter};
use crate::profile::{END_OF_STACK, UNKNOWN, WHOLE_STACKS, class_text};

/// Number of the string [`UNKNOWN`]; 0 is the empty one, "none".
const UNKNOWN_STRING: u32 = 1;

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
    /// Id it came under.
    pub id: u64,
    /// Its leaf.
    pub node: u32,
    /// String number of the reason its walk ended.
    pub stop: u32,
}

/// Ids of one session that are not derived from content.
#[derive(Clone, Debug, Default)]
pub(super) struct PrivateIds {
    strings: FxHashMap<u64, u32>,
    methods: FxHashMap<u64, u32>,
    frames: FxHashMap<u64, u32>,
    stacks: FxHashMap<u64, u32>,
}

impl PrivateIds {
    /// Lets the ids mean in `new` what they mean in `old`.
    pub(super) fn renumber(&mut self, new: &mut Dictionary, old: &Dictionary) {
        self.strings.values_mut().for_each(|number| *number = new.adopt_string(old.string(*number)));
        self.methods.values_mut().for_each(|number| *number = new.adopt_method(old, *number));
        self.frames.values_mut().for_each(|number| *number = new.adopt_frame(old, *number));
        self.stacks.values_mut().for_each(|number| *number = new.adopt(old, *number));
    }
}

/// How many rows of each table there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    rows: [usize; 5],
}

/// The dictionary of a partition or of a recording.
#[derive(Clone, Debug)]
pub struct Dictionary {
    strings: Vec<Box<str>>,
    methods: Vec<MethodRow>,
    frames: Vec<FrameRow>,
    nodes: Vec<Node>,
    stacks: Vec<StackRow>,
    by_text: FxHashMap<Box<str>, u32>,
    string_of: FxHashMap<u64, u32>,
    method_of: FxHashMap<u64, u32>,
    frame_of: FxHashMap<u64, u32>,
    markers: FxHashMap<u32, u32>,
    children: FxHashMap<(u32, u32), u32>,
    stack_of: FxHashMap<u64, u32>,
    bytes: usize,
}

impl Default for Dictionary {
    fn default() -> Self {
        let mut dictionary = Dictionary {
            strings: Vec::new(),
            methods: vec![MethodRow {
                class_name: UNKNOWN_STRING,
                name: UNKNOWN_STRING,
                ..MethodRow::default()
            }],
            frames: Vec::new(),
            nodes: vec![Node::default()],
            stacks: Vec::new(),
            by_text: FxHashMap::default(),
            string_of: FxHashMap::default(),
            method_of: FxHashMap::default(),
            frame_of: FxHashMap::default(),
            markers: FxHashMap::default(),
            children: FxHashMap::default(),
            stack_of: FxHashMap::default(),
            bytes: 0,
        };
        dictionary.intern("");
        dictionary.intern(UNKNOWN);
        // Frame 0 and stack 0 are what was referred to but never defined.
        dictionary.marker(UNKNOWN_STRING);
        let node = dictionary.child(0, 0);
        dictionary.stacks.push(StackRow { id: 0, node, stop: UNKNOWN_STRING });
        dictionary
    }
}

impl Dictionary {
    /// Text of a string.
    pub fn string(&self, number: u32) -> &str {
        self.strings.get(number as usize).map_or(UNKNOWN, |text| text)
    }

    /// A method, the unknown one if there is none of this number.
    pub fn method(&self, number: u32) -> MethodRow {
        self.methods.get(number as usize).copied().unwrap_or(self.methods[0])
    }

    /// A frame, the unknown one if there is none of this number.
    pub fn frame(&self, number: u32) -> FrameRow {
        self.frames.get(number as usize).copied().unwrap_or(self.frames[0])
    }

    /// A stack, the unknown one if there is none of this number.
    pub fn stack(&self, number: u32) -> StackRow {
        self.stacks.get(number as usize).copied().unwrap_or(self.stacks[0])
    }

    /// All nodes; children follow their parents.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of stacks.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Number of frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Memory of the rows in bytes, roughly.
    pub fn bytes(&self) -> usize {
        // Each row of a table has an entry in a map beside it, of about its own size.
        self.bytes
            + (self.methods.len() * size_of::<MethodRow>()
                + self.frames.len() * size_of::<FrameRow>()
                + self.nodes.len() * size_of::<Node>()
                + self.stacks.len() * size_of::<StackRow>())
                * 2
    }

    /// Frame numbers of a stack, leaf first, without the mark of a cut.
    pub fn frames_of(&self, stack: u32) -> Vec<u32> {
        let mut frames = Vec::new();
        let mut node = self.stack(stack).node;
        while node != 0 {
            let Node { parent, frame } = self.nodes[node as usize];
            let row = self.frame(frame);
            let is_mark = parent == 0 && frame != 0 && row.id == 0 && row.kind == FrameKind::Marker as u8;
            if !is_mark {
                frames.push(frame);
            }
            node = parent;
        }
        frames
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

    /// The stack a session means by `id`; 0 if it was never defined.
    #[inline]
    pub(super) fn stack_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        match self.stack_of.get(&id) {
            Some(&number) => number,
            None => private.and_then(|ids| ids.stacks.get(&id)).copied().unwrap_or(0),
        }
    }

    /// Takes in definitions of a session; the stacks among them are appended to `defined`.
    pub(super) fn define(
        &mut self,
        definitions: &Definitions,
        private: &mut Option<Box<PrivateIds>>,
        defined: &mut Vec<u32>,
    ) {
        for entry in &definitions.strings {
            let number = self.intern(&entry.text);
            let is_shared = entry.id == content_id(1, &[], entry.text.as_bytes());
            self.share(
                private,
                is_shared,
                entry.id,
                number,
                |tables| &mut tables.string_of,
                |ids| &mut ids.strings,
            );
        }
        for method in &definitions.methods {
            let id = content_id(
                2,
                &[
                    method.class_name,
                    method.name,
                    method.signature,
                    method.source_file,
                    method.modifiers.into(),
                    method.hidden.into(),
                ],
                &[],
            );
            let is_shared = id == method.id;
            if is_shared && self.method_of.get(&id).is_some_and(|&known| self.is_whole_method(known)) {
                continue;
            }
            let string = |id| self.string_number(id, private.as_deref());
            let row = MethodRow {
                id: if is_shared { id } else { 0 },
                class_name: string(method.class_name),
                name: string(method.name),
                signature: string(method.signature),
                source_file: string(method.source_file),
                modifiers: method.modifiers,
                hidden: method.hidden,
            };
            let number = self.methods.len() as u32;
            self.methods.push(row);
            self.share(
                private,
                is_shared,
                method.id,
                number,
                |tables| &mut tables.method_of,
                |ids| &mut ids.methods,
            );
        }
        for frame in &definitions.frames {
            let content = [
                frame.kind as u64,
                frame.method,
                u64::from(frame.bci as u32),
                frame.line.into(),
                frame.symbol,
            ];
            let is_shared = content_id(3, &content, &[]) == frame.id;
            if is_shared && self.frame_of.get(&frame.id).is_some_and(|&known| self.is_whole_frame(known)) {
                continue;
            }
            let method = match frame.method {
                0 => None,
                id => Some(self.method_number(id, private.as_deref())),
            };
            let row = FrameRow {
                id: if is_shared { frame.id } else { 0 },
                kind: u8::try_from(frame.kind).unwrap_or_default(),
                method: method.unwrap_or_default(),
                bci: frame.bci,
                line: frame.line,
                symbol: match method {
                    // A Java frame whose method never came, or nothing at all to name the frame by.
                    Some(0) => UNKNOWN_STRING,
                    None if frame.symbol == 0 => UNKNOWN_STRING,
                    _ => self.string_number(frame.symbol, private.as_deref()),
                },
            };
            let number = self.frames.len() as u32;
            self.frames.push(row);
            self.share(
                private,
                is_shared,
                frame.id,
                number,
                |tables| &mut tables.frame_of,
                |ids| &mut ids.frames,
            );
        }
        for stack in &definitions.stacks {
            let is_shared = content_id(4, &stack.frames, stack.stop.as_bytes()) == stack.id;
            let known = self.stack_of.get(&stack.id).copied();
            if let Some(known) = known.filter(|&known| is_shared && self.is_whole_stack(known)) {
                defined.push(known);
                continue;
            }
            let stop = if stack.stop.is_empty() { END_OF_STACK } else { &stack.stop };
            let frames: Vec<u32> =
                stack.frames.iter().map(|&id| self.frame_number(id, private.as_deref())).collect();
            let number = self.push_stack(if is_shared { stack.id } else { 0 }, &frames, stop);
            defined.push(number);
            self.share(
                private,
                is_shared,
                stack.id,
                number,
                |tables| &mut tables.stack_of,
                |ids| &mut ids.stacks,
            );
        }
    }

    /// Copies a stack of `other`, with all it refers to; its number here.
    pub(super) fn adopt(&mut self, other: &Dictionary, stack: u32) -> u32 {
        let row = other.stack(stack);
        if row.id != 0
            && let Some(&known) = self.stack_of.get(&row.id)
        {
            return known;
        }
        if stack == 0 {
            return 0;
        }
        let frames: Vec<u32> =
            other.frames_of(stack).into_iter().map(|frame| self.adopt_frame(other, frame)).collect();
        let number = self.push_stack(row.id, &frames, other.string(row.stop));
        if row.id != 0 {
            self.stack_of.insert(row.id, number);
        }
        number
    }

    fn adopt_frame(&mut self, other: &Dictionary, frame: u32) -> u32 {
        let row = other.frame(frame);
        if frame == 0 {
            return 0;
        }
        if row.id != 0
            && let Some(&known) = self.frame_of.get(&row.id)
        {
            return known;
        }
        let method = if row.method == 0 { 0 } else { self.adopt_method(other, row.method) };
        let symbol = self.adopt_string(other.string(row.symbol));
        let number = self.frames.len() as u32;
        self.frames.push(FrameRow { method, symbol, ..row });
        if row.id != 0 {
            self.frame_of.insert(row.id, number);
        }
        number
    }

    fn adopt_method(&mut self, other: &Dictionary, method: u32) -> u32 {
        let row = other.method(method);
        if row.id != 0
            && let Some(&known) = self.method_of.get(&row.id)
        {
            return known;
        }
        let mut string = |number| self.adopt_string(other.string(number));
        let row = MethodRow {
            class_name: string(row.class_name),
            name: string(row.name),
            signature: string(row.signature),
            source_file: string(row.source_file),
            ..row
        };
        let number = self.methods.len() as u32;
        self.methods.push(row);
        if row.id != 0 {
            self.method_of.insert(row.id, number);
        }
        number
    }

    fn adopt_string(&mut self, text: &str) -> u32 {
        let number = self.intern(text);
        self.string_of.insert(content_id(1, &[], text.as_bytes()), number);
        number
    }

    fn push_stack(&mut self, id: u64, frames: &[u32], stop: &str) -> u32 {
        let stop_number = self.intern(stop);
        let mut node = 0;
        if frames.is_empty() || !WHOLE_STACKS.contains(&stop) {
            let text = self.intern(&format!("[{stop}]"));
            let mark = self.marker(text);
            node = self.child(0, mark);
        }
        for &frame in frames.iter().rev() {
            node = self.child(node, frame);
        }
        self.stacks.push(StackRow { id, node, stop: stop_number });
        (self.stacks.len() - 1) as u32
    }

    fn share(
        &mut self,
        private: &mut Option<Box<PrivateIds>>,
        is_shared: bool,
        id: u64,
        number: u32,
        shared: fn(&mut Self) -> &mut FxHashMap<u64, u32>,
        own: fn(&mut PrivateIds) -> &mut FxHashMap<u64, u32>,
    ) {
        if is_shared {
            shared(self).insert(id, number);
        } else {
            own(private.get_or_insert_default()).insert(id, number);
        }
    }

    fn is_whole_method(&self, number: u32) -> bool {
        let method = self.method(number);
        ![method.class_name, method.name, method.signature, method.source_file].contains(&UNKNOWN_STRING)
    }

    fn is_whole_frame(&self, number: u32) -> bool {
        let frame = self.frame(number);
        match frame.method {
            0 => frame.symbol != UNKNOWN_STRING,
            method => self.is_whole_method(method),
        }
    }

    fn is_whole_stack(&self, number: u32) -> bool {
        let mut node = self.stack(number).node;
        while node != 0 {
            let Node { parent, frame } = self.nodes[node as usize];
            if !self.is_whole_frame(frame) {
                return false;
            }
            node = parent;
        }
        true
    }

    fn string_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        if id == 0 {
            return 0;
        }
        let known = self.string_of.get(&id).or_else(|| private.and_then(|ids| ids.strings.get(&id)));
        known.copied().unwrap_or(UNKNOWN_STRING)
    }

    fn method_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        let known = self.method_of.get(&id).or_else(|| private.and_then(|ids| ids.methods.get(&id)));
        known.copied().unwrap_or(0)
    }

    fn frame_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        let known = self.frame_of.get(&id).or_else(|| private.and_then(|ids| ids.frames.get(&id)));
        known.copied().unwrap_or(0)
    }

    fn intern(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.by_text.get(text) {
            return number;
        }
        let number = self.strings.len() as u32;
        self.strings.push(text.into());
        self.by_text.insert(text.into(), number);
        self.bytes += 2 * text.len() + 64;
        number
    }

    /// The frame that shows a text of ours in brackets.
    fn marker(&mut self, text: u32) -> u32 {
        if let Some(&frame) = self.markers.get(&text) {
            return frame;
        }
        let number = self.frames.len() as u32;
        self.frames.push(FrameRow {
            kind: FrameKind::Marker as u8,
            symbol: text,
            bci: -1,
            ..FrameRow::default()
        });
        self.markers.insert(text, number);
        number
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let node = *self.children.entry((parent, frame)).or_insert(next);
        if node == next {
            self.nodes.push(Node { parent, frame });
        }
        node
    }

    // ------------------------------------------------------------ rows as blocks

    /// Where the tables end now.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            rows: [
                self.strings.len(),
                self.methods.len(),
                self.frames.len(),
                self.nodes.len(),
                self.stacks.len(),
            ],
        }
    }

    /// The rows since `from`, as one block.
    pub(super) fn encode_since(&self, from: Mark) -> Result<Vec<u8>, BlockError> {
        let [strings, methods, frames, nodes, stacks] = from.rows;
        let mut block = BlockWriter::default();
        let strings = &self.strings[strings..];
        block.number(strings.len() as u64);
        for text in strings {
            block.text(text);
        }
        let methods = &self.methods[methods..];
        block.number(methods.len() as u64);
        block.column(methods.iter().map(|row| row.id));
        block.column(methods.iter().map(|row| row.class_name.into()));
        block.column(methods.iter().map(|row| row.name.into()));
        block.column(methods.iter().map(|row| row.signature.into()));
        block.column(methods.iter().map(|row| row.source_file.into()));
        block.column(methods.iter().map(|row| u64::from(row.modifiers) << 1 | u64::from(row.hidden)));
        let frames = &self.frames[frames..];
        block.number(frames.len() as u64);
        block.column(frames.iter().map(|row| row.id));
        block.column(frames.iter().map(|row| row.kind.into()));
        block.column(frames.iter().map(|row| row.method.into()));
        block.column(frames.iter().map(|row| u64::from(row.bci.wrapping_add(1) as u32)));
        block.column(frames.iter().map(|row| row.line.into()));
        block.column(frames.iter().map(|row| row.symbol.into()));
        let nodes = &self.nodes[nodes..];
        block.number(nodes.len() as u64);
        block.ascending(nodes.iter().map(|row| row.parent.into()));
        block.column(nodes.iter().map(|row| row.frame.into()));
        let stacks = &self.stacks[stacks..];
        block.number(stacks.len() as u64);
        block.column(stacks.iter().map(|row| row.id));
        block.ascending(stacks.iter().map(|row| row.node.into()));
        block.column(stacks.iter().map(|row| row.stop.into()));
        block.finish()
    }

    /// Appends the rows of a block made by [`encode_since`](Self::encode_since) at this dictionary's end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        let mut block = BlockReader::new(bytes)?;
        for _ in 0..block.rows()? {
            let text = block.text()?;
            let number = self.strings.len() as u32;
            self.strings.push(text.as_str().into());
            self.bytes += 2 * text.len() + 64;
            self.string_of.insert(content_id(1, &[], text.as_bytes()), number);
            self.by_text.insert(text.into(), number);
        }
        let rows = block.rows()?;
        let (id, class_name) = (block.column(rows)?, block.narrow(rows)?);
        let (name, signature) = (block.narrow(rows)?, block.narrow(rows)?);
        let (source_file, modifiers) = (block.narrow(rows)?, block.column(rows)?);
        for row in 0..rows {
            if id[row] != 0 {
                self.method_of.insert(id[row], self.methods.len() as u32);
            }
            self.methods.push(MethodRow {
                id: id[row],
                class_name: class_name[row],
                name: name[row],
                signature: signature[row],
                source_file: source_file[row],
                modifiers: (modifiers[row] >> 1) as u32,
                hidden: modifiers[row] & 1 == 1,
            });
        }
        let rows = block.rows()?;
        let (id, kind) = (block.column(rows)?, block.narrow(rows)?);
        let (method, bci) = (block.narrow(rows)?, block.narrow(rows)?);
        let (line, symbol) = (block.narrow(rows)?, block.narrow(rows)?);
        for row in 0..rows {
            let number = self.frames.len() as u32;
            if id[row] != 0 {
                self.frame_of.insert(id[row], number);
            } else if kind[row] == FrameKind::Marker as u32 {
                self.markers.insert(symbol[row], number);
            }
            self.frames.push(FrameRow {
                id: id[row],
                kind: kind[row] as u8,
                method: method[row],
                bci: (bci[row] as i32).wrapping_sub(1),
                line: line[row],
                symbol: symbol[row],
            });
        }
        let rows = block.rows()?;
        let (parent, frame) = (block.ascending(rows)?, block.narrow(rows)?);
        for (parent, frame) in parent.into_iter().zip(frame) {
            let number = self.nodes.len() as u32;
            // Queries rely on the order, so a damaged parent becomes the root.
            let parent = u32::try_from(parent).ok().filter(|&parent| parent < number).unwrap_or(0);
            self.children.insert((parent, frame), number);
            self.nodes.push(Node { parent, frame });
        }
        let rows = block.rows()?;
        let (id, node, stop) = (block.column(rows)?, block.ascending(rows)?, block.narrow(rows)?);
        for row in 0..rows {
            let node = u32::try_from(node[row]).ok().filter(|&node| (node as usize) < self.nodes.len());
            if id[row] != 0 {
                self.stack_of.insert(id[row], self.stacks.len() as u32);
            }
            self.stacks.push(StackRow { id: id[row], node: node.unwrap_or(1), stop: stop[row] });
        }
        Ok(())
    }
}

/// The id that `design/wire-format.md` derives from content.
fn content_id(tag: u8, numbers: &[u64], text: &[u8]) -> u64 {
    if tag == 1 && text.is_empty() {
        return 0;
    }
    let mut bytes = Vec::with_capacity(1 + 8 * numbers.len() + text.len());
    bytes.push(tag);
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(text);
    xxh3_64(&bytes).max(1)
}
