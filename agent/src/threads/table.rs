//! The data of the registry: an entry for each thread, and data that all threads share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use sampler_thread::period::aim::Aim;
use sampler_thread::process::{ThreadFacts, ThreadKind};

use super::discovery::Discovery;
use super::periods::Periods;
use super::remainder::Remainder;
use super::source::Source;
use crate::clock::perf_event::PerfEvent;
use crate::handler::rings::RingMemory;
use crate::handler::slots::{Shared, ThreadSlot};

/// A Java thread as the VM describes it.
#[derive(Debug, Clone)]
pub struct JavaThread {
    /// Address of the VM's JavaThread.
    pub address: u64,
    /// Lowest address of its stack.
    pub stack_low: u64,
    /// One past the highest address of its stack.
    pub stack_high: u64,
    /// Its name at this moment.
    pub name: String,
}

/// A thread that is or was profiled, until the sampler retires it.
pub(super) struct Entry {
    pub(super) facts: ThreadFacts,
    pub(super) timer: Option<Source>,
    /// Former perf events of the thread, whose signals may be under way.
    pub(super) former: Vec<PerfEvent>,
    /// The thread's clock when no signal of its former events was pending, in nanoseconds; 0 before that.
    pub(super) former_settled_ns: u64,
    /// The last correction of the perf event.
    pub(super) correction: Correction,
    /// Rotation round in which the thread got or lost its timer.
    pub(super) timer_since: u64,
    /// CPU time that samples have claimed under former timers.
    pub(super) expired_ns: u64,
    /// Unfinished CPU time that the ended thread has handed on, in nanoseconds.
    pub(super) handed_on_ns: u64,
    /// Number of searches for its `CompilerThread`.
    pub(super) compiler_searches: u8,
    /// Value of `Table::listings` when the entry was made; older listings may lack the thread.
    pub(super) made_at: u64,
}

impl Entry {
    /// A thread that begins, at the listing `made_at`.
    pub(super) fn new(facts: ThreadFacts, timer: Option<Source>, made_at: u64) -> Self {
        Self {
            facts,
            timer,
            former: Vec::new(),
            former_settled_ns: 0,
            correction: Correction::default(),
            timer_since: 0,
            expired_ns: 0,
            handed_on_ns: 0,
            compiler_searches: 0,
            made_at,
        }
    }

    /// Returns what identifies the thread while the table is not locked.
    pub(super) fn identity(&self) -> Identity {
        let ThreadFacts { slot, id, tid, .. } = self.facts;
        Identity { slot, id, tid }
    }

    /// Ends the thread's timer. A perf event is closed later, because its signals carry nothing but the descriptor.
    pub(super) fn end_timer(&mut self) {
        if let Some(Source::Event(event)) = self.timer.take() {
            event.silence();
            self.former.push(event);
            self.former_settled_ns = 0;
        }
    }

    /// Ends the timer and closes all perf events: the thread runs no more code of the program, or it is the calling
    /// thread and does not block the signal.
    pub(super) fn close_timer(&mut self) {
        self.timer = None;
        self.former.clear();
    }

    /// Takes the thread's timer and perf events; dropping them deletes them.
    pub(super) fn take_timers(&mut self) -> (Option<Source>, Vec<PerfEvent>) {
        (self.timer.take(), std::mem::take(&mut self.former))
    }

    /// CPU time that samples have claimed, lost ones included.
    pub(super) fn expired_ns(&self, shared: &Shared, slot: &ThreadSlot) -> u64 {
        let current = slot.grid.periods().saturating_mul(shared.period_ns(slot.grid.key().period()));
        self.expired_ns.saturating_add(current)
    }

    /// CPU time until `clock_ns` of the thread's clock that no sample has claimed and no gap covers.
    pub(super) fn unfinished_at(&self, clock_ns: u64, shared: &Shared, slot: &ThreadSlot) -> i64 {
        let facts = &self.facts;
        let known = clock_ns.saturating_sub(facts.armed_ns).saturating_add(facts.carried_ns);
        let covered = known.saturating_sub(facts.coverage.uncovered_at(clock_ns));
        covered.cast_signed().saturating_sub_unsigned(self.expired_ns(shared, slot))
    }
}

/// Identifies a thread of the table; another one may get its slot.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    pub(super) slot: u32,
    pub(super) id: u32,
    pub(super) tid: i32,
}

/// The last correction of a thread's perf event.
#[derive(Default)]
pub(super) struct Correction {
    /// Claimed periods at that time.
    pub(super) claimed: u64,
    /// Periods that the clock was ahead.
    pub(super) ahead: i64,
}

/// A thread about to be profiled.
pub(super) struct NewThread<'a> {
    pub(super) tid: i32,
    pub(super) name: Arc<str>,
    pub(super) kind: ThreadKind,
    /// Its CPU time that was profiled while it was another kind of thread.
    pub(super) known_ns: u64,
    pub(super) java: Option<&'a JavaThread>,
}

/// A thread that ended as a Java thread but may live on as a native one.
pub(super) struct DetachedThread {
    pub(super) clock_ns: u64,
    /// Listings that have shown it since.
    pub(super) listings: u32,
}

/// When names of native threads were read.
#[derive(Default)]
pub(super) struct NameReading {
    pub(super) last: Option<Instant>,
    /// First slot of the next reading, so that all threads get their turn.
    pub(super) first: usize,
    /// CPU time that samples had claimed then, by the number of the thread.
    pub(super) sampled_ns: HashMap<u32, u64>,
}

/// All threads of a process; everything the registry's lock protects.
#[derive(Default)]
pub(super) struct Table {
    pub(super) rings: RingMemory,
    pub(super) by_tid: HashMap<i32, u32>,
    pub(super) entries: Vec<Option<Entry>>,
    /// Slots without an owner.
    pub(super) free: Vec<u32>,
    /// Slots whose thread has ended, for the sampler.
    pub(super) ended: Vec<u32>,
    pub(super) detached: HashMap<i32, DetachedThread>,
    /// Clocks of threads when the agent was attached, in nanoseconds; until they are registered.
    pub(super) clocks_at_attach: HashMap<i32, u64>,
    /// The agent's own threads, which are not profiled.
    pub(super) excluded: Vec<i32>,
    pub(super) next_id: u32,
    /// Listings of the process's threads that have begun.
    pub(super) listings: u64,
    pub(super) discovery: Discovery,
    pub(super) name_reading: NameReading,
    /// True while compiler threads are missing in the VM's list of threads.
    pub(super) awaits_compilers: bool,
    pub(super) remainder: Remainder,
    pub(super) rotation: Rotation,
    pub(super) periods: Periods,
    /// Interval, tick and timer period in effect.
    pub(super) aim: Aim,
    /// Number of changes of the interval.
    pub(super) changes: u64,
    /// Timers replaced by one with another period.
    pub(super) replaced: u64,
    /// Perf events of threads that have ended for the VM while they blocked the signal.
    pub(super) parked: Vec<(i32, PerfEvent)>,
    pub(super) stopped: bool,
    /// True while the running Java threads are registered; other threads are not listed before.
    pub(super) is_registering: bool,
    /// True once the kernel has refused a timer: threads share the granted ones.
    pub(super) lacks_timers: bool,
    pub(super) has_warned: bool,
    pub(super) has_warned_of_blocked: bool,
}

/// A thread that has detached from the VM counts as native from this listing on; most end at once.
pub(super) const LISTINGS_OF_NATIVE: u32 = 3;

/// State of the rotation of timers.
#[derive(Default)]
pub(super) struct Rotation {
    /// Number of the current round.
    pub(super) round: u64,
    /// Number of times a timer passed from one thread to another.
    pub(super) passed_on: u64,
    /// Threads that found no slot.
    pub(super) without_slot: u64,
}

impl Table {
    pub(super) fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize).and_then(Option::as_ref)
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize).and_then(Option::as_mut)
    }

    /// Returns the entry of a thread unless another one has its slot.
    pub(super) fn same(&mut self, thread: Identity) -> Option<&mut Entry> {
        self.entry_mut(thread.slot).filter(|entry| entry.facts.id == thread.id)
    }

    /// Returns whether a listed thread is to be registered; counts the listing of one that has detached from the VM.
    pub(super) fn is_new(&mut self, tid: i32) -> bool {
        if self.by_tid.contains_key(&tid) || self.excluded.contains(&tid) {
            return false;
        }
        let Some(detached) = self.detached.get_mut(&tid) else { return true };
        detached.listings += 1;
        detached.listings >= LISTINGS_OF_NATIVE
    }

    /// Gives a registered thread a name; returns its slot if it had another one.
    pub(super) fn rename(&mut self, tid: i32, name: &str) -> Option<u32> {
        let slot = *self.by_tid.get(&tid)?;
        let entry = self.entry_mut(slot).filter(|entry| &*entry.facts.name != name)?;
        entry.facts.name = Arc::from(name);
        entry.facts.revision += 1;
        Some(slot)
    }

    pub(super) fn add_expired(&mut self, slot: u32, expired_ns: u64) {
        if let Some(entry) = self.entry_mut(slot) {
            entry.expired_ns = entry.expired_ns.saturating_add(expired_ns);
        }
    }
}
