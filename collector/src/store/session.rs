//! A session in the store: its agent, its threads, and its accounts of CPU time, with estimates of its memory.
//!
//! Invariant: estimates follow the decoded form, which can be much larger than the encoded one.

use std::cmp::Reverse;

use profile::dictionary::SessionRows;
use profile::dictionary::stop::UNKNOWN;
use profile::session::Session;
use profile::session::thread::{account_owner, named};
use prost::Message as _;
use proto::statistics::carry_over;
use proto::v1::{Hello, Statistics, Thread, ThreadAccount, ThreadKind};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::dictionary::EntryEnds;
use super::error::StoreError;
use super::folding::Folding;

/// Maximum accounts of ended threads. A JVM that starts a thread for each request would otherwise fill the store. The
/// account of the whole process, which is what reports show, does not depend on them.
const ENDED_ACCOUNTS: usize = 4096;

/// Maximum threads without an account that are copied into a new partition: virtual threads, of which agents keep
/// fewer; threads too new for an account; and threads that ended long ago.
const THREADS_CARRIED: usize = 16_384;

/// Maximum virtual threads among them: they are short.
const VIRTUAL_CARRIED: usize = 1024;

/// Maximum memory of the statistics of a session. Histograms of an agent have at most 500 buckets, and it reports a
/// few dozen causes.
const LONG_STATISTICS_BYTES: usize = 64 << 10;

/// Maximum length of the reason in a goodbye; longer ones are cut. Agents send a few words.
const LONG_REASON_BYTES: usize = 1024;

/// Approximate memory of a thread or an account without its texts.
const ENTRY_BYTES: usize = 192;

/// Approximate memory of a session's row and its places in maps.
const SESSION_BYTES: usize = 2048;

/// Memory of a cause with its counts and the allocation of its name.
const CAUSE_BYTES: usize = 80;

/// Smallest thread number of a group. A group stands for threads whose names differ only in digits.
pub(super) const FIRST_GROUP: u32 = 1 << 31;

/// A session without a goodbye counts as alive for this long after its last message; an agent may be disconnected for
/// this long and continue.
pub(super) const ALIVE_NS: u64 = 24 * 3600 * 1_000_000_000;

/// A session as stored in the database, without its threads.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SessionRow {
    #[prost(message, optional, tag = "1")]
    hello: Option<Hello>,
    #[prost(uint64, tag = "2")]
    first_ns: u64,
    #[prost(uint64, tag = "3")]
    last_ns: u64,
    #[prost(string, optional, tag = "4")]
    goodbye: Option<String>,
    #[prost(message, optional, tag = "5")]
    statistics: Option<Statistics>,
    #[prost(uint64, tag = "6")]
    missing_messages: u64,
    #[prost(uint64, tag = "7")]
    uneven_batches: u64,
    #[prost(uint64, tag = "8")]
    samples: u64,
    #[prost(uint64, tag = "9")]
    sampled_ns: u64,
    #[prost(uint64, tag = "10")]
    unknown_samples: u64,
    #[prost(uint64, tag = "11")]
    last_sequence: u64,
    #[prost(uint64, tag = "12")]
    retired_kernel_ns: u64,
    #[prost(uint64, tag = "13")]
    retired_sampled_ns: u64,
    #[prost(bool, tag = "14")]
    symbols_dropped: bool,
    #[prost(uint64, tag = "15")]
    biased: u64,
    /// Checksum of the bytes before it; absent in rows of early versions.
    #[prost(fixed32, optional, tag = "16")]
    checksum: Option<u32>,
}

/// Bytes of the field of the checksum, which is the last one: two of its key, four of its value.
const CHECKSUM_BYTES: usize = 6;

/// Copies the fields that a session and its row have in common.
macro_rules! copy_fields {
    ($from:expr => $to:expr; $($field:ident),*) => { $($to.$field.clone_from(&$from.$field);)* };
    ($from:expr => $to:expr) => {
        copy_fields!($from => $to; first_ns, last_ns, goodbye, missing_messages, uneven_batches, samples, sampled_ns,
            unknown_samples, last_sequence, retired_kernel_ns, retired_sampled_ns, biased)
    };
}

impl SessionRow {
    /// Returns the bytes of this row with a checksum at their end.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        // The lower half of the hash.
        self.checksum = Some(xxh3_64(&self.encode_to_vec()) as u32);
        self.encode_to_vec()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let row = Self::decode(bytes).map_err(|_| StoreError::Damaged)?;
        let content = bytes.get(..bytes.len().saturating_sub(CHECKSUM_BYTES)).unwrap_or_default();
        let is_intact = row.checksum.is_none_or(|checksum| checksum == xxh3_64(content) as u32);
        if is_intact { Ok(row) } else { Err(StoreError::Damaged) }
    }
}

/// The state of the symbols of a session in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Symbols {
    #[default]
    Present,
    /// The partition began without them: the agent has to reconnect to learn so.
    Dropped,
    /// The agent has learned so, and resends them with its next messages.
    Requested,
}

/// A session in a partition, with the state that the store needs.
#[derive(Clone, Debug, Default)]
pub struct StoredSession {
    /// The session as queries see it.
    pub(super) seen: Session,
    /// Estimated memory of threads and accounts.
    pub(super) thread_bytes: usize,
    /// Estimated memory of the statistics.
    statistics_bytes: usize,
    /// Estimated memory of the dictionary rows that this session was the first to define.
    pub(super) dictionary_bytes: usize,
    pub(super) symbols: Symbols,
    /// True if some of its symbols were refused for lack of memory.
    pub(super) lacks_symbols: bool,
    /// Position of its last message among all messages applied to the partition.
    pub(super) applied: u64,
    /// Dictionary rows by the entry numbers of the session, while the session may refer to them.
    pub(super) rows: SessionRows,
    /// The rows from these numbers on are not in the database.
    pub(super) stored_rows: EntryEnds,
    /// Threads that no fold has written yet.
    pub(super) unstored_threads: Vec<Thread>,
    pub(super) is_changed: bool,
    /// Its virtual threads, and which of them are counted for their carriers.
    pub(super) folding: Folding,
    groups: FxHashMap<String, Thread>,
}

impl StoredSession {
    /// Returns whether the agent may still send: it sent no goodbye, and was not silent for a day.
    pub(super) fn is_alive(&self, now_ns: u64) -> bool {
        self.seen.goodbye.is_none() && now_ns.saturating_sub(self.seen.last_ns) < ALIVE_NS
    }

    pub(super) fn add_thread(&mut self, thread: Thread) {
        let thread = named(thread);
        self.unstored_threads.push(thread.clone());
        self.keep_thread(thread);
    }

    fn keep_thread(&mut self, thread: Thread) {
        self.thread_bytes += weight(&thread);
        if let Some(old) = self.seen.add_thread(thread) {
            self.thread_bytes -= weight(&old);
        }
    }

    /// Returns the estimated memory of the session without its dictionary rows.
    pub(super) fn bytes(&self) -> usize {
        SESSION_BYTES
            + self.seen.hello.encoded_len()
            + self.statistics_bytes
            + self.rows.bytes()
            + self.thread_bytes
            + self.folding.bytes()
    }

    /// Removes threads and their accounts.
    pub(super) fn remove_threads(&mut self) {
        self.seen.clear_threads();
        self.unstored_threads.clear();
        self.thread_bytes = 0;
    }

    /// Stores statistics. If they are longer than those of any agent, stores only the accounts and returns `false`.
    pub(super) fn add_statistics(&mut self, mut statistics: Statistics) -> bool {
        std::mem::take(&mut statistics.threads).into_iter().for_each(|account| self.add_account(account));
        if self.seen.accounts().len() > 2 * ENDED_ACCOUNTS {
            let ended = self.seen.accounts().filter(|account| account.ended).count();
            self.retire_ended(ended.saturating_sub(ENDED_ACCOUNTS));
        }
        if let Some(older) = &self.seen.statistics {
            carry_over(older, &mut statistics);
        }
        let bytes = statistics_bytes(&statistics);
        let is_taken = bytes <= LONG_STATISTICS_BYTES;
        if is_taken {
            self.statistics_bytes = bytes;
            self.seen.statistics = Some(statistics);
        }
        is_taken
    }

    fn add_account(&mut self, account: ThreadAccount) {
        self.thread_bytes += account_weight(&account);
        if let Some(old) = self.seen.add_account(account) {
            self.thread_bytes -= account_weight(&old);
        }
    }

    /// Stores the reason of the goodbye, and frees the rows by number.
    pub(super) fn end(&mut self, mut reason: String) {
        reason.truncate(reason.floor_char_boundary(LONG_REASON_BYTES));
        reason.shrink_to_fit();
        self.seen.goodbye = Some(reason);
        self.free_rows();
    }

    /// Frees the rows by number, to which no message will refer.
    pub(super) fn free_rows(&mut self) {
        (self.rows, self.stored_rows) = Default::default();
    }

    /// Replaces up to `count` accounts of ended threads by their sum.
    fn retire_ended(&mut self, count: usize) {
        let ended = self.seen.accounts().filter(|account| account.ended).map(|account| account.thread);
        let ended: Vec<u32> = ended.take(count).collect();
        for account in ended.into_iter().filter_map(|thread| self.seen.retire(thread)) {
            self.thread_bytes -= account_weight(&account);
        }
    }

    /// Returns the number of the group of `thread`, for levels that do not distinguish threads.
    pub(super) fn group_of(&mut self, thread: u32) -> u32 {
        if thread >= FIRST_GROUP {
            return thread;
        }
        let known = self.seen.thread(thread);
        let name = group_name(known.map_or(UNKNOWN, |thread| &thread.name));
        if let Some(group) = self.groups.get(&name) {
            return group.id;
        }
        let kind = known.map_or(ThreadKind::Unspecified as i32, |thread| thread.kind);
        // The number is a hash of the name, so it is the same in every partition; on a collision, the next free one.
        let mut id = FIRST_GROUP | xxh3_64(name.as_bytes()) as u32;
        while self.seen.thread(id).is_some() {
            id = FIRST_GROUP | id.wrapping_add(1);
        }
        // Groups of virtual threads have no carrier, because their members move between carriers.
        let group = Thread { id, name: name.clone(), kind, ..Thread::default() };
        self.add_thread(group.clone());
        self.groups.insert(name, group);
        self.is_changed = true;
        id
    }

    /// Adds a thread or a group as read from the database.
    pub(super) fn restore_thread(&mut self, thread: Thread) {
        if thread.id >= FIRST_GROUP {
            self.groups.insert(thread.name.clone(), thread.clone());
        }
        self.keep_thread(thread);
    }

    /// Returns the groups that no fold has written yet.
    pub(super) fn unstored_groups(&self) -> Vec<Thread> {
        self.unstored_threads.iter().filter(|thread| thread.id >= FIRST_GROUP).cloned().collect()
    }

    /// Returns the session as a new partition continues it, without symbols.
    pub(super) fn for_next_partition(&self) -> StoredSession {
        let is_over = |id: u32| self.seen.account(id).is_some_and(|account| account.ended);
        let has_account = |thread: &&Thread| self.seen.account(thread.id).is_some();
        let alive =
            self.seen.threads().filter(|thread| thread.id < FIRST_GROUP && !is_over(account_owner(thread)));
        let (mut threads, mut others): (Vec<&Thread>, Vec<&Thread>) = alive.partition(has_account);
        // Agents number threads in order of appearance, so recently sampled ones are among the newest.
        others.sort_unstable_by_key(|thread| Reverse(thread.id));
        others.truncate(THREADS_CARRIED);
        let mut virtual_threads = 0;
        others.retain(|thread| {
            virtual_threads += usize::from(thread.kind() == ThreadKind::Virtual);
            thread.kind() != ThreadKind::Virtual || virtual_threads <= VIRTUAL_CARRIED
        });
        threads.append(&mut others);
        let mut seen = self.seen.clone();
        seen.clear_threads();
        let mut session = StoredSession {
            seen,
            statistics_bytes: self.statistics_bytes,
            symbols: self.symbols,
            folding: self.folding.for_next_partition(),
            is_changed: true,
            ..StoredSession::default()
        };
        self.seen.accounts().for_each(|account| session.add_account(account.clone()));
        session.retire_ended(usize::MAX);
        threads.into_iter().for_each(|thread| session.add_thread(thread.clone()));
        session
    }

    pub(super) fn to_row(&self) -> SessionRow {
        let mut statistics = self.seen.statistics.clone();
        if let Some(statistics) = &mut statistics {
            statistics.threads = self.seen.accounts().cloned().collect();
        }
        let (hello, symbols_dropped) = (Some(self.seen.hello.clone()), self.symbols != Symbols::Present);
        let mut row = SessionRow { hello, statistics, symbols_dropped, ..SessionRow::default() };
        copy_fields!(self.seen => row);
        row
    }

    pub(super) fn from_row(row: SessionRow) -> StoredSession {
        let symbols = if row.symbols_dropped { Symbols::Dropped } else { Symbols::Present };
        let mut session = StoredSession { symbols, ..StoredSession::default() };
        copy_fields!(row => session.seen);
        session.seen.hello = row.hello.unwrap_or_default();
        if let Some(statistics) = row.statistics {
            session.add_statistics(statistics);
        }
        session
    }
}

/// Returns the name with `#` for each run of digits: `http-nio-8080-exec-17` becomes `http-nio-#-exec-#`.
fn group_name(name: &str) -> String {
    let mut group = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if group.ends_with('#') => {}
            '0'..='9' => group.push('#'),
            c => group.push(c),
        }
    }
    group
}

/// Returns the approximate memory of an entry: its texts, its row, and its place in a map.
fn weight(entry: &impl prost::Message) -> usize {
    entry.encoded_len() + ENTRY_BYTES
}

/// Returns the approximate memory of an account; an encoded loss may have only two bytes.
pub(super) fn account_weight(account: &ThreadAccount) -> usize {
    weight(account) + account.lost.len() * CAUSE_BYTES
}

/// Returns the approximate memory of statistics without accounts.
fn statistics_bytes(statistics: &Statistics) -> usize {
    let causes = statistics.stops.len() + statistics.lost.len() + statistics.failed.len();
    let added = statistics.unloading.as_ref().and_then(|unloading| unloading.pause_added_ns.as_ref());
    let Statistics { handler_cycles, walk_ns, drain_ns, drain_requests, .. } = statistics;
    let histograms = [handler_cycles, walk_ns, drain_ns, drain_requests].map(Option::as_ref);
    // A number of a histogram may have one byte encoded, and has eight in memory.
    let numbers =
        histograms.into_iter().chain([added]).flatten().map(|one| one.bucket.len() + one.bucket_count.len());
    statistics.encoded_len()
        + causes * CAUSE_BYTES
        + statistics.self_tests.len() * 2 * CAUSE_BYTES
        + numbers.sum::<usize>() * size_of::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_same_number_in_every_partition() {
        let groups = |order: [(u32, &str); 3]| {
            let mut session = StoredSession::default();
            order.map(|(id, name)| {
                session.add_thread(Thread { id, name: name.into(), ..Thread::default() });
                session.group_of(id)
            })
        };
        let [exec, http, main] = groups([(1, "exec-1"), (2, "http-7"), (3, "main")]);
        assert_eq!(groups([(3, "main"), (9, "http-12"), (8, "exec-44")]), [main, http, exec]);
        assert!([exec, http, main].iter().all(|&group| group >= FIRST_GROUP));
    }

    #[test]
    fn threads_of_a_pool_are_one_group() {
        let mut session = StoredSession::default();
        for (id, name) in [(1, "exec-1"), (2, "exec-22"), (3, "main")] {
            session.add_thread(Thread { id, name: name.into(), ..Thread::default() });
        }
        assert_eq!(session.group_of(1), session.group_of(2));
        assert_ne!(session.group_of(1), session.group_of(3));
        let group = session.group_of(1);
        assert_eq!(session.group_of(group), group);
        assert_eq!(session.seen.thread(group).map(|thread| thread.name.as_str()), Some("exec-#"));
    }

    #[test]
    fn ended_threads_are_eventually_dropped() {
        let mut session = StoredSession::default();
        let count = 2 * THREADS_CARRIED as u32;
        for id in 1..=count {
            session.add_thread(Thread { id, name: format!("request-{id}"), ..Thread::default() });
            let ended = id > 1;
            session.add_statistics(Statistics {
                threads: vec![ThreadAccount { thread: id, kernel_ns: 1, ended, ..ThreadAccount::default() }],
                ..Statistics::default()
            });
        }
        session.add_thread(Thread {
            id: count + 1,
            name: "too new for an account".into(),
            ..Thread::default()
        });
        let carried = session.for_next_partition();
        assert!(carried.seen.threads().count() <= THREADS_CARRIED + 1, "{}", carried.seen.threads().count());
        assert!(carried.seen.thread(1).is_some(), "thread 1 is alive");
        assert!(carried.seen.thread(count + 1).is_some());
        // The accounts of the others were retired, so only their numbers show that they ended.
        let again = carried.for_next_partition();
        assert!(again.seen.threads().count() <= THREADS_CARRIED + 1, "{}", again.seen.threads().count());
        assert_eq!(again.seen.kernel_ns(), u64::from(count));
    }

    #[test]
    fn a_session_row_round_trips() {
        let mut session = StoredSession::default();
        (session.seen.samples, session.seen.goodbye) = (7, Some("stop".into()));
        session.add_thread(Thread { id: 1, name: "exec-1".into(), ..Thread::default() });
        let group = session.group_of(1);
        session.add_statistics(Statistics {
            requests: 9,
            threads: vec![ThreadAccount { thread: 1, kernel_ns: 5, ..ThreadAccount::default() }],
            ..Statistics::default()
        });
        let mut back = StoredSession::from_row(session.to_row());
        session.unstored_groups().into_iter().for_each(|group| back.restore_thread(group));
        assert_eq!((back.seen.samples, back.seen.goodbye.as_deref()), (7, Some("stop")));
        assert_eq!(back.seen.account(1).map(|account| account.kernel_ns), Some(5));
        assert_eq!(back.seen.thread(group).map(|thread| thread.name.as_str()), Some("exec-#"));
        assert_eq!(back.seen.statistics.as_ref().map(|statistics| statistics.requests), Some(9));
    }
}
