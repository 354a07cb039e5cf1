//! From a snapshot to frames.

pub mod previous;
pub mod printed;
pub mod routines;
pub mod snapshot;
pub mod stacks;
mod tail_copy;
pub mod vm;
