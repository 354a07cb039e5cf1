//! How numbers, units, names of classes and formats are written, and patterns for names.

pub mod class_name;
pub mod format;
pub mod generated_name;
pub mod pattern;
pub mod quantity;
pub mod units;
