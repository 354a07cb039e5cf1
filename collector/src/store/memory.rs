//! What a partition holds in memory: its dictionary, its sessions, and the minutes that are not folded yet.
//!
//! Messages are applied here, whether they come from an agent, from the journal after a restart, or from a
//! recording file; queries read open minutes and folded ones alike.

use std::collections::BTreeMap;

use prost::Message as _;
use proto::rows::{has_equal_columns, rows};
use proto::v1::{AgentMessage, SampleBatch, agent_message::Body};
use rustc_hash::FxHashMap;

use super::session::{StoredSession, Symbols};
use super::weight::account_weight;
use profile::cell::Cell;
use profile::dictionary::Dictionary;

/// Seconds of a minute, the finest bucket that sums are kept for.
pub(super) const MINUTE_S: u64 = 60;

const NS_PER_S: u64 = 1_000_000_000;

/// Rough memory of a partition's sessions: what they say of themselves, what their numbers mean, their threads and
/// accounts; a thread is some 250 bytes. When three quarters are taken, the next partition begins. Threads beyond are not
/// known: their samples keep their CPU time, and are shown as of an unknown thread.
const MOST_SESSION_BYTES: usize = 512 << 20;

/// What a session may have of it for threads, and for numbers, when a quarter is left: some 250 threads.
const FEW_BYTES: usize = 64 << 10;

/// The account of a thread that is known goes on however little room there is, unless it is longer than any agent makes
/// them.
const LONG_ACCOUNT_BYTES: usize = 2048;

/// Share of the memory, one in so many, that what goes along may fill.
pub(super) const CONNECTED_SHARE: usize = 2;

/// Samples of one session in one minute, in columns.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenMinute {
    /// Microseconds since the minute began.
    pub(super) offset_us: Vec<u32>,
    pub(super) thread: Vec<u32>,
    pub(super) stack: Vec<u32>,
    pub(super) cpu_ns: Vec<u64>,
    /// Samples that were merged into the row.
    pub(super) count: Vec<u32>,
}

/// Sums of one bucket: by stack, by thread and stack, and by thread and time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) stacks: Vec<(u32, Cell)>,
    pub(super) thread_stacks: Vec<(u32, u32, Cell)>,
    /// Thread, second since the bucket began, CPU time.
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
            let sum = cells.entry((thread, stack)).or_default();
            sum.cpu_ns = sum.cpu_ns.saturating_add(cell.cpu_ns);
            sum.samples = sum.samples.saturating_add(cell.samples);
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

/// Sums over threads, by ascending stack.
fn by_stack(thread_stacks: &[(u32, u32, Cell)]) -> Vec<(u32, Cell)> {
    let mut rows: Vec<(u32, Cell)> = thread_stacks.iter().map(|&(_, stack, cell)| (stack, cell)).collect();
    rows.sort_unstable_by_key(|&(stack, _)| stack);
    rows.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1.cpu_ns = kept.1.cpu_ns.saturating_add(next.1.cpu_ns);
            kept.1.samples = kept.1.samples.saturating_add(next.1.samples);
        }
        is_same
    });
    rows
}

/// What became of the samples of a message.
#[derive(Clone, Debug)]
pub(super) struct StoredBatch {
    /// Thread, stack of the dictionary, and what the sample stands for.
    pub(super) cells: Vec<(u32, u32, Cell)>,
    /// Time of the first and the last, nanoseconds since the epoch.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

/// Memory side of a partition.
#[derive(Debug)]
pub(super) struct PartitionMemory {
    pub(super) dictionary: Dictionary,
    pub(super) sessions: BTreeMap<u64, StoredSession>,
    /// By start of the minute in seconds since the epoch, then session.
    pub(super) open: BTreeMap<(u64, u64), OpenMinute>,
    pub(super) open_samples: usize,
    /// Bytes of the definitions received that are not folded yet.
    pub(super) open_definitions: usize,
    /// Rough memory of all sessions.
    session_bytes: usize,
    /// What that may reach: [`MOST_SESSION_BYTES`], less in tests.
    pub(super) session_limit: usize,
    /// Threads, accounts and numbered entries there was no room for.
    pub(super) refused_entries: u64,
    /// Messages taken in.
    applied: u64,
    /// Whether all of it is to be read from the database again by whoever needs it.
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
            applied: 0,
            is_unloaded: false,
        }
    }
}

/// Whether a session that takes `own` of all the `whole` bytes may have more, where `limit` is for all.
fn may_grow(limit: usize, whole: usize, own: usize) -> bool {
    whole < limit - limit / 4 || own < FEW_BYTES && whole < limit
}

impl PartitionMemory {
    /// Takes in one message of a session; one that was taken in before, judged by its number, changes nothing.
    /// The samples of a new one are given back as what they became.
    pub(super) fn apply(&mut self, session_id: u64, message: AgentMessage) -> Option<StoredBatch> {
        let is_new = !self.sessions.contains_key(&session_id);
        let session = self.sessions.entry(session_id).or_default();
        if message.sequence <= session.last_sequence {
            return None;
        }
        session.missing_messages += message.sequence - session.last_sequence - 1;
        session.last_sequence = message.sequence;
        session.is_changed = true;
        self.applied += 1;
        session.applied = self.applied;
        // Whoever goes on has learned that its names are wanted again, if they were.
        session.symbols = Symbols::Present;
        // What other sessions take; the rest is this one's.
        let others = self.session_bytes.saturating_sub(if is_new { 0 } else { session.bytes() });
        let limit = self.session_limit;
        let names = self.dictionary.bytes();
        self.dictionary.admit(session.dictionary_bytes);
        match message.body {
            Some(Body::Hello(hello)) => {
                session.first_ns = hello.wall_clock_ns;
                session.last_ns = session.last_ns.max(hello.wall_clock_ns);
                session.hello = hello;
            }
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
                        "the dictionary is full: names and stacks that are new are unknown until the next partition"
                    );
                }
                session.dictionary_bytes += self.dictionary.bytes() - names;
                for thread in definitions.threads {
                    if may_grow(limit, others + session.bytes(), session.thread_bytes()) {
                        session.add_thread(thread);
                    } else {
                        self.refused_entries += 1;
                    }
                }
            }
            Some(Body::Samples(batch)) => {
                let stored = self.add_samples(session_id, &batch);
                if let Some(session) = self.sessions.get_mut(&session_id) {
                    session.dictionary_bytes += self.dictionary.bytes() - names;
                    self.session_bytes = others + session.bytes();
                }
                return stored;
            }
            Some(Body::Statistics(mut statistics)) => {
                session.last_ns = session.last_ns.max(session.wall_ns(statistics.time_ns));
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
            Some(Body::Heartbeat(heartbeat)) => {
                session.last_ns = session.last_ns.max(session.wall_ns(heartbeat.time_ns));
            }
            Some(Body::Goodbye(goodbye)) => {
                session.end(goodbye.reason);
            }
            None => {}
        }
        self.session_bytes = others + session.bytes();
        None
    }

    /// Counts what sessions take that came here otherwise than by messages.
    pub(super) fn update_session_bytes(&mut self) {
        self.session_bytes = self.sessions.values().map(StoredSession::bytes).sum();
    }

    /// Where the memory of a closed partition is read to.
    pub(super) fn for_reading() -> PartitionMemory {
        PartitionMemory { dictionary: Dictionary::for_reading(), ..PartitionMemory::default() }
    }

    /// What is left of `memory` when its memory is given back.
    pub(super) fn unloaded(memory: &PartitionMemory) -> PartitionMemory {
        let refused_entries = memory.refused_entries + memory.dictionary.refused();
        PartitionMemory { is_unloaded: true, refused_entries, ..PartitionMemory::default() }
    }

    /// Takes in a session that began in an earlier partition.
    pub(super) fn insert_session(&mut self, id: u64, session: StoredSession) {
        self.session_bytes += session.bytes();
        self.sessions.insert(id, session);
    }

    /// Rough memory of all sessions.
    pub(super) fn session_bytes(&self) -> usize {
        self.session_bytes
    }

    /// Rough memory of the sessions and of the dictionary.
    pub(super) fn bytes(&self) -> usize {
        self.dictionary.bytes() + self.session_bytes
    }

    /// Whether there is no room for one more session.
    pub(super) fn is_full_of_sessions(&self) -> bool {
        self.session_bytes >= self.session_limit
    }

    /// Whether the sessions that `is_here` names take so little that the next partition, which has to have it as well, would
    /// have room.
    pub(super) fn next_would_have_space(&self, is_here: impl Fn(u64) -> bool) -> bool {
        let here = self.sessions.iter().filter(|(id, _)| is_here(**id));
        let (names, sessions) = here.fold((0, 0), |(names, sessions), (_, session)| {
            (names + session.dictionary_bytes, sessions + session.bytes())
        });
        names <= self.dictionary.limit / CONNECTED_SHARE && sessions <= self.session_limit / CONNECTED_SHARE
    }

    /// Whether it is time for the next partition, though neither a day nor the disk is full.
    pub(super) fn is_crowded(&self) -> bool {
        let limit = self.session_limit;
        self.dictionary.is_crowded() || self.session_bytes >= limit - limit / 4
    }

    fn add_samples(&mut self, session_id: u64, batch: &SampleBatch) -> Option<StoredBatch> {
        let session = self.sessions.get_mut(&session_id)?;
        session.uneven_batches += u64::from(!has_equal_columns(batch));
        // StoredBatch out of the map while rows go to it: a batch has one minute, or two.
        let mut start_s = 0;
        let mut open = OpenMinute::default();
        let mut stored =
            StoredBatch { cells: Vec::with_capacity(batch.thread.len()), first_ns: u64::MAX, last_ns: 0 };
        for (index, row) in rows(batch).enumerate() {
            let wall_ns = session.wall_ns(row.time_ns);
            let minute_s = wall_ns / NS_PER_S / MINUTE_S * MINUTE_S;
            if minute_s != start_s || index == 0 {
                insert_open(&mut self.open, (start_s, session_id), open);
                start_s = minute_s;
                open = self.open.remove(&(start_s, session_id)).unwrap_or_default();
            }
            let stack = self.dictionary.stack_of_node(row.stack, &mut session.rows);
            open.offset_us.push(((wall_ns - start_s * NS_PER_S) / 1000) as u32);
            open.thread.push(row.thread);
            open.stack.push(stack);
            open.cpu_ns.push(row.cpu_ns);
            open.count.push(u32::try_from(row.count).unwrap_or(u32::MAX));
            let unknown = if stack == 0 { row.count } else { 0 };
            session.unknown_samples = session.unknown_samples.saturating_add(unknown);
            session.samples = session.samples.saturating_add(row.count);
            session.sampled_ns = session.sampled_ns.saturating_add(row.cpu_ns);
            stored.first_ns = stored.first_ns.min(wall_ns);
            stored.last_ns = stored.last_ns.max(wall_ns);
            stored.cells.push((row.thread, stack, Cell { cpu_ns: row.cpu_ns, samples: row.count }));
        }
        if stored.cells.is_empty() {
            return None;
        }
        session.first_ns = session.first_ns.min(stored.first_ns);
        session.last_ns = session.last_ns.max(stored.last_ns);
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
