//! The life of a profile: from options to its results.
//!
//! [`start`] leads from a text to a profile, for every door; [`session`] is everything that takes part in it,
//! [`run`] begins and ends it, and [`events`] are the VM's. [`state`] has all that is kept, and [`Refusal`] is the
//! answer of whatever fails.
//! [`results`] are made from the recording, which [`storage`] holds if it has no name.

mod destinations;
#[allow(unsafe_code, reason = "functions that the VM calls")]
mod events;
mod facts;
mod output;
#[allow(unsafe_code, reason = "functions that the VM calls")]
mod pauses;
pub mod refusal;
pub mod results;
pub mod run;
mod session;
pub mod start;
pub mod state;
pub mod status;
mod storage;
mod thread_filter;

pub use refusal::Refusal;
