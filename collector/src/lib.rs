//! Receives, keeps, serves and forwards what Tickwalk agents send.
//!
//! Problem: agents in JVMs deliver samples as a stream that may break off anywhere, and nothing that a collector has
//! acknowledged may be lost.
//! Approach, following one message: [`ingest`] reads it from a socket and appends it to a recording
//! (`profile::source::recording`) or to a [`store`], and acknowledges it; [`http`] answers queries over the store
//! through the model of a profile (`profile`); [`forward`] sends live profiles to OTLP receivers.
//! Invariant: received data is never guessed or silently dropped; unknown, cut and missing data is shown and counted.
//!
//! The interfaces for other programs, JSON included, are in `docs/formats.md`; the stream itself is described
//! in `design/wire-format.md`.
//!
//! Rooms, from the bottom up:
//! - [`address`]: how the address of a collector is written.
//! - `places`: connections of agents and of HTTP clients, and how many there may be.
//! - [`source_path`]: where source files are looked for.
//! - [`store`]: what is kept on disk.
//! - [`ingest`]: what agents send.
//! - [`forward`]: what is sent to others.
//! - [`http`]: what others ask.
//!
//! ```
//! use collector::store::{Retention, Store};
//! use profile::query::selection::Selection;
//! use profile::query::tree::Tree;
//!
//! let directory = tempfile::tempdir().expect("a temporary folder");
//! let store = Store::open(directory.path(), Retention::default()).expect("a new store");
//!
//! // A store is a source of the model: a new one has no samples.
//! let (tree, _) = Tree::of(&store, &Selection::default(), 0).expect("the store can be read");
//! assert_eq!(tree.total_ns(), 0);
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod forward;
pub mod http;
pub mod ingest;
mod places;
pub mod source_path;
pub mod store;
