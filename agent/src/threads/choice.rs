//! Threads that the options leave out.
//!
//! Such a thread has a slot and an account, but no timer: its CPU time is lost by the cause `not_chosen`, so that the account
//! of the process closes. A thread may be renamed, or become a Java thread, at any time.

use sampler_thread::process::Gap;

use super::registry::Registry;
use super::table::Table;

impl Registry {
    /// Takes the timer of a thread that is left out by its present name and kind, or gives it one.
    pub(super) fn choose(&self, table: &mut Table, slot: u32) {
        let Some(entry) = table.entry_mut(slot).filter(|entry| entry.facts.ended_ns.is_none()) else {
            return;
        };
        let is_chosen = self.choice.has(&entry.facts.name, entry.facts.kind);
        let is_left_out = matches!(entry.facts.coverage.open_gap(), Some((Gap::NotChosen, _)));
        if is_chosen != is_left_out {
            return;
        }
        // A thread that has just ended has no clock, and needs no timer.
        let Ok(clock_ns) = self.clock.read(entry.facts.tid) else { return };
        if !is_chosen {
            entry.facts.coverage.end_gap(clock_ns);
            self.take_timer(table, slot, Gap::NotChosen);
        } else if !self.give_timer(table, slot)
            && let Some(entry) = table.entry_mut(slot)
        {
            // It waits for a timer like any other.
            entry.facts.coverage.end_gap(clock_ns);
            entry.facts.coverage.begin_gap(Gap::NoTimer, clock_ns);
        }
    }
}
