//! Threads without a timer: those that the options leave out, and with `mode=jvmti` those that are not Java threads.
//!
//! Such a thread has a slot and an account, in which its CPU time is lost (`not_chosen`, `not_java`). A thread may be
//! renamed, or become a Java thread, at any time.

use sampler_thread::process::{Gap, ThreadKind};

use super::registry::Registry;
use super::table::{Entry, Table};

impl Registry {
    /// Returns why a thread is left out; `None` if it is not.
    pub(super) fn left_out(&self, tid: i32, name: &str, kind: ThreadKind) -> Option<Gap> {
        if !self.choice.has(name, kind) || self.filter.is_some_and(|is_chosen| !is_chosen(tid)) {
            return Some(Gap::NotChosen);
        }
        (self.is_traced && kind != ThreadKind::Java).then_some(Gap::NotJava)
    }

    /// Returns the number of threads that are not left out.
    pub(super) fn sharing(table: &Table) -> u64 {
        let is_sharing = |entry: &&Entry| {
            let cause = entry.facts.coverage.open_gap().map(|(cause, _)| cause);
            entry.facts.ended_ns.is_none() && !matches!(cause, Some(Gap::NotChosen | Gap::NotJava))
        };
        table.entries.iter().flatten().filter(is_sharing).count() as u64
    }

    /// Applies a changed choice to a thread, if it is registered.
    pub fn judge_again(&self, tid: i32) {
        let mut table = self.table.lock();
        if let Some(slot) = table.by_tid.get(&tid).copied() {
            self.choose(&mut table, slot);
        }
    }

    /// Gives or takes the timer of a thread by its present name and kind.
    pub(super) fn choose(&self, table: &mut Table, slot: u32) {
        let Some(entry) = table.entry_mut(slot).filter(|entry| entry.facts.ended_ns.is_none()) else {
            return;
        };
        let left_out = self.left_out(entry.facts.tid, &entry.facts.name, entry.facts.kind);
        let cause = entry.facts.coverage.open_gap().map(|(cause, _)| cause);
        if left_out == cause.filter(|cause| matches!(cause, Gap::NotChosen | Gap::NotJava)) {
            return;
        }
        // A thread that has just ended has no clock.
        let Ok(clock_ns) = self.clock.read(entry.facts.tid) else { return };
        if let Some(cause) = left_out {
            entry.facts.coverage.end_gap(clock_ns);
            self.take_timer(table, slot, cause);
        } else if self.is_traced {
            entry.facts.coverage.end_gap(clock_ns);
        } else if !self.give_timer(table, slot)
            && let Some(entry) = table.entry_mut(slot)
        {
            // The kernel grants none now.
            entry.facts.coverage.end_gap(clock_ns);
            entry.facts.coverage.begin_gap(Gap::NoTimer, clock_ns);
        }
    }
}
