//! Loads a partition into memory and applies its journal; for an unloaded one, reads its dictionary, or its sessions
//! one by one.

use profile::dictionary::Dictionary;
use profile::source::Extent;
use prost::Message as _;
use proto::framing::{Checksums, decode_message};
use proto::v1::Dictionary as Definitions;
use rusqlite::Connection;

use super::super::column;
use super::super::dictionary::append;
use super::super::error::{SCHEMA, StoreError};
use super::super::memory::PartitionMemory;
use super::super::rollup::Level;
use super::super::session::{SessionRow, StoredSession};
use super::completeness;
use super::coverage::{Coverage, Written};
use super::database::Reading;
use super::keys;
use super::tables::{
    DICTIONARY, JOURNAL, RAW, SESSION_ROWS, SESSIONS, STACKS, THREADS, create_all, number, put_number,
    session_of,
};

const CREATED: &str = "created_s";
const FIRST: &str = "first_s";
const END: &str = "end_s";
const ROLLED: [&str; Level::COUNT] = ["rolled_minute_s", "rolled_hour_s", "rolled_day_s"];
const REMOVED: &str = "removed";
const VERSION: &str = "schema";
const CHECKSUM: &str = "checksum";

/// The first version whose partitions have checksums of keys and of numbers.
const WITH_CHECKSUMS: u64 = 2;

/// Returns the statements that create the tables of a new partition.
pub(super) fn create(now_s: u64) -> String {
    let coverage = Coverage { created_s: now_s, ..Coverage::default() };
    let numbers = numbers_of(&coverage).into_iter().chain([(VERSION, SCHEMA)]);
    let numbers: Vec<String> =
        numbers.map(|(name, value)| format!("('{name}', {})", value.cast_signed())).collect();
    format!("{} INSERT INTO meta VALUES{}; {}", create_all(), numbers.join(", "), completeness::create())
}

/// Returns the numbers of `meta` of a coverage, and their checksum.
fn numbers_of(coverage: &Coverage) -> Vec<(&'static str, u64)> {
    let rolled = ROLLED.into_iter().zip(coverage.rolled_s);
    let rest = [
        (CREATED, coverage.created_s),
        (FIRST, coverage.first_s),
        (END, coverage.end_s),
        (REMOVED, coverage.removed),
    ];
    rolled.chain(rest).chain([(CHECKSUM, checksum(coverage))]).collect()
}

fn checksum(coverage: &Coverage) -> u64 {
    let Coverage { created_s, first_s, end_s, rolled_s: [minute, hour, day], removed } = *coverage;
    keys::hash(&[created_s, first_s, end_s, minute, hour, day, removed].map(u64::cast_signed))
}

pub(super) fn write_coverage(connection: &Connection, coverage: &Coverage) -> Result<(), StoreError> {
    for (name, value) in numbers_of(coverage) {
        put_number(connection, name, value)?;
    }
    Ok(())
}

impl Reading<'_> {
    /// Returns the coverage in this snapshot.
    pub(in super::super) fn coverage(&self) -> Result<Coverage, StoreError> {
        read_coverage(self.connection()?)
    }
}

pub(super) fn read_coverage(connection: &Connection) -> Result<Coverage, StoreError> {
    let expected = number(connection, CHECKSUM)?;
    let number = |name| Ok::<u64, StoreError>(number(connection, name)?.unwrap_or(0));
    let mut rolled_s = [0; Level::COUNT];
    for (value, name) in rolled_s.iter_mut().zip(ROLLED) {
        *value = number(name)?;
    }
    let coverage = Coverage {
        created_s: number(CREATED)?,
        first_s: number(FIRST)?,
        end_s: number(END)?,
        rolled_s,
        removed: number(REMOVED)?,
    };
    match expected {
        Some(expected) if expected == checksum(&coverage) => Ok(coverage),
        None if number(VERSION)? < WITH_CHECKSUMS => Ok(coverage),
        _ => Err(StoreError::Damaged),
    }
}

/// Checks that the database is a partition of a version that can be read.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    match number(connection, VERSION)? {
        Some(1..=SCHEMA) => Ok(()),
        Some(version) => Err(StoreError::Version(version)),
        None => Err(StoreError::Damaged),
    }
}

/// Returns whether the journal has messages, which are in no block.
pub(super) fn has_journal(connection: &Connection) -> Result<bool, StoreError> {
    Ok(!JOURNAL.keys(connection)?.is_empty())
}

/// Loads the database into `memory`, which must be empty.
pub(super) fn load(
    mut memory: PartitionMemory,
    connection: &Connection,
) -> Result<(PartitionMemory, Coverage, Written), StoreError> {
    check(connection)?;
    let is_closed = memory.dictionary.is_closed();
    let coverage = read_coverage(connection)?;
    let mut fold = 0;
    DICTIONARY.each(connection, |key, block| {
        fold = fold.max(key[0].cast_unsigned() + 1);
        Ok(append(&mut memory.dictionary, block)?)
    })?;
    let rows = memory.dictionary.tables().lens();
    SESSIONS.each(connection, |key, row| {
        let row = SessionRow::from_bytes(row)?;
        memory.sessions.insert(session_of(key[0]), StoredSession::from_row(row));
        Ok(())
    })?;
    THREADS.each(connection, |key, block| {
        fold = fold.max(key[1].cast_unsigned() + 1);
        restore_threads(memory.sessions.entry(session_of(key[0])).or_default(), block)
    })?;
    SESSION_ROWS.each(connection, |key, block| {
        fold = fold.max(key[1].cast_unsigned() + 1);
        // Ended sessions refer to no rows, nor do those of a closed partition.
        let may_continue = |session: &&mut StoredSession| session.goodbye.is_none() && !is_closed;
        let session = memory.sessions.get_mut(&session_of(key[0])).filter(may_continue);
        if let Some(session) = session {
            session.rows.append(block, &memory.dictionary)?;
        }
        Ok(())
    })?;
    for table in [&RAW, &STACKS] {
        fold = table.last_fold(connection)?.map_or(fold, |last| fold.max(last + 1));
    }
    memory.update_session_bytes();
    let mut journal = 0;
    JOURNAL.each(connection, |key, packed| {
        journal = key[0].cast_unsigned() + 1;
        replay(&mut memory, &column::decompress(packed)?)
    })?;
    Ok((memory, coverage, Written { rows, fold, journal }))
}

/// Reads the dictionary for lookups by number only.
pub(super) fn load_dictionary(connection: &Connection) -> Result<Dictionary, StoreError> {
    let mut dictionary = Dictionary::for_reading();
    DICTIONARY.each(connection, |_, block| Ok(append(&mut dictionary, block)?))?;
    Ok(dictionary)
}

/// Visits the sessions that `is_selected` accepts; one at a time is in memory.
pub(super) fn load_sessions(
    connection: &Connection,
    extent: Extent,
    is_selected: impl Fn(u64) -> bool,
    mut visit: impl FnMut(u64, &StoredSession),
) -> Result<(), StoreError> {
    for key in SESSIONS.keys(connection)?.into_iter().filter(|&key| is_selected(session_of(key))) {
        let row = SESSIONS.get(connection, &[key])?.ok_or(StoreError::Damaged)?;
        let row = SessionRow::from_bytes(&row)?;
        let mut session = StoredSession::from_row(row);
        if extent == Extent::Threads {
            THREADS.each_of(connection, key, |block| restore_threads(&mut session, block))?;
        }
        visit(session_of(key), &session);
    }
    Ok(())
}

fn restore_threads(session: &mut StoredSession, block: &[u8]) -> Result<(), StoreError> {
    let definitions = Definitions::decode(column::decompress(block)?.as_slice());
    for thread in definitions.map_err(|_| StoreError::Damaged)?.threads {
        session.restore_thread(thread);
    }
    Ok(())
}

/// Applies the messages of a journal entry.
fn replay(memory: &mut PartitionMemory, mut bytes: &[u8]) -> Result<(), StoreError> {
    while let Some((session, rest)) = bytes.split_first_chunk::<8>() {
        let prefix = rest.first_chunk::<5>().ok_or(StoreError::Damaged)?;
        let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize + prefix.len();
        let framed = rest.get(..len).ok_or(StoreError::Damaged)?;
        let message = decode_message(framed, Checksums::Optional).map_err(|_| StoreError::Damaged)?;
        memory.apply(u64::from_le_bytes(*session), message);
        bytes = &rest[len..];
    }
    Ok(())
}
