//! From a snapshot to frames.

pub mod native;
pub mod previous;
pub mod snapshot;
pub mod stacks;
mod tail_copy;
pub mod vm;
