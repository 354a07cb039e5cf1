//! The stacks of all threads as text.
//!
//! [`print`] holds one thread after the other ([`hold`]) and prints its stack; [`triggers`] do so without a
//! command, woken by a handler ([`request`]).

#[allow(unsafe_code, reason = "signal handlers")]
pub mod hold;
pub(crate) mod print;
#[allow(unsafe_code, reason = "signal handlers")]
pub mod request;
pub(crate) mod triggers;
