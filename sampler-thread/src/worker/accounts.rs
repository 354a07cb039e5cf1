//! Accounts of threads, from the first request or the first statistics to the end of the thread.
//!
//! Invariant: an ended thread's account is sent after its last request was drained, and its slot is given back after that.

use std::time::Instant;

use proto::v1;
use stackwalk::Memory;

use super::Worker;
use crate::account::{Account, add_lost};
use crate::host::{Host, ThreadFacts};

impl<H: Host, M: Memory> Worker<H, M> {
    /// Makes sure the slot's present owner has an account, and that its description was sent.
    pub(super) fn open_account(&mut self, slot: u32) {
        if self.accounts.get(slot as usize).is_some_and(Option::is_some) {
            return;
        }
        if let Some(facts) = self.host.thread(slot) {
            self.account_for(&facts);
        }
    }

    /// The account of a thread, opened or brought up to date.
    pub(super) fn account_for(&mut self, facts: &ThreadFacts) -> &mut Account {
        let slot = facts.slot as usize;
        if self.accounts.len() <= slot {
            self.accounts.resize_with(slot + 1, || None);
        }
        let account = self.accounts[slot].get_or_insert_with(|| Account::open(facts.clone()));
        account.facts.coverage = facts.coverage;
        account.facts.expired_ns = facts.expired_ns;
        if account.facts.revision != facts.revision {
            account.facts = facts.clone();
        }
        if account.sent_revision != Some(account.facts.revision) {
            account.sent_revision = Some(account.facts.revision);
            self.dictionaries.thread(v1::Thread {
                id: facts.id,
                tid: facts.tid.cast_unsigned(),
                name: facts.name.to_string(),
                kind: facts.kind.into(),
                java_id: 0,
                carrier: 0,
            });
        }
        account
    }

    /// Closes the accounts of ended threads and gives their slots back.
    pub(super) fn retire_ended(&mut self) {
        for facts in self.host.ended() {
            let slot = facts.slot;
            self.account_for(&facts);
            // The thread pushed its last request before it was listed as ended.
            self.intake.collect_slot(slot);
            self.resolve_waiting(Instant::now());
            self.intake.with_state(|host, state| state.sizes.after_end(host, slot));
            let Some(mut account) = self.accounts.get_mut(slot as usize).and_then(Option::take) else {
                continue;
            };
            if let Some(clock_ns) = facts.ended_ns {
                account.read_clock(clock_ns);
            }
            let counters = self.host.queue(slot).lost();
            account.settle(counters);
            let handed_on_ns = account.unfinished_ns(counters);
            add_lost(&mut self.stats.lost, &account.lost(counters));
            self.stats.before_timer_ns += account.facts.before_timer_ns;
            self.closed.push(account.message(counters, Some(handed_on_ns)));
            self.host.retire(slot, handed_on_ns);
        }
    }
}
