//! One interval of a writer: the files it becomes.

use std::collections::{BTreeMap, BTreeSet};

use parquet::errors::ParquetError;
use profile::dictionary::Dictionary;
use profile::session::Session;
use profile::session::thread::{default_name, kind_text};
use profile::source::Sample;
use proto::v1::{Thread, ThreadKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::layout::{Folder, Table};
use crate::table::accounts::{Account, write_accounts};
use crate::table::samples::{SampleRow, Samples};
use crate::table::stacks::Stacks;

/// A sample and the message that brought it.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The sample, with its stack in the dictionary of the interval.
    pub sample: Sample,
    /// Number of the message in the session.
    pub sequence: u64,
    /// Place in the message.
    pub row: u32,
}

/// Samples of a minute, or fewer if they are enough for a file, and the sessions that sent something.
#[derive(Debug)]
pub struct Interval<'i> {
    /// Stacks of the samples.
    pub dictionary: &'i Dictionary,
    /// Sessions that sent something, all of those with samples among them.
    pub sessions: BTreeMap<u64, &'i Session>,
    /// The samples.
    pub samples: Vec<Received>,
}

/// Ids of the stacks that files of a folder have.
pub type KnownStacks = FxHashMap<Folder, FxHashSet<i64>>;

/// A file of an interval.
#[derive(Debug)]
pub struct File {
    /// Path below the root of the lake.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The files of an interval, in the order in which they have to be written, and the stacks that they add to folders.
#[derive(Debug, Default)]
pub struct Files {
    /// Stacks and accounts come before samples.
    pub files: Vec<File>,
    /// Stacks in these files.
    pub stacks: KnownStacks,
}

/// The rows of one folder.
#[derive(Default)]
struct Rows {
    samples: Samples,
    accounts: Vec<Account>,
}

impl Interval<'_> {
    /// Returns the files of this interval, number `number` of `writer`. Stacks in `known` are left out.
    ///
    /// # Errors
    /// If a file cannot be encoded.
    pub fn files(&self, writer: u64, number: u64, known: &KnownStacks) -> Result<Files, ParquetError> {
        let mut stacks = Stacks::default();
        let folders = self.folders(writer, &mut stacks);
        let mut files = Files::default();
        let mut tables: BTreeMap<Table, Vec<File>> = BTreeMap::new();
        for (folder, mut rows) in folders {
            let mut add = |table: Table, bytes| {
                let path = format!("{folder}/{}", table.file(writer, number));
                tables.entry(table).or_default().push(File { path, bytes });
            };
            if !rows.accounts.is_empty() {
                let mut bytes = Vec::new();
                write_accounts(&rows.accounts, &mut bytes)?;
                add(Table::Accounts, bytes);
            }
            if rows.samples.rows.is_empty() {
                continue;
            }
            let old = known.get(&folder);
            let is_new = |id: &i64| old.is_none_or(|old| !old.contains(id));
            let new: FxHashSet<i64> = rows.samples.rows.iter().map(|row| row.stack).filter(is_new).collect();
            if !new.is_empty() {
                let mut bytes = Vec::new();
                stacks.write(|id| new.contains(&id), &mut bytes)?;
                add(Table::Stacks, bytes);
            }
            rows.samples.settle();
            let mut bytes = Vec::new();
            rows.samples.write(&mut bytes)?;
            add(Table::Samples, bytes);
            files.stacks.insert(folder, new);
        }
        files.files = tables.into_values().flatten().collect();
        Ok(files)
    }

    /// Returns the rows by folder, and adds their stacks to `stacks`.
    fn folders(&self, writer: u64, stacks: &mut Stacks) -> BTreeMap<Folder, Rows> {
        let mut folders: BTreeMap<Folder, Rows> = BTreeMap::new();
        // An account is where samples of its session are, so that a reader of one folder has both.
        let mut accounts: BTreeSet<(Folder, u64)> = self
            .sessions
            .iter()
            .map(|(&id, session)| (Folder::of(session.service(), micros(session.last_ns)), id))
            .collect();
        let mut frames = FxHashMap::default();
        let mut ids: FxHashMap<u32, i64> = FxHashMap::default();
        for received in &self.samples {
            let Some(session) = self.sessions.get(&received.sample.session) else { continue };
            let number = received.sample.stack;
            let id = *ids.entry(number).or_insert_with(|| stacks.add(self.dictionary, number, &mut frames));
            let folder = Folder::of(session.service(), micros(received.sample.time_ns));
            let samples = &mut folders.entry(folder.clone()).or_default().samples;
            let stop = self.dictionary.string(self.dictionary.stack(number).stop);
            let row = sample_row(samples, received, session, id, stop);
            samples.rows.push(row);
            accounts.insert((folder, received.sample.session));
        }
        for (folder, id) in accounts {
            if let Some(session) = self.sessions.get(&id) {
                let account = Account::of(id, writer, session);
                folders.entry(folder).or_default().accounts.push(account);
            }
        }
        folders
    }
}

fn sample_row(
    samples: &mut Samples,
    received: &Received,
    session: &Session,
    id: i64,
    stop: &str,
) -> SampleRow {
    let Received { sample, sequence, row } = *received;
    let unknown =
        Thread { id: sample.thread, name: profile::dictionary::stop::UNKNOWN.into(), ..Thread::default() };
    let thread = session.thread(sample.thread).unwrap_or(&unknown);
    let is_virtual = thread.kind() == ThreadKind::Virtual;
    let name = match thread.name.as_str() {
        "" if is_virtual => default_name(thread.java_id),
        name => name.to_owned(),
    };
    let mut text = |text: &str| samples.texts.number(text.as_bytes());
    SampleRow {
        time_us: micros(sample.time_ns),
        cpu_ns: sample.cpu_ns.cast_signed(),
        samples: sample.count.into(),
        stack: id,
        stop: text(stop),
        host: text(&session.hello.host),
        process: session.hello.pid.into(),
        thread: text(&name),
        thread_kind: text(kind_text(thread.kind())),
        thread_id: thread.tid.into(),
        virtual_thread: if is_virtual { thread.java_id } else { 0 },
        labels: text(&session.hello.labels.join("\n")),
        session: text(&format!("{:016x}", sample.session)),
        sequence: sequence.cast_signed(),
        row: row.cast_signed(),
        thread_number: thread.id.cast_signed(),
        carrier: thread.carrier.cast_signed(),
    }
}

fn micros(time_ns: u64) -> i64 {
    (time_ns / 1000).cast_signed()
}
