//! Framing: any portioning yields the same messages, and no input does harm.

mod support;

use std::io::{self, Read};

use proptest::prelude::*;
use proto::framing::{
    Checksums, FrameDecoder, FrameReader, FramingError, MAX_MESSAGE_BYTES, PREFIX_BYTES, decode_frame,
    decode_message, encode_body, encode_frame,
};
use proto::v1::{AgentMessage, Goodbye, Heartbeat, SampleBatch, agent_message::Body};

fn stream() -> (Vec<AgentMessage>, Vec<u8>) {
    let messages: Vec<AgentMessage> = support::agent_messages().into_iter().map(|(_, m)| m).collect();
    let mut bytes = Vec::new();
    for message in &messages {
        encode_frame(message, &mut bytes).expect("small message");
    }
    (messages, bytes)
}

#[test]
fn a_borrowed_body_gives_the_same_message_and_a_checksum() {
    for message in stream().0 {
        let framed = with_checksum(&message);
        assert_eq!(decode_frame(&framed), Ok(message.clone()), "readers of early versions skip the checksum");
        assert_eq!(decode_message(&framed, Checksums::Required), Ok(message));
    }
    let long = Body::Goodbye(Goodbye { reason: "x".repeat(MAX_MESSAGE_BYTES) });
    let mut bytes = vec![7];
    assert!(matches!(encode_body(1, &long, &mut bytes), Err(FramingError::TooLong { .. })));
    assert_eq!(bytes, [7], "nothing of the long one");
}

fn with_checksum(message: &AgentMessage) -> Vec<u8> {
    let mut framed = Vec::new();
    encode_body(message.sequence, message.body.as_ref().expect("a body"), &mut framed)
        .expect("small message");
    framed
}

/// Whatever byte of a message is overwritten, and with whatever: the message is refused.
#[test]
fn overwritten_messages_are_refused() {
    for message in stream().0 {
        let framed = with_checksum(&message);
        assert_eq!(Checksums::of_stream(&framed), Checksums::Required);
        for position in PREFIX_BYTES..framed.len() {
            for mask in [0x01, 0x80, 0xff, framed[position]] {
                let mut overwritten = framed.clone();
                overwritten[position] ^= mask;
                if overwritten != framed {
                    let refused = decode_message(&overwritten, Checksums::Required);
                    assert!(
                        matches!(refused, Err(FramingError::Damaged(_) | FramingError::Malformed(_))),
                        "{position}"
                    );
                }
            }
        }
    }
    let empty = [0; PREFIX_BYTES];
    assert_eq!(decode_message(&empty, Checksums::Required), Err(FramingError::Damaged(0)), "a page of zeros");
}

/// Agents of early versions send no checksums.
#[test]
fn messages_without_checksums_are_read_where_the_stream_has_none() {
    let (messages, _) = stream();
    for message in messages {
        let mut framed = Vec::new();
        encode_frame(&message, &mut framed).expect("small message");
        assert_eq!(Checksums::of_stream(&framed), Checksums::Optional);
        assert_eq!(decode_message(&framed, Checksums::Optional), Ok(message));
        assert!(matches!(decode_message(&framed, Checksums::Required), Err(FramingError::Damaged(_))));
    }
}

/// All messages of `bytes` pushed in portions of the given sizes, then the verdict on the rest.
fn decode(bytes: &[u8], portions: &[usize]) -> (Vec<AgentMessage>, Result<(), FramingError>) {
    let mut decoder = FrameDecoder::new();
    let mut messages = Vec::new();
    let mut rest = bytes;
    let mut portions = portions.iter().copied().chain(std::iter::repeat(bytes.len().max(1)));
    while !rest.is_empty() {
        let portion = portions.next().unwrap_or(1).clamp(1, rest.len());
        let (now, later) = rest.split_at(portion);
        decoder.push(now);
        rest = later;
        loop {
            match decoder.next::<AgentMessage>() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Err(error)),
            }
        }
    }
    (messages, decoder.finish())
}

fn check_error(bytes: &[u8], expected: FramingError) {
    assert_eq!(decode(bytes, &[]), (Vec::new(), Err(expected)), "from bytes {bytes:02x?}");
}

#[test]
fn every_cut_yields_the_messages_before_it() {
    let (messages, bytes) = stream();
    for cut in 0..bytes.len() {
        let (decoded, verdict) = decode(&bytes[..cut], &[]);
        assert_eq!(decoded, messages[..decoded.len()], "cut at {cut}");
        match verdict {
            Ok(()) | Err(FramingError::Truncated(_)) => {}
            Err(other) => panic!("cut at {cut}: {other}"),
        }
    }
}

#[test]
fn reader_reports_a_cut_stream_and_an_orderly_end() {
    let (messages, bytes) = stream();
    let mut reader = FrameReader::new(&bytes[..]);
    for message in &messages {
        assert_eq!(reader.next(), Ok(Some(message.clone())));
    }
    assert_eq!(reader.next::<AgentMessage>(), Ok(None));

    let mut reader = FrameReader::new(&bytes[..3]);
    assert_eq!(reader.next::<AgentMessage>(), Err(FramingError::Truncated(3)));
}

#[test]
fn reader_resumes_after_a_read_that_would_block() {
    struct Halting<'a>(Vec<Option<&'a [u8]>>);
    impl Read for Halting<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.pop() {
                Some(Some(bytes)) => {
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    Ok(bytes.len())
                }
                Some(None) => Err(io::ErrorKind::WouldBlock.into()),
                None => Ok(0),
            }
        }
    }
    let (messages, bytes) = stream();
    let (head, tail) = bytes.split_at(7);
    let mut reader = FrameReader::new(Halting(vec![Some(tail), None, Some(head)]));
    assert_eq!(reader.next::<AgentMessage>(), Err(FramingError::Io(io::ErrorKind::WouldBlock)));
    assert_eq!(reader.next(), Ok(Some(messages[0].clone())));
}

#[test]
fn wrong_prefixes_have_named_errors() {
    check_error(&[9], FramingError::BadFlag(9));
    check_error(b"GET / HTTP/1.1\r\n", FramingError::BadFlag(b'G'));
    check_error(&[1, 0, 0, 0, 1, 0], FramingError::Unsupported);
    let max = MAX_MESSAGE_BYTES;
    check_error(&[0, 0xff, 0xff, 0xff, 0xff], FramingError::TooLong { len: 0xffff_ffff, max });
    check_error(&[0, 0, 0, 0, 2, 0xff, 0xff], FramingError::Malformed(2));
}

#[test]
fn a_framing_error_is_permanent_and_a_malformed_message_is_skipped() {
    let mut decoder = FrameDecoder::new();
    decoder.push(&[0, 0, 0, 0, 1, 0xff]);
    decoder.push(&[0, 0, 0, 0, 0]);
    assert_eq!(decoder.next::<AgentMessage>(), Err(FramingError::Malformed(1)));
    assert_eq!(decoder.next(), Ok(Some(AgentMessage::default())));
    decoder.push(&[7]);
    decoder.push(&[0, 0, 0, 0, 0]);
    for _ in 0..2 {
        assert_eq!(decoder.next::<AgentMessage>(), Err(FramingError::BadFlag(7)));
    }
}

#[test]
fn limits_hold_for_both_sides() {
    let message = Goodbye { reason: "x".repeat(MAX_MESSAGE_BYTES) };
    let mut out = vec![1, 2, 3];
    assert!(matches!(encode_frame(&message, &mut out), Err(FramingError::TooLong { .. })));
    assert_eq!(out, [1, 2, 3]);

    let mut decoder = FrameDecoder::with_max(2);
    decoder.push(&[0, 0, 0, 0, 3]);
    assert_eq!(decoder.next_framed(), Err(FramingError::TooLong { len: 3, max: 2 }));
}

#[test]
fn a_single_message_must_be_whole() {
    let (_, bytes) = stream();
    for cut in 0..PREFIX_BYTES + 1 {
        assert_eq!(decode_frame::<AgentMessage>(&bytes[..cut]), Err(FramingError::Truncated(cut)));
    }
}

fn any_message() -> impl Strategy<Value = AgentMessage> {
    let columns = prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>(), any::<u64>()), 0..50);
    let body = prop_oneof![
        Just(None),
        any::<u64>().prop_map(|time_ns| Some(Body::Heartbeat(Heartbeat { time_ns }))),
        ".{0,40}".prop_map(|reason| Some(Body::Goodbye(Goodbye { reason }))),
        columns.prop_map(|rows| {
            let mut batch = SampleBatch { first_time_ns: 5, cpu_unit_ns: 1, ..Default::default() };
            for (delta, thread, node, units) in rows {
                batch.time_delta_us.push(delta);
                batch.thread.push(thread);
                batch.node.push(node);
                batch.cpu_units.push(units);
                batch.flags.push(thread & 3);
            }
            Some(Body::Samples(batch))
        }),
    ];
    (any::<u64>(), body).prop_map(|(sequence, body)| AgentMessage { sequence, body })
}

proptest! {
    #[test]
    fn round_trip_in_any_portions(
        messages in prop::collection::vec(any_message(), 0..8),
        portions in prop::collection::vec(1usize..40, 0..40),
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            encode_frame(message, &mut bytes).expect("small message");
        }
        prop_assert_eq!(decode(&bytes, &portions), (messages, Ok(())));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes, &[1, 2, 3]);
    }

    #[test]
    fn damaged_streams_never_panic(position in any::<prop::sample::Index>(), value in any::<u8>()) {
        let (_, mut bytes) = stream();
        let position = position.index(bytes.len());
        bytes[position] = value;
        let _ = decode(&bytes, &[17]);
    }
}
