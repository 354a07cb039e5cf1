//! State shared by listener and connections.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::access::Access;
use super::limits::Limits;
use super::session::Sessions;
use super::socket::Stream;

/// The state.
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) access: Access,
    pub(super) stopping: AtomicBool,
    pub(super) sessions: Mutex<Sessions>,
    /// Second handles of the open connections, to close them at stop.
    pub(super) open: Mutex<HashMap<u64, Stream>>,
}
