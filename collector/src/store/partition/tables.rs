//! The tables of a partition, and the statements that read and write them.
//!
//! All tables but `meta` have a key of numbers and a block of bytes. Rows are stored in the order of insertion, beside an
//! index of keys: for blocks of some kilobytes this is faster than rows in the tree of keys (`design/store.md`).
//! SQLite's numbers are signed. Session ids, which use all 64 bits, are stored with their highest bit inverted, which
//! keeps their order; times, folds and numbers of `meta` are stored as signed numbers of the same bits.

use std::ops::Range;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Statement};

use super::super::error::StoreError;
use super::super::rollup::Level;
use super::database::Reading;

/// A table of blocks by key.
#[derive(Debug)]
pub(in super::super) struct Table {
    name: &'static str,
    key: &'static [&'static str],
}

pub(super) const SESSIONS: Table = Table { name: "sessions", key: &["session"] };
pub(super) const JOURNAL: Table = Table { name: "journal", key: &["number"] };
pub(super) const DICTIONARY: Table = Table { name: "dictionary", key: &["fold"] };
pub(super) const THREADS: Table = Table { name: "threads", key: &["session", "fold"] };
pub(super) const SESSION_ROWS: Table = Table { name: "session_rows", key: &["session", "fold"] };
pub(super) const RAW: Table = Table { name: "raw", key: &["start_s", "session", "fold"] };
pub(in super::super) const STACKS: Table = Table { name: "stacks", key: SUM };
pub(in super::super) const THREAD_STACKS: Table = Table { name: "thread_stacks", key: SUM };
pub(in super::super) const TIMES: Table = Table { name: "times", key: SUM };

const SUM: &[&str] = &["level", "start_s", "session", "fold"];

const ALL: [&Table; 9] =
    [&SESSIONS, &JOURNAL, &DICTIONARY, &THREADS, &SESSION_ROWS, &RAW, &STACKS, &THREAD_STACKS, &TIMES];

impl Reading<'_> {
    /// Visits buckets of sums that start in `range`, by start and session.
    pub(in super::super) fn sums(
        &self,
        table: &Table,
        level: Level,
        range: Range<u64>,
        is_selected: impl Fn(u64) -> bool,
        mut visit: impl FnMut(u64, u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        table.range(
            self.connection()?,
            Some(level as u8),
            range,
            is_selected,
            |[start_s, session, _], block| visit(start_s, session, block),
        )
    }

    /// Visits minutes of single samples that start in `range`, by start and session.
    pub(in super::super) fn raw(
        &self,
        range: Range<u64>,
        is_selected: impl Fn(u64) -> bool,
        mut visit: impl FnMut(u64, u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        RAW.range(self.connection()?, None, range, is_selected, |[start_s, session, _], block| {
            visit(start_s, session, block)
        })
    }
}

/// Returns the part of a key for a session id.
pub(super) fn session_key(id: u64) -> i64 {
    (id ^ 1 << 63).cast_signed()
}

/// Returns the session id of a part of a key.
pub(super) fn session_of(key: i64) -> u64 {
    key.cast_unsigned() ^ 1 << 63
}

/// Returns the part of a key for another number.
fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the statements that create all tables.
pub(super) fn create_all() -> String {
    let mut text =
        String::from("CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;");
    for Table { name, key } in ALL {
        let columns = key.join(" INTEGER NOT NULL, ");
        let key = key.join(", ");
        text += &format!(
            "CREATE TABLE {name}({columns} INTEGER NOT NULL, block BLOB NOT NULL, PRIMARY KEY({key}));"
        );
    }
    text
}

impl Table {
    /// Writes a row, and replaces the one with the same key.
    pub(super) fn put(&self, connection: &Connection, key: &[i64], block: &[u8]) -> Result<(), StoreError> {
        let marks = ["?"; 5][..=key.len()].join(", ");
        let mut statement =
            connection.prepare_cached(&format!("INSERT OR REPLACE INTO {} VALUES({marks})", self.name))?;
        bind(&mut statement, key)?;
        statement.raw_bind_parameter(key.len() + 1, block)?;
        statement.raw_execute()?;
        Ok(())
    }

    /// Visits all rows by key.
    pub(super) fn each(
        &self,
        connection: &Connection,
        mut visit: impl FnMut(&[i64], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let columns = self.key.join(", ");
        let text = format!("SELECT {columns}, block FROM {} ORDER BY {columns}", self.name);
        let mut statement = connection.prepare_cached(&text)?;
        let mut rows = statement.query([])?;
        let mut key = Vec::new();
        while let Some(row) = rows.next()? {
            key.clear();
            for column in 0..self.key.len() {
                key.push(row.get(column)?);
            }
            visit(&key, bytes(row.get_ref(self.key.len())?)?)?;
        }
        Ok(())
    }

    /// Returns the first part of all keys, ascending.
    pub(super) fn keys(&self, connection: &Connection) -> Result<Vec<i64>, StoreError> {
        let first = self.key[0];
        let text = format!("SELECT {first} FROM {} ORDER BY {first}", self.name);
        let mut statement = connection.prepare_cached(&text)?;
        let keys = statement.query_map([], |row| row.get(0))?;
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// Visits the rows whose keys begin with `first`, by key.
    pub(super) fn each_of(
        &self,
        connection: &Connection,
        first: i64,
        mut visit: impl FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let columns = self.key.join(", ");
        let text = format!("SELECT block FROM {} WHERE {} = ? ORDER BY {columns}", self.name, self.key[0]);
        let mut statement = connection.prepare_cached(&text)?;
        let mut rows = statement.query([first])?;
        while let Some(row) = rows.next()? {
            visit(bytes(row.get_ref(0)?)?)?;
        }
        Ok(())
    }

    /// Returns the row with `key`.
    pub(super) fn get(&self, connection: &Connection, key: &[i64]) -> Result<Option<Vec<u8>>, StoreError> {
        let columns = self.key.join(" = ? AND ");
        let mut statement =
            connection.prepare_cached(&format!("SELECT block FROM {} WHERE {columns} = ?", self.name))?;
        bind(&mut statement, key)?;
        let mut rows = statement.raw_query();
        rows.next()?.map(|row| Ok(bytes(row.get_ref(0)?)?.to_vec())).transpose()
    }

    /// Returns the highest fold, `None` without rows.
    pub(super) fn last_fold(&self, connection: &Connection) -> Result<Option<u64>, StoreError> {
        let text = format!("SELECT max(fold) FROM {}", self.name);
        let last: Option<i64> = connection.query_row(&text, [], |row| row.get(0))?;
        Ok(last.map(i64::cast_unsigned))
    }

    /// Returns the start of the first row of `level` in `range`.
    pub(super) fn first_start(
        &self,
        connection: &Connection,
        level: u8,
        range: Range<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let text = format!(
            "SELECT start_s FROM {} WHERE level = ? AND start_s >= ? AND start_s < ? ORDER BY start_s LIMIT 1",
            self.name
        );
        let mut statement = connection.prepare_cached(&text)?;
        let bounds = (level, bound(range.start), bound(range.end));
        let first: Option<i64> = statement.query_row(bounds, |row| row.get(0)).optional()?;
        Ok(first.map(i64::cast_unsigned))
    }

    /// Visits the rows that start in `range`, of `level` in a table of sums, and of the sessions that `is_selected` selects, by
    /// start, session and fold. Blocks of other sessions are not read.
    pub(super) fn range(
        &self,
        connection: &Connection,
        level: Option<u8>,
        range: Range<u64>,
        is_selected: impl Fn(u64) -> bool,
        mut visit: impl FnMut([u64; 3], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let of_level = if level.is_some() { "level = ? AND " } else { "" };
        // The index has all these columns.
        let text = format!(
            "SELECT start_s, session, fold, rowid FROM {} WHERE {of_level}start_s >= ? AND start_s < ? \
             ORDER BY start_s, session, fold",
            self.name
        );
        let mut keys = connection.prepare_cached(&text)?;
        let bounds: Vec<i64> =
            level.map(i64::from).into_iter().chain([bound(range.start), bound(range.end)]).collect();
        bind(&mut keys, &bounds)?;
        let mut blocks =
            connection.prepare_cached(&format!("SELECT block FROM {} WHERE rowid = ?", self.name))?;
        let mut rows = keys.raw_query();
        while let Some(row) = rows.next()? {
            let (start_s, session, fold): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let session = session_of(session);
            if !is_selected(session) {
                continue;
            }
            let mut found = blocks.query([row.get::<_, i64>(3)?])?;
            let block = found.next()?.ok_or(StoreError::Damaged)?;
            visit([start_s.cast_unsigned(), session, fold.cast_unsigned()], bytes(block.get_ref(0)?)?)?;
        }
        Ok(())
    }

    /// Removes all rows.
    pub(super) fn clear(&self, connection: &Connection) -> Result<(), StoreError> {
        connection.prepare_cached(&format!("DELETE FROM {}", self.name))?.execute([])?;
        Ok(())
    }

    /// Removes the rows of a level.
    pub(super) fn clear_level(&self, connection: &Connection, level: u8) -> Result<(), StoreError> {
        connection.prepare_cached(&format!("DELETE FROM {} WHERE level = ?", self.name))?.execute([level])?;
        Ok(())
    }
}

fn bind(statement: &mut Statement<'_>, numbers: &[i64]) -> Result<(), StoreError> {
    for (index, number) in numbers.iter().enumerate() {
        statement.raw_bind_parameter(index + 1, number)?;
    }
    Ok(())
}

/// Returns the block of a row; a value of another type is damage.
fn bytes(value: ValueRef<'_>) -> Result<&[u8], StoreError> {
    match value {
        ValueRef::Blob(bytes) => Ok(bytes),
        _ => Err(StoreError::Damaged),
    }
}

/// Writes a number of `meta`.
pub(super) fn put_number(connection: &Connection, name: &str, number: u64) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached("INSERT OR REPLACE INTO meta VALUES(?, ?)")?;
    statement.execute((name, number.cast_signed()))?;
    Ok(())
}

/// Returns a number of `meta`.
pub(super) fn number(connection: &Connection, name: &str) -> Result<Option<u64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = ?")?;
    let value: Option<i64> = statement.query_row([name], |row| row.get(0)).optional()?;
    Ok(value.map(i64::cast_unsigned))
}
