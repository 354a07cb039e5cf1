//! From a snapshot to frames.

pub mod printed;
pub mod routines;
pub mod snapshot;
pub mod stacks;
pub mod vm;
