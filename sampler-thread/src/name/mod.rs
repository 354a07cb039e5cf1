//! From frames to ids of dictionary entries.

pub mod dictionaries;
mod frames;
mod inlined;
mod native_ids;
pub mod routines;
pub mod shown;
pub mod stacks;
