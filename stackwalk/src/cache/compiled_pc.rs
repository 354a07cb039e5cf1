//! Decoded compiled code at one pc, as the cache keeps it.

use crate::hotspot::nmethod::Identity;

/// Kind of the frame at a pc in compiled code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompiledKind {
    Java,
    /// Java whose frames keep their size, because some are extended.
    JavaKeepingSize,
    Native,
    /// Native wrapper at the bottom of a mounted virtual thread.
    ContinuationEntry,
    /// Native wrapper through which a virtual thread unmounts.
    ContinuationYield,
}

/// Decoded compiled code at one pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CompiledPc {
    pub(crate) blob: u64,
    pub(crate) identity: Identity,
    pub(crate) frame_bytes: u32,
    pub(crate) level: u8,
    pub(crate) kind: CompiledKind,
    /// Position of the scopes, innermost first.
    pub(crate) first: u32,
    pub(crate) count: u16,
    /// True if they are those of a later instruction.
    pub(crate) is_moved: bool,
    /// Number of this decoded pc, which no other one of the cache gets; never 0.
    pub(crate) number: u32,
}
