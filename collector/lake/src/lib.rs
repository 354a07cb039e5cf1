//! Samples as Parquet files in object storage, which SQL engines query as they are.
//!
//! Problem: a company has thousands of JVMs, several collectors and months of data, and engines that read files.
//! Approach: a collector seals the samples of a minute as an [interval](write::interval) of files in a
//! [spool](write::spool) on its disk, from which they are [uploaded](write::upload) to a [`storage`] place; [`read`]
//! reads a selection back as a source of the model (`profile`), and [`upkeep`] compacts and removes files. Processes
//! that use a lake do not talk to each other.
//! Invariants: a sample that was acknowledged gets into the lake; a sample that two collectors have is in answers once;
//! a file appears whole or not at all, and its content never changes.
//!
//! Layout, columns and promises: `README.md` of this crate.
//!
//! Rooms, from the bottom up:
//! - [`layout`]: names of folders and files.
//! - [`table`]: samples, stacks and accounts, in memory and in files.
//! - [`storage`]: a place in object storage, or a directory.
//! - [`sql`]: views for SQL engines.
//! - [`write`]: from samples in memory to files in the lake.
//! - [`read`]: a selection as a source of samples.
//! - [`upkeep`]: compaction and retention.
#![forbid(unsafe_code)]

pub mod layout;
pub mod read;
pub mod sql;
pub mod storage;
pub mod table;
pub mod upkeep;
pub mod write;
