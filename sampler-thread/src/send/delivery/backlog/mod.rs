//! Everything that waits while the window is full.
//!
//! Problem: no CPU time of a long absence of the collector may be lost, and memory must be bounded.
//! Approach: samples are merged ([`Merged`]), entries and accounts are kept ([`PendingEntries`], [`Threads`]), and the
//! newest statistics; each part gives up resolution when it has too much.
//! Invariant: a released message refers only to entries that precede it.

use proto::statistics::carry_over;
use proto::v1::{self, Dictionary, SampleBatch, Statistics, agent_message::Body};

use super::entries::PendingEntries;
use super::merge::Merged;
use super::threads::{MAX_WAITING, Threads};
use crate::name::dictionaries::reserved_stack;
use crate::send::sink::SinkError;

/// Frame of stacks that were given up.
const MERGED: &str = "[merged]";

/// Sends a message; returns whether there is space for more.
pub type Send<'a> = dyn FnMut(Body) -> Result<bool, SinkError> + 'a;

/// Messages that wait for space in the window.
pub struct Backlog {
    entries: PendingEntries,
    threads: Threads,
    rows: Merged,
    /// Statistics, without accounts.
    statistics: Option<Statistics>,
}

impl Backlog {
    /// Nothing waits but the entries of the stack `[merged]`.
    pub fn new() -> Self {
        Self::with_threads(MAX_WAITING)
    }

    fn with_threads(limit: usize) -> Self {
        // The entries of this stack come first, so that it is always known.
        let (dictionary, merged_stack) = reserved_stack(MERGED, "merged");
        let mut entries = PendingEntries::default();
        entries.keep_first(dictionary);
        Self { entries, threads: Threads::new(limit), rows: Merged::new(merged_stack), statistics: None }
    }

    pub fn rows(&self) -> &Merged {
        &self.rows
    }

    fn may_bypass(&self) -> bool {
        self.entries.may_bypass() && self.threads.may_bypass()
    }

    pub fn samples_may_bypass(&self) -> bool {
        self.rows.is_empty() && self.may_bypass()
    }

    pub fn samples(&mut self, batch: &SampleBatch) {
        let Self { entries, threads, rows, .. } = self;
        let id = |thread| match entries.missing() {
            (true, _) => threads.id_after_loss(thread),
            _ => threads.id(thread),
        };
        rows.add(batch, |stack| entries.knows(stack), id);
    }

    /// Keeps entries, or returns them if they can be sent directly.
    pub fn dictionary(&mut self, dictionary: &Dictionary, has_space: bool) -> Option<Dictionary> {
        let is_useful = self.entries.record(dictionary);
        if has_space && self.may_bypass() {
            self.threads.record_sent(&dictionary.threads);
            return Some(dictionary.clone());
        }
        let mut more = dictionary.clone();
        self.threads.keep(std::mem::take(&mut more.threads));
        self.threads.fold(&mut self.rows);
        if is_useful && more.entries.is_some() {
            self.entries.keep(more);
        }
        None
    }

    /// Keeps statistics; they replace those that wait, because all but the accounts is cumulative.
    pub fn statistics(&mut self, statistics: &Statistics) {
        let mut statistics = statistics.clone();
        std::mem::take(&mut statistics.threads)
            .into_iter()
            .for_each(|account| self.threads.keep_account(account));
        if let Some(older) = &self.statistics {
            carry_over(older, &mut statistics);
        }
        self.statistics = Some(statistics);
        self.threads.fold(&mut self.rows);
    }

    /// Sends the newest statistics, with the accounts that changed since the last ones were sent.
    pub fn release_statistics(
        &mut self,
        delivery: Option<v1::Delivery>,
        send: &mut Send<'_>,
    ) -> Result<(), SinkError> {
        let Some(mut statistics) = self.statistics.take() else { return Ok(()) };
        statistics.threads = self.threads.take_accounts();
        statistics.delivery = delivery;
        self.forget_ended();
        send(Body::Statistics(statistics)).map(|_| ())
    }

    /// Sends everything but statistics: rows as far as there is space, or all of them if `force`.
    pub fn release(&mut self, force: bool, send: &mut Send<'_>) -> Result<(), SinkError> {
        for dictionary in self.entries.take() {
            send(Body::Dictionary(dictionary))?;
        }
        let threads = self.threads.take_entries();
        if !threads.is_empty() {
            send(Body::Dictionary(Dictionary { threads, ..Dictionary::default() }))?;
        }
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut outcome = Ok(());
        self.rows.release(|batch| match send(Body::Samples(batch)) {
            Ok(has_space) => force || has_space,
            Err(error) => {
                outcome = Err(error);
                false
            }
        });
        self.forget_ended();
        outcome
    }

    /// Returns whether as many accounts wait as entries may, so that they must be sent before rows.
    pub fn is_full_of_accounts(&self) -> bool {
        self.threads.accounts() > MAX_WAITING
    }

    fn forget_ended(&mut self) {
        if self.rows.is_empty() {
            self.threads.forget_ended();
        }
    }

    /// Removes references to everything that the collector lost and that is not sent again.
    ///
    /// `connection` is the one, counted from 1, on which it was found to have lost its memory.
    pub fn collector_forgot(&mut self, connection: u64) {
        let from = self.entries.collector_forgot(connection).unwrap_or(u64::MAX);
        self.rows.give_up_stacks(|stack| stack < from);
        // Always kept: the stack `[merged]` refers to these entries, and the sampler does not send them again.
        let (dictionary, _) = reserved_stack(MERGED, "merged");
        self.entries.keep_first(dictionary);
        self.threads.send_again(&mut self.rows);
    }

    /// Returns whether the sampler has to send every entry again with its next use; to be called at the end of a flush.
    ///
    /// `absent` is the number of connections so far, if the collector is unreachable for long.
    pub fn take_resend_request(&mut self, has_space: bool, absent: Option<u64>) -> bool {
        let (at_once, with_space) = self.entries.missing();
        // Entries that were dropped are sent again when there is space for them.
        if at_once || has_space && (with_space || self.threads.has_missing()) {
            self.entries.begin_again();
        } else if let Some(connections) = absent.filter(|&connections| self.entries.may_renew(connections)) {
            self.entries.renew(connections);
        } else {
            return false;
        }
        self.threads.begin_again();
        true
    }
}

#[cfg(test)]
mod tests;
