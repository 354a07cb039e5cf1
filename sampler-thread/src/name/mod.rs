//! From frames to ids of dictionary entries.

pub mod compilers;
pub mod dictionaries;
mod frames;
pub mod routines;
pub mod shown;
pub mod stacks;
