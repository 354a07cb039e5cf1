//! The messages between the Tickwalk agent and a collector, and their framing.
//!
//! Problem: an agent inside a JVM sends its samples to a process that may be slow, absent, of another version or
//! hostile, and a file of the same bytes must be readable years later.
//! Approach: protobuf messages ([`v1`], generated from `proto/profiler.proto`) in gRPC's length-prefixed
//! framing ([`framing`]) without HTTP/2; a recording file holds the messages of the agent.
//! Invariant: this crate decides neither when nor where to do I/O, and no input causes a panic or an allocation larger
//! than a small multiple of [`framing::MAX_MESSAGE_BYTES`].
//!
//! Sources: gRPC over HTTP/2 ("Length-Prefixed-Message"), the protobuf encoding guide.
//! `design/wire-format.md` describes the format.
//!
//! ```
//! use proto::framing::{FrameDecoder, encode_frame};
//! use proto::v1::{AgentMessage, Heartbeat, agent_message::Body};
//!
//! let message = AgentMessage { sequence: 7, body: Some(Body::Heartbeat(Heartbeat { time_ns: 42 })) };
//! let mut bytes = Vec::new();
//! encode_frame(&message, &mut bytes)?;
//!
//! let mut decoder = FrameDecoder::new();
//! decoder.push(&bytes[..3]);
//! assert_eq!(decoder.next::<AgentMessage>()?, None);
//! decoder.push(&bytes[3..]);
//! assert_eq!(decoder.next::<AgentMessage>()?, Some(message));
//! # Ok::<(), proto::framing::FramingError>(())
//! ```
#![forbid(unsafe_code)]

pub mod characters;
pub mod framing;
pub mod histogram;
pub mod rows;
mod shown;
pub mod statistics;
mod thread_state;
pub mod version;

pub use thread_state::ThreadState;

/// The messages of `proto/profiler.proto`.
///
/// The code is generated and committed, so that a build needs no protobuf compiler:
/// `cargo run --manifest-path proto/generate/Cargo.toml` writes it, and the test `drift` fails if the definition was
/// changed without that.
#[rustfmt::skip]
#[path = "generated.rs"]
#[allow(clippy::doc_lazy_continuation, reason = "comments of the .proto are plain text, not Markdown")]
#[allow(clippy::large_enum_variant, reason = "messages live for a moment, one at a time")]
pub mod v1;
