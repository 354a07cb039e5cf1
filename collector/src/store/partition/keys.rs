//! Checksums of the keys of a partition's tables.
//!
//! Problem: blocks have checksums, but a row whose key is overwritten, or whose page no longer leads to it, is in no answer,
//! and nobody would notice.
//! Approach: `meta` has the sum of the hashes of all keys of each table, and of each level of a table of sums. It changes in
//! the transaction that changes the rows, and is compared once, at the first query.

use rusqlite::Connection;
use xxhash_rust::xxh3::xxh3_64;

use super::super::error::StoreError;
use super::super::rollup::Level;
use super::load::has_checksums;
use super::tables::{ALL, number};

/// Returns the hash of a key; sums of a billion of them fit into a number of `meta`.
pub(super) fn hash(key: &[i64]) -> u64 {
    let bytes: Vec<u8> = key.iter().flat_map(|number| number.to_le_bytes()).collect();
    xxh3_64(&bytes) & u64::from(u32::MAX)
}

/// Returns the name of the sum that a table keeps; tables of sums keep one for each level.
pub(super) fn name(table: &str, level: Option<i64>) -> String {
    match level {
        Some(level) => format!("keys of {table} {level}"),
        None => format!("keys of {table}"),
    }
}

/// Returns the statement that creates all sums, which are changed only where they exist: partitions of early versions have
/// none.
pub(super) fn create() -> String {
    let rows: Vec<String> = names().map(|name| format!("('{name}', 0)")).collect();
    format!("INSERT INTO meta VALUES{};", rows.join(", "))
}

fn names() -> impl Iterator<Item = String> {
    let levels = 0..Level::COUNT as i64;
    ALL.into_iter().flat_map(move |table| match table.has_levels() {
        true => levels.clone().map(|level| name(table.name, Some(level))).collect(),
        false => vec![name(table.name, None)],
    })
}

/// Adds the hash of a new key to its sum.
pub(super) fn add(connection: &Connection, name: &str, key: &[i64]) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached("UPDATE meta SET value = value + ? WHERE name = ?")?;
    statement.execute((hash(key).cast_signed(), name))?;
    Ok(())
}

/// Resets a sum whose rows are removed.
pub(super) fn clear(connection: &Connection, name: &str) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE meta SET value = 0 WHERE name = ?")?.execute([name])?;
    Ok(())
}

/// Compares all sums with the keys.
///
/// # Errors
/// [`StoreError::Damaged`] if rows are missing or have other keys.
pub(super) fn verify(connection: &Connection) -> Result<(), StoreError> {
    if !has_checksums(connection)? {
        return Ok(());
    }
    let mut expected: Vec<(String, u64)> = names().map(|name| (name, 0)).collect();
    for table in ALL {
        table.each_key(connection, |key| {
            let name = name(table.name, table.has_levels().then_some(key[0]));
            let sum = expected.iter_mut().find(|(known, _)| *known == name).ok_or(StoreError::Damaged)?;
            sum.1 += hash(key);
            Ok(())
        })?;
    }
    for (name, sum) in expected {
        if number(connection, &name)? != Some(sum) {
            return Err(StoreError::Damaged);
        }
    }
    Ok(())
}
