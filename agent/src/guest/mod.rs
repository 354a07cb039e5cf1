//! The agent as a guest of the program: its messages, its share of the processors, its memory.

#[allow(unsafe_code, reason = "an allocator")]
pub(crate) mod large_blocks;
pub(crate) mod log;
#[allow(unsafe_code, reason = "mappings that are never unmapped")]
pub mod mappings;
#[allow(unsafe_code, reason = "system calls that libraries do not have")]
pub(crate) mod scheduling;
