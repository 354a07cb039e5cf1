//! Threads that use CPU time without an expiration.
//!
//! Problem: a thread that blocks the timers' signal, or a program that replaces its handler, would make an empty
//! profile without a reason.
//! Approach: the sampler reports threads whose clock advances without expirations. If they block the signal, by the
//! kernel's mask, their timers are taken and their time is lost by that cause until they unblock it.
//! Source: proc_pid_status(5) (`SigBlk`).

use parking_lot::MutexGuard;
use sampler_thread::process::Gap;

use super::registry::Registry;
use super::table::{Entry, Identity, Table};
use crate::threads::kernel;

impl Registry {
    /// Deletes the timers of all threads that have one.
    pub(super) fn take_all_timers(&self, cause: Gap) {
        let mut table = self.table.lock();
        for index in 0..table.entries.len() {
            MutexGuard::bump(&mut table);
            let index = index as u32;
            if table.entry(index).is_some_and(|entry| entry.timer.is_some()) {
                self.take_timer(&mut table, index, cause);
            }
        }
    }

    /// Takes the timers of those threads that block the signal, and gives timers to those that no longer do.
    pub(super) fn examine_silent(&self, slots: &[u32]) {
        let threads: Vec<Identity> = {
            let table = self.table.lock();
            slots.iter().filter_map(|slot| table.entry(*slot)).map(Entry::identity).collect()
        };
        // Without the lock, because of a file for each thread.
        let block = |thread: &Identity| kernel::blocks(thread.tid, self.shared.signal);
        let states: Vec<Option<bool>> = threads.iter().map(block).collect();
        let mut table = self.table.lock();
        for (thread, blocks) in threads.into_iter().zip(states) {
            MutexGuard::bump(&mut table);
            let Some(entry) = table.same(thread) else { continue };
            let is_known = matches!(entry.facts.coverage.open_gap(), Some((Gap::SignalBlocked, _)));
            match (blocks, is_known) {
                (Some(true), false) => self.signal_blocked(&mut table, thread.slot),
                (Some(false), true) if !table.stopped => _ = self.give_timer(&mut table, thread.slot),
                _ => {}
            }
        }
    }

    /// Takes the timer of a thread that blocks the signal; its time since the last expiration is lost.
    pub(super) fn signal_blocked(&self, table: &mut Table, slot: u32) {
        if !std::mem::replace(&mut table.has_warned_of_blocked, true) {
            let name = table.entry(slot).map(|entry| entry.facts.name.clone()).unwrap_or_default();
            tracing::warn!(
                "thread \"{name}\" blocks signal {}, which the timers use: the CPU time of such threads is reported as \
                 lost.signal_blocked; choose another signal with signal=",
                self.shared.signal
            );
        }
        self.take_timer(table, slot, Gap::SignalBlocked);
    }
}
