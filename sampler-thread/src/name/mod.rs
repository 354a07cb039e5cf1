//! From frames to ids of dictionary entries.

pub mod dictionaries;
mod frame_key;
mod frames;
mod inlined;
mod native_ids;
pub mod routines;
mod shards;
pub mod shown;
pub mod stacks;
