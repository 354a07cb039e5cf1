//! From samples to messages, and to files and collectors.

pub mod batch;
pub mod delivery;
pub mod sink;
pub(crate) mod statistics;
