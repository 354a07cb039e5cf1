//! Questions a profile answers.

pub mod drains;
pub mod threads;
pub mod top;
