//! How numbers, units and names of classes are written, and patterns for names.

pub mod class_name;
pub mod generated_name;
pub mod pattern;
pub mod quantity;
pub mod units;
