//! Simulates a full disk: the databases in a folder with a file `quota` cannot grow beyond its number of bytes.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

use crate::store::partition::PAGE_BYTES;

/// Limits the length of the databases in `directory` to `bytes`, from their next change on.
pub(super) fn set(directory: &Path, bytes: u64) {
    fs::write(directory.join("quota"), bytes.to_string()).expect("a quota");
}

/// Applies the quota of the folder to the connection of the database at `path`.
pub(in crate::store) fn apply(path: &Path, connection: &Connection) -> rusqlite::Result<()> {
    let quota = path.parent().and_then(|directory| fs::read_to_string(directory.join("quota")).ok());
    let Some(bytes) = quota.and_then(|text| text.parse::<u64>().ok()) else { return Ok(()) };
    let pages = (bytes / PAGE_BYTES).clamp(1, u32::MAX.into());
    connection.execute_batch(&format!("PRAGMA max_page_count = {pages}"))
}
