//! Receives, keeps, queries and draws what Tickwalk agents send.
//!
//! Problem: agents in JVMs deliver samples as a stream that may break off anywhere, and people want to see
//! where the CPU time went, together with how far that picture can be trusted.
//! Approach, following one message: [`ingest`] reads it from a socket and appends its bytes unchanged to a
//! [`recording`], or puts it into a [`store`]; [`query`] answers questions over both, for [`http`] and the command
//! line; [`profile`] holds one session in memory; [`summary`] closes its account of CPU time; [`export`] writes
//! text and the formats of other tools; [`ui`] is the page, served or in a file of its own.
//! Invariant: nothing received is guessed at or silently dropped; what is unknown, cut or missing is shown and
//! counted.
//!
//! The interfaces for other programs, JSON included, are in `collector/API.md`; the stream itself is described
//! in `design/wire-format.md`.
//!
//! ```
//! use collector::profile::Profile;
//! use collector::query::top::{Order, methods};
//! use proto::v1::{AgentMessage, Hello, SampleBatch, agent_message::Body};
//!
//! let mut profile = Profile::new(Hello { interval_ns: 10_000_000, ..Default::default() });
//! let samples = SampleBatch { thread: vec![1], node: vec![7], cpu_unit_ns: 10_000_000, ..Default::default() };
//! profile.add(AgentMessage { sequence: 2, body: Some(Body::Samples(samples)) });
//!
//! // The dictionary entry of stack 7 never came, which is shown rather than hidden.
//! assert_eq!(methods(&profile, Order::SelfTime)[0].name, "[unknown]");
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod forward;
pub mod http;
pub mod ingest;
pub mod store;
