//! gRPC's length-prefixed framing over any byte stream.
//!
//! Each message is preceded by one flag byte (0: the message is not compressed) and its length, four bytes, big-endian.
//! [`FrameDecoder`] does no I/O; [`FrameReader`] reads the bytes from a [`Read`]. Messages of agents end with a
//! checksum, an additional field, because recordings are kept on disks for years.
//! Invariant: a length is compared with the limit before memory is reserved for it, and no input causes a panic.

use std::io::{self, Read};

use prost::Message as _;
use xxhash_rust::xxh3::xxh3_64;

use crate::v1::{AgentMessage, agent_message::Body};

/// Maximum length of a message in bytes, without its prefix: 4 MiB, the default of gRPC implementations.
///
/// A full batch of the agent has about 100 KB (10,000 samples). A decoded message can be larger than its encoding: the
/// worst case is a list of empty entries, two bytes each on the wire and up to 100 bytes in memory.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Bytes of the prefix of each message: flag and length.
pub const PREFIX_BYTES: usize = 5;

/// Bytes a [`FrameReader`] reads at once: several ordinary messages.
const READ_BYTES: usize = 64 << 10;

/// Why bytes are not a framed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    #[error("flag byte {0:#04x} does not start a message")]
    BadFlag(u8),
    #[error("compressed messages are not supported")]
    Unsupported,
    /// The message is longer than the limit, both in bytes.
    #[error("message of {len} bytes exceeds the limit of {max} bytes")]
    TooLong { len: usize, max: usize },
    #[error("stream ends after {0} bytes of a message")]
    Truncated(usize),
    /// The bytes of the message, of this number, are not a valid encoding of the expected type.
    #[error("message of {0} bytes is not valid protobuf")]
    Malformed(usize),
    /// The checksum of the message, of this number of bytes, is wrong or missing.
    #[error("message of {0} bytes was overwritten: its checksum does not match")]
    Damaged(usize),
    #[error("reading failed: {0}")]
    Io(io::ErrorKind),
}

/// A decoded message of an agent with its framed bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct FramedMessage {
    pub message: AgentMessage,
    /// Its prefix and its encoding.
    pub bytes: Vec<u8>,
}

impl FramedMessage {
    /// Encodes `message`; with a checksum if its stream has them.
    ///
    /// # Errors
    /// As [`encode_frame`].
    pub fn encode(message: AgentMessage, checksums: Checksums) -> Result<Self, FramingError> {
        let mut bytes = Vec::new();
        match &message.body {
            Some(body) if checksums == Checksums::Required => {
                encode_body(message.sequence, body, &mut bytes)?;
            }
            _ => encode_frame(&message, &mut bytes)?,
        }
        Ok(FramedMessage { message, bytes })
    }

    /// Decodes `framed`, which has exactly one message with its prefix.
    ///
    /// # Errors
    /// As [`decode_message`].
    pub fn decode(framed: &[u8], checksums: Checksums) -> Result<Self, FramingError> {
        Ok(FramedMessage { message: decode_message(framed, checksums)?, bytes: framed.to_vec() })
    }
}

/// Appends `message` with its prefix to `out`.
///
/// # Errors
/// [`FramingError::TooLong`] if the message exceeds [`MAX_MESSAGE_BYTES`]; `out` is unchanged then.
pub fn encode_frame(message: &impl prost::Message, out: &mut Vec<u8>) -> Result<(), FramingError> {
    // Unlike `encode`, this does not count the bytes first: a `Vec` always has room.
    append(out, |out| message.encode_raw(out))
}

/// Key of the field of the checksum: number 8, of four bytes.
const CHECKSUM_KEY: u8 = (8 << 3) | 5;

/// Bytes of the field of the checksum.
const CHECKSUM_BYTES: usize = 5;

/// The checksum of a message; every other field is skipped.
#[derive(Clone, PartialEq, prost::Message)]
struct Tail {
    #[prost(fixed32, optional, tag = "8")]
    checksum: Option<u32>,
}

/// Appends the [`AgentMessage`] with this number and `body`, as [`encode_frame`] does, but only borrows the body, and
/// ends the message with its checksum.
///
/// # Errors
/// As [`encode_frame`].
pub fn encode_body(sequence: u64, body: &Body, out: &mut Vec<u8>) -> Result<(), FramingError> {
    // An encoded message is its encoded fields one after the other.
    let number = AgentMessage { sequence, body: None };
    append(out, |out| {
        let start = out.len();
        number.encode_raw(out);
        body.encode(out);
        let checksum = checksum(&out[start..]);
        out.push(CHECKSUM_KEY);
        out.extend_from_slice(&checksum.to_le_bytes());
    })
}

/// Appends the prefix of a message, and what `encode` appends.
fn append(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), FramingError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    encode(out);
    let len = out.len() - start - PREFIX_BYTES;
    if len > MAX_MESSAGE_BYTES {
        out.truncate(start);
        return Err(FramingError::TooLong { len, max: MAX_MESSAGE_BYTES });
    }
    // Written last, because counting the bytes of a message before costs nearly as much as encoding it.
    out[start + 1..start + PREFIX_BYTES].copy_from_slice(&(len as u32).to_be_bytes());
    Ok(())
}

/// Decodes `framed`, which has exactly one message with its prefix.
///
/// # Errors
/// As [`FrameDecoder::next`], and [`FramingError::Truncated`] if `framed` is shorter than the length in its prefix.
pub fn decode_frame<M: prost::Message + Default>(framed: &[u8]) -> Result<M, FramingError> {
    match framed_len(framed, MAX_MESSAGE_BYTES)? {
        Some(len) if len <= framed.len() => decode_body(&framed[PREFIX_BYTES..len]),
        _ => Err(FramingError::Truncated(framed.len())),
    }
}

/// The rule for checksums of a stream's messages; its first message decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The agent is of an early version; a checksum is compared if there is one.
    Optional,
    /// A message without a checksum is damaged.
    Required,
}

impl Checksums {
    /// Returns whether a stream that begins with the message `framed` has checksums.
    pub fn of_stream(framed: &[u8]) -> Self {
        let body = framed.get(PREFIX_BYTES..).unwrap_or_default();
        match Tail::decode(body) {
            Ok(Tail { checksum: Some(_) }) => Self::Required,
            _ => Self::Optional,
        }
    }
}

/// Decodes one message of an agent, as [`decode_frame`] does, and compares its checksum.
///
/// # Errors
/// As [`decode_frame`], and [`FramingError::Damaged`].
pub fn decode_message(framed: &[u8], checksums: Checksums) -> Result<AgentMessage, FramingError> {
    let len = framed_len(framed, MAX_MESSAGE_BYTES)?.filter(|&len| len <= framed.len());
    let body = &framed[PREFIX_BYTES..len.ok_or(FramingError::Truncated(framed.len()))?];
    let tail: Tail = decode_body(body)?;
    let is_intact = match (tail.checksum, checksums) {
        (Some(expected), _) => {
            body.len() >= CHECKSUM_BYTES && expected == checksum(&body[..body.len() - CHECKSUM_BYTES])
        }
        (None, Checksums::Optional) => true,
        (None, Checksums::Required) => false,
    };
    if is_intact { decode_body(body) } else { Err(FramingError::Damaged(body.len())) }
}

/// Returns the checksum of a message from its bytes before the checksum.
fn checksum(bytes: &[u8]) -> u32 {
    // The lower half of the hash.
    xxh3_64(bytes) as u32
}

fn decode_body<M: prost::Message + Default>(body: &[u8]) -> Result<M, FramingError> {
    M::decode(body).map_err(|_| FramingError::Malformed(body.len()))
}

/// Returns the length of the first message in `bytes` with its prefix; `None` if the prefix is incomplete.
fn framed_len(bytes: &[u8], max: usize) -> Result<Option<usize>, FramingError> {
    // The flag is checked as soon as it arrives: other streams are refused at their first byte.
    match bytes.first() {
        None => return Ok(None),
        Some(0) => {}
        Some(1) => return Err(FramingError::Unsupported),
        Some(&flag) => return Err(FramingError::BadFlag(flag)),
    }
    let Some(&[_, a, b, c, d]) = bytes.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if len > max {
        return Err(FramingError::TooLong { len, max });
    }
    Ok(Some(PREFIX_BYTES + len))
}

/// Splits a stream of bytes into messages, without I/O.
///
/// After an error in the framing the position of the next message is unknown, so every later call returns the same
/// error. After [`FramingError::Malformed`] the next message can be read.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were returned.
    consumed: usize,
    max: usize,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameDecoder {
    /// Returns a decoder that accepts messages of up to [`MAX_MESSAGE_BYTES`].
    pub fn new() -> Self {
        Self::with_max(MAX_MESSAGE_BYTES)
    }

    /// Returns a decoder that accepts messages of up to `max` bytes.
    pub fn with_max(max: usize) -> Self {
        FrameDecoder { buffer: Vec::new(), consumed: 0, max }
    }

    /// Sets the limit for the following messages.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Appends received bytes. Call [`next`](Self::next) until it returns `None` before the next push, which limits the
    /// buffer to one message and one push.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next message, `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`FramingError::BadFlag`], [`Unsupported`](FramingError::Unsupported) and
    /// [`TooLong`](FramingError::TooLong) for a wrong prefix, [`Malformed`](FramingError::Malformed) for a wrong
    /// message.
    #[expect(clippy::should_implement_trait, reason = "the message type is chosen by each call")]
    pub fn next<M: prost::Message + Default>(&mut self) -> Result<Option<M>, FramingError> {
        match self.next_framed()? {
            Some(framed) => decode_body(&framed[PREFIX_BYTES..]).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the bytes of the next message with its prefix, undecoded; `None` if more bytes are needed.
    ///
    /// # Errors
    /// As [`next`](Self::next), except for errors of the message itself.
    pub fn next_framed(&mut self) -> Result<Option<&[u8]>, FramingError> {
        let pending = &self.buffer[self.consumed..];
        match framed_len(pending, self.max)? {
            Some(len) if len <= pending.len() => {
                self.consumed += len;
                Ok(Some(&pending[..len]))
            }
            _ => Ok(None),
        }
    }

    /// Returns the number of received bytes after the last complete message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.consumed
    }

    /// Checks that the stream does not end inside a message.
    ///
    /// # Errors
    /// [`FramingError::Truncated`] if bytes of an unfinished message are pending.
    pub fn finish(&self) -> Result<(), FramingError> {
        match self.pending() {
            0 => Ok(()),
            pending => Err(FramingError::Truncated(pending)),
        }
    }
}

/// Reads messages from a stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    decoder: FrameDecoder,
    chunk: Box<[u8]>,
}

impl<R: Read> FrameReader<R> {
    /// Reads from `stream`, which needs no buffer.
    pub fn new(stream: R) -> Self {
        FrameReader { stream, decoder: FrameDecoder::new(), chunk: vec![0; READ_BYTES].into_boxed_slice() }
    }

    /// Returns the next message, `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`FrameDecoder::next`]; [`FramingError::Truncated`] if the stream ends inside a message,
    /// [`FramingError::Io`] if reading fails. A read that would block or timed out loses nothing: call again.
    #[expect(clippy::should_implement_trait, reason = "the message type is chosen by each call")]
    pub fn next<M: prost::Message + Default>(&mut self) -> Result<Option<M>, FramingError> {
        match self.next_framed()? {
            Some(framed) => decode_body(&framed[PREFIX_BYTES..]).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the bytes of the next message with its prefix, undecoded; `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`next`](Self::next), except for errors of the message itself.
    pub fn next_framed(&mut self) -> Result<Option<&[u8]>, FramingError> {
        loop {
            let pending = &self.decoder.buffer[self.decoder.consumed..];
            if framed_len(pending, self.decoder.max)?.is_some_and(|len| len <= pending.len()) {
                return self.decoder.next_framed();
            }
            match self.stream.read(&mut self.chunk) {
                Ok(0) => return self.decoder.finish().map(|()| None),
                Ok(len) => self.decoder.push(&self.chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FramingError::Io(error.kind())),
            }
        }
    }
}
