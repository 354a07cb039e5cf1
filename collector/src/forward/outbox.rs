//! What waits for one receiver, and what became of everything that ever did.
//!
//! Invariant: every sample that was put in is delivered, dropped for one cause, or still here; never two of these.

use std::collections::VecDeque;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::profile::Cell;

/// Why samples were not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// Samples were stored faster than they could be summed up.
    Behind,
    /// The receiver was away, or too slow, for longer than the buffer lasts.
    BufferFull,
    /// The receiver answered with an error after which nothing may be sent again.
    Refused,
    /// The receiver took the request and said that it rejects the profile in it.
    Rejected,
    /// The collector ended before the receiver took it.
    Stopped,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 5] =
        [Cause::Behind, Cause::BufferFull, Cause::Refused, Cause::Rejected, Cause::Stopped];

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Behind => "behind",
            Cause::BufferFull => "buffer_full",
            Cause::Refused => "refused",
            Cause::Rejected => "rejected",
            Cause::Stopped => "stopped",
        }
    }
}

/// Requests, and what is in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Requests; 0 for samples that were never put into one.
    pub requests: u64,
    /// Samples.
    pub samples: u64,
    /// CPU time they stand for.
    pub cpu_ns: u64,
    /// Encoded length, before compression.
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

impl From<Cell> for Amount {
    fn from(cell: Cell) -> Amount {
        Amount { samples: cell.samples, cpu_ns: cell.cpu_ns, ..Amount::default() }
    }
}

/// What became of everything for one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Taken by the receiver.
    pub delivered: Amount,
    /// Waiting, or on its way.
    pub waiting: Amount,
    /// Attempts that failed and were, or will be, repeated.
    pub retries: u64,
    dropped: [Amount; Cause::ALL.len()],
}

impl Account {
    /// What was dropped for a cause.
    pub fn dropped(&self, cause: Cause) -> Amount {
        self.dropped[cause as usize]
    }
}

/// One request with its weight.
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
    /// Whether batches gave way since the last delivery.
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
    /// Most bytes that wait.
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

    /// Puts a batch at the end; whether older ones had to give way, for the first time since a delivery.
    pub(super) fn put(&self, batch: Batch) -> bool {
        let mut state = self.state.lock();
        state.account.waiting.add(batch.amount);
        state.queue.push_back(batch);
        let is_full = self.shed(&mut state);
        drop(state);
        self.changed.notify_one();
        is_full
    }

    /// The oldest batch; `None` once the outbox is closed and empty.
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

    /// Takes back a batch that could not be delivered yet; it is the oldest again, and the first to give way.
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

    /// Counts samples that never were part of a batch.
    pub(super) fn never_came(&self, cell: Cell, cause: Cause) {
        self.state.lock().account.dropped[cause as usize].add(cell.into());
    }

    /// Nothing will be put in any more.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits until nothing will be put in any more.
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

    /// Gives up everything, also what is on its way.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        state.queue.clear();
        let rest = state.account.waiting;
        state.drop_batch(rest, Cause::Stopped);
    }

    fn shed(&self, state: &mut State) -> bool {
        let mut is_full = false;
        // What is on its way weighs as well, but only what is here can give way.
        while state.account.waiting.bytes > self.limit
            && let Some(oldest) = state.queue.pop_front()
        {
            state.drop_batch(oldest.amount, Cause::BufferFull);
            is_full = true;
        }
        let is_news = is_full && !state.is_full;
        state.is_full |= is_full;
        is_news
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
    async fn the_oldest_gives_way_and_is_counted() {
        let outbox = Outbox::new(250);
        assert!(!outbox.put(batch(1)));
        assert!(!outbox.put(batch(2)));
        assert!(outbox.put(batch(3)));
        let account = outbox.account();
        assert_eq!((account.dropped(Cause::BufferFull).samples, account.waiting.samples), (1, 5));
        let second = outbox.next().await.expect("two wait");
        assert_eq!(second.amount.samples, 2);
        // While it is on its way, another comes; taken back, it is the oldest.
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
