//! Forwards stored samples as OTLP profiles over gRPC.
//!
//! Receivers may be unreachable, slow or failing, which must neither delay the store nor fill the memory. The store
//! passes durable samples to a follower ([`crate::store::Follower`]). One thread sums them up by session, thread and
//! stack, builds a request for each session every few seconds, and delivers the requests to each receiver in order,
//! from a bounded buffer for each.
//! Invariant: for each receiver, every sample stored since the start is delivered, waiting, or dropped and counted by
//! cause ([`Account`]). A request without a response is sent again with the same profile id.
//!
//! Promises across failures and restarts: `design/store.md`, "Handing on".

mod aggregation;
mod outbox;
mod sending;
mod settings;
mod target;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

pub use outbox::{Account, Amount, Cause};
pub use settings::Settings;
pub use target::{Target, TargetError};

use crate::ingest::now_ns;
use crate::store::{Follower, Store, StoreError, StoredSamples};
use aggregation::Aggregation;
use outbox::{Batch, Outbox};
use profile::source::Sum;

/// Maximum batches that wait to be summed up; each is at most one read from a connection.
const WAITING: usize = 4096;

/// Why forwarding cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A receiver cannot be used.
    #[error(transparent)]
    Target(TargetError),
    #[error("the store accepts no follower: {0}")]
    Store(StoreError),
    #[error("the forwarding thread cannot be started: {0}")]
    Thread(io::ErrorKind),
}

/// Messages to the forwarding thread.
#[derive(Debug)]
enum Event {
    Stored(StoredSamples),
    Stop,
}

/// Passes samples from the store to the forwarding thread.
#[derive(Debug)]
struct EventSender {
    events: mpsc::Sender<Event>,
    outboxes: Vec<(String, Arc<Outbox>)>,
}

impl Follower for EventSender {
    fn follow(&self, samples: StoredSamples) {
        let (samples, cause) = match self.events.try_send(Event::Stored(samples)) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(Event::Stored(samples))) => (samples, Cause::Behind),
            Err(mpsc::error::TrySendError::Closed(Event::Stored(samples))) => (samples, Cause::Stopped),
            Err(_) => return,
        };
        let mut total = Sum::default();
        samples.sums.iter().for_each(|&(.., sum)| total.add(sum));
        self.outboxes.iter().for_each(|(_, outbox)| outbox.count_dropped(total, cause));
    }
}

/// Accounts of all receivers; valid after the forwarder has ended.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    outboxes: Vec<(String, Arc<Outbox>)>,
}

impl Accounts {
    pub fn get(&self) -> Vec<(&str, Account)> {
        self.outboxes.iter().map(|(address, outbox)| (address.as_str(), outbox.account())).collect()
    }
}

/// A running forwarder; dropping it ends it.
#[derive(Debug)]
pub struct Forwarder {
    events: mpsc::Sender<Event>,
    accounts: Accounts,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts to forward samples that `store` receives from now on to `targets`.
    ///
    /// # Errors
    /// If a target cannot be used, the store has a follower, or the thread cannot be started.
    pub fn start(store: &Store, targets: &[Target], settings: Settings) -> Result<Forwarder, ForwardError> {
        let thread_error = |error: io::Error| ForwardError::Thread(error.kind());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(thread_error)?;
        let outboxes: Vec<(String, Arc<Outbox>)> = targets
            .iter()
            .map(|target| (target.address().to_owned(), Arc::new(Outbox::new(settings.buffer_bytes))))
            .collect();
        let mut senders = JoinSet::new();
        for (target, (address, outbox)) in targets.iter().zip(&outboxes) {
            let _entered = runtime.enter();
            let channel = target.channel(settings.timeout).map_err(ForwardError::Target)?;
            let headers = target.headers().clone();
            let sending = sending::run(address.clone(), channel, headers, Arc::clone(outbox), settings);
            senders.spawn_on(sending, runtime.handle());
        }
        let (events, receiver) = mpsc::channel(WAITING);
        let sender = EventSender { events: events.clone(), outboxes: outboxes.clone() };
        store.follow(Arc::new(sender)).map_err(ForwardError::Store)?;
        let accounts = Accounts { outboxes };
        let thread_accounts = accounts.clone();
        let thread = std::thread::Builder::new()
            .name("forward".into())
            .spawn(move || runtime.block_on(run(receiver, &thread_accounts, senders, settings)))
            .map_err(thread_error)?;
        Ok(Forwarder { events, accounts, thread: Some(thread) })
    }

    /// Returns the accounts, which can be read at any time.
    pub fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }

    /// Sends all waiting samples, for a bounded time, and ends; undelivered samples are counted and logged.
    pub fn stop(mut self) -> Accounts {
        self.end();
        self.accounts.clone()
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // It fails only if the thread has ended.
        let _ = self.events.blocking_send(Event::Stop);
        if thread.join().is_err() {
            tracing::error!("the forwarder panicked");
        }
        for (address, account) in self.accounts.get() {
            let dropped = |cause: Cause| account.dropped(cause).samples;
            tracing::info!(
                %address, samples = account.delivered.samples, requests = account.delivered.requests,
                retries = account.retries, behind = dropped(Cause::Behind),
                buffer_full = dropped(Cause::BufferFull), refused = dropped(Cause::Refused),
                rejected = dropped(Cause::Rejected), stopped = dropped(Cause::Stopped), "forwarded"
            );
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.end();
    }
}

async fn run(
    mut events: mpsc::Receiver<Event>,
    accounts: &Accounts,
    mut senders: JoinSet<()>,
    settings: Settings,
) {
    let mut aggregation = Aggregation::new(now_ns().min(u64::MAX / 2));
    let mut ticks = interval_at(Instant::now() + settings.every, settings.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let arrived = tokio::select! {
            arrived = events.recv() => arrived,
            _ = ticks.tick() => {
                hand_out(accounts, aggregation.take(&settings)).await;
                continue;
            }
        };
        match arrived {
            Some(Event::Stored(samples)) => {
                let batches = aggregation.add(samples, &settings);
                hand_out(accounts, batches).await;
                if aggregation.count() >= settings.cells {
                    hand_out(accounts, aggregation.take(&settings)).await;
                }
            }
            Some(Event::Stop) | None => break,
        }
    }
    // Samples after this are counted by the sender.
    events.close();
    while let Some(late) = events.recv().await {
        if let Event::Stored(samples) = late {
            hand_out(accounts, aggregation.add(samples, &settings)).await;
        }
    }
    hand_out(accounts, aggregation.take(&settings)).await;
    accounts.outboxes.iter().for_each(|(_, outbox)| outbox.close());
    let all = async { while senders.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(settings.stop, all).await;
    // Requests of aborted senders are dropped with the others.
    senders.shutdown().await;
    accounts.outboxes.iter().for_each(|(_, outbox)| outbox.abandon());
}

async fn hand_out(accounts: &Accounts, batches: impl IntoIterator<Item = Batch>) {
    for batch in batches {
        for (address, outbox) in &accounts.outboxes {
            if outbox.put(batch.clone()) {
                tracing::warn!(%address, "the buffer of a receiver is full: the oldest profiles are dropped");
            }
        }
        // Making requests is work without a pause, and deliveries share the thread.
        tokio::task::yield_now().await;
    }
}
