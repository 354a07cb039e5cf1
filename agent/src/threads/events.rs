//! Corrects perf events by the clocks of their threads, and closes their descriptors.
//!
//! Problem: the time of an event differs from its thread's CPU clock ([`Drift`](crate::clock::drift)), several
//! expirations in the kernel leave one signal, and a signal under way carries nothing but a descriptor.
//! Approach: each round compares the clocks of newly sampled threads with the claimed periods. What the clock is ahead
//! in two consecutive rounds is added to the next samples, what it is behind is left out. A descriptor is closed only
//! when no signal of its event can come. The kernel delivers a thread's signals in order, so none comes after the first
//! claim under the next event, nor once no signal is pending and the thread has slept or run on. A thread that has
//! vanished takes none, and one that ends its own event has taken all, unless it blocks the signal.
//! Invariant: clock since the event was armed + carried = claimed + without event + unfinished, as with timers.
//! Sources: Linux 6.18 `kernel/signal.c` (`collect_signal`), `fs/fcntl.c` (`fasync_remove_entry`).

use sampler_thread::clock::thread_cpu_nanos;

use super::registry::{Registry, pass_on};
use super::source::Source;
use super::table::{Correction, Table};
use crate::handler::install;
use crate::threads::kernel::SignalState;

/// CPU time within which a handler begins after its signal is delivered, generously, in nanoseconds.
const RUN_ON_NS: u64 = 1_000_000;
/// Most threads whose former descriptors are examined in a round; each costs reading a file.
const LOOKED_AT: usize = 64;

impl Registry {
    /// Corrects the events of all threads that were sampled since the last round.
    pub(super) fn correct_events(&self) {
        if self.shared.descriptors.is_none() {
            return;
        }
        self.close_former();
        let mut table = self.table.lock();
        for index in 0..table.entries.len() {
            pass_on(&mut table, index);
            if table.stopped {
                return;
            }
            self.correct(&mut table, index as u32);
        }
    }

    /// Returns whether the program has left the descriptors of events alone, by the first of them.
    pub(super) fn has_intact_events(&self) -> bool {
        let table = self.table.lock();
        let mut sources = table.entries.iter().flatten().filter_map(|entry| entry.timer.as_ref());
        sources.next().is_none_or(Source::is_intact)
    }

    /// Closes descriptors of former events of which no signal can come.
    fn close_former(&self) {
        let mut threads = Vec::new();
        {
            let mut table = self.table.lock();
            for index in 0..table.entries.len() {
                pass_on(&mut table, index);
                let entry = table.entry(index as u32);
                let entry = entry.filter(|entry| !entry.former.is_empty() && threads.len() < LOOKED_AT);
                threads.extend(entry.map(|entry| (entry.identity(), entry.former.len())));
            }
        }
        // Without the lock: a file for each thread.
        for (thread, former) in threads {
            let state = SignalState::of(thread.tid, self.shared.signal);
            let Some(state) = state.filter(|state| !state.is_pending) else { continue };
            let Ok(clock_ns) = thread_cpu_nanos(thread.tid) else { continue };
            let mut table = self.table.lock();
            // If an event has ended meanwhile, the next round examines it.
            let entry = table.same(thread).filter(|entry| entry.former.len() == former);
            let Some(entry) = entry else { continue };
            match entry.former_settled_ns {
                0 => entry.former_settled_ns = clock_ns.max(1),
                settled_ns if state.is_asleep || clock_ns > settled_ns.saturating_add(RUN_ON_NS) => {
                    entry.former.clear();
                }
                _ => {}
            }
        }
    }

    fn correct(&self, table: &mut Table, index: u32) {
        let Some(slot) = self.slot(index) else { return };
        let Some(entry) = table.entry_mut(index) else { return };
        let (key, periods) = (slot.grid.key(), slot.grid.periods());
        let is_running = entry.facts.ended_ns.is_none() && matches!(entry.timer, Some(Source::Event(_)));
        if !is_running || periods == entry.correction.claimed {
            return;
        }
        if periods > 0 {
            // A sample under the present key came after all signals of former events.
            entry.former.clear();
        }
        let Ok(clock_ns) = thread_cpu_nanos(entry.facts.tid) else { return };
        let period_ns = self.shared.period_ns(key.period()).max(1).cast_signed();
        let ahead = entry.unfinished_at(clock_ns, self.shared, slot).div_euclid(period_ns);
        // Signals may wait while a thread is in the kernel.
        let wanted = if ahead > 0 { ahead.min(entry.correction.ahead.max(0)) } else { ahead };
        entry.correction = Correction { claimed: periods, ahead };
        slot.drift.want(wanted);
    }

    /// Ends the events of the calling thread, which ends as far as the VM is concerned.
    pub(super) fn close_own_events(&self, table: &mut Table, index: u32) {
        let Some(entry) = table.entry_mut(index) else { return };
        if self.shared.descriptors.is_some() && install::is_blocked(self.shared.signal) {
            // Signals may come when the thread unblocks them.
            entry.end_timer();
            let tid = entry.facts.tid;
            let former = std::mem::take(&mut entry.former);
            table.parked.extend(former.into_iter().map(|event| (tid, event)));
        }
    }
}
