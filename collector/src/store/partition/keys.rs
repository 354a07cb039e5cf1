//! Hashes of the keys of a partition's tables, and their sums in `meta`.

use rusqlite::Connection;
use xxhash_rust::xxh3::xxh3_64;

use super::super::error::StoreError;

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
