//! The part of a partition that is in memory: its dictionary, its sessions, and the minutes that are not folded yet.
//!
//! Messages from agents and from the journal after a restart are applied here. Queries read open minutes and folded
//! ones alike.

use std::collections::BTreeMap;

use prost::Message as _;
use proto::rows::{has_equal_columns, rows};
use proto::v1::{AgentMessage, SampleBatch, agent_message::Body};
use rustc_hash::FxHashMap;

use super::session::{StoredSession, Symbols};
use super::weight::account_weight;
use profile::dictionary::Dictionary;
use profile::source::cell::Cell;

/// Seconds of a minute, the finest bucket of sums.
pub(super) const MINUTE_S: u64 = 60;

const NS_PER_S: u64 = 1_000_000_000;

/// Maximum memory of the sessions of a partition (estimated): introductions, row maps, threads and accounts. A thread
/// takes about 250 bytes. At three quarters the next partition begins. Threads beyond the limit are not stored: their
/// samples keep their CPU time and appear as an unknown thread.
const MOST_SESSION_BYTES: usize = 512 << 20;

/// Memory of threads, and of row maps, that each session may use of the last quarter: about 250 threads.
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
}

/// The sums of one bucket: by stack, by thread and stack, and by thread and time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) stacks: Vec<(u32, Cell)>,
    pub(super) thread_stacks: Vec<(u32, u32, Cell)>,
    /// Thread, seconds since the start of the bucket, CPU time.
    pub(super) times: Vec<(u32, u32, u64)>,
}

impl OpenMinute {
    pub(super) fn len(&self) -> usize {
        self.thread.len()
    }

    /// Returns the sums of the minute.
    pub(super) fn sums(&self) -> Sums {
        let rows = 0..self.len();
        let cells = rows.clone().map(|row| {
            let cell = Cell { cpu_ns: self.cpu_ns[row], samples: self.count[row].into() };
            (self.thread[row], self.stack[row], cell)
        });
        let times = rows.map(|row| (self.thread[row], self.offset_us[row] / 1_000_000, self.cpu_ns[row]));
        Sums::merge(cells, times)
    }
}

impl Sums {
    /// Adds up rows of the same thread and stack, and rows of the same thread and time. The results are sorted by key.
    pub(super) fn merge(
        thread_stacks: impl IntoIterator<Item = (u32, u32, Cell)>,
        times: impl IntoIterator<Item = (u32, u32, u64)>,
    ) -> Sums {
        let mut cells: FxHashMap<(u32, u32), Cell> = FxHashMap::default();
        for (thread, stack, cell) in thread_stacks {
            cells.entry((thread, stack)).or_default().add(cell);
        }
        let mut seconds: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        for (thread, second, cpu_ns) in times {
            let sum = seconds.entry((thread, second)).or_default();
            *sum = sum.saturating_add(cpu_ns);
        }
        let mut thread_stacks: Vec<_> =
            cells.into_iter().map(|((thread, stack), cell)| (thread, stack, cell)).collect();
        thread_stacks.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
        let mut times: Vec<_> =
            seconds.into_iter().map(|((thread, second), cpu_ns)| (thread, second, cpu_ns)).collect();
        times.sort_unstable();
        Sums { stacks: by_stack(&thread_stacks), thread_stacks, times }
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

/// Returns the sums over all threads, in ascending order of stacks.
fn by_stack(thread_stacks: &[(u32, u32, Cell)]) -> Vec<(u32, Cell)> {
    let mut rows: Vec<(u32, Cell)> = thread_stacks.iter().map(|&(_, stack, cell)| (stack, cell)).collect();
    rows.sort_unstable_by_key(|&(stack, _)| stack);
    rows.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1.add(next.1);
        }
        is_same
    });
    rows
}

/// The samples of a message as they were stored.
#[derive(Clone, Debug)]
pub(super) struct StoredBatch {
    /// Thread, stack in the dictionary, CPU time and number of samples.
    pub(super) cells: Vec<(u32, u32, Cell)>,
    /// Time of the first and of the last sample, in nanoseconds since the epoch.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

/// The part of a partition that is in memory.
#[derive(Debug)]
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
    /// Maximum of `session_bytes`: [`MOST_SESSION_BYTES`], less in tests.
    pub(super) session_limit: usize,
    /// Threads, accounts and entries refused for lack of memory.
    pub(super) refused_entries: u64,
    /// Virtual threads that are counted for their carriers.
    pub(super) folded_threads: u64,
    /// Number of messages applied.
    applied: u64,
    /// True if dictionary and sessions are only in the database, and are read from there for each query.
    pub(super) is_unloaded: bool,
}

impl Default for PartitionMemory {
    fn default() -> Self {
        PartitionMemory {
            dictionary: Dictionary::default(),
            sessions: BTreeMap::new(),
            open: BTreeMap::new(),
            open_samples: 0,
            open_definitions: 0,
            session_bytes: 0,
            session_limit: MOST_SESSION_BYTES,
            refused_entries: 0,
            folded_threads: 0,
            applied: 0,
            is_unloaded: false,
        }
    }
}

/// Returns whether a session that takes `own` of the `whole` bytes may take more; `limit` applies to `whole`.
fn may_grow(limit: usize, whole: usize, own: usize) -> bool {
    whole < limit - limit / 4 || own < FEW_BYTES && whole < limit
}

impl PartitionMemory {
    /// Applies one message of a session and returns its samples as they were stored. A message whose sequence number
    /// was already applied is ignored.
    pub(super) fn apply(&mut self, session_id: u64, message: AgentMessage) -> Option<StoredBatch> {
        let is_new = !self.sessions.contains_key(&session_id);
        let session = self.sessions.entry(session_id).or_default();
        if !session.accept(message.sequence) {
            return None;
        }
        session.is_changed = true;
        self.applied += 1;
        session.applied = self.applied;
        // An agent that sends a new message knows whether its symbols were dropped.
        session.symbols = Symbols::Present;
        // Memory of all other sessions.
        let others = self.session_bytes.saturating_sub(if is_new { 0 } else { session.bytes() });
        let limit = self.session_limit;
        let dictionary_bytes = self.dictionary.bytes();
        self.dictionary.admit(session.dictionary_bytes);
        match message.shown().body {
            Some(Body::Hello(hello)) => session.introduce(hello),
            Some(Body::Dictionary(definitions)) => {
                self.open_definitions += definitions.encoded_len();
                let refused = self.dictionary.refused();
                let was_full = refused > 0;
                if let Some(entries) = &definitions.entries {
                    if may_grow(limit, others + session.bytes(), session.row_bytes()) {
                        self.dictionary.define(entries, &mut session.rows);
                    } else {
                        self.refused_entries += entries.node_frame.len() as u64;
                        session.lacks_symbols = true;
                    }
                }
                session.lacks_symbols |= self.dictionary.refused() > refused;
                if !was_full && self.dictionary.refused() > 0 {
                    tracing::warn!(
                        session = format!("{session_id:016x}"),
                        bytes = self.dictionary.bytes(),
                        "the dictionary of the current partition is full: new symbols and stacks appear as unknown until the next partition begins"
                    );
                }
                session.dictionary_bytes += self.dictionary.bytes() - dictionary_bytes;
                for thread in definitions.threads {
                    let is_known = session.thread(thread.id).is_some();
                    if session.folding.fold(&thread, is_known) {
                        self.folded_threads += 1;
                    } else if may_grow(limit, others + session.bytes(), session.thread_bytes()) {
                        session.add_thread(thread);
                    } else {
                        self.refused_entries += 1;
                    }
                }
            }
            Some(Body::Samples(batch)) => {
                let stored = self.add_samples(session_id, &batch);
                if let Some(session) = self.sessions.get_mut(&session_id) {
                    session.dictionary_bytes += self.dictionary.bytes() - dictionary_bytes;
                    self.session_bytes = others + session.bytes();
                }
                return stored;
            }
            Some(Body::Statistics(mut statistics)) => {
                session.see(statistics.time_ns, statistics.clock_shift_ms);
                let (mut own, rest) =
                    (session.thread_bytes(), others + session.bytes() - session.thread_bytes());
                let given = statistics.threads.len();
                statistics.threads.retain(|account| {
                    let bytes = account_weight(account);
                    let goes_on = session.account(account.thread).is_some() && bytes <= LONG_ACCOUNT_BYTES;
                    let is_taken = goes_on || may_grow(limit, rest + own, own);
                    own += if is_taken && !goes_on { bytes } else { 0 };
                    is_taken
                });
                self.refused_entries += (given - statistics.threads.len()) as u64;
                self.refused_entries += u64::from(!session.add_statistics(statistics));
            }
            Some(Body::Heartbeat(heartbeat)) => session.see(heartbeat.time_ns, 0),
            Some(Body::Goodbye(goodbye)) => session.end(goodbye.reason),
            None => {}
        }
        self.session_bytes = others + session.bytes();
        None
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

    /// Adds a session that began in an earlier partition.
    pub(super) fn insert_session(&mut self, id: u64, session: StoredSession) {
        self.session_bytes += session.bytes();
        self.sessions.insert(id, session);
    }

    /// Returns the estimated memory of all sessions.
    pub(super) fn session_bytes(&self) -> usize {
        self.session_bytes
    }

    /// Returns the estimated memory of the sessions and of the dictionary.
    pub(super) fn bytes(&self) -> usize {
        self.dictionary.bytes() + self.session_bytes
    }

    /// Returns whether the memory has no space for one more session.
    pub(super) fn is_full_of_sessions(&self) -> bool {
        self.session_bytes >= self.session_limit
    }

    /// Returns whether the next partition would have free memory if it took over the sessions that `is_connected`
    /// selects.
    pub(super) fn next_would_have_space(&self, is_connected: impl Fn(u64) -> bool) -> bool {
        let connected = self.sessions.iter().filter(|(id, _)| is_connected(**id));
        let (dictionary_bytes, session_bytes) =
            connected.fold((0, 0), |(dictionary_bytes, session_bytes), (_, session)| {
                (dictionary_bytes + session.dictionary_bytes, session_bytes + session.bytes())
            });
        dictionary_bytes <= self.dictionary.limit / CONNECTED_SHARE
            && session_bytes <= self.session_limit / CONNECTED_SHARE
    }

    /// Returns whether the memory is so full that the next partition should begin early.
    pub(super) fn is_nearly_full(&self) -> bool {
        let limit = self.session_limit;
        self.dictionary.is_nearly_full() || self.session_bytes >= limit - limit / 4
    }

    fn add_samples(&mut self, session_id: u64, batch: &SampleBatch) -> Option<StoredBatch> {
        let session = self.sessions.get_mut(&session_id)?;
        session.uneven_batches += u64::from(!has_equal_columns(batch));
        // The minute is out of the map while rows are added to it. A batch covers one minute or two.
        let mut start_s = 0;
        let mut open = OpenMinute::default();
        let mut stored =
            StoredBatch { cells: Vec::with_capacity(batch.thread.len()), first_ns: u64::MAX, last_ns: 0 };
        for (index, row) in rows(batch).enumerate() {
            let wall_ns = session.wall_ns(row.time_ns, batch.clock_shift_ms);
            let minute_s = wall_ns / NS_PER_S / MINUTE_S * MINUTE_S;
            if minute_s != start_s || index == 0 {
                insert_open(&mut self.open, (start_s, session_id), open);
                start_s = minute_s;
                open = self.open.remove(&(start_s, session_id)).unwrap_or_default();
            }
            let stack = self.dictionary.stack_of_node(row.stack, &mut session.rows);
            open.offset_us.push(((wall_ns - start_s * NS_PER_S) / 1000) as u32);
            let thread = session.folding.owner(row.thread);
            open.thread.push(thread);
            open.stack.push(stack);
            open.cpu_ns.push(row.cpu_ns);
            open.count.push(u32::try_from(row.count).unwrap_or(u32::MAX));
            session.count(&row, wall_ns, stack != 0);
            stored.first_ns = stored.first_ns.min(wall_ns);
            stored.last_ns = stored.last_ns.max(wall_ns);
            stored.cells.push((thread, stack, Cell { cpu_ns: row.cpu_ns, samples: row.count }));
        }
        if stored.cells.is_empty() {
            return None;
        }
        insert_open(&mut self.open, (start_s, session_id), open);
        self.open_samples += stored.cells.len();
        Some(stored)
    }
}

fn insert_open(minutes: &mut BTreeMap<(u64, u64), OpenMinute>, key: (u64, u64), minute: OpenMinute) {
    if minute.len() > 0 {
        minutes.insert(key, minute);
    }
}
