//! Questions a profile answers.

pub mod flamegraph;
pub mod threads;
pub mod top;
