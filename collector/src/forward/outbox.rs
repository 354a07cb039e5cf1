//! The buffer of requests for one receiver, and its account.
//!
//! Invariant: every sample put into it is exactly one of delivered, dropped for one cause, or waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use parking_lot::Mutex;
use tokio::sync::Notify;

use profile::source::Sum;

/// Why samples were not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// Samples were stored faster than they could be summed up.
    Behind,
    /// The buffer was full: the receiver was unreachable or slow for too long.
    BufferFull,
    /// The receiver answered with a permanent error.
    Refused,
    /// The receiver accepted the request and rejected its profile.
    Rejected,
    /// The collector ended before delivery.
    Stopped,
}

impl Cause {
    pub const ALL: [Cause; 5] =
        [Cause::Behind, Cause::BufferFull, Cause::Refused, Cause::Rejected, Cause::Stopped];

    /// Returns its name in metrics and logs.
    pub fn name(self) -> &'static str {
        ["behind", "buffer_full", "refused", "rejected", "stopped"][self as usize]
    }
}

/// A number of requests (0 for samples without one), their samples with their CPU time, and the encoded length before
/// compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub requests: u64,
    pub samples: u64,
    pub cpu_ns: u64,
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.requests += other.requests;
        self.samples = self.samples.saturating_add(other.samples);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Amount) {
        self.requests -= other.requests;
        self.samples = self.samples.saturating_sub(other.samples);
        self.cpu_ns = self.cpu_ns.saturating_sub(other.cpu_ns);
        self.bytes -= other.bytes;
    }
}

/// Delivery to one receiver: amounts delivered, waiting or being sent, and failed attempts that are repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub delivered: Amount,
    pub waiting: Amount,
    pub retries: u64,
    dropped: [Amount; Cause::ALL.len()],
}

impl Account {
    pub fn dropped(&self, cause: Cause) -> Amount {
        self.dropped[cause as usize]
    }
}

/// One request and its contents.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) request: Arc<ExportProfilesServiceRequest>,
    pub(super) amount: Amount,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Batch>,
    account: Account,
    is_closed: bool,
    /// True if batches were dropped since the last delivery.
    is_full: bool,
}

impl State {
    fn drop_batch(&mut self, amount: Amount, cause: Cause) {
        self.account.waiting.subtract(amount);
        self.account.dropped[cause as usize].add(amount);
    }
}

/// The buffer in front of one receiver.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Maximum of waiting bytes.
    limit: u64,
    state: Mutex<State>,
    changed: Notify,
}

impl Outbox {
    pub(super) fn new(limit: u64) -> Outbox {
        Outbox { limit, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn account(&self) -> Account {
        self.state.lock().account
    }

    /// Appends a batch. Returns whether older ones were dropped for it, for the first time since a delivery.
    pub(super) fn put(&self, batch: Batch) -> bool {
        let mut state = self.state.lock();
        state.account.waiting.add(batch.amount);
        state.queue.push_back(batch);
        let is_full = self.shed(&mut state);
        drop(state);
        self.changed.notify_one();
        is_full
    }

    /// Removes and returns the oldest batch; `None` once the outbox is closed and empty.
    pub(super) async fn next(&self) -> Option<Batch> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                match state.queue.pop_front() {
                    None if state.is_closed => return None,
                    None => {}
                    batch => return batch,
                }
            }
            changed.await;
        }
    }

    /// Puts a batch back after a failed attempt, as the oldest one.
    pub(super) fn put_back(&self, batch: Batch) {
        let mut state = self.state.lock();
        state.account.retries += 1;
        state.queue.push_front(batch);
        self.shed(&mut state);
    }

    pub(super) fn delivered(&self, amount: Amount) {
        let mut state = self.state.lock();
        state.is_full = false;
        state.account.waiting.subtract(amount);
        state.account.delivered.add(amount);
    }

    pub(super) fn dropped(&self, amount: Amount, cause: Cause) {
        self.state.lock().drop_batch(amount, cause);
    }

    /// Counts samples that were dropped before they were part of a batch.
    pub(super) fn count_dropped(&self, sum: Sum, cause: Cause) {
        let amount = Amount { samples: sum.samples, cpu_ns: sum.cpu_ns, ..Amount::default() };
        self.state.lock().account.dropped[cause as usize].add(amount);
    }

    /// Closes the outbox: no further batch is added.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits until the outbox is closed.
    pub(super) async fn closed(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Drops all batches, including the one being sent.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        state.queue.clear();
        let rest = state.account.waiting;
        state.drop_batch(rest, Cause::Stopped);
    }

    fn shed(&self, state: &mut State) -> bool {
        let mut is_full = false;
        // The batch being sent counts as well, but only queued ones can be dropped.
        while state.account.waiting.bytes > self.limit
            && let Some(oldest) = state.queue.pop_front()
        {
            state.drop_batch(oldest.amount, Cause::BufferFull);
            is_full = true;
        }
        let is_first = is_full && !state.is_full;
        state.is_full |= is_full;
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(samples: u64) -> Batch {
        let amount = Amount { requests: 1, samples, cpu_ns: samples * 10, bytes: 100 };
        Batch { request: Arc::default(), amount }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_oldest_batch_is_dropped_and_counted() {
        let outbox = Outbox::new(250);
        assert!(!outbox.put(batch(1)));
        assert!(!outbox.put(batch(2)));
        assert!(outbox.put(batch(3)));
        let account = outbox.account();
        assert_eq!((account.dropped(Cause::BufferFull).samples, account.waiting.samples), (1, 5));
        let second = outbox.next().await.expect("two wait");
        assert_eq!(second.amount.samples, 2);
        // Another batch arrives while it is sent; put back, it is the oldest.
        outbox.put(batch(4));
        assert_eq!(outbox.account().dropped(Cause::BufferFull).samples, 1 + 3);
        outbox.put_back(second);
        assert_eq!(outbox.next().await.map(|batch| batch.amount.samples), Some(2));
        outbox.delivered(Amount { requests: 1, samples: 2, cpu_ns: 20, bytes: 100 });
        outbox.close();
        outbox.abandon();
        assert!(outbox.next().await.is_none());
        let account = outbox.account();
        assert_eq!((account.delivered.samples, account.dropped(Cause::Stopped).samples), (2, 4));
        assert_eq!((account.waiting, account.retries), (Amount::default(), 1));
    }
}
