//! From frames to ids of dictionary entries.

pub mod dictionaries;
