//! Sharing timers where the kernel grants fewer than there are threads.
//!
//! Problem: each timer reserves one queued signal of RLIMIT_SIGPENDING; with more threads than that, the last ones
//! would never be profiled.
//! Approach: in each round, threads that used CPU time without a timer get one, the longest waiting first: a new one
//! while the kernel and the agent's share ([`timer::adapt_share`]) grant it, else that of the thread that has had its
//! timer longest. When others use more of the limit, threads give up timers. CPU time without a timer is counted as
//! lost (`no_timer`) by the thread's own clock. The unfinished period continues under the next timer, whose first
//! expiration comes sooner. That also covers expirations under way when a timer is deleted, which kernels from 6.13 on
//! drop and older ones deliver late.
//! Sources: timer_create(2), timer_delete(2); Linux 6.18 `kernel/time/posix-timers.c`, `posixtimer_deliver_signal`.

use std::cmp::Reverse;

use parking_lot::MutexGuard;
use sampler_thread::clock::ThreadClock;
use sampler_thread::process::{Gap, TimerCounts};

use super::registry::Registry;
use super::table::{Correction, Entry, Identity, Table};
use crate::clock::timer;

/// Minimum number of rounds a thread keeps its timer.
const MIN_ROUNDS: u64 = 2;
/// Rounds between two readings of the agent's share, of some 30 us.
const SHARE_ROUNDS: u64 = 10;

impl Registry {
    /// Runs one round; returns whether threads lack timers.
    pub(super) fn rotate(&self) -> bool {
        let (round, lacks_timers, waiting) = {
            let mut table = self.table.lock();
            table.rotation.round += 1;
            let lacks_timers = table.lacks_timers && !table.stopped;
            let waiting = if lacks_timers { table.without_timer() } else { Vec::new() };
            (table.rotation.round, lacks_timers, waiting)
        };
        // Without the lock, because of a file and a system call for each thread.
        let too_many = if round % SHARE_ROUNDS == 0 { timer::adapt_share() } else { 0 };
        let shares_timers = lacks_timers || too_many > 0;
        if shares_timers {
            self.share_timers(waiting, too_many);
        }
        shares_timers
    }

    fn share_timers(&self, waiting: Vec<Waiting>, too_many: u64) {
        let waiting: Vec<Waiting> =
            waiting.into_iter().filter(|thread| thread.is_burning(self.clock)).collect();
        let mut table = self.table.lock();
        if table.stopped {
            return;
        }
        let mut donors = table.with_longest_timers();
        for _ in 0..too_many {
            let Some(donor) = donors.pop() else { break };
            table.lacks_timers = true;
            self.take_timer(&mut table, donor, Gap::NoTimer);
        }
        for Waiting { thread, .. } in waiting {
            MutexGuard::bump(&mut table);
            let slot = thread.slot;
            let is_same = table.same(thread).is_some_and(|entry| entry.timer.is_none());
            if table.stopped || !is_same || self.give_timer(&mut table, slot) {
                continue;
            }
            let Some(donor) = donors.pop() else { return };
            self.take_timer(&mut table, donor, Gap::NoTimer);
            if self.give_timer(&mut table, slot) {
                table.rotation.passed_on += 1;
            }
        }
    }

    pub fn timer_counts(&self) -> TimerCounts {
        let table = self.table.lock();
        let alive = || table.entries.iter().flatten().filter(|entry| entry.facts.ended_ns.is_none());
        TimerCounts {
            threads: alive().count() as u64,
            sharing: Self::sharing(&table),
            with_timer: alive().filter(|entry| entry.timer.is_some()).count() as u64,
            rotations: table.rotation.passed_on,
            without_slot: table.rotation.without_slot,
            changes: table.changes,
            replaced: table.replaced,
            outdated: table.periods.outdated(),
        }
    }

    /// Starts a timer for a thread; returns false if the kernel grants none.
    pub(super) fn give_timer(&self, table: &mut Table, index: u32) -> bool {
        let round = table.rotation.round;
        let Some(slot) = self.slot(index) else { return true };
        let Some(tid) = table.entry_mut(index).map(|entry| entry.facts.tid) else { return true };
        let expired_ns = self.switch(table, slot, slot.grid.key().next(table.periods.target()));
        table.add_expired(index, expired_ns);
        let Some(entry) = table.entry_mut(index) else { return true };
        // The gap without a timer ends where the timer is armed.
        match self.arm(tid, slot, 0, |clock_ns| entry.unfinished_at(clock_ns, self.shared, slot)) {
            Ok((timer, clock_ns)) => {
                entry.timer = Some(timer);
                entry.correction = Correction::default();
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

    /// Deletes a thread's timer; its CPU time counts as lost until it gets another one. With [`Gap::NoTimer`] the next
    /// timer continues the unfinished period; for any other cause the time since the last expiration is lost as well.
    pub(super) fn take_timer(&self, table: &mut Table, index: u32, cause: Gap) {
        let round = table.rotation.round;
        let Some(slot) = self.slot(index) else { return };
        let Some(entry) = table.entry_mut(index) else { return };
        entry.end_timer();
        // Signals that come later claim nothing.
        let expired_ns = self.switch(table, slot, slot.grid.key().next(table.periods.target()));
        table.add_expired(index, expired_ns);
        let Some(entry) = table.entry_mut(index) else { return };
        entry.timer_since = round;
        // A thread that has just ended has no clock.
        let known_ns = entry.facts.ended_ns.unwrap_or(entry.facts.armed_ns);
        let clock_ns = self.clock.read(entry.facts.tid).unwrap_or(known_ns);
        let since_ns = match cause {
            Gap::NoTimer => clock_ns,
            Gap::SignalBlocked | Gap::HandlerReplaced | Gap::NotChosen | Gap::NotJava => {
                let unfinished_ns = entry.unfinished_at(clock_ns, self.shared, slot).max(0);
                clock_ns.saturating_sub(unfinished_ns.cast_unsigned())
            }
        };
        entry.facts.coverage.begin_gap(cause, since_ns);
    }
}

impl Table {
    /// Returns the threads that wait for a timer, the longest waiting first.
    fn without_timer(&self) -> Vec<Waiting> {
        let mut waiting: Vec<(u64, Waiting)> = self
            .entries
            .iter()
            .flatten()
            .filter(|entry| entry.facts.ended_ns.is_none())
            .filter_map(|entry| match entry.facts.coverage.open_gap() {
                Some((Gap::NoTimer, since_ns)) => {
                    Some((entry.timer_since, Waiting { thread: entry.identity(), since_ns }))
                }
                _ => None,
            })
            .collect();
        waiting.sort_by_key(|(since, _)| *since);
        waiting.into_iter().map(|(_, waiting)| waiting).collect()
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

/// A thread without a timer.
struct Waiting {
    thread: Identity,
    /// CPU clock at the loss of its timer, in nanoseconds.
    since_ns: u64,
}

impl Waiting {
    /// Returns whether the thread's clock has gone on since; a system call.
    fn is_burning(&self, clock: ThreadClock) -> bool {
        clock.read(self.thread.tid).is_ok_and(|now_ns| now_ns > self.since_ns)
    }
}
