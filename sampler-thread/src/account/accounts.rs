//! The accounts of all threads, by slot.

use proto::v1;

use crate::account::Account;
use crate::name::dictionaries::Dictionaries;
use crate::process::{ThreadFacts, Threads};

/// The accounts of all threads that own a slot.
#[derive(Default)]
pub(crate) struct Accounts {
    open: Vec<Option<Account>>,
}

impl Accounts {
    pub(crate) fn get(&self, slot: u32) -> Option<&Account> {
        self.open.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Account> {
        self.open.get_mut(slot as usize)?.as_mut()
    }

    /// Removes the account of an ended thread.
    pub(crate) fn close(&mut self, slot: u32) -> Option<Account> {
        self.open.get_mut(slot as usize)?.take()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Account> {
        self.open.iter_mut().flatten()
    }

    /// Makes sure that the slot's owner has an account and that its description was sent.
    pub(crate) fn open_slot(&mut self, slot: u32, threads: &impl Threads, dictionaries: &mut Dictionaries) {
        if self.get(slot).is_none()
            && let Some(facts) = threads.thread(slot)
        {
            self.open(&facts, dictionaries);
        }
    }

    /// Returns the account of a thread, opened or brought up to date.
    pub(crate) fn open(&mut self, facts: &ThreadFacts, dictionaries: &mut Dictionaries) -> &mut Account {
        let slot = facts.slot as usize;
        if self.open.len() <= slot {
            self.open.resize_with(slot + 1, || None);
        }
        let account = self.open[slot].get_or_insert_with(|| Account::open(facts.clone()));
        account.facts.coverage = facts.coverage;
        account.facts.expired_ns = facts.expired_ns;
        if account.facts.revision != facts.revision {
            account.facts = facts.clone();
        }
        if account.sent_revision != Some(account.facts.revision) {
            account.sent_revision = Some(account.facts.revision);
            dictionaries.thread(v1::Thread {
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
}
