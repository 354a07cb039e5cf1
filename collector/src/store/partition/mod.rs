//! One database file: a stretch of time with the dictionary it needs.
//!
//! Retention is the deletion of whole files, so that space is given back at once and dictionaries cannot grow for
//! ever. Tables and columns are described in `design/store.md`.
//! Invariant: a transaction that folds minutes also removes their messages from the journal, so every sample is
//! in the journal or in blocks, and never in both.

mod blocks;
mod load;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, RwLock, RwLockUpgradableReadGuard};
use prost::Message as _;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable as _, TableDefinition, WriteTransaction,
};

use super::column::{self, BlockReader, BlockWriter};
use super::dictionary::Mark;
use super::error::StoreError;
use super::head::{Head, Sums};
use super::rollup::Level;
use blocks::{SumTables, raw_block, threads_block};
use load::{load, open_database, write_coverage};

pub(super) use blocks::{read_raw, read_stacks, read_thread_stacks, read_times};

/// Version of tables and columns; a store of another one is refused.
pub(super) const SCHEMA: u64 = 1;

/// Pages redb keeps in memory, for each open partition. Blocks are read once a query, so more helps little.
const CACHE_BYTES: usize = 8 << 20;

/// Start in seconds since the epoch, session, number of the fold.
pub(super) type BlockKey = (u64, u64, u64);
/// Level, then as [`BlockKey`].
pub(super) type SumKey = (u8, u64, u64, u64);

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const SESSIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("sessions");
const JOURNAL: TableDefinition<u64, &[u8]> = TableDefinition::new("journal");
const DICTIONARY: TableDefinition<u64, &[u8]> = TableDefinition::new("dictionary");
const THREADS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("threads");
const NUMBERS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("numbers");
const DEFINITIONS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("definitions");
pub(super) const RAW: TableDefinition<BlockKey, &[u8]> = TableDefinition::new("raw");
pub(super) const STACKS: TableDefinition<SumKey, &[u8]> = TableDefinition::new("stacks");
pub(super) const THREAD_STACKS: TableDefinition<SumKey, &[u8]> = TableDefinition::new("thread_stacks");
pub(super) const TIMES: TableDefinition<SumKey, &[u8]> = TableDefinition::new("times");

/// What a partition holds, by time and resolution. Seconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    /// Opened at.
    pub(super) created_s: u64,
    /// Earliest and latest minute with samples, the latter exclusive.
    pub(super) first_s: u64,
    pub(super) end_s: u64,
    /// Up to here each level is complete, by [`Level`]; minutes always are.
    pub(super) rolled_s: [u64; Level::COUNT],
    /// Levels, finest first, that retention has removed: 0 none, 1 single samples, 2 minutes as well, 3 hours.
    pub(super) removed: u64,
}

/// A partition.
#[derive(Debug)]
pub(super) struct Partition {
    path: PathBuf,
    /// `None` while it is opened anew after a failure.
    database: RwLock<Option<Database>>,
    pub(super) head: RwLock<Head>,
    pub(super) coverage: RwLock<Coverage>,
    persisted: Mutex<Mark>,
    folds: Mutex<u64>,
    journal: Mutex<u64>,
}

/// A group of messages to be made durable together: session, and its messages with their numbers.
pub(super) struct Journaled<'a> {
    pub(super) session: u64,
    pub(super) framed: Vec<&'a [u8]>,
}

impl Partition {
    /// Opens the partition at `path`, a new one if there is none, and takes in what its journal holds.
    pub(super) fn open(path: &Path, now_s: u64) -> Result<Partition, StoreError> {
        let database = open_database(path)?;
        let (head, coverage, persisted, folds, journal) = load(Head::default(), &database, now_s)?;
        Ok(Partition {
            path: path.to_owned(),
            database: RwLock::new(Some(database)),
            head: RwLock::new(head),
            coverage: RwLock::new(coverage),
            persisted: Mutex::new(persisted),
            folds: Mutex::new(folds),
            journal: Mutex::new(journal),
        })
    }

    /// A partition in memory only, for a recording.
    pub(super) fn in_memory(head: Head) -> Partition {
        let coverage = Coverage {
            first_s: head.open.keys().next().map_or(0, |key| key.0),
            end_s: head.open.keys().next_back().map_or(0, |key| key.0 + super::head::MINUTE_S),
            ..Coverage::default()
        };
        let partition = Partition {
            path: PathBuf::new(),
            database: RwLock::new(None),
            head: RwLock::new(head),
            coverage: RwLock::new(coverage),
            persisted: Mutex::new(Mark::default()),
            folds: Mutex::new(0),
            journal: Mutex::new(0),
        };
        partition.close();
        partition
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file another name in its folder, durably.
    pub(super) fn rename(&mut self, path: &Path) -> Result<(), StoreError> {
        std::fs::rename(&self.path, path)?;
        self.path = path.to_owned();
        if let Some(directory) = path.parent() {
            std::fs::File::open(directory)?.sync_all()?;
        }
        Ok(())
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// A consistent view of the database, `None` for a recording.
    pub(super) fn begin_read(&self) -> Result<Option<ReadTransaction>, StoreError> {
        let database = self.database.read();
        Ok(database.as_ref().map(Database::begin_read).transpose()?)
    }

    /// After a failed write, redb refuses everything until its file is opened anew.
    pub(super) fn reopen(&self) -> Result<(), StoreError> {
        let mut database = self.database.write();
        drop(database.take());
        *database = Some(open_database(&self.path)?);
        Ok(())
    }

    fn write(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let database = self.database.read();
        let database = database.as_ref().ok_or(StoreError::Io(std::io::ErrorKind::BrokenPipe))?;
        let transaction = database.begin_write()?;
        match change(&transaction) {
            Ok(()) => Ok(transaction.commit()?),
            Err(error) => {
                // The failure is what counts; a transaction that cannot be aborted is undone at the next opening.
                let _ = transaction.abort();
                Err(error)
            }
        }
    }

    /// Makes messages durable: when this returns, they survive the loss of power.
    pub(super) fn journal(&self, groups: &[Journaled<'_>]) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for group in groups {
            for framed in &group.framed {
                bytes.extend_from_slice(&group.session.to_le_bytes());
                bytes.extend_from_slice(framed);
            }
        }
        let packed = column::compress(&bytes)?;
        let mut number = self.journal.lock();
        self.write(|transaction| {
            transaction.open_table(JOURNAL)?.insert(*number, packed.as_slice())?;
            Ok(())
        })?;
        *number += 1;
        Ok(())
    }

    /// Writes all open minutes as blocks, with everything they refer to, and empties the journal.
    ///
    /// Queries go on while blocks are built, and wait for the commit.
    pub(super) fn fold(&self) -> Result<(), StoreError> {
        let head = self.head.upgradable_read();
        let mut fold = self.folds.lock();
        let mut persisted = self.persisted.lock();
        let mark = head.dictionary.mark();
        let definitions =
            (mark != *persisted).then(|| head.dictionary.encode_since(*persisted)).transpose()?;
        let mut coverage = *self.coverage.read();
        let blocks: Vec<_> = head
            .open
            .iter()
            .map(|(&(start_s, session), minute)| Ok((start_s, session, raw_block(minute)?, minute.sums())))
            .collect::<Result<_, StoreError>>()?;
        let mut head = RwLockUpgradableReadGuard::upgrade(head);
        for &(start_s, ..) in &blocks {
            let end_s = start_s + super::head::MINUTE_S;
            coverage.first_s = if coverage.end_s == 0 { start_s } else { coverage.first_s.min(start_s) };
            coverage.end_s = coverage.end_s.max(end_s);
        }
        let sessions = &mut head.sessions;
        // What comes late for buckets that were summed up already is added to their sums as well.
        let mut late: BTreeMap<(u8, u64, u64), Sums> = BTreeMap::new();
        for (start_s, session, _, sums) in &blocks {
            for level in
                Level::COARSE.into_iter().filter(|&level| *start_s < coverage.rolled_s[level as usize])
            {
                if let Some(state) = sessions.get_mut(session) {
                    let sums = level.coarsen(state, *start_s, Level::Minute, sums);
                    late.entry((level as u8, level.start_of(*start_s), *session)).or_default().extend(sums);
                }
            }
        }
        let late: BTreeMap<_, _> = late.into_iter().map(|(key, sums)| (key, sums.settled())).collect();
        self.write(|transaction| {
            if let Some(definitions) = &definitions {
                transaction.open_table(DICTIONARY)?.insert(*fold, definitions.as_slice())?;
            }
            let mut raw = transaction.open_table(RAW)?;
            let mut tables = SumTables::open(transaction)?;
            for (start_s, session, block, sums) in &blocks {
                raw.insert((*start_s, *session, *fold), block.as_slice())?;
                tables.insert((Level::Minute as u8, *start_s, *session, *fold), sums)?;
            }
            for (&(level, start_s, session), sums) in &late {
                tables.insert((level, start_s, session, *fold), sums)?;
            }
            let mut rows = transaction.open_table(SESSIONS)?;
            let mut threads = transaction.open_table(THREADS)?;
            let mut defined = transaction.open_table(DEFINITIONS)?;
            let mut numbers = transaction.open_table(NUMBERS)?;
            for (&id, session) in sessions.iter().filter(|(_, session)| session.is_changed) {
                rows.insert(id, session.to_row().encode_to_vec().as_slice())?;
                if !session.fresh_threads.is_empty() {
                    threads.insert((id, *fold), threads_block(&session.fresh_threads)?.as_slice())?;
                }
                if let Some(block) = session.numbers.encode_fresh()? {
                    numbers.insert((id, *fold), block.as_slice())?;
                }
                if !session.fresh_definitions.is_empty() {
                    let mut block = BlockWriter::default();
                    block.number(session.fresh_definitions.len() as u64);
                    block.ascending(session.fresh_definitions.iter().map(|&stack| stack.into()));
                    defined.insert((id, *fold), block.finish()?.as_slice())?;
                }
            }
            transaction.open_table(JOURNAL)?.retain(|_, _| false)?;
            write_coverage(transaction, &coverage)
        })?;
        for session in head.sessions.values_mut().filter(|session| session.is_changed) {
            session.is_changed = false;
            session.fresh_threads.clear();
            session.fresh_definitions.clear();
            session.numbers.set_stored();
        }
        head.open.clear();
        head.open_samples = 0;
        head.open_definitions = 0;
        // Sums that came late have brought groups of threads.
        head.weigh();
        *persisted = mark;
        *fold += 1;
        *self.coverage.write() = coverage;
        Ok(())
    }

    /// Sums up whole buckets of `level` that end before `until_s` from the level below; how many buckets.
    pub(super) fn roll(&self, level: Level, until_s: u64) -> Result<usize, StoreError> {
        let coverage = *self.coverage.read();
        let from_s = coverage.rolled_s[level as usize].max(level.start_of(coverage.first_s));
        let until_s = level.start_of(until_s.min(level.start_of(coverage.end_s) + level.width_s()));
        if coverage.end_s == 0 || from_s >= until_s {
            return Ok(0);
        }
        let mut bucket_s = from_s;
        let mut rolled = 0;
        while bucket_s < until_s {
            // Clocks can be wrong by decades, so empty buckets are passed at once; the last step marks them all.
            let filled_s = self.next_filled(level, bucket_s..until_s)?;
            bucket_s = filled_s.unwrap_or(until_s - level.width_s());
            let end_s = bucket_s + level.width_s();
            let by_session = self.sums_of(level, bucket_s..end_s)?;
            let groups: Vec<_> = {
                let head = self.head.read();
                let fresh = by_session
                    .iter()
                    .filter_map(|(id, _)| Some((*id, head.sessions.get(id)?.fresh_groups())));
                fresh.filter(|(_, groups)| !groups.is_empty()).collect()
            };
            let mut coverage = *self.coverage.read();
            coverage.rolled_s[level as usize] = end_s;
            let mut fold = self.folds.lock();
            self.write(|transaction| {
                let mut tables = SumTables::open(transaction)?;
                for (session, sums) in &by_session {
                    tables.insert((level as u8, bucket_s, *session, *fold), sums)?;
                }
                // Groups of threads made for these sums; the next fold writes them again, which changes nothing.
                let mut threads = transaction.open_table(THREADS)?;
                for (session, groups) in &groups {
                    threads.insert((*session, *fold), threads_block(groups)?.as_slice())?;
                }
                write_coverage(transaction, &coverage)
            })?;
            *fold += 1;
            *self.coverage.write() = coverage;
            rolled += 1;
            bucket_s = end_s;
        }
        Ok(rolled)
    }

    /// Start of the first bucket in `range` that has something to sum up.
    fn next_filled(&self, level: Level, range: Range<u64>) -> Result<Option<u64>, StoreError> {
        let Some(transaction) = self.begin_read()? else { return Ok(None) };
        let source = level.below() as u8;
        let table = transaction.open_table(THREAD_STACKS)?;
        let mut keys = table.range((source, range.start, 0, 0)..(source, range.end, 0, 0))?;
        let first = keys.next().transpose()?;
        Ok(first.map(|(key, _)| level.start_of(key.value().1).max(range.start)))
    }

    /// Sums of a bucket by session, merged from the level below.
    fn sums_of(&self, level: Level, range: Range<u64>) -> Result<Vec<(u64, Sums)>, StoreError> {
        let Some(transaction) = self.begin_read()? else { return Ok(Vec::new()) };
        let source = level.below();
        let keys = (source as u8, range.start, 0, 0)..(source as u8, range.end, 0, 0);
        let mut merged: BTreeMap<u64, Sums> = Default::default();
        let threads = transaction.open_table(THREAD_STACKS)?;
        let times = transaction.open_table(TIMES)?;
        for entry in threads.range(keys)? {
            let (key, block) = entry?;
            let key = key.value();
            let (_, start_s, session, _) = key;
            let mut thread_stacks = Vec::new();
            read_thread_stacks(
                block.value(),
                |_| true,
                |thread, stack, cell| {
                    thread_stacks.push((thread, stack, cell));
                },
            )?;
            let sums = Sums {
                stacks: Vec::new(),
                thread_stacks,
                times: match times.get(key)? {
                    Some(block) => read_times(block.value())?,
                    None => Vec::new(),
                },
            };
            let mut head = self.head.write();
            if let Some(state) = head.sessions.get_mut(&session) {
                let sums = level.coarsen(state, start_s, source, &sums);
                merged.entry(session).or_default().extend(sums);
            }
        }
        Ok(merged.into_iter().map(|(session, sums)| (session, sums.settled())).collect())
    }

    /// Removes the `levels` finest levels and gives their space back; queries of this partition wait.
    pub(super) fn remove_levels(&self, levels: u64) -> Result<(), StoreError> {
        let mut coverage = *self.coverage.read();
        coverage.removed = levels;
        self.write(|transaction| {
            transaction.open_table(RAW)?.retain(|_, _| false)?;
            for level in [Level::Minute, Level::Hour].into_iter().take(levels.saturating_sub(1) as usize) {
                let keys = (level as u8, 0, 0, 0)..(level as u8 + 1, 0, 0, 0);
                transaction.open_table(STACKS)?.retain_in(keys.clone(), |_, _| false)?;
                transaction.open_table(THREAD_STACKS)?.retain_in(keys.clone(), |_, _| false)?;
                transaction.open_table(TIMES)?.retain_in(keys, |_, _| false)?;
            }
            write_coverage(transaction, &coverage)
        })?;
        *self.coverage.write() = coverage;
        if let Some(database) = self.database.write().as_mut() {
            database.compact()?;
        }
        Ok(())
    }

    /// Forgets what only a partition that is written to needs: numbers of sessions go on in the next one, and nothing is
    /// looked up in its dictionary but by row.
    pub(super) fn close(&self) {
        let mut head = self.head.write();
        for session in head.sessions.values_mut() {
            *session.numbers = Default::default();
            session.private = None;
        }
        head.dictionary.close();
        head.weigh();
    }

    /// Memory of a closed partition, read from its database.
    pub(super) fn read_head(&self) -> Result<Head, StoreError> {
        let database = self.database.read();
        let database = database.as_ref().ok_or(StoreError::Io(std::io::ErrorKind::BrokenPipe))?;
        let (head, ..) = load(Head::for_reading(), database, 0)?;
        Ok(head)
    }

    /// The stacks that sessions have defined by id.
    pub(super) fn all_definitions(&self) -> Result<BTreeMap<u64, Vec<u32>>, StoreError> {
        let mut definitions: BTreeMap<u64, Vec<u32>> = Default::default();
        let Some(transaction) = self.begin_read()? else { return Ok(definitions) };
        for entry in transaction.open_table(DEFINITIONS)?.iter()? {
            let (key, block) = entry?;
            let mut block = BlockReader::new(block.value())?;
            let rows = block.rows()?;
            let stacks = block.ascending(rows)?;
            definitions
                .entry(key.value().0)
                .or_default()
                .extend(stacks.into_iter().map(|stack| stack as u32));
        }
        for stacks in definitions.values_mut() {
            stacks.sort_unstable();
            stacks.dedup();
        }
        Ok(definitions)
    }
}
