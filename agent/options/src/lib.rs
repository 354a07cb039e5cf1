//! The options of the agent, and the requests to it, from their text.
//!
//! Problem: the same text reaches the agent by `-agentpath`, by an attach, from Java and from C, and the command checks
//! it before a program starts. If each reads it in its own way, the same word means different things.
//! Approach: each option is one row of [`table`], each further word of async-profiler one row of a table in
//! [`request`], and [`Request::parse`] is the only parser. The [`Door`] says what applies where the text says nothing.
//! Parser, messages, the flags of the command, its help and the table for users follow from the rows.
//! Invariant: nothing here starts anything, or depends on a JVM.
//!
//! Rooms, from the bottom up:
//! - [`kinds`]: types of values, such as the choice of threads and the patterns of file names;
//! - [`options`]: the values of all options;
//! - [`values`]: reads values from their text;
//! - [`table`]: each option in one row;
//! - [`environment`]: options from variables;
//! - [`error`]: mistakes, and parts without effect;
//! - [`request`]: what to do, with which options; the parser.
#![forbid(unsafe_code)]

pub mod environment;
pub mod error;
pub mod kinds;
pub mod options;
pub mod request;
pub mod table;
#[cfg(test)]
mod tests;
pub mod values;

pub use error::{BadRequest, OptionError, Warning};
pub use kinds::{debug, dumps, file_name, output, redaction, thread_choice};
pub use options::{ClockOption, Collector, Mode, Options};
pub use request::{Action, Door, Request};
pub use values::SIGNALS_OF_EVENTS;
