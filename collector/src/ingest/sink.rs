//! Where the messages of a session go.

use super::refusal::Refusal;

/// Stores the messages of one session.
pub(super) trait SessionSink: Send {
    /// Stores the new ones among `messages` (number and framed bytes), and returns the highest stored number.
    fn append(&mut self, messages: &mut dyn Iterator<Item = (u64, &[u8])>) -> Result<u64, Refusal>;
}
