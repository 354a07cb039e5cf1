//! The dictionary of stacks that were read from a lake.

use profile::dictionary::stop::{UNKNOWN, is_whole, reason};
use profile::dictionary::{Dictionary, SessionRows};
use proto::v1::{Entries, FrameKind};
use rustc_hash::FxHashMap;

use crate::read::frame_kind;
use crate::table::stacks::{Frame, Stack, Stacks};

/// Definitions as an agent would send them.
#[derive(Default)]
struct Definitions {
    entries: Entries,
    strings: FxHashMap<String, u32>,
    methods: FxHashMap<[u32; 5], u32>,
    /// By caller's node and frame, or 0 and reason.
    nodes: FxHashMap<(u32, u32), u32>,
}

impl Definitions {
    /// Returns the number of a string; 0 stands for an empty one.
    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&number) = self.strings.get(text) {
            return number;
        }
        self.entries.string.push(text.to_owned());
        let number = self.entries.string.len() as u32;
        self.strings.insert(text.to_owned(), number);
        number
    }

    fn method(&mut self, stacks: &Stacks, frame: &Frame) -> u32 {
        let text = |number| stacks.texts.string(number);
        let class = text(frame.class);
        if class.is_empty() {
            return 0;
        }
        let file = text(frame.file);
        let source = file.rsplit_once('/').map_or(file.as_str(), |(_, name)| name).to_owned();
        let class = self.string(&class.replace('.', "/"));
        let (name, signature) = (self.string(&text(frame.method)), self.string(&text(frame.signature)));
        let key = [class, name, signature, self.string(&source), frame.modifiers.cast_unsigned()];
        let entries = &mut self.entries;
        *self.methods.entry(key).or_insert_with(|| {
            entries.method_class.push(key[0]);
            entries.method_name.push(key[1]);
            entries.method_signature.push(key[2]);
            entries.method_source.push(key[3]);
            entries.method_modifiers.push(key[4]);
            entries.method_class.len() as u32
        })
    }

    /// Adds a frame; its number is one more than that of the frame before it.
    fn add_frame(&mut self, stacks: &Stacks, frame: &Frame) {
        let method = self.method(stacks, frame);
        let symbol = if method == 0 { self.string(&stacks.texts.string(frame.name)) } else { 0 };
        let library = self.string(&stacks.texts.string(frame.library));
        let kind = frame_kind(&stacks.texts.string(frame.kind));
        let entries = &mut self.entries;
        entries.frame_kind.push(kind.into());
        entries.frame_method.push(method);
        entries.frame_bci.push(frame.bci);
        entries.frame_line.push(frame.line.cast_unsigned());
        entries.frame_symbol.push(symbol);
        entries.frame_library.push(library);
    }

    /// Returns the node of a frame, or of a root, below `parent`, which is 0 for a root.
    fn node(&mut self, parent: u32, frame: u32) -> u32 {
        let entries = &mut self.entries;
        *self.nodes.entry((parent, frame)).or_insert_with(|| {
            let number = entries.node_frame.len() as u32 + 1;
            entries.node_parent.push(if parent == 0 { 0 } else { number - parent });
            entries.node_frame.push(frame);
            number
        })
    }

    /// Returns the node of a stack.
    fn stack(&mut self, stacks: &Stacks, stack: &Stack) -> u32 {
        let stop = stacks.texts.string(stack.stop);
        let reason = self.string(&stop);
        let mut node = self.node(0, reason);
        for &frame in frames_without_reason(stacks, stack, &stop).iter().rev() {
            node = self.node(node, frame + 1);
        }
        node
    }
}

/// Returns the frames of a stack without the one that stands for its stop reason, which a dictionary adds itself: at
/// the root of an incomplete stack, and in a stack without frames.
fn frames_without_reason<'s>(stacks: &Stacks, stack: &'s Stack, stop: &str) -> &'s [u32] {
    let Some((&root, others)) = stack.frames.split_last() else { return &[] };
    let Frame { kind, name, .. } = stacks.frames[root as usize];
    let is_marker = frame_kind(&stacks.texts.string(kind)) == FrameKind::Marker
        && stacks.texts.string(name) == format!("[{}]", reason(stop));
    let has_reason = !is_whole(stop) || others.is_empty();
    if is_marker && has_reason { others } else { &stack.frames }
}

/// Returns a dictionary, and its stacks by id; `None` if they are more than a dictionary takes.
pub fn dictionary(stacks: &Stacks) -> Option<(Dictionary, FxHashMap<i64, u32>)> {
    let mut definitions = Definitions::default();
    stacks.frames.iter().for_each(|frame| definitions.add_frame(stacks, frame));
    // The unknown stack is in every dictionary.
    let known = stacks.rows.iter().filter(|(_, stack)| stacks.texts.string(stack.stop) != UNKNOWN);
    let nodes: Vec<(i64, u32)> = known.map(|(&id, stack)| (id, definitions.stack(stacks, stack))).collect();
    let mut entries = definitions.entries;
    (entries.first_string, entries.first_method, entries.first_frame, entries.first_node) = (1, 1, 1, 1);
    let (mut dictionary, mut rows) = (Dictionary::unlimited(), SessionRows::default());
    dictionary.define(&entries, &mut rows);
    let numbers: FxHashMap<i64, u32> =
        nodes.into_iter().map(|(id, node)| (id, dictionary.stack_of_node(node, &mut rows))).collect();
    dictionary.close();
    // A dictionary that is full has the unknown stack in place of others.
    let is_whole = numbers.values().all(|&number| number != 0);
    is_whole.then_some((dictionary, numbers))
}

#[cfg(test)]
mod tests {
    use profile::dictionary::entries::MAX_DEPTH;

    use super::*;

    /// A dictionary has the unknown stack in place of one that it does not take.
    #[test]
    fn a_stack_that_no_dictionary_takes_does_not_become_unknown() {
        let stacks = |depth| {
            let mut stacks = Stacks::default();
            let mut text = |text: &str| stacks.texts.number(text.as_bytes());
            let (stop, name, kind) = (text("end_of_stack"), text("deep"), text("native"));
            stacks.frames.push(Frame { name, kind, ..Frame::default() });
            stacks.rows.insert(1, Stack { stop, frames: vec![0; depth] });
            stacks
        };
        let (_, numbers) = dictionary(&stacks(100)).expect("a dictionary takes it");
        assert_ne!(numbers[&1], 0);
        assert!(dictionary(&stacks(MAX_DEPTH as usize + 2)).is_none());
    }
}
