//! From a snapshot to frames.

pub mod native;
pub mod resolve;
pub mod snapshot;
