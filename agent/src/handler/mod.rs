//! The signal handler that takes samples, and the memory that it uses.
//!
//! [`install`] has the kernel call [`on_tick`]. It finds its thread in the [`slots`], has [`expiration`] decide whether
//! the tick is a sample, and leaves a [`snapshot`] of the stack and a request in the [`rings`]. [`memory`] is made
//! before the first tick.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod compilation;
mod cpu;
pub mod draw;
pub(crate) mod errno;
pub mod expiration;
pub mod extra_signals;
pub mod frozen;
pub mod heap;
pub mod install;
pub(crate) mod memory;
pub mod mounted;
pub mod on_tick;
pub mod own_stack;
pub mod rings;
pub mod slots;
pub mod snapshot;
pub mod ucontext;
