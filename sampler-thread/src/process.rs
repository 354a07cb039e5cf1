//! Roles of the sampled process that the sampler thread and its helper use.
//!
//! Problem: threads, timers and slots belong to the agent, which may use `unsafe`; this crate may not.
//! Approach: the agent implements three roles ([`Queues`], [`Threads`], [`Timers`]) and passes what never changes as
//! [`Settings`](crate::settings::Settings).
//! Invariant: the slot of an ended thread keeps its queue, and its requests keep their snapshots, until
//! [`Threads::retire`] frees the slot. Until then the sampler, its substitute or the ending thread may empty the queue.

use std::mem::MaybeUninit;
use std::sync::Arc;

use queue::{Capacity, RingEnds, SnapshotPool, ThreadQueue};

use crate::period::aim::Aim;

pub use proto::v1::ThreadKind;

#[derive(Debug, Clone)]
pub struct ThreadFacts {
    /// Index of the thread's slot, and of its queue.
    pub slot: u32,
    /// Id of this thread on the wire; never reused for another thread.
    pub id: u32,
    /// Incremented when name or kind change.
    pub revision: u32,
    /// Kernel thread id.
    pub tid: i32,
    /// Name in Java, or in the kernel for other threads.
    pub name: Arc<str>,
    pub kind: ThreadKind,
    /// Reading of the thread's CPU clock when its timer was armed, in nanoseconds.
    pub armed_ns: u64,
    /// Unfinished period carried over from ended threads, in nanoseconds.
    pub carried_ns: u64,
    /// CPU time the thread used before its timer was armed, in nanoseconds.
    pub before_timer_ns: u64,
    /// When no timer could sample the thread.
    pub coverage: Coverage,
    /// CPU time covered by timer expirations, as counted by the handlers, in nanoseconds.
    pub expired_ns: u64,
    /// Final reading of the thread's CPU clock, in nanoseconds: when it ended or profiling stopped.
    pub ended_ns: Option<u64>,
}

/// Why no expiration covers a part of a thread's CPU time; the name is that of a loss on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// The thread has no timer, because the kernel refused one or the agent's share of timers is used up.
    NoTimer,
    /// The thread blocks the timers' signal.
    SignalBlocked,
    /// The program has replaced the handler of the timers' signal.
    HandlerReplaced,
    /// The options leave the thread out.
    NotChosen,
    /// The VM gives no stack traces of the thread, because it runs no Java code.
    NotJava,
}

impl Gap {
    /// Every cause, by index.
    pub const ALL: [Self; 5] =
        [Self::NoTimer, Self::SignalBlocked, Self::HandlerReplaced, Self::NotChosen, Self::NotJava];

    pub fn name(self) -> &'static str {
        match self {
            Self::NoTimer => "no_timer",
            Self::SignalBlocked => "signal_blocked",
            Self::HandlerReplaced => "handler_replaced",
            Self::NotChosen => "not_chosen",
            Self::NotJava => "no_java_stack",
        }
    }
}

/// CPU time of a thread that no expiration covers; it is counted as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Number of gaps, and CPU time in closed ones in nanoseconds, by cause.
    gaps: [(u64, u64); Gap::ALL.len()],
    /// Cause of the open gap, and CPU clock at its start in nanoseconds.
    open: Option<(Gap, u64)>,
}

impl Coverage {
    /// Returns number and CPU time of the gaps up to clock reading `clock_ns`, in nanoseconds, by cause.
    pub fn gaps_at(&self, clock_ns: u64) -> [(u64, u64); Gap::ALL.len()] {
        let mut gaps = self.gaps;
        if let Some((cause, since)) = self.open {
            let ns = &mut gaps[cause as usize].1;
            *ns = ns.saturating_add(clock_ns.saturating_sub(since));
        }
        gaps
    }

    /// Returns the CPU time in gaps up to clock reading `clock_ns`, in nanoseconds.
    pub fn uncovered_at(&self, clock_ns: u64) -> u64 {
        self.gaps_at(clock_ns).iter().fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }

    /// Returns the cause of the open gap, and the clock reading at its start in nanoseconds.
    pub fn open_gap(&self) -> Option<(Gap, u64)> {
        self.open
    }

    /// Opens a gap at clock reading `clock_ns`, unless one is open.
    pub fn begin_gap(&mut self, cause: Gap, clock_ns: u64) {
        if self.open.is_none() {
            self.gaps[cause as usize].0 += 1;
            self.open = Some((cause, clock_ns));
        }
    }

    /// Closes the gap at clock reading `clock_ns`.
    pub fn end_gap(&mut self, clock_ns: u64) {
        self.gaps = self.gaps_at(clock_ns);
        self.open = None;
    }
}

/// Counts about timers, for statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimerCounts {
    pub threads: u64,
    /// Threads among them that are not left out, and share a rate.
    pub sharing: u64,
    pub with_timer: u64,
    /// Timers moved from one thread to another so far.
    pub rotations: u64,
    /// Threads that got no slot; they are missing from the account.
    pub without_slot: u64,
    /// Changes of the interval so far.
    pub changes: u64,
    /// Timers replaced by one with another period.
    pub replaced: u64,
    /// Threads whose timers still have an older period.
    pub outdated: u64,
}

/// Request queues, the memory they are made of, and the pool of stack copies.
pub trait Queues: Send + Sync + 'static {
    /// Returns the slots whose queues may hold requests.
    fn ready(&self) -> Vec<u32>;
    fn queue(&self, slot: u32) -> &ThreadQueue;
    /// Returns the pool that holds stack copies.
    fn pool(&self) -> &SnapshotPool<'static>;
    /// Takes memory for a queue of this size; `None` if there is none left.
    fn take_ring(&self, size: Capacity) -> Option<RingEnds>;
    /// Takes back a ring that no queue uses.
    fn give_back_ring(&self, ring: RingEnds);
    /// Moves the queue of a slot to the ring it was offered, in place of the slot's handler.
    ///
    /// Does nothing while the slot's thread is alive.
    fn adopt_ring(&self, slot: u32);
    /// Gives the pages of unused memory back to the kernel; their content is lost.
    fn release_pages(&self, bytes: &mut [MaybeUninit<u8>]);
}

/// The profiled threads and their slots.
pub trait Threads: Send + Sync + 'static {
    /// Looks for threads that started or ended without an event.
    fn discover(&self);
    /// Returns a number that changes when the loader maps or unmaps a library; `None` if the loader does not count.
    fn library_loads(&self) -> Option<u64>;
    fn thread(&self, slot: u32) -> Option<ThreadFacts>;
    /// Returns all threads that own a slot, ended ones included.
    fn threads(&self) -> Vec<ThreadFacts>;
    fn next_thread_id(&self) -> u32;
    /// Returns the threads that ended since the last call.
    fn ended(&self) -> Vec<ThreadFacts>;
    /// Frees the slot of an ended thread; the next new thread takes over its unfinished `handed_on_ns`.
    fn retire(&self, slot: u32, handed_on_ns: u64);
}

/// The CPU timers of the profiled threads.
pub trait Timers: Send + Sync + 'static {
    /// Notes that a drain begins which will walk everything the queues hold.
    fn drain_begins(&self);
    /// Moves timers to threads that ran without one, where the kernel grants fewer timers than there are threads;
    /// returns whether it does.
    fn rotate(&self) -> bool;
    /// Returns the period with this index, in nanoseconds.
    fn period_ns(&self, index: u8) -> u64;
    /// Sets the distance between samples at once, and the period of new timers; returns false if the latter is
    /// impossible before some more drains.
    fn aim(&self, aim: Aim) -> bool;
    /// Replaces timers that have another period, as far as possible; to be called after a drain.
    fn retune(&self);
    /// Measures the shortest time between two expirations of a CPU timer, in nanoseconds; `None` if that failed.
    ///
    /// Runs on the calling thread, which must be the sampler, and uses at most `max_cpu_ns` of CPU time.
    fn measure_tick(&self, max_cpu_ns: u64) -> Option<u64>;
    fn timer_counts(&self) -> TimerCounts;
    /// Looks for the reason why threads used CPU time without an expiration, and counts that time as lost by it.
    fn examine_silent(&self, slots: &[u32]);
    /// Returns whether the handler of the timers' signal is the agent's.
    fn has_handler(&self) -> bool;
    /// Returns whether the program has left the descriptors alone that sampling needs.
    fn has_descriptors(&self) -> bool;
    /// Deletes every timer, because the sampler thread ends by itself; expirations from now on count as lost, and with
    /// `gap` the time since the last ones as well.
    fn stop(&self, gap: Option<Gap>);
}

/// The sampled process, in all its roles.
pub trait Process: Queues + Threads + Timers {}

impl<P: Queues + Threads + Timers> Process for P {}
