//! Frames messages, splits those that are too long, and states the shift of the clocks.
//!
//! Problem: a dictionary after a burst of class loading, or the accounts of 100,000 threads, exceed the longest
//! message.
//! Approach: columns and lists are split into messages of about [`PART_BYTES`], in the order of their references.
//! Invariant: every entry is in exactly one message, before those that refer to it.

use std::borrow::Cow;

use proto::framing::{FramingError, encode_body};
use proto::v1::{Dictionary, Entries, SampleBatch, Statistics, agent_message::Body};

use crate::clock;

/// Encoded size aimed at: far below the limit of 4 MiB, far above the cost of a message.
const PART_BYTES: usize = 1 << 20;
/// Rows of a message: a row of any kind takes less than 32 bytes.
const ROWS: usize = PART_BYTES / 32;

/// Frames the messages of one destination with sequence numbers.
#[derive(Debug, Default)]
pub struct Encoder {
    sequence: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, as `Hello` stated it.
    offset_ns: i64,
}

impl Encoder {
    /// Returns the sequence number of the last message, 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Frames `body`, in several messages if it is long; passes each to `take` with its sequence number. Samples and
    /// statistics get the current shift of the clocks.
    ///
    /// # Errors
    /// If a single entry is longer than a message may be; the messages before it were passed to `take`.
    pub fn encode(&mut self, body: &Body, mut take: impl FnMut(u64, Vec<u8>)) -> Result<(), FramingError> {
        let clock_shift_ms = self.clock_shift_ms();
        let body = match body {
            Body::Hello(hello) => {
                self.offset_ns = hello.wall_clock_ns.wrapping_sub(hello.monotonic_ns) as i64;
                Cow::Borrowed(body)
            }
            Body::Samples(batch) => {
                Cow::Owned(Body::Samples(SampleBatch { clock_shift_ms, ..batch.clone() }))
            }
            Body::Statistics(statistics) => {
                Cow::Owned(Body::Statistics(Statistics { clock_shift_ms, ..statistics.clone() }))
            }
            _ => Cow::Borrowed(body),
        };
        let mut whole = Vec::new();
        let outcome = encode_body(self.sequence + 1, &body, &mut whole);
        if outcome.is_ok() && whole.len() <= PART_BYTES {
            // It may be kept until a collector acknowledges it.
            whole.shrink_to_fit();
            self.sequence += 1;
            take(self.sequence, whole);
            return Ok(());
        }
        // Its memory is free before the parts take theirs.
        drop(whole);
        let long = body.into_owned();
        for part in split(long) {
            let mut framed = Vec::new();
            encode_body(self.sequence + 1, &part, &mut framed)?;
            self.sequence += 1;
            take(self.sequence, framed);
        }
        Ok(())
    }

    /// Returns how far the wall clock moved against the monotonic one since `Hello`: a suspended machine stops the
    /// latter, and a correction of the time moves the former.
    fn clock_shift_ms(&self) -> i64 {
        let offset_ns = clock::wall_nanos().wrapping_sub(clock::monotonic_nanos()) as i64;
        offset_ns.wrapping_sub(self.offset_ns) / 1_000_000
    }
}

/// Returns the parts of a long body; the body itself if its kind has none.
fn split(body: Body) -> Vec<Body> {
    match body {
        Body::Dictionary(dictionary) => split_dictionary(dictionary),
        Body::Statistics(statistics) => split_statistics(statistics),
        body => vec![body],
    }
}

fn split_dictionary(dictionary: Dictionary) -> Vec<Body> {
    let mut parts: Vec<Dictionary> = Vec::new();
    if let Some(entries) = dictionary.entries {
        split_entries(entries, &mut parts);
    }
    split_list(dictionary.threads, &mut parts, |threads| Dictionary { threads, ..Dictionary::default() });
    parts.into_iter().map(Body::Dictionary).collect()
}

/// Splits strings by their length, other entries by their number.
fn split_entries(entries: Entries, parts: &mut Vec<Dictionary>) {
    let message = |entries| Dictionary { entries: Some(entries), ..Dictionary::default() };
    let mut first_string = entries.first_string;
    split_list(entries.string, parts, |string| {
        let first = first_string;
        first_string += string.len() as u32;
        message(Entries { first_string: first, string, ..Entries::default() })
    });
    let starts = |rows: usize| (0..rows).step_by(ROWS);
    for start in starts(entries.method_class.len()) {
        parts.push(message(Entries {
            first_method: entries.first_method + start as u32,
            method_class: part(&entries.method_class, start),
            method_name: part(&entries.method_name, start),
            method_signature: part(&entries.method_signature, start),
            method_source: part(&entries.method_source, start),
            method_modifiers: part(&entries.method_modifiers, start),
            ..Entries::default()
        }));
    }
    for start in starts(entries.frame_kind.len()) {
        parts.push(message(Entries {
            first_frame: entries.first_frame + start as u32,
            frame_kind: part(&entries.frame_kind, start),
            frame_method: part(&entries.frame_method, start),
            frame_bci: part(&entries.frame_bci, start),
            frame_line: part(&entries.frame_line, start),
            frame_symbol: part(&entries.frame_symbol, start),
            frame_library: part(&entries.frame_library, start),
            ..Entries::default()
        }));
    }
    for start in starts(entries.node_frame.len()) {
        parts.push(message(Entries {
            first_node: entries.first_node + start as u32,
            node_parent: part(&entries.node_parent, start),
            node_frame: part(&entries.node_frame, start),
            node_state: part(&entries.node_state, start),
            ..Entries::default()
        }));
    }
    // After all nodes, to which they refer.
    for start in starts(entries.stack_node.len()) {
        parts.push(message(Entries {
            stack_node: part(&entries.stack_node, start),
            stack_id: part(&entries.stack_id, start),
            ..Entries::default()
        }));
    }
}

/// Returns the rows of a column that are in the message from `start` on.
fn part<T: Copy>(column: &[T], start: usize) -> Vec<T> {
    column.iter().skip(start).take(ROWS).copied().collect()
}

/// Splits the accounts; every part contains the rest, which is small and cumulative.
fn split_statistics(mut statistics: Statistics) -> Vec<Body> {
    let threads = std::mem::take(&mut statistics.threads);
    let mut parts = Vec::new();
    split_list(threads, &mut parts, |threads| Statistics { threads, ..statistics.clone() });
    parts.into_iter().map(Body::Statistics).collect()
}

fn split_list<T: prost::Message, M>(
    entries: Vec<T>,
    parts: &mut Vec<M>,
    mut message: impl FnMut(Vec<T>) -> M,
) {
    let mut part = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        // A tag and a length stand before each entry: at most 6 bytes.
        bytes += entry.encoded_len() + 6;
        part.push(entry);
        if bytes >= PART_BYTES {
            parts.push(message(std::mem::take(&mut part)));
            bytes = 0;
        }
    }
    if !part.is_empty() {
        parts.push(message(part));
    }
}

#[cfg(test)]
mod tests {
    use proto::framing::{MAX_MESSAGE_BYTES, decode_frame};
    use proto::v1::{AgentMessage, Hello, ThreadAccount};

    use super::*;

    fn encode(body: Body) -> Vec<AgentMessage> {
        let mut encoder = Encoder::default();
        let mut messages = Vec::new();
        encoder
            .encode(&body, |sequence, framed| {
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
            frame_library: column.clone(),
            first_node: 3,
            node_parent: column.clone(),
            node_frame: column.clone(),
            stack_node: column.clone(),
            stack_id: vec![u64::MAX; rows as usize],
            ..Entries::default()
        };
        let dictionary = Dictionary { entries: Some(entries.clone()), ..Dictionary::default() };
        let messages = encode(Body::Dictionary(dictionary));
        assert!(messages.len() >= 15, "{}", messages.len());
        let mut whole = Dictionary::default();
        for message in messages {
            let Some(Body::Dictionary(part)) = message.body else { panic!("{message:?}") };
            assert_eq!(crate::name::dictionaries::append(&mut whole, part), None, "the numbers follow");
        }
        assert_eq!(whole.entries, Some(entries));
    }

    #[test]
    fn samples_that_are_longer_than_a_part_are_one_message() {
        let batch = SampleBatch { node: vec![u32::MAX; PART_BYTES / 4], ..SampleBatch::default() };
        assert_eq!(encode(Body::Samples(batch)).len(), 1);
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

    /// A machine that slept for two hours has the same difference of clocks as one whose `Hello` states it two hours
    /// less.
    #[test]
    fn samples_and_statistics_state_how_far_the_clocks_have_moved() {
        const SLEPT_MS: i64 = 2 * 3600 * 1000;
        let monotonic_ns = clock::monotonic_nanos();
        let wall_clock_ns = clock::wall_nanos() - SLEPT_MS as u64 * 1_000_000;
        let mut encoder = Encoder::default();
        let hello = Hello { wall_clock_ns, monotonic_ns, ..Hello::default() };
        let bodies = [
            Body::Hello(hello),
            Body::Samples(SampleBatch::default()),
            Body::Statistics(Statistics::default()),
        ];
        let mut shifts = Vec::new();
        for body in bodies {
            let taken = encoder.encode(&body, |_, framed| {
                match decode_frame::<AgentMessage>(&framed).expect("own message").body {
                    Some(Body::Samples(batch)) => shifts.push(batch.clock_shift_ms),
                    Some(Body::Statistics(statistics)) => shifts.push(statistics.clock_shift_ms),
                    _ => {}
                }
            });
            taken.expect("fits");
        }
        assert_eq!(shifts.len(), 2);
        // The machine's clock may be slewed meanwhile.
        assert!(shifts.iter().all(|shift| (shift - SLEPT_MS).abs() < 10_000), "{shifts:?}");
    }
}
