//! From frames to ids of dictionary entries.

pub mod dictionaries;
mod frame_key;
mod frames;
mod groups;
mod native_ids;
mod shards;
pub mod shown;
pub mod stacks;
