//! The writer thread: group commits, regular folds, and upkeep.
//!
//! Messages that arrive during a commit are committed together by the next one, so the number of commits follows the
//! speed of the disk and not the number of agents.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use proto::framing::FramedMessage;
use proto::v1::agent_message::Body;
use rustc_hash::FxHashMap;

use super::error::StoreError;
use super::follow::StoredSamples;
use super::memory::{PartitionMemory, StoredBatch};
use super::partition::Partition;
use super::read::View;
use super::session::Symbols;
use super::shared::{RECOVERY, Shared, now_s};
use super::tally::Figures;
use super::upkeep;

/// Maximum bytes of messages in one commit; more wait for the next one. A hundred busy JVMs send this much in two
/// seconds.
const GROUP_BYTES: usize = 8 << 20;

/// Number of samples in memory that forces a fold: about 100 MB.
const FOLD_SAMPLES: usize = 4_000_000;

/// Number of minutes in memory that forces a fold. Hundreds of sessions have one or two each, and some more for late
/// messages.
const FOLD_MINUTES: usize = 20_000;

/// Bytes of definitions that force a fold, which limits the length of blocks: rows are up to six times as long as the
/// messages that define them. A new agent sends some MB.
const FOLD_DEFINITIONS: usize = 64 << 20;

/// Messages are refused while this many samples cannot be folded.
const MOST_SAMPLES: usize = 4 * FOLD_SAMPLES;

/// Time between rounds of upkeep.
const UPKEEP_EVERY: Duration = Duration::from_secs(60);

/// Minimum time between early partitions while connected sessions fill most of the memory: a new partition frees
/// little then.
const RENEW_EVERY: Duration = Duration::from_secs(3600);

/// Receives the result of a request: the sequence number to acknowledge, or 0.
pub(super) type Reply = SyncSender<Result<u64, StoreError>>;

#[derive(Debug)]
pub(super) enum Request {
    Append(Append),
    Fold(Reply),
    Upkeep(Reply),
    End,
}

/// Messages of a session to be stored.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) session: u64,
    pub(super) messages: Vec<FramedMessage>,
    pub(super) reply: Reply,
}

impl Append {
    fn bytes(&self) -> usize {
        self.messages.iter().map(|framed| framed.bytes.len()).sum()
    }

    fn first_sequence(&self) -> Option<u64> {
        self.messages.first().map(|framed| framed.message.sequence)
    }
}

/// Sends a request and waits for its result.
pub(super) fn call(
    requests: &SyncSender<Request>,
    request: impl FnOnce(Reply) -> Request,
) -> Result<u64, StoreError> {
    let (reply, answer) = sync_channel(1);
    requests.send(request(reply)).map_err(|_| StoreError::WriterEnded)?;
    answer.recv().map_err(|_| StoreError::WriterEnded)?
}

pub(super) fn run(shared: &Shared, requests: &Receiver<Request>) {
    let (mut fold_at, mut upkeep_at) = (Instant::now() + shared.fold_every, Instant::now() + UPKEEP_EVERY);
    loop {
        let until_due = fold_at.min(upkeep_at).saturating_duration_since(Instant::now());
        let mut next = match requests.recv_timeout(until_due) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let (mut appends, mut folds, mut bytes, mut ends) = (Vec::new(), Vec::new(), 0, false);
        while let Some(request) = next {
            match request {
                Request::Append(append) => {
                    bytes += append.bytes();
                    appends.push(append);
                }
                Request::Fold(reply) => folds.push(reply),
                Request::Upkeep(reply) => {
                    let _ = reply.send(upkeep::run(shared, now_s()).map(|()| 0));
                }
                Request::End => ends = true,
            }
            next = if bytes < GROUP_BYTES && !ends { requests.try_recv().ok() } else { None };
        }
        if !appends.is_empty() {
            commit(shared, appends);
            begin_early_if_full(shared);
        }
        let now = Instant::now();
        if now >= fold_at || !folds.is_empty() || is_full(shared) {
            fold_at = now + shared.fold_every;
            let result = fold(shared);
            for reply in folds {
                // The caller may have gone.
                let _ = reply.send(result.map(|()| 0));
            }
        }
        if now >= upkeep_at {
            upkeep_at = now + UPKEEP_EVERY;
            if let Err(error) = upkeep::run(shared, now_s()) {
                tracing::warn!(%error, "upkeep of the store failed; it is retried in a minute");
            }
        }
        if ends {
            return;
        }
    }
}

fn is_full(shared: &Shared) -> bool {
    shared.current().is_ok_and(|partition| {
        let memory = partition.memory.read();
        memory.open_samples >= FOLD_SAMPLES
            || memory.open.len() >= FOLD_MINUTES
            || memory.open_definitions >= FOLD_DEFINITIONS
    })
}

/// Begins the next partition early if the memory of the current one is nearly full.
fn begin_early_if_full(shared: &Shared) {
    let Ok(partition) = shared.current() else { return };
    let now = Instant::now();
    let mut early = shared.early_start.lock();
    if now < early.not_before || !partition.memory.read().is_nearly_full() {
        return;
    }
    let next_would_have_space = {
        let connected = shared.connected.lock();
        partition.memory.read().next_would_have_space(|session| connected.contains_key(&session))
    };
    if !next_would_have_space && early.last_began.is_some_and(|last| now < last + RENEW_EVERY) {
        early.not_before = now + RECOVERY;
        return;
    }
    match upkeep::begin_early(shared, now_s()) {
        Ok(()) => {
            early.last_began = Some(now);
            shared.status.lock().early_partitions += 1;
        }
        Err(error) => {
            early.not_before = now + UPKEEP_EVERY;
            tracing::error!(%error, "the next partition cannot be created; this is retried in a minute");
        }
    }
}

/// Returns why the messages of a session are refused, whether or not they could be written.
fn refusal(memory: &PartitionMemory, Append { session, messages, .. }: &Append) -> Option<StoreError> {
    let Some(known) = memory.sessions.get(session) else {
        return memory.is_full_of_sessions().then_some(StoreError::TooManySessions);
    };
    // A new connection begins with an introduction; its acknowledgement makes the agent resend its symbols.
    let continues = messages.first().is_some_and(|FramedMessage { message, .. }| {
        message.sequence > known.seen.last_sequence && !matches!(message.body, Some(Body::Hello(_)))
    });
    (known.symbols == Symbols::Dropped && continues).then_some(StoreError::SymbolsDropped)
}

/// Answers those of `appends` that are refused, and removes them.
fn refuse(shared: &Shared, partition: &Partition, appends: &mut Vec<Append>) {
    let memory = partition.memory.read();
    appends.retain(|append| {
        let Some(error) = refusal(&memory, append) else { return true };
        if error == StoreError::TooManySessions {
            let mut status = shared.status.lock();
            if status.sessions_turned_away == 0 {
                tracing::warn!(%error, "a new session is refused; further refusals are counted but not logged");
            }
            status.sessions_turned_away += 1;
        }
        let _ = append.reply.send(Err(error));
        false
    });
}

/// Makes all of `appends` durable, applies them, and answers.
fn commit(shared: &Shared, mut appends: Vec<Append>) {
    let Ok(partition) = shared.current() else { return };
    refuse(shared, &partition, &mut appends);
    if appends.is_empty() {
        return;
    }
    let began = Instant::now();
    let is_failing = shared.status.lock().failing.is_some();
    let is_full = shared.spool.as_ref().is_some_and(|spool| spool.is_full());
    let result = if is_full { Err(StoreError::LakeFull) } else { journal(&partition, &appends, is_failing) };
    {
        let mut status = shared.status.lock();
        status.commits += 1;
        status.commit_ns += began.elapsed().as_nanos() as u64;
    }
    match result {
        Ok(has_written) => {
            // Without new messages, at most a trial was written, which does not prove that the store can be written.
            if has_written {
                record_result(shared, Ok(()));
            }
            appends.into_iter().for_each(|append| apply(shared, &partition, append));
        }
        Err(error) => {
            record_result(shared, Err(error));
            for append in appends {
                let _ = append.reply.send(Err(error));
            }
        }
    }
}

/// Applies durable messages to the memory of the partition, answers, and passes their samples to the follower.
fn apply(shared: &Shared, partition: &Arc<Partition>, append: Append) {
    {
        let mut status = shared.status.lock();
        status.received_bytes += append.bytes() as u64;
        status.messages += append.messages.len() as u64;
    }
    let first = append.first_sequence();
    let Append { session, messages, reply } = append;
    let mut memory = partition.memory.write();
    let before = memory.sessions.get(&session).map(|session| Figures::of(&session.seen)).unwrap_or_default();
    let stored: Vec<StoredBatch> =
        messages.into_iter().filter_map(|framed| memory.apply(session, framed.message)).collect();
    let sequence = acknowledgement(&mut memory, session, first);
    if let Some(session) = memory.sessions.get(&session) {
        shared.tally.lock().add(&before, &session.seen);
    }
    drop(memory);
    // An agent whose connection has closed sends its messages again.
    let _ = reply.send(Ok(sequence));
    if let Some(follower) = shared.follower.get() {
        let view = View::new(Arc::clone(partition), &shared.dictionary_reader);
        for StoredBatch { sums, range_ns } in stored {
            follower.follow(StoredSamples { view: view.clone(), session, sums, range_ns });
        }
    }
}

/// Returns the sequence number to acknowledge after messages beginning with number `first`: the highest stored one,
/// or a lower one if the session has to resend its symbols.
fn acknowledgement(memory: &mut PartitionMemory, session: u64, first: Option<u64>) -> u64 {
    let Some(session) = memory.sessions.get_mut(&session) else { return 0 };
    match (session.symbols, first) {
        (Symbols::Dropped | Symbols::Requested, Some(first)) => {
            session.symbols = Symbols::Requested;
            first.min(session.seen.last_sequence)
        }
        _ => session.seen.last_sequence,
    }
}

/// Writes the new ones among the messages to the journal. If there are none and the last write failed, an empty trial
/// entry is written: a reconnecting agent begins with a message that is already stored. If the trial fails, its
/// connection is refused at once instead of at the samples that follow, so that the agent increases its waiting time.
/// Returns whether there were new messages.
fn journal(partition: &Partition, appends: &[Append], is_failing: bool) -> Result<bool, StoreError> {
    let memory = partition.memory.read();
    if memory.open_samples >= MOST_SAMPLES {
        return Err(StoreError::Behind);
    }
    let mut last: FxHashMap<u64, u64> = FxHashMap::default();
    let mut fresh: Vec<(u64, &[u8])> = Vec::new();
    for Append { session, messages, .. } in appends {
        let known = || memory.sessions.get(session).map_or(0, |session| session.seen.last_sequence);
        let last = last.entry(*session).or_insert_with(known);
        for FramedMessage { message, bytes } in messages {
            if message.sequence > *last {
                fresh.push((*session, bytes));
                *last = message.sequence;
            }
        }
    }
    drop(memory);
    if !fresh.is_empty() || is_failing {
        partition.journal(&fresh)?;
    }
    Ok(!fresh.is_empty())
}

fn fold(shared: &Shared) -> Result<(), StoreError> {
    let partition = shared.current()?;
    let is_changed = partition.memory.read().sessions.values().any(|session| session.is_changed);
    if !is_changed {
        return Ok(());
    }
    let result = partition.fold(shared.spool.as_deref());
    shared.status.lock().folds += 1;
    record_result(shared, result);
    result
}

/// Records the result of a write, and logs it if it differs from the last one.
fn record_result(shared: &Shared, result: Result<(), StoreError>) {
    if shared.failure_log.lock().should_log(result, Instant::now()) {
        match result {
            Ok(()) => tracing::info!("the store can be written again; agents are acknowledged"),
            Err(error) => {
                tracing::error!(%error, directory = %shared.directory.display(), "the store cannot be written and nothing is acknowledged; agents keep their data");
            }
        }
    }
    let mut status = shared.status.lock();
    status.failures += u64::from(result.is_err());
    status.failing = result.err();
}
