//! Ids of stacks by content, in recordings of real JVMs: a reader that uses only the definition of
//! `design/wire-format.md` computes the ids that the agent has sent, and equal stacks of two sessions have equal ids.

use crate::recorded;
use std::collections::{HashMap, HashSet};

use proto::rows::rows;
use proto::v1::agent_message::Body;
use proto::v1::{Entries, FrameKind};
use xxhash_rust::xxh3::xxh3_64;

/// The id of words.
fn of_words(words: &[u64]) -> u64 {
    xxh3_64(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
}

/// The id of a frame below a caller's stack.
fn below(caller: u64, frame: u64) -> u64 {
    let mixed = caller.wrapping_add(0x243f_6a88_85a3_08d3) ^ frame;
    let product = u128::from(mixed) * 0x1319_8a2e_0370_7345;
    ((product >> 64) as u64 ^ product as u64).max(1)
}

/// Text and id of each entry of a session, by its number.
#[derive(Default)]
struct Session {
    strings: HashMap<u32, (String, u64)>,
    methods: HashMap<u32, (String, u64)>,
    frames: HashMap<u32, (String, u64)>,
    nodes: HashMap<u32, (String, u64)>,
    /// Ids that were sent, by the text of the whole stack.
    sent: HashMap<String, u64>,
    /// Ids that were sent, by the number of the stack.
    id_of: HashMap<u32, u64>,
}

impl Session {
    fn add(&mut self, entries: &Entries) {
        for (number, text) in (entries.first_string..).zip(&entries.string) {
            self.strings.insert(number, (text.clone(), xxh3_64(text.as_bytes())));
        }
        // 0 is no text.
        let string = |number: &u32| self.strings.get(number).cloned().unwrap_or_default();
        for (at, number) in (0..entries.method_name.len()).zip(entries.first_method..) {
            let texts = [&entries.method_class, &entries.method_name, &entries.method_signature];
            let [class, name, signature] = texts.map(|column| string(&column[at]));
            let source = string(&entries.method_source[at]);
            let modifiers = u64::from(entries.method_modifiers[at]);
            let text = format!("{} {} {} {} {modifiers}", class.0, name.0, signature.0, source.0);
            let id = of_words(&[class.1, name.1, signature.1, source.1, modifiers]);
            self.methods.insert(number, (text, id));
        }
        for (at, number) in (0..entries.frame_kind.len()).zip(entries.first_frame..) {
            let kind = entries.frame_kind[at];
            let method = self.methods.get(&entries.frame_method[at]).cloned().unwrap_or_default();
            let (bci, line) = (entries.frame_bci[at], entries.frame_line[at]);
            let symbol = string(&entries.frame_symbol[at]);
            let library = string(entries.frame_library.get(at).unwrap_or(&0));
            let text = format!("{kind} {} {bci} {line} {} {}", method.0, symbol.0, library.0);
            let words = [u64::from(kind.cast_unsigned()), method.1, u64::from(bci.cast_unsigned())];
            let id = of_words(&[&words[..], &[u64::from(line), symbol.1, library.1]].concat());
            self.frames.insert(number, (text, id));
        }
        for (at, number) in (0..entries.node_frame.len()).zip(entries.first_node..) {
            let (distance, frame) = (entries.node_parent[at], entries.node_frame[at]);
            let (caller, frame) = match distance {
                0 => ((String::new(), 0), string(&frame)),
                _ => (self.nodes[&(number - distance)].clone(), self.frames[&frame].clone()),
            };
            self.nodes.insert(number, (format!("{}\n{}", caller.0, frame.0), below(caller.1, frame.1)));
        }
        for (node, id) in entries.stack_node.iter().zip(&entries.stack_id) {
            // Numbers 1 and 2 are the agent's own entries, which are never sent.
            let Some((text, computed)) = self.nodes.get(node) else { continue };
            assert_eq!(id, computed, "stack {node}: {text}");
            self.sent.insert(text.clone(), *id);
            self.id_of.insert(*node, *id);
        }
    }
}

fn session(name: &str) -> Session {
    let mut session = Session::default();
    for message in recorded::recorded(name) {
        if let Some(Body::Dictionary(dictionary)) = message.body {
            dictionary.entries.iter().for_each(|entries| session.add(entries));
        }
    }
    session
}

#[test]
fn ids_follow_from_the_definition() {
    for name in ["twice-25-1", "twice-25-2"] {
        let sent = session(name).sent;
        let compiled = format!("{} ", FrameKind::C1 as i32);
        let java = sent.keys().filter(|text| text.lines().any(|frame| frame.starts_with(&compiled))).count();
        assert!(sent.len() > 50 && java > 10, "{name}: {} stacks, {java} with compiled code", sent.len());
        let ids: HashSet<&u64> = sent.values().collect();
        assert_eq!(ids.len(), sent.len(), "{name}: different stacks have different ids");
    }
}

/// Two runs of one program, which numbered their stacks differently.
#[test]
fn equal_stacks_of_two_sessions_have_equal_ids() {
    let [one, other] = ["twice-25-1", "twice-25-2"].map(session);
    let shared: Vec<&String> = one.sent.keys().filter(|text| other.sent.contains_key(*text)).collect();
    assert!(shared.len() > 10, "{} stacks are in both", shared.len());
    let number = |session: &Session, text: &String| {
        session.nodes.iter().find(|(_, (known, _))| known == text).map(|(number, _)| *number)
    };
    assert!(shared.iter().any(|text| number(&one, text) != number(&other, text)), "other numbers");
    shared.iter().for_each(|text| assert_eq!(one.sent[*text], other.sent[*text], "{text}"));
}

/// Samples of one stack, in any number of batches, carry one number and one id: a reader needs no comparison of frames
/// to know that they are equal.
#[test]
fn a_hundred_equal_samples_are_one_stack_on_the_wire() {
    let mut most = 0;
    for name in ["virtual-25", "twice-25-1", "twice-25-2"] {
        let session = session(name);
        let mut by_text: HashMap<&String, (u64, HashSet<u32>, HashSet<u64>)> = HashMap::new();
        for message in recorded::recorded(name) {
            let Some(Body::Samples(batch)) = message.body else { continue };
            for row in rows(&batch) {
                let Some((text, _)) = session.nodes.get(&row.stack) else { continue };
                let (samples, numbers, ids) = by_text.entry(text).or_default();
                *samples += row.count;
                numbers.insert(row.stack);
                ids.extend(session.id_of.get(&row.stack));
            }
        }
        for (text, (samples, numbers, ids)) in by_text {
            assert_eq!((numbers.len(), ids.len()), (1, 1), "{name}: {samples} samples of {text}");
            most = most.max(samples);
        }
    }
    assert!(most >= 100, "{most} samples of one stack");
}
