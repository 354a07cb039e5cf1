//! Developers' hooks: an observer of the sampler thread.
//!
//! Problem: tests and measurements repeat, compare and time walks, and change the period of a running profile.
//! Approach: the sampler thread calls the [`Observer`] in its settings, if there is one. Only builds with the cargo feature
//! `hooks` have observers; a shipped library has none.
//! Invariant: samples are the same with and without an observer of walks.

#[cfg(feature = "hooks")]
mod developer;
#[cfg(feature = "hooks")]
mod probe;

use std::time::Instant;

use stackwalk::{Frame, NativeCode, Stop};

use crate::period::aim::Aim;
use crate::walk::snapshot::Snapshot;
use crate::walk::vm::Vm;

#[cfg(feature = "hooks")]
pub use developer::{DeveloperHooks, Hooks, OnWalk};
#[cfg(feature = "hooks")]
pub use probe::Probe;

/// An observer of the sampler thread, which calls it; by default it does nothing.
pub trait Observer<M>: Send {
    /// Returns whether walks that took over frames of the previous one are compared with walks in full.
    fn compares_walks(&self) -> bool {
        false
    }

    /// Called with each walked and named stack.
    fn on_walk(&mut self, _walk: ObservedWalk<'_, M>) {}

    /// Called once a second, before the statistics.
    fn on_second(&mut self) {}

    /// Returns the next aim if it changes at `now`; `shortest` is that of the shortest interval.
    fn aim(&mut self, _now: Instant, _shortest: Aim) -> Option<Aim> {
        None
    }

    /// Called after the last walk.
    fn on_end(&mut self) {}
}

/// A walk of a stack.
pub struct ObservedWalk<'a, M> {
    /// The VM.
    pub vm: &'a Vm<M>,
    /// Slot of the thread.
    pub slot: u32,
    /// Time stamp of the request.
    pub ticks: u64,
    /// Its age, in nanoseconds.
    pub age_ns: u64,
    /// The copied stack.
    pub snapshot: &'a Snapshot<'a>,
    /// The frames, newest first.
    pub frames: &'a [Frame],
    /// Why the walk ended.
    pub stop: Stop,
    /// Finds the callers of native frames.
    pub native: &'a mut dyn NativeCode,
}
