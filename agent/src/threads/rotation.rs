//! Sharing timers where the kernel grants fewer than there are threads.
//!
//! Problem: each timer reserves one queued signal of RLIMIT_SIGPENDING; in a process with more threads than that, only
//! the first ones would ever be profiled.
//! Approach: in each round, threads that used CPU time without a timer get one, the longest waiting first: a new one
//! while the kernel grants it, else that of the thread that has had its timer longest.
//! The account stays exact: CPU time without a timer is counted from the thread's own clock as lost (`no_timer`), and
//! the unfinished period at the loss of a timer is continued by the next one, whose first expiration comes that much
//! sooner.
//! An expiration may still be on its way when its timer is deleted. Kernels from 6.13 on drop it, older ones deliver it
//! late; either way its time is unfinished, and the next timer covers it (`super::timers`).
//! Sources: timer_create(2), timer_delete(2); Linux 6.18 `kernel/time/posix-timers.c`, `posixtimer_deliver_signal`.

use std::cmp::Reverse;

use sampler_thread::account::clock::thread_cpu_nanos;
use sampler_thread::process::TimerCounts;

use super::registry::Registry;
use super::table::{Entry, Table};

/// Minimum number of rounds a thread keeps its timer.
const MIN_ROUNDS: u64 = 2;

impl Registry {
    /// Runs one round.
    pub(super) fn rotate(&self) {
        let mut table = self.table.lock();
        table.rotation.round += 1;
        if table.stopped || !table.lacks_timers {
            // The kernel has granted every timer so far.
            return;
        }
        let waiting = table.burning_without_timer();
        if waiting.is_empty() {
            return;
        }
        let mut donors = table.with_longest_timers();
        for slot in waiting {
            if self.give_timer(&mut table, slot) {
                continue;
            }
            let Some(donor) = donors.pop() else { return };
            self.take_timer(&mut table, donor);
            if self.give_timer(&mut table, slot) {
                table.rotation.passed_on += 1;
            }
        }
    }

    /// Returns how many threads have timers, and how often timers changed.
    pub(super) fn timer_counts(&self) -> TimerCounts {
        let table = self.table.lock();
        let alive = || table.entries.iter().flatten().filter(|entry| entry.facts.ended_ns.is_none());
        TimerCounts {
            threads: alive().count() as u64,
            with_timer: alive().filter(|entry| entry.timer.is_some()).count() as u64,
            rotations: table.rotation.passed_on,
            without_slot: table.rotation.without_slot,
            changes: table.periods.changes,
            replaced: table.replaced,
            outdated: table.periods.outdated(),
        }
    }

    /// Starts a timer for a thread without one; returns false if the kernel grants none.
    pub(super) fn give_timer(&self, table: &mut Table, index: u32) -> bool {
        let round = table.rotation.round;
        let Some(slot) = self.slot(index) else { return true };
        let Some(tid) = table.entry_mut(index).map(|entry| entry.facts.tid) else { return true };
        let expired_ns = self.switch(table, slot, slot.grid.key().next(table.periods.target()));
        table.add_expired(index, expired_ns);
        let Some(entry) = table.entry_mut(index) else { return true };
        // The gap without a timer ends where the timer is armed.
        match self.arm(tid, slot, |clock_ns| entry.unfinished_at(clock_ns, self.shared, slot)) {
            Ok((timer, clock_ns)) => {
                entry.timer = Some(timer);
                entry.deferred_at = None;
                entry.facts.coverage.end_gap(clock_ns);
                entry.timer_since = round;
                true
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                self.warn_once(table, &error);
                false
            }
            // The next listing finds that the thread has ended.
            Err(_) => true,
        }
    }

    /// Deletes a thread's timer; its CPU time counts as lost until it gets another one.
    pub(super) fn take_timer(&self, table: &mut Table, index: u32) {
        let round = table.rotation.round;
        let Some(slot) = self.slot(index) else { return };
        let Some(entry) = table.entry_mut(index) else { return };
        entry.timer = None;
        // Signals that come later claim nothing.
        let expired_ns = self.switch(table, slot, slot.grid.key().next(table.periods.target()));
        table.add_expired(index, expired_ns);
        let Some(entry) = table.entry_mut(index) else { return };
        entry.timer_since = round;
        // A thread that has just ended has no clock.
        let armed_ns = entry.facts.armed_ns;
        entry.facts.coverage.begin_gap(thread_cpu_nanos(entry.facts.tid).unwrap_or(armed_ns));
    }
}

impl Table {
    /// Returns the slots of threads that used CPU time since they lost their timer, the longest waiting first.
    fn burning_without_timer(&self) -> Vec<u32> {
        let is_burning = |entry: &&Entry| {
            let since = entry.facts.coverage.untimed_since;
            let clock = || thread_cpu_nanos(entry.facts.tid).ok();
            since
                .is_some_and(|since| entry.facts.ended_ns.is_none() && clock().is_some_and(|now| now > since))
        };
        let mut waiting: Vec<&Entry> = self.entries.iter().flatten().filter(is_burning).collect();
        waiting.sort_by_key(|entry| entry.timer_since);
        waiting.into_iter().map(|entry| entry.facts.slot).collect()
    }

    /// Returns the slots of threads that have had their timers for the minimum of rounds, the longest last.
    fn with_longest_timers(&self) -> Vec<u32> {
        let latest = self.rotation.round.saturating_sub(MIN_ROUNDS);
        let is_donor = |entry: &&Entry| entry.timer.is_some() && entry.timer_since <= latest;
        let mut donors: Vec<&Entry> = self.entries.iter().flatten().filter(is_donor).collect();
        donors.sort_by_key(|entry| Reverse(entry.timer_since));
        donors.into_iter().map(|entry| entry.facts.slot).collect()
    }
}
