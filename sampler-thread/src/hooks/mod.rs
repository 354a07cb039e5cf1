//! Developers' hooks: an observer of the sampler thread.
//!
//! Problem: tests and measurements repeat, compare and time walks, and change the period of a running profile.
//! Approach: the sampler thread calls the [`Observer`] in its settings, if there is one. The only one is in
//! `java-tests/hooks`, which a shipped library does not contain.
//! Invariant: samples are the same with and without an observer of walks.

use std::time::{Duration, Instant};

use stackwalk::{Frame, NativeCode, Stop};

use crate::period::aim::Aim;
use crate::walk::snapshot::Snapshot;
use crate::walk::vm::Vm;

/// Switches of `debug=` of the agent's options; nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Extra walks of each sampled stack.
    pub probe: Probe,
    /// Extra sleep of the sampler, once a second.
    pub stall: Option<Duration>,
    /// Walk each stack in full as well, and compare.
    pub compare: bool,
    /// Time between two changes of the interval and of the timers' period.
    pub retune: Option<Duration>,
    /// The sampler panics with the first statistics.
    pub panics: bool,
}

/// Actions with each walk besides sampling; nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Probe {
    /// Log each new place where a walk ended early.
    pub stops: bool,
    /// Count copied words of frozen frames.
    pub frozen: bool,
    /// Read memory that is not mapped.
    pub unmapped: bool,
    /// Number of walks with changed registers per sample.
    pub shifted_walks: u32,
    /// Time each walk with a full and with an empty cache.
    pub times: bool,
}

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

pub struct ObservedWalk<'a, M> {
    pub vm: &'a Vm<M>,
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
