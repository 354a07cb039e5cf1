//! The transactions of the store, taken from the store itself.
//!
//! Problem: engines are to be compared on what the store really writes, byte for byte, and not on rows made up for the
//! purpose.
//! Approach: recordings of real JVMs are replayed into a store, over and over as sessions of ten minutes, minute by minute;
//! then its file is read, and rows of one fold are one transaction again. The journal, which a fold empties, is
//! made here as `Partition::journal` makes it: one entry a second, as long as commits keep up.
//! What differs from a collector: a session's row in `sessions` has its last content in every fold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use collector::recording::RecordingReader;
use collector::store::{Retention, Store};
use proto::framing::encode_frame;
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, Hello};
use rusqlite::{Connection, Row};

const NS: u64 = 1_000_000_000;

/// After so long a process ends, and another one begins.
const LIFE_NS: u64 = 600 * NS;

/// As in `collector/src/store/column.rs`.
const LEVEL: i32 = 1;

/// A table; its keys are the first [`arity`](Table::arity) numbers of a [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Journal,
    Sessions,
    Dictionary,
    Threads,
    Numbers,
    Definitions,
    Raw,
    Stacks,
    ThreadStacks,
    Times,
}

/// A key, filled up with zeros.
pub type Key = [u64; 4];

impl Table {
    pub const ALL: [Table; 10] = [
        Table::Journal,
        Table::Sessions,
        Table::Dictionary,
        Table::Threads,
        Table::Numbers,
        Table::Definitions,
        Table::Raw,
        Table::Stacks,
        Table::ThreadStacks,
        Table::Times,
    ];

    /// As in `collector/src/store/partition/tables.rs`.
    pub fn name(self) -> &'static str {
        match self {
            Table::Journal => "journal",
            Table::Sessions => "sessions",
            Table::Dictionary => "dictionary",
            Table::Threads => "threads",
            Table::Numbers => "numbers",
            Table::Definitions => "definitions",
            Table::Raw => "raw",
            Table::Stacks => "stacks",
            Table::ThreadStacks => "thread_stacks",
            Table::Times => "times",
        }
    }

    pub fn arity(self) -> usize {
        match self {
            Table::Journal | Table::Sessions | Table::Dictionary => 1,
            Table::Threads | Table::Numbers | Table::Definitions => 2,
            Table::Raw => 3,
            Table::Stacks | Table::ThreadStacks | Table::Times => 4,
        }
    }
}

/// What is durable together.
#[derive(Default)]
pub struct Transaction {
    pub rows: Vec<(Table, Key, Vec<u8>)>,
    /// The numbers of `meta`.
    pub meta: Vec<(String, u64)>,
    pub empties_journal: bool,
}

/// All of it.
pub struct Load {
    pub transactions: Vec<Transaction>,
    pub sessions: Vec<u64>,
    /// Seconds since the epoch.
    pub first_s: u64,
    pub minutes: u64,
}

/// Messages with their numbers.
type Framed = Vec<(u64, Vec<u8>)>;

/// A session that replays a recording, over and over as if it went on, and then as a new one.
struct Player<'r> {
    recording: &'r [AgentMessage],
    next: usize,
    sequence: u64,
    id: u64,
    hello: Hello,
    /// Processors' worth of samples: how many times as fast the recording runs.
    busy: u64,
    started_ns: u64,
    /// On the clock of the recording: where it began, its length, and how often that is over.
    began_ns: u64,
    length_ns: u64,
    turns: u64,
}

impl<'r> Player<'r> {
    fn new(recording: &'r [AgentMessage], id: u64, busy: u64, wall_ns: u64) -> Self {
        let Some(Body::Hello(hello)) = &recording[0].body else { panic!("hello comes first") };
        let hello = Hello { session_id: id, wall_clock_ns: wall_ns, ..hello.clone() };
        let began_ns = hello.monotonic_ns;
        let end_ns = recording.iter().map(time_ns).max().unwrap_or(0);
        let length_ns = end_ns.saturating_sub(began_ns) + NS;
        let (next, sequence, started_ns, turns) = (0, 0, wall_ns, 0);
        Player { recording, next, sequence, id, hello, busy, started_ns, began_ns, length_ns, turns }
    }

    /// Nanoseconds since the session began that a time of the recording stands for.
    fn since(&self, time_ns: u64) -> u64 {
        (time_ns.saturating_sub(self.began_ns) + self.turns * self.length_ns) / self.busy
    }

    /// The messages that are due before `wall_ns`, framed.
    fn until(&mut self, wall_ns: u64) -> Framed {
        let mut due = Vec::new();
        loop {
            if self.next == self.recording.len() {
                (self.next, self.turns) = (0, self.turns + 1);
            }
            let message = &self.recording[self.next];
            if self.since(time_ns(message)) >= wall_ns - self.started_ns {
                return due;
            }
            self.next += 1;
            due.extend(self.framed(message));
        }
    }

    /// A message as this session sends it; nothing for those that a session sends once.
    fn framed(&mut self, message: &AgentMessage) -> Option<(u64, Vec<u8>)> {
        let is_once = matches!(message.body, Some(Body::Hello(_) | Body::Dictionary(_)));
        if is_once && self.turns > 0 || matches!(message.body, Some(Body::Goodbye(_))) {
            return None;
        }
        let mut message = message.clone();
        let at = |time_ns| self.began_ns + self.since(time_ns);
        match message.body.as_mut()? {
            Body::Hello(hello) => hello.clone_from(&self.hello),
            Body::Dictionary(_) | Body::Goodbye(_) => {}
            Body::Samples(batch) => {
                batch.first_time_ns = at(batch.first_time_ns);
                batch.time_delta_ns.iter_mut().for_each(|delta| *delta /= self.busy.cast_signed());
                batch.time_delta_us.iter_mut().for_each(|delta| *delta /= self.busy);
            }
            Body::Statistics(statistics) => statistics.time_ns = at(statistics.time_ns),
            Body::Heartbeat(heartbeat) => heartbeat.time_ns = at(heartbeat.time_ns),
        }
        self.sequence += 1;
        message.sequence = self.sequence;
        let mut bytes = Vec::new();
        encode_frame(&message, &mut bytes).expect("a message of an agent");
        Some((self.sequence, bytes))
    }

    fn is_over(&self, wall_ns: u64) -> bool {
        wall_ns - self.started_ns >= LIFE_NS
    }
}

/// When a message was sent, about; 0 for those that go with the next one.
fn time_ns(message: &AgentMessage) -> u64 {
    match &message.body {
        Some(Body::Samples(batch)) => batch.first_time_ns,
        Some(Body::Statistics(statistics)) => statistics.time_ns,
        Some(Body::Heartbeat(heartbeat)) => heartbeat.time_ns,
        _ => 0,
    }
}

/// A recording, compressed or not.
pub fn recording(path: &Path) -> Vec<AgentMessage> {
    let bytes = std::fs::read(path).expect("a recording");
    let is_packed = path.extension().is_some_and(|extension| extension == "zst");
    let bytes = if is_packed { zstd::decode_all(&bytes[..]).expect("packed with zstd") } else { bytes };
    RecordingReader::new(&bytes[..]).expect("a recording").collect()
}

impl Load {
    /// What a store writes in `minutes` of `agents` that send at once, each with `busy` processors' worth of samples.
    pub fn make(recordings: &[Vec<AgentMessage>], agents: usize, busy: u64, minutes: u64) -> Load {
        let directory = tempfile::tempdir_in(".").expect("a folder");
        let store = Store::open(directory.path(), Retention::default()).expect("a new store");
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        // Over the turn of an hour, and long enough ago for hours to be summed up.
        let first_s = (now_s - minutes * 60) / 3600 * 3600 - 3600 - minutes / 2 * 60;
        let mut ids = 1..;
        let mut player = |agent: usize, wall_ns| {
            Player::new(&recordings[agent % recordings.len()], ids.next().expect("endless"), busy, wall_ns)
        };
        let mut players: Vec<Player> = (0..agents).map(|agent| player(agent, first_s * NS)).collect();
        let mut sessions: BTreeSet<u64> = BTreeSet::new();
        let mut journal = Vec::new();
        for minute in 0..minutes {
            let mut whole: BTreeMap<u64, (Hello, Framed)> = BTreeMap::new();
            for second in 0..60 {
                let until_ns = (first_s + minute * 60 + second + 1) * NS;
                let mut entry = Vec::new();
                for (agent, playing) in players.iter_mut().enumerate() {
                    if playing.is_over(until_ns - NS) {
                        *playing = player(agent, until_ns - NS);
                    }
                    let due = playing.until(until_ns);
                    for (_, framed) in &due {
                        entry.extend_from_slice(&playing.id.to_le_bytes());
                        entry.extend_from_slice(framed);
                    }
                    let sent = whole.entry(playing.id);
                    sent.or_insert_with(|| (playing.hello.clone(), Vec::new())).1.extend(due);
                }
                let packed = zstd::bulk::compress(&entry, LEVEL).expect("compression");
                let number = minute * 60 + second;
                let rows = vec![(Table::Journal, [number, 0, 0, 0], packed)];
                journal.push(Transaction { rows, ..Transaction::default() });
            }
            for (id, (hello, messages)) in whole {
                sessions.insert(id);
                let messages = messages.iter().map(|(sequence, bytes)| (*sequence, &bytes[..]));
                store.session(&hello).and_then(|writer| writer.append(messages)).expect("stored");
            }
            store.flush().expect("a fold");
        }
        store.maintain().expect("sums of hours");
        store.close().expect("everything is folded");
        let transactions = in_order(journal, folds(directory.path()));
        Load { transactions, sessions: sessions.into_iter().collect(), first_s, minutes }
    }
}

/// The folds, each behind its part of the journal: a minute, unless the store was so slow that it folded by itself. Sums
/// of hours, which have no samples, are made at the end.
fn in_order(journal: Vec<Transaction>, folds: Vec<Transaction>) -> Vec<Transaction> {
    let (folds, sums): (Vec<_>, Vec<_>) = folds.into_iter().partition(|fold| fold.empties_journal);
    let part = journal.len().div_ceil(folds.len().max(1));
    let mut journal = journal.into_iter();
    let mut transactions = Vec::new();
    for fold in folds {
        transactions.extend(journal.by_ref().take(part));
        transactions.push(fold);
    }
    transactions.extend(sums);
    transactions
}

/// The transactions that left what is in the store, but for the journal.
fn folds(directory: &Path) -> Vec<Transaction> {
    let files = std::fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("a file").path());
    let mut files = files.filter(|path| path.extension().is_some_and(|extension| extension == "sqlite"));
    let database = Connection::open(files.next().expect("a partition")).expect("a database");
    let mut folds: BTreeMap<u64, Transaction> = BTreeMap::new();
    let mut sessions: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for table in Table::ALL.into_iter().filter(|&table| table != Table::Journal) {
        let arity = table.arity();
        let columns = ["1", "2", "3", "4"][..arity].join(", ");
        let text = format!("SELECT * FROM {} ORDER BY {columns}", table.name());
        let mut statement = database.prepare(&text).expect("a table");
        let mut rows = statement.query([]).expect("rows");
        while let Some(row) = rows.next().expect("a row") {
            let (key, block) = key_and_block(table, row);
            if table == Table::Sessions {
                sessions.insert(key[0], block);
                continue;
            }
            let fold = folds.entry(key[arity - 1]).or_default();
            fold.empties_journal |= table == Table::Raw;
            fold.rows.push((table, key, block));
        }
    }
    let mut statement = database.prepare("SELECT name, value FROM meta").expect("a table");
    let meta = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())));
    let meta: Vec<(String, u64)> = meta.expect("rows").map(|row| row.expect("a row")).collect();
    for fold in folds.values_mut() {
        let written: BTreeSet<u64> =
            fold.rows.iter().filter(|row| row.0 == Table::Raw).map(|row| row.1[1]).collect();
        for id in written {
            let row = sessions.get(&id).expect("a session with samples");
            fold.rows.push((Table::Sessions, [id, 0, 0, 0], row.clone()));
        }
        fold.meta.clone_from(&meta);
    }
    folds.into_values().collect()
}

/// A row of the store's file, where a session's highest bit is turned (`partition/tables.rs`).
fn key_and_block(table: Table, row: &Row<'_>) -> (Key, Vec<u8>) {
    let arity = table.arity();
    let mut key = [0; 4];
    for (column, part) in key[..arity].iter_mut().enumerate() {
        *part = row.get::<_, i64>(column).expect("a number").cast_unsigned();
    }
    if table != Table::Dictionary {
        key[arity.saturating_sub(2)] ^= 1 << 63;
    }
    (key, row.get(arity).expect("a block"))
}
