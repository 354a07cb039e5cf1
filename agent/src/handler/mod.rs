//! What runs in a signal handler at a tick, and the memory that it touches.
//!
//! [`install`] has the kernel call [`on_tick`], which finds its thread in the [`slots`], asks [`expiration`] whether the
//! tick is one to sample, and leaves a [`snapshot`] of the stack in the [`rings`]. [`memory`] is made before the first tick.

pub mod compilation;
mod cpu;
pub mod draw;
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
