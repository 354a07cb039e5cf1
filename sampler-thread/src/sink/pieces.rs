//! Messages cut to a size the wire allows.
//!
//! Problem: a dictionary after a burst of class loading, or the accounts of 100,000 threads, exceed the longest message.
//! Approach: columns and lists are dealt out over several messages of about [`PIECE_BYTES`], in the order in which they
//! refer to each other.
//! Invariant: nothing is dropped and nothing sent twice; an entry's piece comes before those that refer to it.

use proto::framing::{FramingError, encode_frame};
use proto::v1::{AgentMessage, Dictionary, Statistics, agent_message::Body};

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
    let mut cut = Vec::new();
    deal(dictionary.strings, &mut cut, |strings| Dictionary { strings, ..Dictionary::default() });
    deal(dictionary.methods, &mut cut, |methods| Dictionary { methods, ..Dictionary::default() });
    deal(dictionary.frames, &mut cut, |frames| Dictionary { frames, ..Dictionary::default() });
    deal(dictionary.stacks, &mut cut, |stacks| Dictionary { stacks, ..Dictionary::default() });
    deal(dictionary.threads, &mut cut, |threads| Dictionary { threads, ..Dictionary::default() });
    cut.into_iter().map(Body::Dictionary).collect()
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
    use proto::v1::{StringEntry, ThreadAccount};

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
        let strings: Vec<_> = (1..=10_000).map(|id| StringEntry { id, text: "x".repeat(1000) }).collect();
        let messages = encode(Body::Dictionary(Dictionary { strings, ..Dictionary::default() }));
        assert!(messages.len() >= 10, "{}", messages.len());
        let ids: Vec<u64> = messages
            .iter()
            .flat_map(|message| match &message.body {
                Some(Body::Dictionary(dictionary)) => dictionary.strings.iter().map(|entry| entry.id),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(ids.iter().copied().eq(1..=10_000));
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
