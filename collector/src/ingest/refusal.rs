//! Why the collector closes a connection.

use std::fmt;
use std::io;

use proto::framing::FramingError;
use proto::version::VersionError;

use crate::store::StoreError;

/// Why the collector closed a connection; its text is sent to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes received are not framed messages, or end inside one.
    Framing(FramingError),
    /// The agent has another wire version, or the peer is not an agent.
    Version(VersionError),
    /// The first message is not a Hello.
    NoHello,
    /// No Hello arrived within [`Limits::hello`](super::limits::Limits::hello).
    HelloLate,
    /// A message has no sequence number.
    NoSequence,
    /// A second Hello has another session id, this one.
    OtherSession(u64),
    /// The maximum number of connections is served.
    TooManyConnections(usize),
    /// The maximum number of sessions is known.
    TooManySessions(usize),
    /// The recording or the store cannot be written.
    Storage(io::ErrorKind),
    /// The store refuses the session temporarily.
    Store(StoreError),
    /// Sending an acknowledgement failed: the peer does not read, or closed the connection.
    Unread(io::ErrorKind),
    /// The agent's token differs from the collector's.
    WrongToken,
    /// No complete message arrived within [`Limits::silence`](super::limits::Limits::silence).
    Silent,
    /// The dictionary entries of the connection exceed this number of bytes.
    DictionaryTooLarge(u64),
    /// The collector stops and the peer keeps sending.
    Stopping,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Framing(error) => error.fmt(f),
            Refusal::Version(error) => error.fmt(f),
            Refusal::NoHello => {
                f.write_str("the first message is not a Hello; connect with a Tickwalk agent")
            }
            Refusal::HelloLate => f.write_str("no Hello arrived in time; connect again"),
            Refusal::NoSequence => f.write_str("a message has no sequence number; numbers start at 1"),
            Refusal::OtherSession(id) => write!(
                f,
                "a second Hello has another session id, {id:016x}; use one connection for each session"
            ),
            Refusal::TooManyConnections(max) => {
                write!(f, "the collector already serves its maximum of {max} connections; try again later")
            }
            Refusal::TooManySessions(max) => {
                write!(f, "the collector already has its maximum of {max} sessions; try again later")
            }
            Refusal::Storage(kind) => write!(f, "the recording cannot be written: {kind}"),
            Refusal::Store(error) => error.fmt(f),
            Refusal::Unread(kind) => write!(f, "acknowledgements cannot be sent: {kind}"),
            Refusal::WrongToken => f.write_str(
                "the token is missing or wrong; set token= or tokenfile= to the collector's token",
            ),
            Refusal::Silent => f.write_str("no complete message arrived in time; connect again"),
            Refusal::DictionaryTooLarge(max) => {
                write!(f, "the dictionary entries exceed {max} bytes; connect again")
            }
            Refusal::Stopping => f.write_str("the collector is stopping"),
        }
    }
}

impl std::error::Error for Refusal {}
