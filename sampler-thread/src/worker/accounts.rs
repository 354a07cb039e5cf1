//! Closes the accounts of ended threads.
//!
//! Invariant: the account of an ended thread is sent after its last request was counted, and its slot is freed after
//! that.

use stackwalk::Memory;

use super::Worker;
use crate::account::add_lost;
use crate::process::Process;

impl<P: Process, M: Memory> Worker<P, M> {
    /// Closes the accounts of ended threads and frees their slots.
    pub(super) fn retire_ended(&mut self) {
        let ended = self.process.ended();
        if ended.is_empty() {
            return;
        }
        for facts in &ended {
            self.accounts.open(facts, &mut self.namer.names.dictionaries);
            // The thread pushed its last request before it was listed as ended.
            self.intake.collect_slot(facts.slot);
        }
        self.sample_waiting();
        for facts in ended {
            let slot = facts.slot;
            self.intake.with_state(|queues, state| state.queue_sizes.after_end(queues, slot));
            let Some(mut account) = self.accounts.close(slot) else { continue };
            if let Some(clock_ns) = facts.ended_ns {
                account.read_clock(clock_ns);
            }
            self.waiting.ended(facts.tid, account.run_delay_ns);
            let counters = self.process.queue(slot).lost();
            account.settle(counters);
            let handed_on_ns = account.unfinished_ns(counters);
            add_lost(&mut self.stats.lost, &account.lost(counters));
            self.stats.before_timer_ns += account.facts.before_timer_ns;
            self.stats.kernel_ns += account.own_ns();
            self.stats.sampled_ns += account.sampled_ns;
            self.closed.push(account.message(counters, Some(handed_on_ns)));
            self.process.retire(slot, handed_on_ns);
        }
    }
}
