//! The tables of a partition, and the statements that read and write them.
//!
//! All tables but `meta` have a key of numbers and a block of bytes. Rows are stored in the order of insertion, beside
//! an index of keys: for blocks of some kilobytes this is faster than rows in the tree of keys (`design/store.md`).
//! SQLite's numbers are signed. Session ids, which use all 64 bits, are stored with their highest bit inverted, which
//! keeps their order; times, folds and numbers of `meta` are stored as signed numbers of the same bits.

use std::ops::Range;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, Statement};

use super::super::error::StoreError;
use super::super::rollup::Level;
use super::database::Reading;
use super::keys;

/// A table of blocks by key.
#[derive(Debug)]
pub(in super::super) struct Table {
    pub(super) name: &'static str,
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

pub(super) const ALL: [&Table; 9] =
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

    /// Returns the starts of the first and of the last bucket of `level` in `range`.
    pub(in super::super) fn ends(
        &self,
        level: Level,
        range: Range<u64>,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let connection = self.connection()?;
        let first = THREAD_STACKS.first_start(connection, level as u8, range.clone())?;
        let last = THREAD_STACKS.last_start(connection, level as u8, range)?;
        Ok(first.zip(last))
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
    /// Returns whether the first part of a key is a level.
    pub(super) fn has_levels(&self) -> bool {
        self.key.first() == Some(&SUM[0])
    }

    /// Returns the name of the sum that has the hash of `key`.
    fn sum_of(&self, key: &[i64]) -> String {
        keys::name(self.name, self.has_levels().then_some(key[0]))
    }

    /// Writes a row, and replaces the one with the same key.
    pub(super) fn put(&self, connection: &Connection, key: &[i64], block: &[u8]) -> Result<(), StoreError> {
        if !self.has(connection, key)? {
            keys::add(connection, &self.sum_of(key), key)?;
        }
        let marks = ["?"; 5][..=key.len()].join(", ");
        let mut statement =
            connection.prepare_cached(&format!("INSERT OR REPLACE INTO {} VALUES({marks})", self.name))?;
        bind(&mut statement, key)?;
        statement.raw_bind_parameter(key.len() + 1, block)?;
        statement.raw_execute()?;
        Ok(())
    }

    fn has(&self, connection: &Connection, key: &[i64]) -> Result<bool, StoreError> {
        let columns = self.key.join(" = ? AND ");
        let mut statement =
            connection.prepare_cached(&format!("SELECT 1 FROM {} WHERE {columns} = ?", self.name))?;
        bind(&mut statement, key)?;
        let mut rows = statement.raw_query();
        Ok(rows.next()?.is_some())
    }

    /// Visits all rows by key.
    pub(super) fn each(
        &self,
        connection: &Connection,
        visit: impl FnMut(&[i64], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.rows(connection, "", &[], |_| true, visit)
    }

    /// Visits all keys, ascending.
    pub(super) fn each_key(
        &self,
        connection: &Connection,
        mut visit: impl FnMut(&[i64]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let columns = self.key.join(", ");
        let text = format!("SELECT {columns} FROM {} ORDER BY {columns}", self.name);
        let mut statement = connection.prepare_cached(&text)?;
        let mut rows = statement.query([])?;
        let mut key = vec![0; self.key.len()];
        while let Some(row) = rows.next()? {
            read_key(row, &mut key)?;
            visit(&key)?;
        }
        Ok(())
    }

    /// Visits rows by key: those for which `condition` holds with `bounds`, and whose keys `is_selected` accepts.
    /// Blocks of others are not read.
    fn rows(
        &self,
        connection: &Connection,
        condition: &str,
        bounds: &[i64],
        is_selected: impl Fn(&[i64]) -> bool,
        mut visit: impl FnMut(&[i64], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Self { name, .. } = self;
        let columns = self.key.join(", ");
        let filter = if condition.is_empty() { String::new() } else { format!("WHERE {condition} ") };
        // The index has all these columns.
        let text = format!("SELECT {columns}, rowid FROM {name} {filter}ORDER BY {columns}");
        let mut keys = connection.prepare_cached(&text)?;
        bind(&mut keys, bounds)?;
        let mut blocks =
            connection.prepare_cached(&format!("SELECT {columns}, block FROM {name} WHERE rowid = ?"))?;
        let mut rows = keys.raw_query();
        let (mut key, mut found_key) = (vec![0; self.key.len()], vec![0; self.key.len()]);
        while let Some(row) = rows.next()? {
            read_key(row, &mut key)?;
            if !is_selected(&key) {
                continue;
            }
            let mut found = blocks.query([row.get::<_, i64>(self.key.len())?])?;
            let row = found.next()?.ok_or(StoreError::Damaged)?;
            read_key(row, &mut found_key)?;
            // An index that was overwritten leads to other rows.
            if found_key != key {
                return Err(StoreError::Damaged);
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
        self.rows(connection, &format!("{} = ?", self.key[0]), &[first], |_| true, |_, block| visit(block))
    }

    /// Returns the row with `key`.
    pub(super) fn get(&self, connection: &Connection, key: &[i64]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut found = None;
        let condition = format!("{} = ?", self.key.join(" = ? AND "));
        self.rows(
            connection,
            &condition,
            key,
            |_| true,
            |_, block| {
                found = Some(block.to_vec());
                Ok(())
            },
        )?;
        Ok(found)
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
        self.start(connection, level, range, "")
    }

    /// Returns the start of the last row of `level` in `range`.
    fn last_start(
        &self,
        connection: &Connection,
        level: u8,
        range: Range<u64>,
    ) -> Result<Option<u64>, StoreError> {
        self.start(connection, level, range, "DESC ")
    }

    fn start(
        &self,
        connection: &Connection,
        level: u8,
        range: Range<u64>,
        order: &str,
    ) -> Result<Option<u64>, StoreError> {
        let text = format!(
            "SELECT start_s FROM {} WHERE level = ? AND start_s >= ? AND start_s < ? ORDER BY start_s {order}LIMIT 1",
            self.name
        );
        let mut statement = connection.prepare_cached(&text)?;
        let bounds = (level, bound(range.start), bound(range.end));
        let start: Option<i64> = statement.query_row(bounds, |row| row.get(0)).optional()?;
        Ok(start.map(i64::cast_unsigned))
    }

    /// Visits the rows that start in `range`, of `level` in a table of sums, and of the sessions that `is_selected`
    /// selects, by start, session and fold. Blocks of other sessions are not read.
    pub(super) fn range(
        &self,
        connection: &Connection,
        level: Option<u8>,
        range: Range<u64>,
        is_selected: impl Fn(u64) -> bool,
        mut visit: impl FnMut([u64; 3], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let of_level = if level.is_some() { "level = ? AND " } else { "" };
        let condition = format!("{of_level}start_s >= ? AND start_s < ?");
        let bounds: Vec<i64> =
            level.map(i64::from).into_iter().chain([bound(range.start), bound(range.end)]).collect();
        let parts = |key: &[i64]| match *key {
            [.., start_s, session, fold] => {
                Ok([start_s.cast_unsigned(), session_of(session), fold.cast_unsigned()])
            }
            _ => Err(StoreError::Damaged),
        };
        let is_selected = |key: &[i64]| parts(key).is_ok_and(|[_, session, _]| is_selected(session));
        self.rows(connection, &condition, &bounds, is_selected, |key, block| visit(parts(key)?, block))
    }

    /// Removes all rows.
    pub(super) fn clear(&self, connection: &Connection) -> Result<(), StoreError> {
        connection.prepare_cached(&format!("DELETE FROM {}", self.name))?.execute([])?;
        keys::clear(connection, &keys::name(self.name, None))
    }

    /// Removes the rows of a level.
    pub(super) fn clear_level(&self, connection: &Connection, level: u8) -> Result<(), StoreError> {
        connection.prepare_cached(&format!("DELETE FROM {} WHERE level = ?", self.name))?.execute([level])?;
        keys::clear(connection, &keys::name(self.name, Some(level.into())))
    }
}

fn read_key(row: &Row<'_>, key: &mut [i64]) -> Result<(), StoreError> {
    for (column, number) in key.iter_mut().enumerate() {
        *number = row.get(column)?;
    }
    Ok(())
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
