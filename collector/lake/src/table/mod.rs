//! The three tables: their columns, in memory and in files.
//!
//! Columns for people and engines come first. `README.md` of the crate describes them all.

pub mod accounts;
pub mod columns;
pub mod samples;
pub mod stacks;
pub mod texts;
