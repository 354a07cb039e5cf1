//! The model of a profile, and everything that is read from it.
//!
//! [`recording`] reads and writes what an agent sent; [`query`] answers questions; [`summary`] closes the account of CPU
//! time; [`export`] writes text, pages and the formats of other tools.
#![forbid(unsafe_code)]

pub mod export;
pub mod numbered;
mod profile;
pub mod quantity;
pub mod query;
pub mod recording;
pub mod sampling;
pub mod summary;
pub mod texts;
pub mod trust;
pub mod warnings;

pub use profile::*;
