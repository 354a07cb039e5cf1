//! Loads a partition into memory and applies its journal; for an unloaded one, reads its dictionary, or its sessions
//! one by one.

use profile::dictionary::Dictionary;
use profile::source::Extent;
use prost::Message as _;
use proto::framing::{Checksums, decode_message};
use proto::v1::Dictionary as Definitions;
use rusqlite::Connection;

use super::super::column;
use super::super::dictionary::{append, append_numbers};
use super::super::error::StoreError;
use super::super::memory::PartitionMemory;
use super::super::session::{SessionRow, StoredSession};
use super::coverage::{Coverage, Written};
use super::tables::{DICTIONARY, JOURNAL, RAW, SESSION_ROWS, SESSIONS, STACKS, THREADS, session_of};

/// Returns whether the journal has messages, which are in no block.
pub(super) fn has_journal(connection: &Connection) -> Result<bool, StoreError> {
    Ok(JOURNAL.last(connection)?.is_some())
}

/// Loads the database into `memory`, which must be empty.
pub(super) fn load(
    mut memory: PartitionMemory,
    connection: &Connection,
) -> Result<(PartitionMemory, Coverage, Written), StoreError> {
    let is_closed = memory.dictionary.is_closed();
    let coverage = Coverage::read(connection)?;
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
        let may_continue = |session: &&mut StoredSession| session.seen.goodbye.is_none() && !is_closed;
        let session = memory.sessions.get_mut(&session_of(key[0])).filter(may_continue);
        if let Some(session) = session {
            append_numbers(&mut session.rows, block, &memory.dictionary)?;
            session.stored_rows = session.rows.ends();
        }
        Ok(())
    })?;
    for table in [&RAW, &STACKS] {
        fold = table.last(connection)?.map_or(fold, |last| fold.max(last + 1));
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
    let mut keys = Vec::new();
    SESSIONS.each_key(connection, |key| {
        keys.push(key[0]);
        Ok(())
    })?;
    for key in keys.into_iter().filter(|&key| is_selected(session_of(key))) {
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
