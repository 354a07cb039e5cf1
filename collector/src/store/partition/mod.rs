//! A partition: one database file with a range of time and its dictionary.
//!
//! Retention deletes whole files, which frees space at once and limits the growth of dictionaries. `design/store.md`
//! describes tables and columns.
//! Invariant: the transaction that folds minutes also removes their messages from the journal, so every sample is
//! either in the journal or in blocks, and never in both.

mod blocks;
mod coverage;
mod database;
mod load;
mod tables;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::column;
use super::dictionary;
use super::error::StoreError;
use super::memory::{PartitionMemory, Sums};
use super::rollup::Level;
use super::session::StoredSession;
use blocks::{Bucket, put_sums, raw_block, threads_block};
use coverage::{Written, check, create};
use database::Database;
use lake::write::spool::Spool;
use load::{has_journal, load, load_dictionary, load_sessions};
use parking_lot::{Mutex, RwLock, RwLockUpgradableReadGuard};
use profile::dictionary::Dictionary;
use profile::source::Extent;
use rusqlite::Connection;
use tables::{DICTIONARY, JOURNAL, SESSION_ROWS, SESSIONS, THREADS, number, put_number, session_key, verify};

pub(super) use blocks::{read_raw, read_stacks, read_thread_stacks, read_times};
pub(super) use coverage::Coverage;
#[cfg(test)]
pub(super) use database::PAGE_BYTES;
pub(super) use database::{EXTENSION, PRIVATE, Reading, UNFINISHED, is_left_over, remove, rename_with_logs};
pub(super) use tables::{RAW, RowKey, STACKS, THREAD_STACKS, TIMES};

/// Name of the number of the last interval of the lake in `meta`.
const LAKE: &str = "lake";

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) database: Database,
    /// True if the file has free pages, because rows were removed.
    has_free_pages: AtomicBool,
    pub(super) memory: RwLock<PartitionMemory>,
    pub(super) coverage: RwLock<Coverage>,
    /// True once a query has found damage; later queries leave the partition out.
    pub(super) is_damaged: AtomicBool,
    /// True once its keys were found complete.
    is_verified: AtomicBool,
    written: Mutex<Written>,
}

/// The state in which a partition is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Current,
    /// Closed, with sessions and dictionary in memory.
    Loaded,
    /// Closed, with sessions and dictionary in the file. They are loaded if the journal is not empty, which a collector
    /// never leaves behind.
    Unloaded,
}

impl Partition {
    /// Opens the partition at `path`, or creates it, and applies its journal. If `is_read_only`, the file is
    /// unchanged.
    pub(super) fn open(
        path: &Path,
        now_s: u64,
        is_read_only: bool,
        how: Use,
    ) -> Result<Partition, StoreError> {
        let database = Database::open(path, &create(now_s))?;
        let reading = database.begin_read()?;
        let connection = reading.connection()?;
        check(connection)?;
        let (memory, coverage, written) = if how == Use::Current || has_journal(connection)? {
            load(PartitionMemory::default(), connection)?
        } else if how == Use::Loaded {
            load(PartitionMemory::for_reading(), connection)?
        } else {
            let memory = PartitionMemory::unloaded(&PartitionMemory::default());
            (memory, Coverage::read(connection)?, Written::default())
        };
        drop(reading);
        if !is_read_only {
            database.take_over();
        }
        let partition = Partition {
            database,
            has_free_pages: AtomicBool::new(false),
            memory: RwLock::new(memory),
            coverage: RwLock::new(coverage),
            is_damaged: AtomicBool::new(false),
            is_verified: AtomicBool::new(false),
            written: Mutex::new(written),
        };
        if how != Use::Current {
            partition.close();
        }
        Ok(partition)
    }

    /// Removes the log and the free pages of a closed partition. Does nothing during queries; the next upkeep repeats
    /// it.
    pub(super) fn compact(&self) -> Result<(), StoreError> {
        self.database.remove_log()?;
        // Relaxed: only the writer thread uses it.
        if self.has_free_pages.load(Ordering::Relaxed) && self.database.compact()?.is_some() {
            self.has_free_pages.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes framed messages of sessions durable: after this returns, they survive a power failure.
    pub(super) fn journal(&self, messages: &[(u64, &[u8])]) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for (session, framed) in messages {
            bytes.extend_from_slice(&session.to_le_bytes());
            bytes.extend_from_slice(framed);
        }
        let packed = column::compress(&bytes)?;
        let mut written = self.written.lock();
        let key = [written.journal.cast_signed()];
        self.database.write(|connection| JOURNAL.put(connection, &key, &packed))?;
        written.journal += 1;
        Ok(())
    }

    /// Writes all open minutes as blocks, with everything they refer to, and empties the journal. With a spool, they
    /// become an interval of the lake as well.
    ///
    /// Queries continue while blocks are built, and wait for the commit.
    pub(super) fn fold(&self, spool: Option<&Spool>) -> Result<(), StoreError> {
        let memory = self.memory.upgradable_read();
        let sealed = spool.map(|spool| Sealing::seal(spool, &memory)).transpose()?;
        let mut written = self.written.lock();
        let fold = written.fold;
        let rows = memory.dictionary.tables().lens();
        let definitions =
            (rows != written.rows).then(|| dictionary::encode(&memory.dictionary, written.rows));
        let definitions = definitions.transpose()?;
        let blocks: Vec<_> = memory
            .open
            .iter()
            .map(|(&(start_s, session), minute)| Ok((start_s, session, raw_block(minute)?, minute.sums())))
            .collect::<Result<_, StoreError>>()?;
        let mut memory = RwLockUpgradableReadGuard::upgrade(memory);
        let mut coverage = *self.coverage.read();
        // Late samples of buckets that are already rolled up are added to the sums of these as well.
        let mut late: BTreeMap<Bucket, Sums> = BTreeMap::new();
        for (start_s, session, _, sums) in &blocks {
            coverage.include(*start_s);
            let Some(state) = memory.sessions.get_mut(session) else { continue };
            for level in
                Level::COARSE.into_iter().filter(|&level| *start_s < coverage.rolled_s[level as usize])
            {
                let bucket = Bucket { level, start_s: level.start_of(*start_s), session: *session };
                late.entry(bucket).or_default().extend(level.coarsen(state, *start_s, sums));
            }
        }
        self.database.write(|connection| {
            if let Some(definitions) = &definitions {
                DICTIONARY.put(connection, &[fold.cast_signed()], definitions)?;
            }
            for (start_s, session, block, sums) in &blocks {
                let (start_s, session) = (*start_s, *session);
                RAW.put(
                    connection,
                    &[start_s.cast_signed(), session_key(session), fold.cast_signed()],
                    block,
                )?;
                put_sums(connection, Bucket { level: Level::Minute, start_s, session }, fold, sums)?;
            }
            for (bucket, sums) in late {
                put_sums(connection, bucket, fold, &sums.merged())?;
            }
            for (&id, session) in memory.sessions.iter().filter(|(_, session)| session.is_changed) {
                write_session(connection, id, session, fold)?;
            }
            JOURNAL.clear(connection, None)?;
            if let Some(sealed) = &sealed {
                put_number(connection, LAKE, sealed.number)?;
            }
            coverage.write(connection)
        })?;
        if let Some(sealed) = sealed {
            sealed.commit();
        }
        for session in memory.sessions.values_mut().filter(|session| session.is_changed) {
            session.is_changed = false;
            session.unstored_threads.clear();
            session.stored_rows = session.rows.ends();
        }
        memory.open.clear();
        memory.open_samples = 0;
        memory.open_definitions = 0;
        // Sums of late samples may have created groups of threads.
        memory.update_session_bytes();
        *written = Written { rows, fold: fold + 1, ..*written };
        *self.coverage.write() = coverage;
        Ok(())
    }

    /// Rolls up the buckets of `level` that end before `until_s` from the level below; returns their number.
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
            // Clocks can be wrong by decades, so empty buckets are skipped at once; the last step marks them all as
            // rolled up.
            let filled_s = self.next_filled(level, bucket_s..until_s)?;
            bucket_s = filled_s.unwrap_or(until_s - level.width_s());
            let end_s = bucket_s + level.width_s();
            let by_session = self.sums_of(level, bucket_s..end_s)?;
            let groups: Vec<_> = {
                let memory = self.memory.read();
                let fresh = by_session
                    .iter()
                    .filter_map(|(id, _)| Some((*id, memory.sessions.get(id)?.unstored_groups())));
                fresh.filter(|(_, groups)| !groups.is_empty()).collect()
            };
            let mut coverage = *self.coverage.read();
            coverage.rolled_s[level as usize] = end_s;
            let mut written = self.written.lock();
            let fold = written.fold;
            self.database.write(|connection| {
                for &(session, ref sums) in &by_session {
                    put_sums(connection, Bucket { level, start_s: bucket_s, session }, fold, sums)?;
                }
                // Groups of threads created by these sums. The next fold writes them again, which is harmless.
                for (session, groups) in &groups {
                    let key = [session_key(*session), fold.cast_signed()];
                    THREADS.put(connection, &key, &threads_block(groups)?)?;
                }
                coverage.write(connection)
            })?;
            written.fold += 1;
            *self.coverage.write() = coverage;
            rolled += 1;
            bucket_s = end_s;
        }
        Ok(rolled)
    }

    /// Returns the start of the first bucket in `range` that is not empty.
    fn next_filled(&self, level: Level, range: Range<u64>) -> Result<Option<u64>, StoreError> {
        let reading = self.database.begin_read()?;
        let ends = THREAD_STACKS.ends(reading.connection()?, level.below(), range.clone())?;
        Ok(ends.map(|(first, _)| level.start_of(first).max(range.start)))
    }

    /// Returns the sums of a bucket by session, merged from the level below.
    fn sums_of(&self, level: Level, range: Range<u64>) -> Result<Vec<(u64, Sums)>, StoreError> {
        let reading = self.database.begin_read()?;
        let connection = reading.connection()?;
        let source = level.below();
        let mut merged: BTreeMap<u64, Sums> = BTreeMap::new();
        THREAD_STACKS.range(
            connection,
            Some(source),
            range,
            |_| true,
            |key, block| {
                let RowKey { start_s, session, fold } = key;
                let mut sums = Sums::default();
                let mut add = |thread, stack, sum| sums.thread_stacks.push((thread, stack, sum));
                read_thread_stacks(block, |_| true, &mut add)?;
                let key = [source as i64, start_s.cast_signed(), session_key(session), fold.cast_signed()];
                if let Some(block) = TIMES.get(connection, &key)? {
                    sums.times = read_times(&block)?;
                }
                if let Some(state) = self.memory.write().sessions.get_mut(&session) {
                    merged.entry(session).or_default().extend(level.coarsen(state, start_s, &sums));
                }
                Ok(())
            },
        )?;
        Ok(merged.into_iter().map(|(session, sums)| (session, sums.merged())).collect())
    }

    /// Removes the `levels` finest levels of a closed partition without a log, and frees their space; queries of this
    /// partition wait. Returns `false` and changes nothing if there are too many of them.
    pub(super) fn remove_levels(&self, levels: u64) -> Result<bool, StoreError> {
        let mut coverage = *self.coverage.read();
        coverage.removed = levels;
        let removed = self.database.exclusively(|connection| {
            database::transact(connection, |connection| {
                RAW.clear(connection, None)?;
                for level in [Level::Minute, Level::Hour].into_iter().take(levels.saturating_sub(1) as usize)
                {
                    for table in [&STACKS, &THREAD_STACKS, &TIMES] {
                        table.clear(connection, Some(level))?;
                    }
                }
                coverage.write(connection)
            })?;
            // Set before queries continue.
            *self.coverage.write() = coverage;
            Ok(())
        })?;
        if removed.is_none() {
            return Ok(false);
        }
        self.has_free_pages.store(true, Ordering::Relaxed);
        self.compact().map(|()| true)
    }

    /// Returns the number of the last interval of the lake that was committed with a fold; 0 before the first.
    pub(super) fn last_interval(&self) -> Result<u64, StoreError> {
        Ok(number(self.database.begin_read()?.connection()?, LAKE)?.unwrap_or(0))
    }

    /// Frees memory that only the partition being written to needs: the rows of sessions by number, which continue in
    /// the next partition, and the lookup tables of the dictionary.
    pub(super) fn close(&self) {
        let mut memory = self.memory.write();
        for session in memory.sessions.values_mut() {
            session.free_rows();
        }
        memory.dictionary.close();
        memory.update_session_bytes();
    }

    /// Checks at the first query that no row is missing and none has another key than it was written with.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        // Relaxed: two threads may both do it, with the same result.
        if !self.is_verified.load(Ordering::Relaxed) {
            verify(self.database.begin_read()?.connection()?)?;
            self.is_verified.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads the dictionary of a closed partition from its file.
    pub(super) fn read_dictionary(&self) -> Result<Dictionary, StoreError> {
        load_dictionary(self.database.begin_read()?.connection()?)
    }

    /// Visits the sessions of a closed partition, read from its file.
    pub(super) fn read_sessions(
        &self,
        extent: Extent,
        is_selected: impl Fn(u64) -> bool,
        visit: impl FnMut(u64, &StoredSession),
    ) -> Result<(), StoreError> {
        load_sessions(self.database.begin_read()?.connection()?, extent, is_selected, visit)
    }
}

/// An interval of the lake between its files and the transaction. Drop removes the files, so a failed transaction
/// leaves none behind.
struct Sealing<'s> {
    spool: &'s Spool,
    number: u64,
    is_committed: bool,
}

impl<'s> Sealing<'s> {
    /// Writes the files of the open minutes and of the sessions that have changed.
    fn seal(spool: &'s Spool, memory: &PartitionMemory) -> Result<Self, StoreError> {
        let number = spool.seal(&memory.interval())?;
        Ok(Sealing { spool, number, is_committed: false })
    }

    fn commit(mut self) {
        self.is_committed = true;
        if let Err(error) = self.spool.commit(self.number) {
            tracing::error!(%error, "an interval cannot be released to the lake; the next start repeats this");
        }
    }
}

impl Drop for Sealing<'_> {
    fn drop(&mut self) {
        if !self.is_committed {
            self.spool.discard(self.number);
        }
    }
}

/// Writes what has changed of a session.
fn write_session(
    connection: &Connection,
    id: u64,
    session: &StoredSession,
    fold: u64,
) -> Result<(), StoreError> {
    let (id, fold) = (session_key(id), fold.cast_signed());
    SESSIONS.put(connection, &[id], &session.to_row().into_bytes())?;
    if !session.unstored_threads.is_empty() {
        THREADS.put(connection, &[id, fold], &threads_block(&session.unstored_threads)?)?;
    }
    if let Some(block) = dictionary::encode_numbers(&session.rows, session.stored_rows)? {
        SESSION_ROWS.put(connection, &[id, fold], &block)?;
    }
    Ok(())
}
