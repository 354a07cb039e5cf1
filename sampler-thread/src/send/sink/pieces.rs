//! Messages cut to a size the wire allows.
//!
//! Problem: a dictionary after a burst of class loading, or the accounts of 100,000 threads, exceed the longest message.
//! Approach: columns and lists are dealt out over several messages of about [`PIECE_BYTES`], in the order in which they
//! refer to each other.
//! Invariant: nothing is dropped and nothing sent twice; an entry's piece comes before those that refer to it.

use proto::framing::{FramingError, encode_frame};
use proto::v1::{AgentMessage, Dictionary, Entries, Statistics, agent_message::Body};

/// Encoded size aimed at: far below the limit of 4 MiB, far above the cost of a message.
const PIECE_BYTES: usize = 1 << 20;

/// Numbers and frames the messages of one destination.
#[derive(Debug, Default)]
pub struct Encoder {
    sequence: u64,
}

impl Encoder {
    /// Sequence number of the last message encoded, 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Frames `body`, in several messages if it is long; `take` gets each with its sequence number.
    ///
    /// # Errors
    /// If a single entry is longer than a message may be; entries before it were handed to `take`.
    pub fn encode(&mut self, body: Body, mut take: impl FnMut(u64, Vec<u8>)) -> Result<(), FramingError> {
        for piece in pieces(body) {
            let message = AgentMessage { sequence: self.sequence + 1, body: Some(piece) };
            let mut framed = Vec::new();
            encode_frame(&message, &mut framed)?;
            self.sequence += 1;
            take(self.sequence, framed);
        }
        Ok(())
    }
}

fn pieces(body: Body) -> Vec<Body> {
    match body {
        Body::Dictionary(dictionary) if size_of_dictionary(&dictionary) > PIECE_BYTES => {
            cut_dictionary(dictionary)
        }
        Body::Statistics(statistics) if prost_len(&statistics) > PIECE_BYTES => cut_statistics(statistics),
        other => vec![other],
    }
}

fn prost_len(message: &impl prost::Message) -> usize {
    message.encoded_len()
}

fn size_of_dictionary(dictionary: &Dictionary) -> usize {
    prost_len(dictionary)
}

fn cut_dictionary(dictionary: Dictionary) -> Vec<Body> {
    let mut cut: Vec<Dictionary> = Vec::new();
    if let Some(entries) = dictionary.entries {
        cut_entries(entries, &mut cut);
    }
    deal(dictionary.threads, &mut cut, |threads| Dictionary { threads, ..Dictionary::default() });
    cut.into_iter().map(Body::Dictionary).collect()
}

/// Strings by their length, the rest by number: a row of any kind takes less than 32 bytes.
fn cut_entries(entries: Entries, cut: &mut Vec<Dictionary>) {
    const ROWS: usize = PIECE_BYTES / 32;
    let message = |entries| Dictionary { entries: Some(entries), ..Dictionary::default() };
    let mut first_string = entries.first_string;
    let mut string = Vec::new();
    let mut bytes = 0;
    for text in entries.string {
        bytes += text.len() + 6;
        string.push(text);
        if bytes >= PIECE_BYTES {
            let first = first_string;
            first_string += string.len() as u32;
            let string = std::mem::take(&mut string);
            cut.push(message(Entries { first_string: first, string, ..Entries::default() }));
            bytes = 0;
        }
    }
    if !string.is_empty() {
        cut.push(message(Entries { first_string, string, ..Entries::default() }));
    }
    let starts = |rows: usize| (0..rows).step_by(ROWS);
    for start in starts(entries.method_class.len()) {
        let part = |column: &[u32]| column.iter().skip(start).take(ROWS).copied().collect();
        cut.push(message(Entries {
            first_method: entries.first_method + start as u32,
            method_class: part(&entries.method_class),
            method_name: part(&entries.method_name),
            method_signature: part(&entries.method_signature),
            method_source: part(&entries.method_source),
            method_modifiers: part(&entries.method_modifiers),
            ..Entries::default()
        }));
    }
    for start in starts(entries.frame_kind.len()) {
        let part = |column: &[u32]| column.iter().skip(start).take(ROWS).copied().collect();
        let signed = |column: &[i32]| column.iter().skip(start).take(ROWS).copied().collect();
        cut.push(message(Entries {
            first_frame: entries.first_frame + start as u32,
            frame_kind: signed(&entries.frame_kind),
            frame_method: part(&entries.frame_method),
            frame_bci: signed(&entries.frame_bci),
            frame_line: part(&entries.frame_line),
            frame_symbol: part(&entries.frame_symbol),
            ..Entries::default()
        }));
    }
    for start in starts(entries.node_frame.len()) {
        let part = |column: &[u32]| column.iter().skip(start).take(ROWS).copied().collect();
        cut.push(message(Entries {
            first_node: entries.first_node + start as u32,
            node_parent: part(&entries.node_parent),
            node_frame: part(&entries.node_frame),
            ..Entries::default()
        }));
    }
}

/// Everything but the accounts is cumulative and small, so each piece carries it.
fn cut_statistics(mut statistics: Statistics) -> Vec<Body> {
    let threads = std::mem::take(&mut statistics.threads);
    let mut cut = Vec::new();
    deal(threads, &mut cut, |threads| Statistics { threads, ..statistics.clone() });
    cut.into_iter().map(Body::Statistics).collect()
}

fn deal<T: prost::Message, M>(entries: Vec<T>, cut: &mut Vec<M>, message: impl Fn(Vec<T>) -> M) {
    let mut piece = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        // A tag and a length stand before each entry: at most 6 bytes.
        bytes += prost_len(&entry) + 6;
        piece.push(entry);
        if bytes >= PIECE_BYTES {
            cut.push(message(std::mem::take(&mut piece)));
            bytes = 0;
        }
    }
    if !piece.is_empty() {
        cut.push(message(piece));
    }
}

#[cfg(test)]
mod tests {
    use proto::framing::{MAX_MESSAGE_BYTES, decode_frame};
    use proto::v1::ThreadAccount;

    use super::*;

    fn encode(body: Body) -> Vec<AgentMessage> {
        let mut encoder = Encoder::default();
        let mut messages = Vec::new();
        encoder
            .encode(body, |sequence, framed| {
                assert!(framed.len() <= MAX_MESSAGE_BYTES, "{}", framed.len());
                let message: AgentMessage = decode_frame(&framed).expect("own message");
                assert_eq!(message.sequence, sequence);
                messages.push(message);
            })
            .expect("fits");
        messages
    }

    #[test]
    fn a_long_dictionary_becomes_several_messages_with_all_entries() {
        let rows = 100_000;
        let column: Vec<u32> = (1..=rows).collect();
        let entries = Entries {
            first_string: 7,
            string: vec!["x".repeat(1000); 10_000],
            first_frame: 5,
            frame_kind: vec![1; rows as usize],
            frame_method: column.clone(),
            frame_bci: vec![i32::MIN; rows as usize],
            frame_line: column.clone(),
            frame_symbol: column.clone(),
            first_node: 3,
            node_parent: column.clone(),
            node_frame: column.clone(),
            ..Entries::default()
        };
        let dictionary = Dictionary { entries: Some(entries.clone()), ..Dictionary::default() };
        let messages = encode(Body::Dictionary(dictionary));
        assert!(messages.len() >= 15, "{}", messages.len());
        let mut whole = Dictionary::default();
        for message in messages {
            let Some(Body::Dictionary(piece)) = message.body else { panic!("{message:?}") };
            assert_eq!(crate::name::dictionaries::append(&mut whole, piece), None, "the numbers follow");
        }
        assert_eq!(whole.entries, Some(entries));
    }

    #[test]
    fn accounts_of_many_threads_become_several_messages() {
        let threads: Vec<_> = (1..=200_000)
            .map(|thread| ThreadAccount { thread, kernel_ns: u64::MAX, ..ThreadAccount::default() })
            .collect();
        let messages = encode(Body::Statistics(Statistics { samples: 7, threads, ..Statistics::default() }));
        assert!(messages.len() > 1);
        let mut seen = 0;
        for message in messages {
            let Some(Body::Statistics(statistics)) = message.body else { panic!("{message:?}") };
            assert_eq!(statistics.samples, 7);
            seen += statistics.threads.len();
        }
        assert_eq!(seen, 200_000);
    }
}
