//! The model of a profile, and everything that is read from it.
//!
//! Problem: profiles lie in recordings, in stores and in running collectors, and people want the same answers and the same
//! files from all of them.
//! Approach: a [`source`] offers the samples of sessions with a [`dictionary`] of what they refer to; a
//! [`recording::Recording`] is one in memory, a store implements the same trait. [`query`] answers questions about a
//! selection from any source; [`process`] takes the samples of one process out of it, for the [`summary`] of its account
//! and for the formats of [`export`].
//! Invariant: nothing received is guessed at or silently dropped; what is unknown, cut or missing is shown and counted.
//!
//! ```
//! use profile::query::selection::Selection;
//! use profile::query::tree::{Order, Tree};
//! use profile::recording::Recording;
//! use proto::v1::{AgentMessage, Hello, SampleBatch, agent_message::Body};
//!
//! let mut recording = Recording::new(Hello { interval_ns: 10_000_000, ..Default::default() });
//! let samples = SampleBatch { thread: vec![1], node: vec![7], cpu_unit_ns: 10_000_000, ..Default::default() };
//! recording.add(AgentMessage { sequence: 2, body: Some(Body::Samples(samples)) });
//!
//! // The dictionary entry of stack 7 never came, which is shown rather than hidden.
//! let (tree, _) = Tree::of(&recording, &Selection::default(), 0).expect("a recording can be read");
//! assert_eq!(tree.methods(Order::SelfTime)[0].name, "[unknown]");
//! ```
#![forbid(unsafe_code)]

pub mod cell;
pub mod class_name;
pub mod delivery;
pub mod dictionary;
pub mod entries;
pub mod export;
pub mod process;
pub mod quantity;
pub mod query;
pub mod recording;
pub mod sampling;
pub mod session;
pub mod source;
pub mod stop;
pub mod summary;
pub mod texts;
pub mod thread;
pub mod trust;
pub mod ui;
pub mod warnings;
