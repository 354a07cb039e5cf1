//! Why the collector closes a connection.

use std::io;

use proto::framing::FramingError;
use proto::version::VersionError;

use crate::store::StoreError;

/// Why the collector closed a connection; its text is sent to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes received are not framed messages, or end inside one.
    #[error(transparent)]
    Framing(FramingError),
    /// The agent has another wire version, or the peer is not an agent.
    #[error(transparent)]
    Version(VersionError),
    #[error("the first message is not a Hello; connect with a Tickwalk agent")]
    NoHello,
    /// No Hello arrived within [`Limits::hello`](super::limits::Limits::hello).
    #[error("no Hello arrived in time; connect again")]
    HelloLate,
    #[error("a message has no sequence number; numbers start at 1")]
    NoSequence,
    #[error("a second Hello has another session id, {0:016x}; use one connection for each session")]
    OtherSession(u64),
    #[error("session {0:016x} belongs to another agent, which has another secret; start the profile again")]
    WrongSecret(u64),
    #[error("message {1} follows message {0}; numbers grow by one; start the profile again")]
    Jump(u64, u64),
    #[error("the collector already serves its maximum of {0} connections; try again later")]
    TooManyConnections(usize),
    #[error("the collector already has its maximum of {0} sessions; try again later")]
    TooManySessions(usize),
    #[error("the recording cannot be written: {}; check its directory and the disk", cause(.0))]
    Storage(io::ErrorKind),
    /// The store refuses the session temporarily.
    #[error(transparent)]
    Store(StoreError),
    #[error("acknowledgements cannot be sent: {0}")]
    Unread(io::ErrorKind),
    #[error("the token is missing or wrong; set token= or tokenfile= to the collector's token")]
    WrongToken,
    /// No complete message arrived within [`Limits::silence`](super::limits::Limits::silence).
    #[error("no complete message arrived in time; connect again")]
    Silent,
    #[error("the dictionary entries exceed {0} bytes; connect again")]
    DictionaryTooLarge(u64),
    #[error("the collector is stopping")]
    Stopping,
}

/// Returns the words for an error of files; those of the standard library are too general for some.
fn cause(kind: &io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::AlreadyExists => "another file has its name".to_owned(),
        kind => kind.to_string(),
    }
}
