//! Checks that no row of a partition is missing.
//!
//! Problem: blocks have checksums, but a row whose key is overwritten, or whose page no longer leads to it, is in no
//! answer, and nobody would notice.
//! Approach: `meta` has the sum of the hashes of all keys of each table, and of each level of a table of sums. It
//! changes in the transaction that changes the rows, and is compared once, at the first query.

use rusqlite::Connection;

use super::super::error::StoreError;
use super::super::rollup::Level;
use super::keys;
use super::tables::{ALL, number};

/// Returns the statement that creates all sums. They are changed only where they exist: partitions of early versions
/// have none.
pub(super) fn create() -> String {
    let rows: Vec<String> = names().map(|name| format!("('{name}', 0)")).collect();
    format!("INSERT INTO meta VALUES{};", rows.join(", "))
}

fn names() -> impl Iterator<Item = String> {
    let levels = 0..Level::COUNT as i64;
    ALL.into_iter().flat_map(move |table| match table.has_levels() {
        true => levels.clone().map(|level| keys::name(table.name, Some(level))).collect(),
        false => vec![keys::name(table.name, None)],
    })
}

/// Compares all sums with the keys.
///
/// # Errors
/// [`StoreError::Damaged`] if rows are missing or have other keys.
pub(super) fn verify(connection: &Connection) -> Result<(), StoreError> {
    let mut expected = Vec::new();
    for name in names() {
        expected.push((number(connection, &name)?, name));
    }
    if expected.iter().all(|(sum, _)| sum.is_none()) {
        return Ok(());
    }
    let mut found: Vec<u64> = vec![0; expected.len()];
    for table in ALL {
        table.each_key(connection, |key| {
            let name = keys::name(table.name, table.has_levels().then_some(key[0]));
            let at = expected.iter().position(|(_, known)| *known == name).ok_or(StoreError::Damaged)?;
            found[at] += keys::hash(key);
            Ok(())
        })?;
    }
    let is_whole = expected.iter().zip(&found).all(|((sum, _), found)| *sum == Some(*found));
    if is_whole { Ok(()) } else { Err(StoreError::Damaged) }
}
