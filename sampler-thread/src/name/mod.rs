//! From frames to ids of dictionary entries.

pub mod dictionaries;
mod frames;
mod inlined;
pub mod routines;
pub mod shown;
pub mod stacks;
