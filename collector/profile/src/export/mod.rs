//! Profiles in the forms other tools and people read.
//!
//! One module for each format. Those that need no more than sums take a [`Profile`](crate::Profile);
//! the others also take the [`samples`] one by one.

pub mod account;
pub mod collapsed;
pub mod firefox;

pub mod format;
pub mod frames;
pub mod jfr;
pub mod otlp;
pub mod parquet;
pub mod pprof;
pub mod samples;
pub mod speedscope;
pub mod strings;
pub mod table;
