//! Entries of wire version 2, whose numbers mean something within their session only.
//!
//! Approach: each session keeps which row of the dictionary each of its numbers means; rows are shared between
//! sessions by what they say. Numbers are stored with the session, for an agent does not repeat definitions that
//! were acknowledged.
//! Invariant: rows made here bear the id of their content, except stacks, which are found by node and reason.

use proto::v1::Numbered;
use rustc_hash::FxHashMap;

use super::super::column::{BlockError, BlockReader, BlockWriter};
use super::{Dictionary, FrameRow, MethodRow, Node, StackRow, UNKNOWN_STRING, content_id};
use crate::numbered::{self, FrameEntry, MAX_DEPTH, MAX_STACK_FRAMES, MethodEntry, Runs};
use crate::profile::{END_OF_STACK, WHOLE_STACKS};

/// What the numbers of one session mean: rows of the dictionary.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Numbers {
    strings: Runs<u32>,
    methods: Runs<u32>,
    frames: Runs<u32>,
    /// Node, and string of the reason why the walks ended that began at its root.
    nodes: Runs<(u32, u32)>,
    /// Frames of the stacks this session was first with, and of those that were too deep.
    stack_frames: u64,
    /// Up to which number of each kind the database has them.
    stored: [u32; 4],
}

impl Numbers {
    fn ends(&self) -> [u32; 4] {
        [self.strings.end(), self.methods.end(), self.frames.end(), self.nodes.end()]
    }

    /// A block of what the database does not have yet, if there is any.
    pub(in super::super) fn encode_fresh(&self) -> Result<Option<Vec<u8>>, BlockError> {
        if self.ends().into_iter().zip(self.stored).all(|(end, stored)| end <= stored.max(1)) {
            return Ok(None);
        }
        let mut block = BlockWriter::default();
        for (rows, from) in [&self.strings, &self.methods, &self.frames].into_iter().zip(self.stored) {
            let rows: Vec<(u32, u32)> = rows.since(from).map(|(number, row)| (number, *row)).collect();
            block.number(rows.len() as u64);
            block.ascending(rows.iter().map(|row| row.0.into()));
            block.ascending(rows.iter().map(|row| row.1.into()));
        }
        let rows: Vec<(u32, (u32, u32))> =
            self.nodes.since(self.stored[3]).map(|(number, row)| (number, *row)).collect();
        block.number(rows.len() as u64);
        block.ascending(rows.iter().map(|row| row.0.into()));
        block.ascending(rows.iter().map(|row| row.1.0.into()));
        block.column(rows.iter().map(|row| row.1.1.into()));
        block.finish().map(Some)
    }

    /// The database has all of it.
    pub(in super::super) fn set_stored(&mut self) {
        self.stored = self.ends();
    }

    /// Takes in a block made by [`encode_fresh`](Self::encode_fresh), about rows of `dictionary`.
    pub(in super::super) fn append(
        &mut self,
        bytes: &[u8],
        dictionary: &Dictionary,
    ) -> Result<(), BlockError> {
        let mut block = BlockReader::new(bytes)?;
        for kind in [&mut self.strings, &mut self.methods, &mut self.frames] {
            let rows = block.rows()?;
            let (numbers, rows) = (block.ascending(rows)?, block.ascending(rows)?);
            numbers.into_iter().zip(rows).for_each(|(number, row)| kind.push(number as u32, row as u32));
        }
        let rows = block.rows()?;
        let (numbers, nodes, stops) = (block.ascending(rows)?, block.ascending(rows)?, block.narrow(rows)?);
        for ((number, node), stop) in numbers.into_iter().zip(nodes).zip(stops) {
            // Rows of the other kinds may be looked up whatever they are; nodes are climbed.
            if node < dictionary.nodes.len() as u64 {
                self.nodes.push(number as u32, (node as u32, stop));
            }
        }
        self.set_stored();
        Ok(())
    }

    /// The same numbers for rows of `new` that say what those of `old` do; nothing of it is stored yet.
    pub(in super::super) fn renumbered(&self, new: &mut Dictionary, old: &Dictionary) -> Numbers {
        let mut nodes = FxHashMap::from_iter([(0, 0)]);
        Numbers {
            strings: self.strings.map(|&row| new.adopt_string(old.string(row))),
            methods: self.methods.map(|&row| new.adopt_method(old, row)),
            frames: self.frames.map(|&row| new.adopt_frame(old, row)),
            nodes: self.nodes.map(|&(node, stop)| {
                (new.adopt_node(old, node, &mut nodes), new.adopt_string(old.string(stop)))
            }),
            // The stacks of a new partition are looked through once more, so that old ones are not counted twice.
            stack_frames: 0,
            stored: [0; 4],
        }
    }
}

impl Dictionary {
    /// Takes in definitions of a session.
    pub(in super::super) fn define_numbered(&mut self, entries: &Numbered, own: &mut Numbers) {
        for (number, text) in numbered::strings(entries) {
            own.strings.push(number, self.adopt_string(text));
        }
        for (number, method) in numbered::methods(entries) {
            let row = self.method_row(&method, own);
            own.methods.push(number, row);
        }
        for (number, frame) in numbered::frames(entries) {
            let row = self.frame_row(&frame, own);
            own.frames.push(number, row);
        }
        for (number, parent, frame) in numbered::nodes(entries) {
            let node = match parent {
                0 => {
                    let stop = if frame == 0 { self.intern(END_OF_STACK) } else { string_row(frame, own) };
                    Some((self.root(stop), stop))
                }
                parent => own.nodes.get(parent).copied().map(|(parent, stop)| {
                    (self.child(parent, own.frames.get(frame).copied().unwrap_or(0)), stop)
                }),
            };
            if let Some(node) = node {
                own.nodes.push(number, node);
            }
        }
    }

    fn method_row(&mut self, method: &MethodEntry, own: &Numbers) -> u32 {
        let MethodEntry { modifiers, hidden, .. } = *method;
        let [class_name, name, signature, source_file] =
            [method.class_name, method.name, method.signature, method.source_file]
                .map(|string| string_row(string, own));
        let strings = [class_name, name, signature, source_file].map(|row| self.string_id(row));
        let [a, b, c, d] = strings;
        let id = content_id(2, &[a, b, c, d, modifiers.into(), hidden.into()], &[]);
        let next = self.methods.len() as u32;
        let row = *self.method_of.entry(id).or_insert(next);
        if row == next {
            self.methods.push(MethodRow { id, class_name, name, signature, source_file, modifiers, hidden });
        }
        row
    }

    fn frame_row(&mut self, frame: &FrameEntry, own: &Numbers) -> u32 {
        let FrameEntry { kind, bci, line, .. } = *frame;
        let method = if frame.method == 0 { 0 } else { own.methods.get(frame.method).copied().unwrap_or(0) };
        let symbol = match (frame.method, method) {
            // A Java frame whose method never came, or nothing at all to name the frame by.
            (1.., 0) => UNKNOWN_STRING,
            (0, _) if frame.symbol == 0 => UNKNOWN_STRING,
            _ => string_row(frame.symbol, own),
        };
        let (method_id, symbol_id) = if method == 0 { (0, symbol) } else { (self.method(method).id, symbol) };
        let symbol_id = self.string_id(symbol_id);
        let numbers = [kind as u64, method_id, u64::from(bci.cast_unsigned()), u64::from(line), symbol_id];
        let id = content_id(3, &numbers, &[]);
        let next = self.frames.len() as u32;
        let row = *self.frame_of.entry(id).or_insert(next);
        if row == next {
            self.frames.push(FrameRow { id, kind: kind as u8, method, bci, line, symbol });
        }
        row
    }

    fn string_id(&self, row: u32) -> u64 {
        content_id(1, &[], self.string(row).as_bytes())
    }

    /// The node that stacks start from whose walk ended for the reason `stop`.
    fn root(&mut self, stop: u32) -> u32 {
        if WHOLE_STACKS.contains(&self.string(stop)) {
            return 0;
        }
        let text = format!("[{}]", self.string(stop));
        let text = self.intern(&text);
        let mark = self.marker(text);
        self.child(0, mark)
    }

    /// The stack that a session means by node `number`; 0 if it was never defined.
    #[inline]
    pub(in super::super) fn stack_of_node(&mut self, number: u32, own: &mut Numbers) -> u32 {
        let Some(&(node, stop)) = own.nodes.get(number) else { return 0 };
        match self.stack_at.get(&(node, stop)) {
            Some(&stack) => stack,
            None => self.new_stack(node, stop, own),
        }
    }

    fn new_stack(&mut self, node: u32, stop: u32, own: &mut Numbers) -> u32 {
        // What this session has used up is no matter of the others, hence not remembered with the stack.
        if node != 0 && own.stack_frames >= MAX_STACK_FRAMES {
            return 0;
        }
        let mut depth = 0;
        let mut above = node;
        while above != 0 && depth <= MAX_DEPTH {
            above = self.nodes[above as usize].parent;
            depth += 1;
        }
        own.stack_frames += u64::from(depth);
        let is_too_deep = above != 0;
        // A stack of no frames is shown as the reason why it is empty.
        let leaf = if node == 0 { self.empty_stack(stop) } else { node };
        let stack = if is_too_deep { 0 } else { self.stacks.len() as u32 };
        if !is_too_deep {
            self.stacks.push(StackRow { id: 0, node: leaf, stop });
        }
        self.stack_at.insert((node, stop), stack);
        stack
    }

    fn empty_stack(&mut self, stop: u32) -> u32 {
        let text = self.intern(&format!("[{}]", self.string(stop)));
        let mark = self.marker(text);
        self.child(0, mark)
    }

    /// Copies a node of `other` with its callers; `known` are nodes that were copied before.
    fn adopt_node(&mut self, other: &Dictionary, node: u32, known: &mut FxHashMap<u32, u32>) -> u32 {
        let mut path = Vec::new();
        let mut above = node;
        let mut own = loop {
            if let Some(&own) = known.get(&above) {
                break own;
            }
            path.push(above);
            above = other.nodes[above as usize].parent;
        };
        for node in path.into_iter().rev() {
            let Node { frame, .. } = other.nodes[node as usize];
            let frame = if other.is_mark(node) {
                let text = self.intern(other.string(other.frame(frame).symbol));
                self.marker(text)
            } else {
                self.adopt_frame(other, frame)
            };
            own = self.child(own, frame);
            known.insert(node, own);
        }
        own
    }
}

/// The row of a string; one that was never defined is shown as such, and number 0 is none.
fn string_row(number: u32, own: &Numbers) -> u32 {
    if number == 0 { 0 } else { own.strings.get(number).copied().unwrap_or(UNKNOWN_STRING) }
}

#[cfg(test)]
mod tests {
    use proto::v1::FrameKind;

    use super::*;

    /// A root, a frame below it, and one below that.
    fn chain() -> Numbered {
        Numbered {
            first_string: 1,
            string: vec!["root".into(), "leaf".into()],
            first_frame: 1,
            frame_kind: vec![FrameKind::Native.into(); 2],
            frame_method: vec![0; 2],
            frame_bci: vec![-1; 2],
            frame_line: vec![0; 2],
            frame_symbol: vec![1, 2],
            first_node: 1,
            node_parent: vec![0, 1, 1],
            node_frame: vec![0, 1, 2],
            ..Numbered::default()
        }
    }

    #[test]
    fn what_one_session_used_up_others_have() {
        let mut dictionary = Dictionary::default();
        let (mut spent, mut fresh) = (Numbers::default(), Numbers::default());
        dictionary.define_numbered(&chain(), &mut spent);
        dictionary.define_numbered(&chain(), &mut fresh);
        spent.stack_frames = MAX_STACK_FRAMES;
        assert_eq!(dictionary.stack_of_node(3, &mut spent), 0);
        let stack = dictionary.stack_of_node(3, &mut fresh);
        assert_ne!(stack, 0);
        assert_eq!(fresh.stack_frames, 2);
        assert_eq!(dictionary.stack_of_node(3, &mut spent), stack, "known already, so it costs nothing");
    }

    #[test]
    fn a_new_partition_begins_to_count_anew() {
        let mut old = Dictionary::default();
        let mut numbers = Numbers::default();
        old.define_numbered(&chain(), &mut numbers);
        numbers.stack_frames = MAX_STACK_FRAMES;
        let mut new = Dictionary::default();
        let mut carried = numbers.renumbered(&mut new, &old);
        assert_ne!(new.stack_of_node(3, &mut carried), 0);
    }
}
