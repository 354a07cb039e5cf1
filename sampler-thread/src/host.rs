//! What the sampler thread and its helper need from the process it samples.
//!
//! Problem: threads, timers and slots belong to the agent, where `unsafe` may live; this crate has none.
//! Approach: the agent implements [`Host`], and hands out shared references to the lock-free parts.
//! Invariant: a slot whose thread ended keeps its queue, and its requests keep their snapshots, until [`Host::retire`]
//! gives the slot back: whoever empties the queue (sampler, its substitute, the ending thread) may do so at leisure.

use std::mem::MaybeUninit;
use std::sync::Arc;

use queue::{Capacity, RingEnds, SizeRange, SnapshotPool, ThreadQueue};

use stackwalk::{Frame, Stop};

use crate::period::interval::Tuning;
use crate::probe::Probe;
use crate::validity::self_test::{SelfTest, Trust};
use crate::validity::unloading::Unloading;
use crate::walk::snapshot::Snapshot;

pub use proto::v1::ThreadKind;

use crate::drain::pace::PaceTuning;

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
    /// Whether, and since when not, the thread has a timer.
    pub coverage: Coverage,
    /// CPU time that expirations of its timers have covered, as the handlers counted it, in nanoseconds.
    pub expired_ns: u64,
    /// Last reading of the thread's CPU clock that counts: when it ended, or when profiling stopped.
    pub ended_ns: Option<u64>,
}

/// CPU time of a thread that no timer watched: lost, and named so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Times it was without a timer.
    pub gaps: u64,
    /// CPU time in gaps that are over, in nanoseconds.
    pub untimed_ns: u64,
    /// Reading of its CPU clock when the present gap began; `None` while it has a timer.
    pub untimed_since: Option<u64>,
}

impl Coverage {
    /// CPU time without a timer when the thread's CPU clock reads `clock_ns`.
    pub fn untimed_at(&self, clock_ns: u64) -> u64 {
        let present = self.untimed_since.map_or(0, |since| clock_ns.saturating_sub(since));
        self.untimed_ns.saturating_add(present)
    }

    /// The timer is gone at this reading of the clock.
    pub fn begin_gap(&mut self, clock_ns: u64) {
        if self.untimed_since.is_none() {
            self.gaps += 1;
            self.untimed_since = Some(clock_ns);
        }
    }

    /// There is a timer from this reading of the clock on.
    pub fn end_gap(&mut self, clock_ns: u64) {
        self.untimed_ns = self.untimed_at(clock_ns);
        self.untimed_since = None;
    }
}

/// Memory of request queues, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBytes {
    /// What they have.
    pub used: u64,
    /// The most they ever had at once.
    pub most: u64,
}

/// How many threads have timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimerCounts {
    /// Threads that are profiled.
    pub threads: u64,
    /// Those that have a timer now.
    pub with_timer: u64,
    /// How often a timer passed from one thread to another.
    pub turns: u64,
    /// Threads that found no slot, and are not in the account at all.
    pub without_slot: u64,
    /// How often new timers were given another period.
    pub changes: u64,
    /// Timers that were replaced by one with another period.
    pub replaced: u64,
    /// Threads that have another period than new timers get.
    pub stragglers: u64,
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
pub trait Host: Send + Sync + 'static {
    /// A drain begins that will walk whatever the queues hold now.
    fn drain_begins(&self);
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
    /// A number for a thread on the wire that no other thread has or gets.
    fn next_thread_id(&self) -> u32;
    /// Slots whose threads ended and that were not retired yet.
    fn ended(&self) -> Vec<ThreadFacts>;
    /// Gives the slot of an ended thread back; its unfinished `handed_on_ns` go to the next new thread.
    fn retire(&self, slot: u32, handed_on_ns: u64);
    /// What tells that classes were unloaded.
    fn unloading(&self) -> Arc<Unloading>;
    /// What the tests at start say, and what may be shown because of them.
    fn self_tests(&self) -> (Trust, Vec<SelfTest>);
    /// Where the kernel grants fewer timers than there are threads: passes them on to threads that ran without.
    fn rotate_timers(&self);
    /// The timer period of this number, in nanoseconds.
    fn period_ns(&self, number: u8) -> u64;
    /// Gives timers from now on this period, in nanoseconds; false if that is not possible before some more drains.
    fn aim_period(&self, period_ns: u64) -> bool;
    /// Replaces timers that have another period, as far as that can be done now; to be called after a drain.
    fn retune_timers(&self);
    /// What the period follows.
    fn tuning(&self) -> Tuning;
    /// Processors the process may use now.
    fn processors(&self) -> u64;
    /// Shortest time between two expirations of a CPU timer, measured on the calling thread, which must be the sampler,
    /// in at most so much CPU time; `None` if that could not be found out now.
    fn measure_tick(&self, most_cpu_ns: u64) -> Option<u64>;
    /// How many threads have timers.
    fn timers(&self) -> TimerCounts;
    /// Memory of all request queues.
    fn queue_bytes(&self) -> QueueBytes;
    /// Sizes that request queues may take.
    fn queue_sizes(&self) -> SizeRange;
    /// When queues are drained.
    fn pace(&self) -> PaceTuning;
    /// Memory for a queue of this size; `None` if there is none left.
    fn take_ring(&self, size: Capacity) -> Option<RingEnds>;
    /// Takes back what a queue has left.
    fn give_back_ring(&self, ring: RingEnds);
    /// Gives the pages of memory that nobody uses back to the kernel; their content is lost.
    fn release_pages(&self, bytes: &mut [MaybeUninit<u8>]);
    /// Moves the queue of a slot whose thread has ended to the ring it was offered, in place of its handler.
    ///
    /// Without effect while the slot's thread is alive.
    fn adopt_ring(&self, slot: u32);
    /// What to do besides sampling.
    fn probe(&self) -> Probe {
        Probe::default()
    }
    /// Whether [`Host::walked`] wants to see walks; asked once.
    fn compares_walks(&self) -> bool {
        false
    }
    /// Shows the walk of the request that carries this time stamp, and what was walked.
    fn walked(&self, _slot: u32, _ticks: u64, _snapshot: &Snapshot, _frames: &[Frame], _stop: Stop) {}
}
