//! Questions a profile answers.

pub mod drains;
pub mod flamegraph;
pub mod threads;
pub mod top;
