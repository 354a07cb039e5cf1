//! Sharing timers where the kernel grants fewer than there are threads.
//!
//! Problem: each timer reserves one queued signal of RLIMIT_SIGPENDING; a process with more threads than that would
//! profile those that came first, for ever, and say nothing about the others.
//! Approach: at every look for threads, those that burnt CPU time without a timer get one, who waited longest first: a
//! new one while the kernel grants it, else that of the thread that has had its own longest.
//! The account stays exact: what a thread burns without a timer is counted from its own clock as lost (`no_timer`), and
//! the unfinished period at the loss of a timer is continued by the next one, whose first expiration comes that much
//! sooner. Weights are therefore those of a thread that was watched all the time that is not called lost.
//!
//! An expiration may still be on its way when its timer is deleted. Kernels from 6.13 on drop it, older ones deliver it
//! late; either way its time is unfinished, and made up for by the next timer (`super::timers`).
//! Sources: timer_create(2), timer_delete(2); Linux 6.18 `kernel/time/posix-timers.c`, `posixtimer_deliver_signal`.

use std::cmp::Reverse;

use sampler_thread::account::clock::thread_cpu_nanos;
use sampler_thread::host::TimerCounts;

use super::{Entry, Inner, Registry};

/// Looks a thread keeps its timer for at the least.
const SHORTEST_TURN: u64 = 2;

/// Turns of one registry.
#[derive(Default)]
pub(super) struct Rotation {
    /// Number of the present look.
    look: u64,
    /// How often a timer passed on.
    turns: u64,
    /// Threads that found no slot.
    pub(super) without_slot: u64,
}

/// A thread's place in the rotation.
#[derive(Default)]
pub(super) struct Turn {
    /// Look at which the thread got its timer, or lost it.
    since: u64,
}

impl Registry {
    /// One round; see the module's documentation.
    pub(super) fn rotate(&self) {
        let mut inner = self.inner.lock();
        inner.rotation.look += 1;
        if inner.stopped || !inner.is_short {
            // The kernel has granted every timer so far.
            return;
        }
        let waiting = inner.burning_without_timer();
        if waiting.is_empty() {
            return;
        }
        let mut donors = inner.with_longest_turns();
        for slot in waiting {
            if self.give_timer(&mut inner, slot) {
                continue;
            }
            let Some(donor) = donors.pop() else { return };
            self.take_timer(&mut inner, donor);
            if self.give_timer(&mut inner, slot) {
                inner.rotation.turns += 1;
            }
        }
    }

    /// How many threads have timers.
    pub(super) fn timer_counts(&self) -> TimerCounts {
        let inner = self.inner.lock();
        let alive = || inner.entries.iter().flatten().filter(|entry| entry.facts.ended_ns.is_none());
        TimerCounts {
            threads: alive().count() as u64,
            with_timer: alive().filter(|entry| entry.timer.is_some()).count() as u64,
            turns: inner.rotation.turns,
            without_slot: inner.rotation.without_slot,
            changes: inner.periods.changes,
            replaced: inner.replaced,
            stragglers: inner.periods.stragglers(),
        }
    }

    /// Starts a timer for a thread without one; false if the kernel grants none.
    pub(super) fn give_timer(&self, inner: &mut Inner, index: u32) -> bool {
        let look = inner.rotation.look;
        let Some(slot) = self.slot(index) else { return true };
        let Some(tid) = inner.entry(index).map(|entry| entry.facts.tid) else { return true };
        let expired_ns = self.switch(inner, slot, slot.grid.key().next(inner.periods.target()));
        inner.add_expired(index, expired_ns);
        let Some(entry) = inner.entry(index) else { return true };
        // The gap is no part of it: time without a timer ends where the timer is armed.
        match self.arm(tid, slot, |clock_ns| entry.unfinished_at(clock_ns, self.shared, slot)) {
            Ok((timer, clock_ns)) => {
                entry.timer = Some(timer);
                entry.held_back = None;
                entry.facts.coverage.end_gap(clock_ns);
                entry.turn.since = look;
                true
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                self.warn_once(inner, &error);
                false
            }
            // The thread has ended, which the next look will find.
            Err(_) => true,
        }
    }

    /// Deletes a thread's timer; its time is lost from now on.
    pub(super) fn take_timer(&self, inner: &mut Inner, index: u32) {
        let look = inner.rotation.look;
        let Some(slot) = self.slot(index) else { return };
        let Some(entry) = inner.entry(index) else { return };
        entry.timer = None;
        // Signals that come later claim nothing.
        let expired_ns = self.switch(inner, slot, slot.grid.key().next(inner.periods.target()));
        inner.add_expired(index, expired_ns);
        let Some(entry) = inner.entry(index) else { return };
        entry.turn.since = look;
        // Of a thread that has just ended the clock is gone; the last reading is of no use either.
        let armed_ns = entry.facts.armed_ns;
        entry.facts.coverage.begin_gap(thread_cpu_nanos(entry.facts.tid).unwrap_or(armed_ns));
    }
}

impl Inner {
    /// Slots of threads that burnt CPU time since they lost their timer, who waited longest first.
    fn burning_without_timer(&self) -> Vec<u32> {
        let is_burning = |entry: &&Entry| {
            let since = entry.facts.coverage.untimed_since;
            let clock = || thread_cpu_nanos(entry.facts.tid).ok();
            since
                .is_some_and(|since| entry.facts.ended_ns.is_none() && clock().is_some_and(|now| now > since))
        };
        let mut waiting: Vec<&Entry> = self.entries.iter().flatten().filter(is_burning).collect();
        waiting.sort_by_key(|entry| entry.turn.since);
        waiting.into_iter().map(|entry| entry.facts.slot).collect()
    }

    /// Slots of threads whose turn is over, the longest last.
    fn with_longest_turns(&self) -> Vec<u32> {
        let over = self.rotation.look.saturating_sub(SHORTEST_TURN);
        let is_over = |entry: &&Entry| entry.timer.is_some() && entry.turn.since <= over;
        let mut donors: Vec<&Entry> = self.entries.iter().flatten().filter(is_over).collect();
        donors.sort_by_key(|entry| Reverse(entry.turn.since));
        donors.into_iter().map(|entry| entry.facts.slot).collect()
    }
}
