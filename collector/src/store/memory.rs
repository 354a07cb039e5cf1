//! The part of a partition that is in memory: its dictionary, its sessions, and the minutes that are not folded yet.
//!
//! Messages from agents and from the journal after a restart are applied here. Queries read open minutes and folded
//! ones alike.

use std::collections::BTreeMap;
use std::ops::Range;

use lake::write::interval::{Interval, Received};
use prost::Message as _;
use proto::rows::{has_equal_columns, rows};
use proto::v1::{AgentMessage, Dictionary as Definitions, SampleBatch, Statistics, agent_message::Body};
use rustc_hash::FxHashMap;

use super::session::{StoredSession, Symbols, account_weight};
use profile::dictionary::Dictionary;
use profile::source::{Sample, Sum};

/// Seconds of a minute, the finest bucket of sums.
pub(super) const MINUTE_S: u64 = 60;

const NS_PER_S: u64 = 1_000_000_000;

/// Memory of threads, and of rows by number, that each session may use of the last quarter: about 250 threads.
const FEW_BYTES: usize = 64 << 10;

/// Maximum length of an account that is always accepted for a known thread. Agents send shorter ones.
const LONG_ACCOUNT_BYTES: usize = 2048;

/// Sessions with a connection may fill one part in this many of the memory of the next partition.
pub(super) const CONNECTED_SHARE: usize = 2;

/// The samples of one session in one minute, in columns.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenMinute {
    /// Microseconds since the start of the minute.
    pub(super) offset_us: Vec<u32>,
    pub(super) thread: Vec<u32>,
    pub(super) stack: Vec<u32>,
    pub(super) cpu_ns: Vec<u64>,
    /// Number of samples merged into the row.
    pub(super) count: Vec<u32>,
    /// Message of the row, and its place in the message; only in memory, for a lake.
    pub(super) origin: Vec<(u64, u32)>,
}

impl OpenMinute {
    pub(super) fn len(&self) -> usize {
        self.thread.len()
    }

    pub(super) fn sums(&self) -> Sums {
        let rows = 0..self.len();
        let stacks = rows.clone().map(|row| {
            let sum = Sum { cpu_ns: self.cpu_ns[row], samples: self.count[row].into() };
            (self.thread[row], self.stack[row], sum)
        });
        let times = rows.map(|row| (self.thread[row], self.offset_us[row] / 1_000_000, self.cpu_ns[row]));
        Sums::merge(stacks, times)
    }
}

/// The sums of one bucket: by stack, by thread and stack, and by thread and time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) stacks: Vec<(u32, Sum)>,
    pub(super) thread_stacks: Vec<(u32, u32, Sum)>,
    /// Thread, seconds since the start of the bucket, CPU time.
    pub(super) times: Vec<(u32, u32, u64)>,
}

impl Sums {
    /// Adds up rows of the same thread and stack, and rows of the same thread and time. The results are sorted by key.
    pub(super) fn merge(
        thread_stacks: impl IntoIterator<Item = (u32, u32, Sum)>,
        times: impl IntoIterator<Item = (u32, u32, u64)>,
    ) -> Sums {
        let mut sums: FxHashMap<(u32, u32), Sum> = FxHashMap::default();
        for (thread, stack, sum) in thread_stacks {
            sums.entry((thread, stack)).or_default().add(sum);
        }
        let mut seconds: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        for (thread, second, cpu_ns) in times {
            let sum = seconds.entry((thread, second)).or_default();
            *sum = sum.saturating_add(cpu_ns);
        }
        let mut thread_stacks: Vec<_> =
            sums.into_iter().map(|((thread, stack), sum)| (thread, stack, sum)).collect();
        thread_stacks.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
        let mut times: Vec<_> =
            seconds.into_iter().map(|((thread, second), cpu_ns)| (thread, second, cpu_ns)).collect();
        times.sort_unstable();
        let mut stacks: BTreeMap<u32, Sum> = BTreeMap::new();
        thread_stacks.iter().for_each(|&(_, stack, sum)| stacks.entry(stack).or_default().add(sum));
        Sums { stacks: stacks.into_iter().collect(), thread_stacks, times }
    }

    /// Appends the rows by thread of `other`, not added up.
    pub(super) fn extend(&mut self, other: Sums) {
        self.thread_stacks.extend(other.thread_stacks);
        self.times.extend(other.times);
    }

    /// Adds up rows of the same key, after [`Sums::extend`].
    pub(super) fn merged(self) -> Sums {
        Sums::merge(self.thread_stacks, self.times)
    }
}

/// The samples of a message as they were stored.
#[derive(Clone, Debug)]
pub(super) struct StoredBatch {
    /// Thread, stack in the dictionary, and CPU time and number of samples.
    pub(super) sums: Vec<(u32, u32, Sum)>,
    /// Time of the first and of the last sample, in nanoseconds since the epoch.
    pub(super) range_ns: Range<u64>,
}

/// Maximum memory of the sessions of a partition (estimated): introductions, rows by number, threads and accounts. A
/// thread takes about 250 bytes. At three quarters the next partition begins. Threads beyond the limit are not stored:
/// their samples keep their CPU time and appear as an unknown thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLimit(pub(super) usize);

impl Default for SessionLimit {
    fn default() -> Self {
        SessionLimit(512 << 20)
    }
}

#[derive(Debug, Default)]
pub(super) struct PartitionMemory {
    pub(super) dictionary: Dictionary,
    pub(super) sessions: BTreeMap<u64, StoredSession>,
    /// Minutes that are not folded, by start in seconds since the epoch, then by session.
    pub(super) open: BTreeMap<(u64, u64), OpenMinute>,
    pub(super) open_samples: usize,
    /// Bytes of the received definitions that are not folded.
    pub(super) open_definitions: usize,
    /// Estimated memory of all sessions.
    session_bytes: usize,
    pub(super) session_limit: SessionLimit,
    /// Threads, accounts and entries refused for lack of memory.
    pub(super) refused_entries: u64,
    /// Virtual threads that are counted for their carriers.
    pub(super) folded_threads: u64,
    /// Number of messages applied.
    applied: u64,
    /// True if dictionary and sessions are only in the database, and are read from there for each query.
    pub(super) is_unloaded: bool,
}

impl PartitionMemory {
    /// Applies one message of a session and returns its samples as they were stored. A message whose sequence number
    /// was already applied is ignored.
    pub(super) fn apply(&mut self, id: u64, message: AgentMessage) -> Option<StoredBatch> {
        let known = self.sessions.remove(&id);
        // While a session is out of the map, `session_bytes` is the memory of all others. Roll-ups may have added
        // groups of threads that are not counted yet.
        let known_bytes = known.as_ref().map_or(0, StoredSession::bytes);
        self.session_bytes = self.session_bytes.saturating_sub(known_bytes);
        let mut session = known.unwrap_or_default();
        let is_new = session.seen.accept(message.sequence);
        let stored = if is_new { self.apply_new(id, &mut session, message) } else { None };
        self.insert_session(id, session);
        stored
    }

    fn apply_new(
        &mut self,
        id: u64,
        session: &mut StoredSession,
        message: AgentMessage,
    ) -> Option<StoredBatch> {
        self.applied += 1;
        session.applied = self.applied;
        session.is_changed = true;
        // An agent that sends new messages resends dropped symbols first.
        session.symbols = Symbols::Present;
        let dictionary_bytes = self.dictionary.bytes();
        self.dictionary.admit(session.dictionary_bytes);
        let mut stored = None;
        let sequence = message.sequence;
        match message.shown().body {
            Some(Body::Hello(hello)) => session.seen.introduce(hello),
            Some(Body::Dictionary(definitions)) => self.define(id, session, definitions),
            Some(Body::Samples(batch)) => stored = self.add_samples(id, session, sequence, &batch),
            Some(Body::Statistics(statistics)) => self.add_statistics(session, statistics),
            Some(Body::Heartbeat(heartbeat)) => session.seen.see(heartbeat.time_ns, 0),
            Some(Body::Goodbye(goodbye)) => session.end(goodbye.reason),
            None => {}
        }
        session.dictionary_bytes += self.dictionary.bytes() - dictionary_bytes;
        stored
    }

    /// Returns whether `session`, which uses `own` bytes of a kind, may use more of it.
    fn may_grow(&self, session: &StoredSession, own: usize) -> bool {
        let (limit, whole) = (self.session_limit.0, self.session_bytes + session.bytes());
        whole < limit - limit / 4 || own < FEW_BYTES && whole < limit
    }

    fn define(&mut self, id: u64, session: &mut StoredSession, definitions: Definitions) {
        self.open_definitions += definitions.encoded_len();
        let refused = self.dictionary.refused();
        if let Some(entries) = &definitions.entries {
            if self.may_grow(session, session.rows.bytes()) {
                self.dictionary.define(entries, &mut session.rows);
            } else {
                self.refused_entries += entries.node_frame.len() as u64;
                session.lacks_symbols = true;
            }
        }
        session.lacks_symbols |= self.dictionary.refused() > refused;
        if refused == 0 && self.dictionary.refused() > 0 {
            tracing::warn!(
                session = format!("{id:016x}"),
                bytes = self.dictionary.bytes(),
                "the dictionary of the current partition is full: new symbols and stacks appear as unknown until the next partition begins"
            );
        }
        for thread in definitions.threads {
            let is_known = session.seen.thread(thread.id).is_some();
            if session.folding.fold(&thread, is_known) {
                self.folded_threads += 1;
            } else if self.may_grow(session, session.thread_bytes) {
                session.add_thread(thread);
            } else {
                self.refused_entries += 1;
            }
        }
    }

    fn add_statistics(&mut self, session: &mut StoredSession, mut statistics: Statistics) {
        session.seen.see(statistics.time_ns, statistics.clock_shift_ms);
        let given = statistics.threads.len();
        let before = session.thread_bytes;
        statistics.threads.retain(|account| {
            let bytes = account_weight(account);
            let is_known = session.seen.account(account.thread).is_some() && bytes <= LONG_ACCOUNT_BYTES;
            let is_taken = is_known || self.may_grow(session, session.thread_bytes);
            // Counted as if it were added, for the decision about the next ones.
            session.thread_bytes += if is_taken && !is_known { bytes } else { 0 };
            is_taken
        });
        session.thread_bytes = before;
        self.refused_entries += (given - statistics.threads.len()) as u64;
        self.refused_entries += u64::from(!session.add_statistics(statistics));
    }

    /// Returns the open minutes, and the sessions that have changed, as an interval of a lake.
    pub(super) fn interval(&self) -> Interval<'_> {
        let changed = self.sessions.iter().filter(|(_, session)| session.is_changed);
        let mut samples = Vec::with_capacity(self.open_samples);
        for (&(start_s, session), minute) in &self.open {
            for (row, &(sequence, place)) in minute.origin.iter().enumerate() {
                let time_ns = start_s * NS_PER_S + u64::from(minute.offset_us[row]) * 1000;
                let (thread, stack) = (minute.thread[row], minute.stack[row]);
                let (cpu_ns, count) = (minute.cpu_ns[row], minute.count[row]);
                let sample = Sample { session, time_ns, thread, stack, cpu_ns, count };
                samples.push(Received { sample, sequence, row: place });
            }
        }
        Interval {
            dictionary: &self.dictionary,
            sessions: changed.map(|(&id, session)| (id, &session.seen)).collect(),
            samples,
        }
    }

    /// Recomputes the memory of all sessions, after changes other than messages.
    pub(super) fn update_session_bytes(&mut self) {
        self.session_bytes = self.sessions.values().map(StoredSession::bytes).sum();
    }

    /// Returns an empty memory to load a closed partition into.
    pub(super) fn for_reading() -> PartitionMemory {
        PartitionMemory { dictionary: Dictionary::for_reading(), ..PartitionMemory::default() }
    }

    /// Returns what remains of `memory` after it was unloaded: the number of refused entries.
    pub(super) fn unloaded(memory: &PartitionMemory) -> PartitionMemory {
        let refused_entries = memory.refused_entries + memory.dictionary.refused();
        let folded_threads = memory.folded_threads;
        PartitionMemory { is_unloaded: true, refused_entries, folded_threads, ..PartitionMemory::default() }
    }

    pub(super) fn insert_session(&mut self, id: u64, session: StoredSession) {
        self.session_bytes += session.bytes();
        self.sessions.insert(id, session);
    }

    pub(super) fn session_bytes(&self) -> usize {
        self.session_bytes
    }

    /// Returns the estimated memory of the sessions and of the dictionary.
    pub(super) fn bytes(&self) -> usize {
        self.dictionary.bytes() + self.session_bytes
    }

    /// Returns whether the memory has no space for one more session.
    pub(super) fn is_full_of_sessions(&self) -> bool {
        self.session_bytes >= self.session_limit.0
    }

    /// Returns whether the next partition would have free memory if it took over the sessions that `is_connected`
    /// selects.
    pub(super) fn next_would_have_space(&self, is_connected: impl Fn(u64) -> bool) -> bool {
        let connected =
            || self.sessions.iter().filter(|(id, _)| is_connected(**id)).map(|(_, session)| session);
        let dictionary_bytes: usize = connected().map(|session| session.dictionary_bytes).sum();
        let session_bytes: usize = connected().map(StoredSession::bytes).sum();
        dictionary_bytes <= self.dictionary.limit / CONNECTED_SHARE
            && session_bytes <= self.session_limit.0 / CONNECTED_SHARE
    }

    /// Returns whether the memory is so full that the next partition should begin early.
    pub(super) fn is_nearly_full(&self) -> bool {
        let limit = self.session_limit.0;
        self.dictionary.is_nearly_full() || self.session_bytes >= limit - limit / 4
    }

    fn add_samples(
        &mut self,
        id: u64,
        session: &mut StoredSession,
        sequence: u64,
        batch: &SampleBatch,
    ) -> Option<StoredBatch> {
        session.seen.uneven_batches += u64::from(!has_equal_columns(batch));
        // The minute is out of the map while rows are added to it. A batch covers one minute or two.
        let mut start_s = 0;
        let mut open = OpenMinute::default();
        let mut sums = Vec::with_capacity(batch.thread.len());
        let mut range_ns: Option<Range<u64>> = None;
        for (index, row) in rows(batch).enumerate() {
            let wall_ns = session.seen.wall_ns(row.time_ns, batch.clock_shift_ms);
            let minute_s = wall_ns / NS_PER_S / MINUTE_S * MINUTE_S;
            if minute_s != start_s || index == 0 {
                self.insert_open(start_s, id, open);
                start_s = minute_s;
                open = self.open.remove(&(start_s, id)).unwrap_or_default();
            }
            let stack = self.dictionary.stack_of_node(row.stack, &mut session.rows);
            open.offset_us.push(((wall_ns - start_s * NS_PER_S) / 1000) as u32);
            let thread = session.folding.owner(row.thread);
            open.thread.push(thread);
            open.stack.push(stack);
            open.cpu_ns.push(row.cpu_ns);
            open.count.push(u32::try_from(row.count).unwrap_or(u32::MAX));
            open.origin.push((sequence, index as u32));
            session.seen.count(&row, wall_ns, stack != 0);
            let known_ns = range_ns.unwrap_or(wall_ns..wall_ns);
            range_ns = Some(known_ns.start.min(wall_ns)..known_ns.end.max(wall_ns));
            sums.push((thread, stack, Sum { cpu_ns: row.cpu_ns, samples: row.count }));
        }
        self.insert_open(start_s, id, open);
        self.open_samples += sums.len();
        range_ns.map(|range_ns| StoredBatch { sums, range_ns })
    }

    fn insert_open(&mut self, start_s: u64, session: u64, minute: OpenMinute) {
        if minute.len() > 0 {
            self.open.insert((start_s, session), minute);
        }
    }
}
