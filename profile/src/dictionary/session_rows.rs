//! Maps the entry numbers of a session to rows of the dictionary.
//!
//! Sessions share rows of equal content. [`SessionRows`] are stored with the session, because an agent does not repeat
//! acknowledged definitions. Rows are identified by the hash of their content, except stacks, which are found by node
//! and reason.

use proto::ThreadState;
use proto::v1::{Entries, FrameKind};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::{Dictionary, FrameRow, MethodRow, Node, StackRow, UNKNOWN_STRING, content_id};
use crate::dictionary::entries::{self as received, MAX_DEPTH, MAX_STACK_FRAMES, NodeEntry, Runs};
use crate::dictionary::stop::{END_OF_STACK, is_whole, reason};
use crate::dictionary::symbol::function_text;

/// Maximum number of entries of a session, of all kinds together: more than an agent sends in years, and few enough for
/// one stored block. Entries beyond it are unknown.
const MOST_ENTRIES: usize = 32 << 20;

/// Maximum memory of a run besides its rows: its entry in a list that has just grown, and the allocator's overhead of a
/// short list of rows.
const RUN_BYTES: usize = 2 * size_of::<(u32, Vec<u32>)>() + 32;

/// Rows of the dictionary by the numbers of one session.
#[derive(Clone, Debug, Default)]
pub struct SessionRows {
    pub strings: Runs<u32>,
    pub methods: Runs<u32>,
    pub frames: Runs<u32>,
    /// Node, and string of the stop reason that its root carries.
    pub nodes: Runs<(u32, u32)>,
    /// Entries of all kinds.
    count: usize,
    /// Number of nodes among them; a node takes twice the memory.
    node_count: usize,
    /// Frames of the stacks that this session defined first, and of those that were too deep.
    stack_frames: u64,
}

impl SessionRows {
    /// Returns an upper bound for the memory: lists that have just grown are half empty, and each run has its own list.
    pub fn bytes(&self) -> usize {
        let runs = self.strings.runs() + self.methods.runs() + self.frames.runs() + self.nodes.runs();
        let entry = 2 * size_of::<u32>();
        // Without the additional bytes of nodes.
        self.count * entry + self.node_count * entry + runs * RUN_BYTES
    }

    /// Returns the number after the last one of each kind.
    pub fn ends(&self) -> [u32; 4] {
        [self.strings.end(), self.methods.end(), self.frames.end(), self.nodes.end()]
    }

    /// Sets the row of `number` if it has none.
    pub fn set_string(&mut self, number: u32, row: u32) {
        push(&mut self.strings, &mut self.count, number, row);
    }

    /// Sets the row of `number` if it has none.
    pub fn set_method(&mut self, number: u32, row: u32) {
        push(&mut self.methods, &mut self.count, number, row);
    }

    /// Sets the row of `number` if it has none.
    pub fn set_frame(&mut self, number: u32, row: u32) {
        push(&mut self.frames, &mut self.count, number, row);
    }

    /// Sets the row of `number` if it has none.
    pub fn set_node(&mut self, number: u32, node: u32, stop: u32) {
        let before = self.count;
        push(&mut self.nodes, &mut self.count, number, (node, stop));
        self.node_count += self.count - before;
    }

    /// Copies the rows from `old` to `new` and returns the same numbers with the rows of `new`.
    pub fn renumbered(&self, new: &mut Dictionary, old: &Dictionary) -> SessionRows {
        let mut nodes = FxHashMap::from_iter([(0, 0)]);
        SessionRows {
            strings: self.strings.map(|&row| new.intern(old.string(row))),
            methods: self.methods.map(|&row| new.copy_method(old, row)),
            frames: self.frames.map(|&row| new.copy_frame(old, row)),
            nodes: self
                .nodes
                .map(|&(node, stop)| (new.copy_node(old, node, &mut nodes), new.intern(old.string(stop)))),
            count: self.count,
            node_count: self.node_count,
            // The count of stack frames starts at 0, because the new partition counts its stacks itself.
            stack_frames: 0,
        }
    }
}

impl Dictionary {
    /// Adds definitions of a session.
    pub fn define(&mut self, entries: &Entries, own: &mut SessionRows) {
        for (number, text) in received::strings(entries) {
            own.set_string(number, self.intern(text));
        }
        for (number, method) in received::methods(entries) {
            let row = self.method_row(&method, own);
            own.set_method(number, row);
        }
        for (number, frame) in received::frames(entries) {
            let row = self.frame_row(&frame, own);
            own.set_frame(number, row);
        }
        for NodeEntry { number, parent, frame, state } in received::nodes(entries) {
            let node = match parent {
                0 => {
                    let mut stop =
                        if frame == 0 { self.intern(END_OF_STACK) } else { string_row(frame, own) };
                    if state.is_some() {
                        let text = ThreadState::after(self.string(stop), state).into_owned();
                        stop = self.intern(&text);
                    }
                    Some((self.root(stop), stop))
                }
                parent => own.nodes.get(parent).copied().map(|(parent, stop)| {
                    (self.child(parent, own.frames.get(frame).copied().unwrap_or(0)), stop)
                }),
            };
            if let Some((node, stop)) = node {
                own.set_node(number, node, stop);
            }
        }
    }

    fn method_row(&mut self, method: &MethodRow, own: &SessionRows) -> u32 {
        let strings = [method.class_name, method.name, method.signature, method.source_file];
        let [class_name, name, signature, source_file] = strings.map(|string| string_row(string, own));
        let [a, b, c, d] = [class_name, name, signature, source_file].map(|row| self.string_id(row));
        let id = content_id([a, b, c, d, method.modifiers.into(), method.hidden.into()]);
        self.add_method(MethodRow { id, class_name, name, signature, source_file, ..*method })
    }

    fn frame_row(&mut self, frame: &FrameRow, own: &SessionRows) -> u32 {
        let method = if frame.method == 0 { 0 } else { own.methods.get(frame.method).copied().unwrap_or(0) };
        let is_function = [FrameKind::Native as u8, FrameKind::Vm as u8].contains(&frame.kind);
        let symbol = match (frame.method, method) {
            // The method of a Java frame is undefined, or the frame has neither method nor symbol.
            (1.., 0) => UNKNOWN_STRING,
            (0, _) if frame.symbol == 0 => UNKNOWN_STRING,
            _ if is_function => self.function(string_row(frame.symbol, own)),
            _ => string_row(frame.symbol, own),
        };
        let method_id = if method == 0 { 0 } else { self.method(method).id };
        let library = string_row(frame.library, own);
        let (symbol_id, library_id) = (self.string_id(symbol), self.string_id(library));
        let (bci_id, line_id) = (u64::from(frame.bci.cast_unsigned()), u64::from(frame.line));
        let id = content_id([frame.kind.into(), method_id, bci_id, line_id, symbol_id, library_id]);
        self.add_frame(FrameRow { id, method, symbol, library, ..*frame })
    }

    /// Returns the string that is shown for the symbol of a native function.
    fn function(&mut self, symbol: u32) -> u32 {
        if let Some(&shown) = self.index.functions.get(&symbol) {
            return shown;
        }
        let (sent, shown) = (self.string(symbol), function_text(self.string(symbol)));
        if sent == shown {
            return symbol;
        }
        let shown = shown.into_owned();
        let row = self.intern(&shown);
        if row != UNKNOWN_STRING {
            self.index.functions.insert(symbol, row);
        }
        row
    }

    fn string_id(&self, row: u32) -> u64 {
        xxh3_64(self.string(row).as_bytes())
    }

    /// Returns the root node of stacks with the stop reason `stop`.
    fn root(&mut self, stop: u32) -> u32 {
        if is_whole(self.string(stop)) {
            return 0;
        }
        self.reason(stop)
    }

    /// Returns the node of the frame `[reason]`.
    fn reason(&mut self, stop: u32) -> u32 {
        let text = self.intern(&format!("[{}]", reason(self.string(stop))));
        let mark = self.marker(text);
        self.child(0, mark)
    }

    /// Returns the stack of the session's node `number`; 0 if the node is undefined.
    #[inline]
    pub fn stack_of_node(&mut self, number: u32, own: &mut SessionRows) -> u32 {
        let Some(&(node, stop)) = own.nodes.get(number) else { return 0 };
        match self.index.stack_at.get(&(node, stop)) {
            Some(&stack) => stack,
            None => self.new_stack(node, stop, own),
        }
    }

    fn new_stack(&mut self, node: u32, stop: u32, own: &mut SessionRows) -> u32 {
        if self.is_full() {
            return 0;
        }
        // The limit is per session, so the refusal is not stored: another session may add this stack.
        if node != 0 && own.stack_frames >= MAX_STACK_FRAMES {
            return 0;
        }
        let mut depth = 0;
        let mut above = node;
        while above != 0 && depth <= MAX_DEPTH {
            above = self.tables.nodes[above as usize].parent;
            depth += 1;
        }
        own.stack_frames += u64::from(depth);
        let is_too_deep = above != 0;
        // A stack without frames is shown as its stop reason.
        let leaf = if node == 0 { self.reason(stop) } else { node };
        let stack = if is_too_deep { 0 } else { self.tables.stacks.len() as u32 };
        if !is_too_deep {
            self.tables.stacks.push(StackRow { node: leaf, stop });
        }
        self.index.stack_at.insert((node, stop), stack);
        stack
    }

    /// Copies a node of `other` with its callers; `known` has the nodes copied so far.
    pub(super) fn copy_node(
        &mut self,
        other: &Dictionary,
        node: u32,
        known: &mut FxHashMap<u32, u32>,
    ) -> u32 {
        let mut path = Vec::new();
        let mut above = node;
        let mut own = loop {
            if let Some(&own) = known.get(&above) {
                break own;
            }
            path.push(above);
            above = other.tables.nodes[above as usize].parent;
        };
        for node in path.into_iter().rev() {
            let Node { frame, .. } = other.tables.nodes[node as usize];
            let frame = if other.is_marker(node) {
                let text = self.intern(other.string(other.frame(frame).symbol));
                self.marker(text)
            } else {
                self.copy_frame(other, frame)
            };
            own = self.child(own, frame);
            known.insert(node, own);
        }
        own
    }
}

fn push<T>(kind: &mut Runs<T>, count: &mut usize, number: u32, row: T) {
    if *count < MOST_ENTRIES {
        *count += usize::from(kind.push(number, row));
    }
}

/// Returns the row of a string: that of [`UNKNOWN`](crate::dictionary::stop::UNKNOWN) if undefined, 0 for number 0.
fn string_row(number: u32, own: &SessionRows) -> u32 {
    if number == 0 { 0 } else { own.strings.get(number).copied().unwrap_or(UNKNOWN_STRING) }
}

#[cfg(test)]
mod tests {
    use super::super::RowIndex;
    use super::*;

    /// A root, a frame below it, and one below that.
    fn chain() -> Entries {
        Entries {
            first_string: 1,
            string: vec!["root".into(), "leaf".into()],
            first_frame: 1,
            frame_kind: vec![FrameKind::Native.into(); 2],
            frame_method: vec![0; 2],
            frame_bci: vec![-1; 2],
            frame_line: vec![0; 2],
            frame_symbol: vec![1, 2],
            frame_library: vec![0; 2],
            first_node: 1,
            node_parent: vec![0, 1, 1],
            node_frame: vec![0, 1, 2],
            ..Entries::default()
        }
    }

    #[test]
    fn the_limit_of_one_session_does_not_affect_others() {
        let mut dictionary = Dictionary::default();
        let (mut spent, mut fresh) = (SessionRows::default(), SessionRows::default());
        dictionary.define(&chain(), &mut spent);
        dictionary.define(&chain(), &mut fresh);
        spent.stack_frames = MAX_STACK_FRAMES;
        assert_eq!(dictionary.stack_of_node(3, &mut spent), 0);
        let stack = dictionary.stack_of_node(3, &mut fresh);
        assert_ne!(stack, 0);
        assert_eq!(fresh.stack_frames, 2);
        assert_eq!(dictionary.stack_of_node(3, &mut spent), stack, "known already, so it costs nothing");
    }

    #[test]
    fn a_full_dictionary_keeps_its_rows_and_refuses_new_ones() {
        let mut dictionary = Dictionary::default();
        let mut first = SessionRows::default();
        dictionary.define(&chain(), &mut first);
        let known = dictionary.stack_of_node(3, &mut first);
        dictionary.limit = dictionary.bytes();
        let (rows, memory) = (dictionary.tables().lens(), dictionary.index.frame_of.len());
        let mut second = SessionRows::default();
        dictionary.define(&chain(), &mut second);
        assert_eq!((dictionary.stack_of_node(3, &mut second), dictionary.refused()), (known, 0));
        let other = Entries {
            string: vec!["root".into(), "invented".into(), "depth_limit".into()],
            node_parent: vec![0, 1, 1, 0, 1],
            node_frame: vec![0, 1, 2, 3, 1],
            ..chain()
        };
        let mut third = SessionRows::default();
        dictionary.define(&other, &mut third);
        assert_eq!(dictionary.stack_of_node(3, &mut third), 0);
        assert_eq!(dictionary.stack_of_node(5, &mut third), 0, "its reason is not known");
        assert!(dictionary.refused() >= 4, "{}", dictionary.refused());
        assert_eq!((dictionary.tables().lens(), dictionary.index.frame_of.len()), (rows, memory));
    }

    #[test]
    fn a_closed_dictionary_has_its_rows_and_no_maps() {
        let mut dictionary = Dictionary::default();
        let mut own = SessionRows::default();
        dictionary.define(&chain(), &mut own);
        let stack = dictionary.stack_of_node(3, &mut own);
        let (frames, bytes) = (dictionary.path(stack), dictionary.bytes());
        let capacities = |known: &RowIndex| {
            let rows = known.method_of.capacity() + known.frame_of.capacity();
            rows + known.markers.capacity() + known.children.capacity() + known.stack_at.capacity()
        };
        assert!(capacities(&dictionary.index) > 0);
        dictionary.close();
        assert_eq!(capacities(&dictionary.index), 0);
        assert_eq!(dictionary.path(stack), frames);
        // Letters and ends of the texts, and the rows.
        let texts = ["", crate::dictionary::stop::UNKNOWN, "root", "leaf", END_OF_STACK];
        let letters: usize = texts.iter().map(|text| text.len()).sum();
        let [strings, methods, rows, nodes, stacks] = [5, 1, 3, 4, 2];
        let numbers = 8 * strings + 32 * methods + 32 * rows + 8 * nodes + 8 * stacks;
        assert_eq!(dictionary.bytes(), letters + numbers);
        assert!(2 * bytes > 3 * dictionary.bytes(), "{bytes} bytes");
        assert_eq!(dictionary.frame_text(2), "leaf");
    }

    #[test]
    fn entries_of_a_session_are_limited() {
        let mut numbers = SessionRows { count: MOST_ENTRIES - 1, ..SessionRows::default() };
        Dictionary::default().define(&chain(), &mut numbers);
        assert_eq!((numbers.strings.len(), numbers.frames.len(), numbers.nodes.len()), (1, 0, 0));
    }

    #[test]
    fn runs_of_one_number_count_with_their_overhead() {
        let (mut apart, mut together) = (SessionRows::default(), SessionRows::default());
        for number in 0..1000 {
            apart.set_node(1 + 10 * number, 1, 1);
            together.set_node(1 + number, 1, 1);
        }
        // A place in the list of runs, and a row of its own that the allocator gives 24 bytes at least.
        assert!(apart.bytes() >= 1000 * (size_of::<(u32, Vec<(u32, u32)>)>() + 24), "{}", apart.bytes());
        assert!((8000..18_000).contains(&together.bytes()), "{}", together.bytes());
    }

    #[test]
    fn a_new_partition_counts_from_zero() {
        let mut old = Dictionary::default();
        let mut numbers = SessionRows::default();
        old.define(&chain(), &mut numbers);
        numbers.stack_frames = MAX_STACK_FRAMES;
        let mut new = Dictionary::default();
        let mut carried = numbers.renumbered(&mut new, &old);
        assert_ne!(new.stack_of_node(3, &mut carried), 0);
    }
}
