//! Pending entries, in the columns of their message.

use prost::Message as _;
use proto::v1::{Dictionary, Entries, FrameKind, Thread};

/// Most entries of a kind for which memory is kept between two messages: the nodes of 300 stacks of 200 frames.
const KEPT_ENTRIES: usize = 1 << 16;

/// A frame; strings and method are ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameEntry {
    pub kind: FrameKind,
    pub method: u32,
    pub bci: i32,
    pub line: u32,
    pub symbol: u32,
    pub library: u32,
}

impl FrameEntry {
    /// A frame named by `symbol`.
    pub(super) fn of_symbol(kind: FrameKind, symbol: u32, library: u32) -> Self {
        Self { kind, method: 0, bci: -1, line: 0, symbol, library }
    }
}

/// A message being filled.
#[derive(Debug, Default)]
pub(super) struct Pending {
    entries: Entries,
    threads: Vec<Thread>,
}

impl Pending {
    pub(super) fn string(&mut self, id: u32, text: &str) {
        begin(&mut self.entries.first_string, id, self.entries.string.is_empty());
        self.entries.string.push(text.to_owned());
    }

    /// A method: class, name, signature and source file.
    pub(super) fn method(&mut self, id: u32, strings: [u32; 4], modifiers: u32) {
        let entries = &mut self.entries;
        begin(&mut entries.first_method, id, entries.method_class.is_empty());
        let [class_name, name, signature, source_file] = strings;
        entries.method_class.push(class_name);
        entries.method_name.push(name);
        entries.method_signature.push(signature);
        entries.method_source.push(source_file);
        entries.method_modifiers.push(modifiers);
    }

    pub(super) fn frame(&mut self, id: u32, frame: FrameEntry) {
        let entries = &mut self.entries;
        begin(&mut entries.first_frame, id, entries.frame_kind.is_empty());
        entries.frame_kind.push(frame.kind.into());
        entries.frame_method.push(frame.method);
        entries.frame_bci.push(frame.bci);
        entries.frame_line.push(frame.line);
        entries.frame_symbol.push(frame.symbol);
        entries.frame_library.push(frame.library);
    }

    /// Adds a root with its stop reason and the number of the thread's state, 0 if that is unknown.
    pub(super) fn root(&mut self, id: u32, stop: u32, state: u32) {
        if state != 0 {
            let states = &mut self.entries.node_state;
            states.resize(self.entries.node_frame.len(), 0);
            states.push(state);
        }
        self.node(id, 0, stop);
    }

    /// Adds a node: its caller, 0 for a root, and its frame, or the string of a root.
    pub(super) fn node(&mut self, id: u32, caller: u32, frame: u32) {
        let entries = &mut self.entries;
        begin(&mut entries.first_node, id, entries.node_frame.is_empty());
        entries.node_parent.push(if caller == 0 { 0 } else { id - caller });
        entries.node_frame.push(frame);
    }

    pub(super) fn stack(&mut self, node: u32, content: u64) {
        self.entries.stack_node.push(node);
        self.entries.stack_id.push(content);
    }

    pub(super) fn thread(&mut self, thread: Thread) {
        self.threads.push(thread);
    }

    fn entries(&self) -> usize {
        let Entries { string, method_class, frame_kind, node_frame, stack_node, .. } = &self.entries;
        string.len() + method_class.len() + frame_kind.len() + node_frame.len() + stack_node.len()
    }

    pub(super) fn len(&self) -> usize {
        self.entries() + self.threads.len()
    }

    pub(super) fn take(&mut self) -> Option<Dictionary> {
        if self.len() == 0 {
            return None;
        }
        let entries = (self.entries() > 0).then(|| std::mem::take(&mut self.entries));
        let threads = std::mem::take(&mut self.threads);
        Some(Dictionary { entries, threads })
    }

    /// Keeps the memory of `sent` for the next entries, unless it is unusually large.
    pub(super) fn reuse_memory(&mut self, sent: Dictionary) {
        let Some(mut entries) = sent.entries else { return };
        let Entries { string, method_class, frame_kind, node_frame, stack_node, .. } = &entries;
        let capacities = [
            string.capacity(),
            method_class.capacity(),
            frame_kind.capacity(),
            node_frame.capacity(),
            stack_node.capacity(),
        ];
        if self.entries() == 0 && capacities.into_iter().all(|capacity| capacity <= KEPT_ENTRIES) {
            entries.clear();
            self.entries = entries;
        }
    }
}

fn begin(first: &mut u32, id: u32, is_first: bool) {
    if is_first {
        *first = id;
    }
}

/// Adds the entries of `more` to `dictionary` if their ids are consecutive; otherwise returns it unchanged.
#[must_use]
pub fn append(dictionary: &mut Dictionary, mut more: Dictionary) -> Option<Dictionary> {
    if let Some(new) = &mut more.entries {
        let own = dictionary.entries.get_or_insert_default();
        let follows = |first: u32, len: usize, new_first: u32, new_len: usize| {
            len == 0 || new_len == 0 || u64::from(first) + len as u64 == u64::from(new_first)
        };
        let all = follows(own.first_string, own.string.len(), new.first_string, new.string.len())
            && follows(own.first_method, own.method_class.len(), new.first_method, new.method_class.len())
            && follows(own.first_frame, own.frame_kind.len(), new.first_frame, new.frame_kind.len())
            && follows(own.first_node, own.node_frame.len(), new.first_node, new.node_frame.len());
        if !all {
            return Some(more);
        }
        begin(&mut own.first_string, new.first_string, own.string.is_empty());
        begin(&mut own.first_method, new.first_method, own.method_class.is_empty());
        begin(&mut own.first_frame, new.first_frame, own.frame_kind.is_empty());
        begin(&mut own.first_node, new.first_node, own.node_frame.is_empty());
        own.string.append(&mut new.string);
        own.method_class.append(&mut new.method_class);
        own.method_name.append(&mut new.method_name);
        own.method_signature.append(&mut new.method_signature);
        own.method_source.append(&mut new.method_source);
        own.method_modifiers.append(&mut new.method_modifiers);
        own.frame_kind.append(&mut new.frame_kind);
        own.frame_method.append(&mut new.frame_method);
        own.frame_bci.append(&mut new.frame_bci);
        own.frame_line.append(&mut new.frame_line);
        own.frame_symbol.append(&mut new.frame_symbol);
        own.frame_library.append(&mut new.frame_library);
        if !new.node_state.is_empty() {
            own.node_state.resize(own.node_frame.len(), 0);
            own.node_state.append(&mut new.node_state);
        }
        own.node_parent.append(&mut new.node_parent);
        own.node_frame.append(&mut new.node_frame);
        own.stack_node.append(&mut new.stack_node);
        own.stack_id.append(&mut new.stack_id);
    }
    dictionary.threads.append(&mut more.threads);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(first: u32, texts: &[&str]) -> Dictionary {
        let mut pending = Pending::default();
        (first..).zip(texts).for_each(|(id, text)| pending.string(id, text));
        pending.take().expect("entries")
    }

    #[test]
    fn states_stay_with_their_roots() {
        let nodes = |first_node, frames: &[u32], states: &[u32]| {
            let (node_parent, node_frame) = (vec![0; frames.len()], frames.to_vec());
            let node_state = states.to_vec();
            let entries = Entries { first_node, node_parent, node_frame, node_state, ..Entries::default() };
            Dictionary { entries: Some(entries), ..Dictionary::default() }
        };
        let mut all = nodes(1, &[7, 7, 8], &[1]);
        assert_eq!(append(&mut all, nodes(4, &[9, 9], &[0, 2])), None);
        assert_eq!(append(&mut all, nodes(6, &[9], &[])), None);
        assert_eq!(all.entries.expect("entries").node_state, [1, 0, 0, 0, 2]);
    }

    #[test]
    fn only_consecutive_entries_are_appended() {
        let mut all = Dictionary::default();
        assert_eq!(append(&mut all, strings(3, &["c", "d"])), None, "the first may begin anywhere");
        assert_eq!(append(&mut all, strings(5, &["e"])), None);
        let other = strings(9, &["i"]);
        assert_eq!(append(&mut all, other.clone()), Some(other));
        let threads = Dictionary { threads: vec![Thread::default()], ..Dictionary::default() };
        assert_eq!(append(&mut all, threads), None, "threads have ids of their own");
        assert_eq!(all.entries, strings(3, &["c", "d", "e"]).entries);
        assert_eq!(all.threads.len(), 1);
    }
}
