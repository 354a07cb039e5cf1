//! The life of a profile: from options to its results.
//!
//! [`start`] leads from a text to a profile, [`session`] starts and stops everything that takes part, [`events`] has what
//! the VM reports meanwhile and whether a profile runs, [`status`] what an agent tells of itself.
//! [`results`] of a profile without a destination are read from its [`storage`].

pub(crate) mod destinations;
pub mod error;
#[allow(unsafe_code, reason = "functions that the VM calls")]
pub mod events;
pub(crate) mod facts;
pub mod output;
#[allow(unsafe_code, reason = "functions that the VM calls")]
pub mod pauses;
pub mod results;
pub mod session;
pub(crate) mod start;
pub(crate) mod status;
pub mod storage;
pub mod thread_filter;
