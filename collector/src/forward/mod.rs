//! Hands on what is stored, live, as OTLP profiles over gRPC.
//!
//! Problem: other systems want the same samples, and they are away, slow or in error at times, which may neither
//! delay the store nor fill the memory.
//! Approach: the store tells of what is durable ([`crate::store::Follower`]); one thread sums it up by session, thread
//! and stack, makes a request a session every few seconds, and delivers the requests to each receiver in order,
//! from a bounded buffer of its own.
//! Invariant: for each receiver, every sample stored since the start is delivered, waiting, or dropped and counted by
//! cause ([`Account`]). A request whose answer was lost is sent again under the same profile id.
//!
//! What is promised across failures and restarts: `design/forwarding.md`, "Handing on".

mod gathering;
mod outbox;
mod sending;
mod target;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

pub use outbox::{Account, Amount, Cause};
pub use target::{Target, TargetError};

use crate::store::{Follower, Fresh, Store, StoreError};
use gathering::Gathering;
use outbox::{Batch, Outbox};

/// Batches of agents that may wait to be summed up; each is at most a read from a connection.
const WAITING: usize = 4096;

/// How requests are made and sent.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time that is summed up in one request.
    pub every: Duration,
    /// Distinct pairs of thread and stack that are not waited with any longer.
    pub cells: usize,
    /// Longest request in bytes; receivers written in Go take 4 MiB unless told otherwise.
    pub request_bytes: u64,
    /// Bytes of requests that wait for one receiver; in memory they take about three times that.
    pub buffer_bytes: u64,
    /// Time a receiver has to answer.
    pub timeout: Duration,
    /// Pause after the first failure; it doubles with each.
    pub first_pause: Duration,
    /// Longest pause.
    pub longest_pause: Duration,
    /// Time for deliveries under way when the forwarder is told to stop.
    pub stop: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            every: Duration::from_secs(10),
            cells: 100_000,
            request_bytes: 3 << 20,
            buffer_bytes: 64 << 20,
            timeout: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            stop: Duration::from_secs(5),
        }
    }
}

/// Why forwarding cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardError {
    /// A receiver cannot be used.
    Target(TargetError),
    /// The store cannot be followed.
    Store(StoreError),
    /// No thread, or no runtime on it.
    Thread(io::ErrorKind),
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForwardError::Target(error) => error.fmt(f),
            ForwardError::Store(error) => write!(f, "the store cannot be followed: {error}"),
            ForwardError::Thread(kind) => write!(f, "the thread that forwards cannot be started: {kind}"),
        }
    }
}

impl std::error::Error for ForwardError {}

/// What the thread is told.
#[derive(Debug)]
enum News {
    Fresh(Fresh),
    Stop,
}

/// The end that the store holds.
#[derive(Debug)]
struct Tap {
    news: mpsc::Sender<News>,
    outboxes: Vec<(String, Arc<Outbox>)>,
}

impl Follower for Tap {
    fn follow(&self, fresh: Fresh) {
        let missed = match self.news.try_send(News::Fresh(fresh)) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(News::Fresh(fresh))) => (fresh, Cause::Behind),
            Err(mpsc::error::TrySendError::Closed(News::Fresh(fresh))) => (fresh, Cause::Stopped),
            Err(_) => return,
        };
        let (fresh, cause) = missed;
        let total = fresh.total();
        self.outboxes.iter().for_each(|(_, outbox)| outbox.never_came(total, cause));
    }
}

/// What became of everything, by receiver; kept when the forwarder has ended.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    outboxes: Vec<(String, Arc<Outbox>)>,
}

impl Accounts {
    /// Address and account of each receiver.
    pub fn get(&self) -> Vec<(&str, Account)> {
        self.outboxes.iter().map(|(address, outbox)| (address.as_str(), outbox.account())).collect()
    }
}

/// A running forwarder; dropping it ends it.
#[derive(Debug)]
pub struct Forwarder {
    news: mpsc::Sender<News>,
    accounts: Accounts,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Hands what `store` takes in from now on to `targets`.
    ///
    /// # Errors
    /// If a target cannot be used, the store is followed already, or there is no thread.
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
        let (news, receiver) = mpsc::channel(WAITING);
        let tap = Tap { news: news.clone(), outboxes: outboxes.clone() };
        store.follow(Arc::new(tap)).map_err(ForwardError::Store)?;
        let accounts = Accounts { outboxes };
        let thread_accounts = accounts.clone();
        let thread = std::thread::Builder::new()
            .name("forward".into())
            .spawn(move || runtime.block_on(run(receiver, &thread_accounts, senders, settings)))
            .map_err(thread_error)?;
        Ok(Forwarder { news, accounts, thread: Some(thread) })
    }

    /// The accounts, to be read at any time.
    pub fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }

    /// Sends what is held, for a bounded time, and ends; what was not delivered by then is counted and logged.
    pub fn stop(mut self) -> Accounts {
        self.end();
        self.accounts.clone()
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // It fails if the thread has ended, which is what is asked for.
        let _ = self.news.blocking_send(News::Stop);
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
    mut news: mpsc::Receiver<News>,
    accounts: &Accounts,
    mut senders: JoinSet<()>,
    settings: Settings,
) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut gathering = Gathering::new(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX / 2));
    let mut ticks = interval_at(Instant::now() + settings.every, settings.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let arrived = tokio::select! {
            arrived = news.recv() => arrived,
            _ = ticks.tick() => {
                hand_out(accounts, gathering.take(&settings)).await;
                continue;
            }
        };
        match arrived {
            Some(News::Fresh(fresh)) => {
                let batches = gathering.add(&fresh, &settings);
                hand_out(accounts, batches).await;
                if gathering.cells() >= settings.cells {
                    hand_out(accounts, gathering.take(&settings)).await;
                }
            }
            Some(News::Stop) | None => break,
        }
    }
    // Later ones are counted by the tap.
    news.close();
    while let Some(late) = news.recv().await {
        if let News::Fresh(fresh) = late {
            hand_out(accounts, gathering.add(&fresh, &settings)).await;
        }
    }
    hand_out(accounts, gathering.take(&settings)).await;
    accounts.outboxes.iter().for_each(|(_, outbox)| outbox.close());
    let all = async { while senders.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(settings.stop, all).await;
    // What an aborted sender had on its way is given up with the rest.
    senders.shutdown().await;
    accounts.outboxes.iter().for_each(|(_, outbox)| outbox.abandon());
}

async fn hand_out(accounts: &Accounts, batches: impl IntoIterator<Item = Batch>) {
    for batch in batches {
        for (address, outbox) in &accounts.outboxes {
            if outbox.put(batch.clone()) {
                tracing::warn!(%address, "the buffer for a receiver is full, the oldest profiles are dropped");
            }
        }
        // Making requests is work without a pause, and deliveries share the thread.
        tokio::task::yield_now().await;
    }
}
