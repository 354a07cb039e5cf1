//! Limits of a server for its peers.

use std::time::Duration;

/// Limits of a server for its peers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections with a session; each has a thread and a buffer of up to one message.
    pub connections: usize,
    /// Maximum number of connections before their Hello; the next one takes the place of the oldest.
    pub unknown: usize,
    /// Maximum number of known sessions. Sessions without a connection are evicted, except with
    /// [`Destination::File`].
    pub sessions: usize,
    /// Maximum length of a message in bytes.
    pub message_bytes: usize,
    /// Maximum time until the Hello of a new connection.
    pub hello: Duration,
    /// Maximum time an acknowledgement remains unread once the peer's receive buffer is full.
    pub write: Duration,
    /// Maximum time between two complete messages of an agent; statistics arrive every second.
    pub silence: Duration,
    /// Maximum bytes per second of one connection; faster senders are slowed down.
    pub bytes_per_second: u64,
    /// Maximum bytes of dictionary messages of one connection.
    pub dictionary_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 256,
            unknown: 64,
            sessions: 4096,
            message_bytes: proto::framing::MAX_MESSAGE_BYTES,
            hello: Duration::from_secs(10),
            write: Duration::from_secs(5),
            silence: Duration::from_secs(60),
            bytes_per_second: 64 << 20,
            dictionary_bytes: 1 << 30,
        }
    }
}
