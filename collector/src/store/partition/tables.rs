//! The tables of a partition, and the statements that read and write them.
//!
//! All tables but `meta` have a key of numbers and a block of bytes. Rows are stored in the order of insertion, beside
//! an index of keys: for blocks of some kilobytes this is faster than rows in the tree of keys (`design/store.md`).
//! SQLite's numbers are signed. Session ids, which use all 64 bits, are stored with their highest bit inverted, which
//! keeps their order; times, folds and numbers of `meta` are stored as signed numbers of the same bits.
//!
//! Blocks have checksums, but a row whose key is overwritten, or whose page is no longer referenced, would be missing
//! in answers without notice. So `meta` has the sum of the hashes of all keys of each table, and of each level of a
//! table of sums. It changes in the transaction that changes the rows, and [`verify`] compares it at the first query.

use std::ops::Range;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params_from_iter};
use xxhash_rust::xxh3::xxh3_64;

use super::super::error::StoreError;
use super::super::rollup::Level;

/// A table of blocks by key.
#[derive(Debug)]
pub(in super::super) struct Table {
    name: &'static str,
    key: &'static [&'static str],
}

/// Key of a row of samples, or of sums without their level.
pub(in super::super) struct RowKey {
    pub(in super::super) start_s: u64,
    pub(in super::super) session: u64,
    pub(super) fold: u64,
}

pub(super) const SESSIONS: Table = Table { name: "sessions", key: &["session"] };
pub(super) const JOURNAL: Table = Table { name: "journal", key: &["number"] };
pub(super) const DICTIONARY: Table = Table { name: "dictionary", key: &["fold"] };
pub(super) const THREADS: Table = Table { name: "threads", key: &["session", "fold"] };
pub(super) const SESSION_ROWS: Table = Table { name: "session_rows", key: &["session", "fold"] };
pub(in super::super) const RAW: Table = Table { name: "raw", key: &["start_s", "session", "fold"] };
pub(in super::super) const STACKS: Table = Table { name: "stacks", key: SUM };
pub(in super::super) const THREAD_STACKS: Table = Table { name: "thread_stacks", key: SUM };
pub(in super::super) const TIMES: Table = Table { name: "times", key: SUM };

const SUM: &[&str] = &["level", "start_s", "session", "fold"];

const ALL: [&Table; 9] =
    [&SESSIONS, &JOURNAL, &DICTIONARY, &THREADS, &SESSION_ROWS, &RAW, &STACKS, &THREAD_STACKS, &TIMES];

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

/// Returns the hash of a key; sums of a billion of them fit into a number of `meta`.
pub(super) fn hash(key: &[i64]) -> u64 {
    let bytes: Vec<u8> = key.iter().flat_map(|number| number.to_le_bytes()).collect();
    xxh3_64(&bytes) & u64::from(u32::MAX)
}

/// Returns the statements that create all tables and the sums of their keys.
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
    let sums: Vec<String> = sums().map(|name| format!("('{name}', 0)")).collect();
    text + &format!("INSERT INTO meta VALUES{};", sums.join(", "))
}

/// Returns the names of all sums of keys. Partitions of early versions have none of them.
fn sums() -> impl Iterator<Item = String> {
    ALL.into_iter().flat_map(|table| match table.has_levels() {
        true => (0..Level::COUNT as i64).map(|level| table.sum_of(&[level])).collect(),
        false => vec![table.sum_of(&[])],
    })
}

/// Compares all sums with the keys.
///
/// # Errors
/// [`StoreError::Damaged`] if rows are missing or have other keys.
pub(super) fn verify(connection: &Connection) -> Result<(), StoreError> {
    let mut expected = Vec::new();
    for name in sums() {
        expected.push((number(connection, &name)?, name));
    }
    if expected.iter().all(|(sum, _)| sum.is_none()) {
        return Ok(());
    }
    let mut found: Vec<u64> = vec![0; expected.len()];
    for table in ALL {
        table.each_key(connection, |key| {
            let name = table.sum_of(key);
            let at = expected.iter().position(|(_, known)| *known == name).ok_or(StoreError::Damaged)?;
            found[at] += hash(key);
            Ok(())
        })?;
    }
    let is_whole = expected.iter().zip(&found).all(|((sum, _), found)| *sum == Some(*found));
    if is_whole { Ok(()) } else { Err(StoreError::Damaged) }
}

impl Table {
    /// Returns whether the first part of a key is a level.
    fn has_levels(&self) -> bool {
        self.key.first() == Some(&SUM[0])
    }

    /// Returns the name of the sum that has the hash of `key`; tables of sums have one for each level.
    fn sum_of(&self, key: &[i64]) -> String {
        let level = key.first().filter(|_| self.has_levels());
        level.map_or_else(
            || format!("keys of {}", self.name),
            |level| format!("keys of {} {level}", self.name),
        )
    }

    /// Writes a row, and replaces the one with the same key.
    pub(super) fn put(&self, connection: &Connection, key: &[i64], block: &[u8]) -> Result<(), StoreError> {
        let Table { name, .. } = self;
        let condition = self.key.join(" = ? AND ");
        let mut known = connection.prepare_cached(&format!("SELECT 1 FROM {name} WHERE {condition} = ?"))?;
        if !known.exists(params_from_iter(key))? {
            let mut add = connection.prepare_cached("UPDATE meta SET value = value + ? WHERE name = ?")?;
            add.execute((hash(key).cast_signed(), self.sum_of(key)))?;
        }
        let marks = ["?"; 5][..=key.len()].join(", ");
        let values = key.iter().map(|part| part as &dyn ToSql).chain([&block as &dyn ToSql]);
        connection
            .prepare_cached(&format!("INSERT OR REPLACE INTO {name} VALUES({marks})"))?
            .execute(params_from_iter(values))?;
        Ok(())
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
        while let Some(row) = rows.next()? {
            visit(&self.key_of(row)?)?;
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
        let mut blocks =
            connection.prepare_cached(&format!("SELECT {columns}, block FROM {name} WHERE rowid = ?"))?;
        let mut rows = keys.query(params_from_iter(bounds))?;
        while let Some(row) = rows.next()? {
            let key = self.key_of(row)?;
            if !is_selected(&key) {
                continue;
            }
            let mut found = blocks.query([row.get::<_, i64>(key.len())?])?;
            let row = found.next()?.ok_or(StoreError::Damaged)?;
            // An index that was overwritten leads to other rows, and a value of another type is damage as well.
            match row.get_ref(key.len())? {
                ValueRef::Blob(block) if self.key_of(row)? == key => visit(&key, block)?,
                _ => return Err(StoreError::Damaged),
            }
        }
        Ok(())
    }

    /// Returns the key of a row whose first columns are the parts of the key.
    fn key_of(&self, row: &Row<'_>) -> rusqlite::Result<Vec<i64>> {
        (0..self.key.len()).map(|column| row.get(column)).collect()
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

    pub(super) fn get(&self, connection: &Connection, key: &[i64]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut found = None;
        let mut keep = |block: &[u8]| {
            found = Some(block.to_vec());
            Ok(())
        };
        let condition = format!("{} = ?", self.key.join(" = ? AND "));
        self.rows(connection, &condition, key, |_| true, |_, block| keep(block))?;
        Ok(found)
    }

    /// Returns the highest number in the last part of keys (a fold), `None` without rows.
    pub(super) fn last(&self, connection: &Connection) -> Result<Option<u64>, StoreError> {
        let text = format!("SELECT max({}) FROM {}", self.key[self.key.len() - 1], self.name);
        let last: Option<i64> = connection.query_row(&text, [], |row| row.get(0))?;
        Ok(last.map(i64::cast_unsigned))
    }

    /// Returns the starts of the first and of the last row of `level` in `range`.
    pub(in super::super) fn ends(
        &self,
        connection: &Connection,
        level: Level,
        range: Range<u64>,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let bounds = (level as u8, bound(range.start), bound(range.end));
        let start = |order: &str| -> rusqlite::Result<Option<i64>> {
            let text = format!(
                "SELECT start_s FROM {} WHERE level = ? AND start_s >= ? AND start_s < ? ORDER BY start_s {order} LIMIT 1",
                self.name
            );
            connection.prepare_cached(&text)?.query_row(bounds, |row| row.get(0)).optional()
        };
        Ok(start("ASC")?
            .zip(start("DESC")?)
            .map(|(first, last)| (first.cast_unsigned(), last.cast_unsigned())))
    }

    /// Visits the rows that start in `range`, of `level` in a table of sums, and of the sessions that `is_selected`
    /// selects, by start, session and fold. Blocks of other sessions are not read.
    pub(in super::super) fn range(
        &self,
        connection: &Connection,
        level: Option<Level>,
        range: Range<u64>,
        is_selected: impl Fn(u64) -> bool,
        mut visit: impl FnMut(RowKey, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let of_level = if level.is_some() { "level = ? AND " } else { "" };
        let condition = format!("{of_level}start_s >= ? AND start_s < ?");
        let bounds = [bound(range.start), bound(range.end)];
        let bounds: Vec<i64> = level.map(|level| level as i64).into_iter().chain(bounds).collect();
        let parts = |key: &[i64]| match *key {
            [.., start_s, session, fold] => Ok(RowKey {
                start_s: start_s.cast_unsigned(),
                session: session_of(session),
                fold: fold.cast_unsigned(),
            }),
            _ => Err(StoreError::Damaged),
        };
        let is_selected = |key: &[i64]| parts(key).is_ok_and(|key| is_selected(key.session));
        self.rows(connection, &condition, &bounds, is_selected, |key, block| visit(parts(key)?, block))
    }

    /// Removes all rows, of `level` in a table of sums.
    pub(super) fn clear(&self, connection: &Connection, level: Option<Level>) -> Result<(), StoreError> {
        let level = level.map(|level| level as i64);
        let condition = if level.is_some() { "WHERE level = ?" } else { "" };
        let text = format!("DELETE FROM {} {condition}", self.name);
        connection.prepare_cached(&text)?.execute(params_from_iter(level))?;
        let sum = self.sum_of(level.as_slice());
        connection.prepare_cached("UPDATE meta SET value = 0 WHERE name = ?")?.execute([sum])?;
        Ok(())
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
