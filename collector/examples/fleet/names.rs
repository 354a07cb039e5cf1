//! Dictionary entries of a recording, sent again under new numbers.

use proto::v1::{Dictionary, Entries};

/// Highest numbers of strings, methods, frames and nodes.
#[derive(Clone, Copy, Default)]
struct Numbers {
    strings: u32,
    methods: u32,
    frames: u32,
    nodes: u32,
}

/// Numbers that the agent's delivery uses for its own entries; old recordings use them for others.
const RESERVED: Numbers = Numbers { strings: 2, methods: 2, frames: 2, nodes: 2 };

/// The entries of a session so far. An agent sends all of them again, with numbers that it has not used, after a
/// collector that lacks them; this one adds the highest number of the recording to each, once more each time.
pub struct Names {
    sent: Vec<Dictionary>,
    highest: Numbers,
    /// Sums to add to the numbers of the recording.
    added: Numbers,
}

impl Names {
    /// No entry was sent yet; `all` are the entries of the whole recording.
    pub fn new<'d>(all: impl Iterator<Item = &'d Dictionary>) -> Names {
        let mut highest = Numbers::default();
        for entries in all.filter_map(|dictionary| dictionary.entries.as_ref()) {
            let last = |first: u32, count: usize| first + count as u32;
            highest.strings = highest.strings.max(last(entries.first_string, entries.string.len()));
            highest.methods = highest.methods.max(last(entries.first_method, entries.method_class.len()));
            highest.frames = highest.frames.max(last(entries.first_frame, entries.frame_kind.len()));
            highest.nodes = highest.nodes.max(last(entries.first_node, entries.node_frame.len()));
        }
        Names { sent: Vec::new(), highest, added: RESERVED }
    }

    /// Returns entries as they have to be sent.
    pub fn add(&mut self, dictionary: &Dictionary) -> Dictionary {
        self.sent.push(dictionary.clone());
        self.numbered(dictionary)
    }

    /// Returns the number of a node as it has to be sent.
    pub fn node(&self, node: u32) -> u32 {
        moved(node, self.added.nodes)
    }

    /// Gives new numbers to all entries, and returns them to be sent again.
    pub fn send_again(&mut self) -> Vec<Dictionary> {
        self.added.strings += self.highest.strings;
        self.added.methods += self.highest.methods;
        self.added.frames += self.highest.frames;
        self.added.nodes += self.highest.nodes;
        self.sent.iter().map(|dictionary| self.numbered(dictionary)).collect()
    }

    fn numbered(&self, dictionary: &Dictionary) -> Dictionary {
        let mut dictionary = dictionary.clone();
        if let Some(entries) = &mut dictionary.entries {
            self.number(entries);
        }
        dictionary
    }

    fn number(&self, entries: &mut Entries) {
        let Numbers { strings, methods, frames, nodes } = self.added;
        // Nodes refer to frames; those without a caller refer to strings.
        for (frame, parent) in entries.node_frame.iter_mut().zip(&entries.node_parent) {
            *frame = moved(*frame, if *parent == 0 { strings } else { frames });
        }
        for (column, added) in [
            (&mut entries.method_class, strings),
            (&mut entries.method_name, strings),
            (&mut entries.method_signature, strings),
            (&mut entries.method_source, strings),
            (&mut entries.frame_method, methods),
            (&mut entries.frame_symbol, strings),
            (&mut entries.frame_library, strings),
            (&mut entries.stack_node, nodes),
        ] {
            column.iter_mut().for_each(|number| *number = moved(*number, added));
        }
        for (first, added) in [
            (&mut entries.first_string, strings),
            (&mut entries.first_method, methods),
            (&mut entries.first_frame, frames),
            (&mut entries.first_node, nodes),
        ] {
            *first = moved(*first, added);
        }
    }
}

/// Returns a number of the recording as it has to be sent; 0 means none.
fn moved(number: u32, added: u32) -> u32 {
    if number == 0 { 0 } else { number + added }
}
