//! The model of a profile, its queries and its exports.
//!
//! Problem: profiles are in recordings, in stores and in running collectors, and all of them should give the same
//! answers and the same files.
//! Approach: a [`source`] has the samples of sessions with a [`dictionary`] of their strings, methods, frames and
//! stacks. A [`source::recording::Recording`] is a source in memory; a store implements the same trait. [`query`]
//! answers questions about a selection of any source; [`query::process`] extracts the samples of one process, for the
//! [`query::summary`] of its account and for the formats of [`export`].
//! Invariant: received data is never guessed or silently dropped; unknown, cut and missing data is shown and counted.
//!
//! Rooms, from the bottom up:
//! - [`text`]: how numbers, units, names of classes and formats are written, and patterns for names.
//! - [`dictionary`]: strings, methods, frames and stacks, each stored once.
//! - [`session`]: the process that was profiled, its threads, and its account of CPU time.
//! - [`source`]: samples with their sessions and dictionaries; recordings.
//! - [`query`]: answers about a selection of samples.
//! - [`ui`]: the web page, served or in one file.
//! - [`export`]: files for other programs, and tables.
//! - [`api`]: questions by name and parameters.
//!
//! ```
//! use profile::query::flat::{Flat, Order};
//! use profile::query::selection::Selection;
//! use profile::source::recording::Recording;
//! use proto::v1::{AgentMessage, Hello, SampleBatch, agent_message::Body};
//!
//! let mut recording = Recording::new(Hello { interval_ns: 10_000_000, ..Default::default() });
//! let samples = SampleBatch { thread: vec![1], node: vec![7], cpu_unit_ns: 10_000_000, ..Default::default() };
//! recording.add(AgentMessage { sequence: 2, body: Some(Body::Samples(samples)) });
//!
//! // The entry of stack 7 never arrived; its samples are shown as unknown.
//! let (flat, _) = Flat::of(&recording, &Selection::default(), 0).expect("a recording can be read");
//! assert_eq!(flat.methods(Order::SelfTime)[0].name, "[unknown]");
//! ```
#![forbid(unsafe_code)]

pub mod api;
pub mod dictionary;
pub mod export;
pub mod query;
pub mod session;
pub mod source;
pub mod text;
pub mod ui;

pub use proto::{characters, histogram};
