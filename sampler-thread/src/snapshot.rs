//! What the handler writes into a slab: a capture, one word about itself, and the stack bytes.
//!
//! Problem: the handler's own cost must be known in production, but counting it in shared memory would cost more than
//! what is counted.
//! Approach: each run leaves its length in the thread's slot, and the thread's next run carries it along; only the
//! last run of each thread is never seen.
//! Invariant: writer and reader agree on the layout through this module alone.

use stackwalk::{CAPTURE_BYTES, Capture};

/// The record at the head of a snapshot; the stack bytes follow, on a cache line of their own.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Registers and thread fields.
    pub capture: Capture,
    /// Time stamp counter cycles of the thread's previous handler run, 0 for its first.
    pub previous_cycles: u64,
}

/// Bytes of [`SnapshotHead`], a whole number of cache lines.
pub const HEAD_BYTES: usize = 256;

const _: () = assert!(size_of::<SnapshotHead>() == HEAD_BYTES && CAPTURE_BYTES + 8 <= HEAD_BYTES);
const _: () = assert!(std::mem::offset_of!(SnapshotHead, previous_cycles) == CAPTURE_BYTES);

impl SnapshotHead {
    /// Splits a snapshot into its head and the stack bytes.
    pub fn split(snapshot: &[u8]) -> Option<(Self, &[u8])> {
        let (head, stack) = snapshot.split_at_checked(HEAD_BYTES)?;
        let (capture, rest) = head.split_at_checked(CAPTURE_BYTES)?;
        let (cycles, _padding) = rest.split_first_chunk::<8>()?;
        let head =
            Self { capture: Capture::from_bytes(capture)?, previous_cycles: u64::from_ne_bytes(*cycles) };
        Some((head, stack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_what_was_written() {
        let capture = Capture { pc: 7, stack_high: 9, ..Capture::default() };
        let mut bytes = capture.to_bytes().to_vec();
        bytes.extend_from_slice(&77_u64.to_ne_bytes());
        bytes.resize(HEAD_BYTES, 0);
        bytes.extend_from_slice(b"stack");
        let (head, stack) = SnapshotHead::split(&bytes).expect("whole");
        assert_eq!((head, stack), (SnapshotHead { capture, previous_cycles: 77 }, &b"stack"[..]));
        assert!(SnapshotHead::split(&bytes[..HEAD_BYTES - 1]).is_none());
    }
}
