//! What waits while the window has no room.
//!
//! Problem: none of the CPU time of a long absence may be lost, and what is held for it must be bounded.
//! Approach: samples are merged ([`Merged`]), entries and accounts kept ([`Names`], [`Threads`]), of statistics the
//! latest; each gives up resolution where there is too much.
//! Invariant: what is released names nothing whose entry does not precede it.

use proto::statistics::carry_over;
use proto::v1::{self, Dictionary, SampleBatch, Statistics, agent_message::Body};

use super::merge::Merged;
use super::names::Names;
use super::threads::{MAX_WAITING, Threads};
use crate::name::dictionaries::reserved_stack;
use crate::send::sink::SinkError;

/// Frame of stacks that were given up while the collector was away.
const UNNAMED: &str = "[merged]";

/// Takes a message that leaves, and tells whether there is room for more.
pub type Send<'a> = dyn FnMut(Body) -> Result<bool, SinkError> + 'a;

/// What waits.
pub struct Held {
    names: Names,
    threads: Threads,
    rows: Merged,
    /// Statistics, without accounts.
    statistics: Option<Statistics>,
}

impl Held {
    /// Nothing waits but the entries of the stack that stands for those given up.
    pub fn new() -> Self {
        Self::with_threads(MAX_WAITING)
    }

    fn with_threads(limit: usize) -> Self {
        // The entries of this stack precede everything, so it is known whenever it is needed.
        let (dictionary, unnamed) = reserved_stack(UNNAMED, "merged");
        let mut names = Names::default();
        names.keep_first(dictionary);
        Self { names, threads: Threads::new(limit), rows: Merged::new(unnamed), statistics: None }
    }

    /// What was merged so far.
    pub fn rows(&self) -> &Merged {
        &self.rows
    }

    /// Whether entries may go out at once.
    fn is_passed(&self) -> bool {
        self.names.is_passed() && self.threads.is_passed()
    }

    /// Whether samples may go out at once.
    pub fn passes_samples(&self) -> bool {
        self.rows.is_empty() && self.is_passed()
    }

    /// Keeps samples.
    pub fn samples(&mut self, batch: &SampleBatch) {
        let Self { names, threads, rows, .. } = self;
        let number = |thread| match names.lacking() {
            (true, _) => threads.number_after_loss(thread),
            _ => threads.number(thread),
        };
        rows.add(batch, |stack| names.knows(stack), number);
    }

    /// Keeps entries unless there is room and they may go out at once: then they are given back.
    pub fn dictionary(&mut self, dictionary: &Dictionary, room: bool) -> Option<Dictionary> {
        let is_useful = self.names.note(dictionary);
        if room && self.is_passed() {
            self.threads.pass(&dictionary.threads);
            return Some(dictionary.clone());
        }
        let mut more = dictionary.clone();
        self.threads.introduce(std::mem::take(&mut more.threads));
        self.threads.fold(&mut self.rows);
        if is_useful && more.entries.is_some() {
            self.names.keep(more);
        }
        None
    }

    /// Keeps statistics: what is said last replaces what waited to be said, for all but the accounts is cumulative.
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

    /// Sends the newest statistics, with the accounts of all threads that changed since the last ones were sent.
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

    /// Sends what was held back but statistics: rows as far as there is room, all of them if `anyway`.
    pub fn release(&mut self, anyway: bool, send: &mut Send<'_>) -> Result<(), SinkError> {
        for dictionary in self.names.take() {
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
            Ok(room) => anyway || room,
            Err(error) => {
                outcome = Err(error);
                false
            }
        });
        self.forget_ended();
        outcome
    }

    /// Accounts that wait are as many as entries may be: rows must not keep them from leaving.
    pub fn is_full_of_accounts(&self) -> bool {
        self.threads.accounts() > MAX_WAITING
    }

    fn forget_ended(&mut self) {
        if self.rows.is_empty() {
            self.threads.forget_ended();
        }
    }

    /// The collector of this connection, counted from 1, lost its memory: whatever waits is made to name nothing that is
    /// not sent again.
    pub fn lost(&mut self, connection: u64) {
        let from = self.names.lost(connection).unwrap_or(u64::MAX);
        self.rows.give_up_stacks(|stack| stack < from);
        // Kept whatever else was dropped: nothing refers to it but what stands for the rest, and nobody sends it again.
        let (dictionary, _) = reserved_stack(UNNAMED, "merged");
        self.names.keep_first(dictionary);
        self.threads.send_again(&mut self.rows);
    }

    /// Whether the sampler is to send everything again that it uses from now on, asked at the end of a flush. `room`
    /// tells whether there is some, `absent` how many connections were lost when the collector is away for long.
    pub fn take_forgotten(&mut self, room: bool, absent: Option<u64>) -> bool {
        let (at_once, with_room) = self.names.lacking();
        // Entries that were dropped are asked for once there is room for them.
        if at_once || room && (with_room || self.threads.is_lacking()) {
            self.names.asked();
        } else if let Some(connections) = absent.filter(|&connections| self.names.may_renew(connections)) {
            self.names.renewed(connections);
        } else {
            return false;
        }
        self.threads.introduced_again();
        true
    }
}

#[cfg(test)]
mod tests;
