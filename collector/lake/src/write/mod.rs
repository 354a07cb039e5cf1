//! From samples in memory to files in the lake.

pub mod interval;
pub mod spool;
pub mod upload;
