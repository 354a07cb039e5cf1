//! Opening a partition: what is kept in memory is read, and the journal applied.

use prost::Message as _;
use proto::framing::decode_frame;
use proto::v1::{AgentMessage, Dictionary as Definitions};
use rusqlite::Connection;

use super::super::column;
use super::super::dictionary::Mark;
use super::super::error::StoreError;
use super::super::head::Head;
use super::super::rollup::Level;
use super::super::session::{Session, SessionRow};
use super::tables::{
    DICTIONARY, JOURNAL, NUMBERS, RAW, SESSIONS, STACKS, THREADS, create_all, number, put_number, session_of,
};
use super::{Coverage, SCHEMA};

const CREATED: &str = "created_s";
const FIRST: &str = "first_s";
const END: &str = "end_s";
const ROLLED: [&str; Level::COUNT] = ["rolled_minute_s", "rolled_hour_s", "rolled_day_s"];
const REMOVED: &str = "removed";
const VERSION: &str = "schema";

/// What makes the tables of a new partition, which is empty.
pub(super) fn create(now_s: u64) -> String {
    format!("{} INSERT INTO meta VALUES('{VERSION}', {SCHEMA}), ('{CREATED}', {now_s});", create_all())
}

pub(super) fn write_coverage(connection: &Connection, coverage: &Coverage) -> Result<(), StoreError> {
    let rolled = ROLLED.into_iter().zip(coverage.rolled_s);
    let rest = [
        (CREATED, coverage.created_s),
        (FIRST, coverage.first_s),
        (END, coverage.end_s),
        (REMOVED, coverage.removed),
    ];
    for (name, value) in rolled.chain(rest) {
        put_number(connection, name, value)?;
    }
    Ok(())
}

pub(super) fn read_coverage(connection: &Connection) -> Result<Coverage, StoreError> {
    let number = |name| Ok::<u64, StoreError>(number(connection, name)?.unwrap_or(0));
    let mut rolled_s = [0; Level::COUNT];
    for (value, name) in rolled_s.iter_mut().zip(ROLLED) {
        *value = number(name)?;
    }
    Ok(Coverage {
        created_s: number(CREATED)?,
        first_s: number(FIRST)?,
        end_s: number(END)?,
        rolled_s,
        removed: number(REMOVED)?,
    })
}

/// Reads what is kept in memory into `head`, a new one.
pub(super) fn load(
    mut head: Head,
    connection: &Connection,
) -> Result<(Head, Coverage, Mark, u64, u64), StoreError> {
    match number(connection, VERSION)? {
        Some(SCHEMA) => {}
        Some(version) => return Err(StoreError::Version(version)),
        None => return Err(StoreError::Damaged),
    }
    let is_closed = head.dictionary.is_closed();
    let coverage = read_coverage(connection)?;
    let mut fold = 0;
    DICTIONARY.each(connection, |key, block| {
        fold = fold.max(key[0].cast_unsigned() + 1);
        Ok(head.dictionary.append(block)?)
    })?;
    let mark = head.dictionary.mark();
    SESSIONS.each(connection, |key, row| {
        let row = SessionRow::decode(row).map_err(|_| StoreError::Damaged)?;
        head.sessions.insert(session_of(key[0]), Session::from_row(row));
        Ok(())
    })?;
    THREADS.each(connection, |key, block| {
        fold = fold.max(key[1].cast_unsigned() + 1);
        let definitions = Definitions::decode(column::decompress(block)?.as_slice());
        let session = head.sessions.entry(session_of(key[0])).or_default();
        for thread in definitions.map_err(|_| StoreError::Damaged)?.threads {
            session.restore_thread(thread);
        }
        Ok(())
    })?;
    NUMBERS.each(connection, |key, block| {
        fold = fold.max(key[1].cast_unsigned() + 1);
        // One that has ended refers to nothing any more, and in a closed partition none does.
        let goes_on = |session: &&mut Session| session.goodbye.is_none() && !is_closed;
        let session = head.sessions.get_mut(&session_of(key[0])).filter(goes_on);
        if let Some(session) = session {
            session.numbers.append(block, &head.dictionary)?;
        }
        Ok(())
    })?;
    for table in [&RAW, &STACKS] {
        fold = table.last_fold(connection)?.map_or(fold, |last| fold.max(last + 1));
    }
    head.weigh();
    let mut journal = 0;
    JOURNAL.each(connection, |key, packed| {
        journal = key[0].cast_unsigned() + 1;
        replay(&mut head, &column::decompress(packed)?)
    })?;
    Ok((head, coverage, mark, fold, journal))
}

/// Applies the messages of one journal entry.
fn replay(head: &mut Head, mut bytes: &[u8]) -> Result<(), StoreError> {
    while let Some((session, rest)) = bytes.split_first_chunk::<8>() {
        let prefix = rest.first_chunk::<5>().ok_or(StoreError::Damaged)?;
        let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize + prefix.len();
        let framed = rest.get(..len).ok_or(StoreError::Damaged)?;
        let message: AgentMessage = decode_frame(framed).map_err(|_| StoreError::Damaged)?;
        head.apply(u64::from_le_bytes(*session), message);
        bytes = &rest[len..];
    }
    Ok(())
}
