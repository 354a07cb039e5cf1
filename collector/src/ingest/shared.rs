//! State shared by the listener and its connections.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::access::Access;
use super::limits::Limits;
use super::session::Sessions;
use super::socket::Stream;
use crate::places::Places;

/// State shared by listener and connections.
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) access: Access,
    pub(super) stopping: AtomicBool,
    pub(super) sessions: Mutex<Sessions>,
    /// Second handles of the open connections, to close them.
    pub(super) open: Mutex<Places<Stream>>,
    /// Connections refused or closed because there were too many, and connections whose threads panicked.
    pub(super) refused: AtomicU64,
    pub(super) panicked: AtomicU64,
    /// True once the listener thread has ended.
    pub(super) has_ended: AtomicBool,
    /// Gets a byte when the last message of a session is stored.
    pub(super) ending: UnixStream,
}

/// State of a server, for readiness and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    pub connections: usize,
    /// Connections refused, or closed before their Hello, because there were too many.
    pub refused: u64,
    /// Connections that ended because of an error in the collector.
    pub panicked: u64,
    /// True once the listener has ended; it accepts no further connection.
    pub has_ended: bool,
}

impl Shared {
    pub(super) fn session_ended(&self) {
        // A byte that cannot be written means that earlier ones are still unread.
        let _ = (&self.ending).write(&[0]);
    }

    // Relaxed, here and below: statistics, each on its own.
    pub(super) fn health(&self) -> Health {
        Health {
            connections: self.open.lock().len(),
            refused: self.refused.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
            has_ended: self.has_ended.load(Ordering::Relaxed),
        }
    }
}
