//! Opening a partition: what is kept in memory is read, and the journal applied.

use std::path::Path;

use prost::Message as _;
use proto::framing::decode_frame;
use proto::v1::{AgentMessage, Dictionary as Definitions};
use redb::{Database, ReadableTable as _, WriteTransaction};

use super::super::column;
use super::super::dictionary::Mark;
use super::super::error::StoreError;
use super::super::head::Head;
use super::super::rollup::Level;
use super::super::session::{Session, SessionRow};
use super::{
    CACHE_BYTES, Coverage, DEFINITIONS, DICTIONARY, JOURNAL, META, NUMBERS, RAW, SCHEMA, SESSIONS, STACKS,
    THREAD_STACKS, THREADS, TIMES,
};

pub(super) fn open_database(path: &Path) -> Result<Database, StoreError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    #[cfg(test)]
    if let Some(backend) = super::super::quota::backend(path)? {
        return Ok(builder.create_with_backend(backend)?);
    }
    Ok(builder.create(path)?)
}

const CREATED: &str = "created_s";
const FIRST: &str = "first_s";
const END: &str = "end_s";
const ROLLED: [&str; Level::COUNT] = ["rolled_minute_s", "rolled_hour_s", "rolled_day_s"];
const REMOVED: &str = "removed";
const VERSION: &str = "schema";

pub(super) fn write_coverage(transaction: &WriteTransaction, coverage: &Coverage) -> Result<(), StoreError> {
    let mut meta = transaction.open_table(META)?;
    let rolled = ROLLED.into_iter().zip(coverage.rolled_s);
    let rest = [
        (VERSION, SCHEMA),
        (CREATED, coverage.created_s),
        (FIRST, coverage.first_s),
        (END, coverage.end_s),
        (REMOVED, coverage.removed),
    ];
    for (name, value) in rolled.chain(rest) {
        meta.insert(name, value)?;
    }
    Ok(())
}

/// Reads what is kept in memory into `head`, a new one. Tables are made here, so that readers need not ask whether they exist.
pub(super) fn load(
    mut head: Head,
    database: &Database,
    now_s: u64,
) -> Result<(Head, Coverage, Mark, u64, u64), StoreError> {
    let transaction = database.begin_write()?;
    let is_closed = head.dictionary.is_closed();
    let mut coverage = Coverage { created_s: now_s, ..Coverage::default() };
    let mut fold = 0;
    let mut journal = 0;
    let mark;
    {
        let meta = transaction.open_table(META)?;
        let number =
            |name| -> Result<Option<u64>, StoreError> { Ok(meta.get(name)?.map(|value| value.value())) };
        if let Some(version) = number(VERSION)?.filter(|&version| version != SCHEMA) {
            return Err(StoreError::Version(version));
        }
        coverage.created_s = number(CREATED)?.unwrap_or(now_s);
        coverage.first_s = number(FIRST)?.unwrap_or(0);
        coverage.end_s = number(END)?.unwrap_or(0);
        coverage.removed = number(REMOVED)?.unwrap_or(0);
        for (value, name) in coverage.rolled_s.iter_mut().zip(ROLLED) {
            *value = number(name)?.unwrap_or(0);
        }
        for entry in transaction.open_table(DICTIONARY)?.iter()? {
            let (number, block) = entry?;
            head.dictionary.append(block.value())?;
            fold = fold.max(number.value() + 1);
        }
        mark = head.dictionary.mark();
        for entry in transaction.open_table(SESSIONS)?.iter()? {
            let (id, row) = entry?;
            let row = SessionRow::decode(row.value()).map_err(|_| StoreError::Damaged)?;
            head.sessions.insert(id.value(), Session::from_row(row));
        }
        for entry in transaction.open_table(THREADS)?.iter()? {
            let (key, block) = entry?;
            let (id, number) = key.value();
            fold = fold.max(number + 1);
            let definitions = Definitions::decode(column::decompress(block.value())?.as_slice());
            let session = head.sessions.entry(id).or_default();
            for thread in definitions.map_err(|_| StoreError::Damaged)?.threads {
                session.restore_thread(thread);
            }
        }
        for entry in transaction.open_table(NUMBERS)?.iter()? {
            let (key, block) = entry?;
            let (id, number) = key.value();
            fold = fold.max(number + 1);
            // One that has ended refers to nothing any more, and in a closed partition none does.
            let goes_on = |session: &&mut Session| session.goodbye.is_none() && !is_closed;
            if let Some(session) = head.sessions.get_mut(&id).filter(goes_on) {
                session.numbers.append(block.value(), &head.dictionary)?;
            }
        }
        let raw = transaction.open_table(RAW)?;
        let sums = transaction.open_table(STACKS)?;
        let folds_of_raw = raw.iter()?.map(|entry| entry.map(|(key, _)| key.value().2));
        let folds_of_sums = sums.iter()?.map(|entry| entry.map(|(key, _)| key.value().3));
        for number in folds_of_raw.chain(folds_of_sums) {
            fold = fold.max(number? + 1);
        }
        transaction.open_table(THREAD_STACKS)?;
        transaction.open_table(TIMES)?;
        transaction.open_table(DEFINITIONS)?;
        head.weigh();
        for entry in transaction.open_table(JOURNAL)?.iter()? {
            let (number, packed) = entry?;
            journal = number.value() + 1;
            replay(&mut head, &column::decompress(packed.value())?)?;
        }
    }
    write_coverage(&transaction, &coverage)?;
    transaction.commit()?;
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
