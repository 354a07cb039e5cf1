//! What the sampler thread needs from the process it samples.
//!
//! Problem: threads, timers and slots belong to the agent, where `unsafe` may live; this crate has none.
//! Approach: the agent implements [`Host`], and hands out shared references to the lock-free parts.
//! Invariant: a slot whose thread ended keeps its queue untouched until [`Host::retire`] gives it back, so the
//! sampler may drain it at leisure.

use std::sync::Arc;

use queue::{SnapshotPool, ThreadQueue};

pub use proto::v1::ThreadKind;

/// One profiled thread, as the agent sees it.
#[derive(Debug, Clone)]
pub struct ThreadFacts {
    /// Index of the thread's slot, and of its queue.
    pub slot: u32,
    /// Number of this thread on the wire; never used again for another one.
    pub id: u32,
    /// Grows when name or kind changed after the thread was first seen.
    pub revision: u32,
    /// Kernel thread id.
    pub tid: i32,
    /// Name, as Java or the kernel knows it.
    pub name: Arc<str>,
    /// What kind of thread it is.
    pub kind: ThreadKind,
    /// Reading of the thread's CPU clock when its timer was armed, in nanoseconds.
    pub armed_ns: u64,
    /// Unfinished period taken over from ended threads, in nanoseconds.
    pub carried_ns: u64,
    /// CPU time this thread had burnt before its timer was armed, in nanoseconds.
    pub before_timer_ns: u64,
    /// Whether the thread has a timer; without one its CPU time is lost, and named so.
    pub has_timer: bool,
    /// Last reading of the thread's CPU clock that counts: when it ended, or when profiling stopped.
    pub ended_ns: Option<u64>,
}

/// A thread that ticked while the bounds of its stack were unknown, so that nothing of it was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnboundedStack {
    /// Index of its slot.
    pub slot: u32,
    /// Number of the thread on the wire.
    pub thread: u32,
    /// Its stack pointer at the tick.
    pub sp: u64,
    /// Its thread pointer, which C libraries put at the high end of the stacks they make.
    pub thread_pointer: u64,
}

/// The process under the profiler.
pub trait Host: Send {
    /// Numbers of the slots whose queues may hold requests.
    fn ready(&self) -> Vec<u32>;
    /// The queue of a slot.
    fn queue(&self, slot: u32) -> &ThreadQueue;
    /// Where stack copies lie.
    fn pool(&self) -> &SnapshotPool<'static>;
    /// The counter that stamps requests, now.
    fn ticks(&self) -> u64;
    /// Looks for threads that started or ended without telling.
    fn discover(&self);
    /// Finds the bounds of stacks, so that the next tick of their threads copies them.
    fn bound_stacks(&self, stacks: &[UnboundedStack]);
    /// The thread that owns a slot now.
    fn thread(&self, slot: u32) -> Option<ThreadFacts>;
    /// All threads that own a slot, ended ones included.
    fn threads(&self) -> Vec<ThreadFacts>;
    /// Slots whose threads ended and that were not retired yet.
    fn ended(&self) -> Vec<ThreadFacts>;
    /// Gives the slot of an ended thread back; its unfinished `handed_on_ns` go to the next new thread.
    fn retire(&self, slot: u32, handed_on_ns: u64);
    /// Bytes of all request queues.
    fn queue_bytes(&self) -> u64;
}
