//! Types of values that are more than a number or a text.

pub mod debug;
pub mod dumps;
pub mod file_name;
pub mod output;
pub mod redaction;
pub mod thread_choice;
