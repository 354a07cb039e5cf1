//! Compaction and retention. Both can run at any time, beside writers and readers and each other, and again.
//!
//! Compaction writes the rows of several files of a folder into one, and then removes those files. In between, readers
//! find rows twice and drop one of each pair, as they do with rows of two writers; so does the next compaction after
//! one that was interrupted. A file is removed only after one with all of its rows was written.

use std::collections::BTreeMap;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::serialized_reader::SerializedFileReader;
use xxhash_rust::xxh3::xxh3_64;

use crate::layout::{Folder, Table};
use crate::storage::{Entry, Lake, LakeError};
use crate::table::accounts::{Account, read_accounts, write_accounts};
use crate::table::samples::Samples;
use crate::table::stacks::Stacks;

/// Hours after the end of a folder's hour in which it is left alone: intervals arrive late.
const GRACE_HOURS: i64 = 2;

/// Most bytes of files that become one: some GB in memory.
const MOST_BYTES: u64 = 128 << 20;

const HOUR_NS: u64 = 3_600_000_000_000;

/// The changes that compaction or retention made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Files that were written.
    pub written: u64,
    /// Files that were removed.
    pub removed: u64,
    /// Bytes of the removed files.
    pub removed_bytes: u64,
    /// Bytes of the written files.
    pub written_bytes: u64,
}

/// Makes one file of each table out of those of each hour that is over for two hours.
///
/// # Errors
/// If the object store fails or a file is damaged. Folders compacted before stay so.
pub fn compact(lake: &Lake, now_ns: u64) -> Result<Done, LakeError> {
    let end_hour = (now_ns / HOUR_NS).cast_signed() - GRACE_HOURS;
    let mut done = Done::default();
    for service in lake.run(lake.services())? {
        for date in lake.run(lake.dates(&service))? {
            let mut groups: BTreeMap<(Folder, Table), Vec<Entry>> = BTreeMap::new();
            for entry in lake.run(lake.files(&date))? {
                if let Some(table) = Table::of_file(&entry.name).filter(|_| entry.folder.hour < end_hour) {
                    groups.entry((entry.folder.clone(), table)).or_default().push(entry);
                }
            }
            for ((folder, table), entries) in groups {
                for entries in pieces(entries) {
                    match compact_files(lake, &folder, table, &entries, &mut done) {
                        // Another compaction was faster.
                        Err(LakeError::Gone(_)) => {}
                        result => result?,
                    }
                }
            }
        }
    }
    Ok(done)
}

/// Splits files into groups of limited size, in the order of their names; a group of one file is left out.
fn pieces(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut pieces: Vec<Vec<Entry>> = Vec::new();
    let mut bytes = u64::MAX;
    for entry in entries {
        bytes = bytes.saturating_add(entry.len);
        match pieces.last_mut() {
            Some(piece) if bytes <= MOST_BYTES => piece.push(entry),
            _ => {
                bytes = entry.len;
                pieces.push(vec![entry]);
            }
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

fn compact_files(
    lake: &Lake,
    folder: &Folder,
    table: Table,
    entries: &[Entry],
    done: &mut Done,
) -> Result<(), LakeError> {
    let paths: Vec<String> = entries.iter().map(Entry::path).collect();
    let files = lake.get_all(&paths)?;
    let merged =
        merged(table, files).map_err(|error| LakeError::Damaged(folder.to_string(), error.to_string()))?;
    // The name follows from the files, so a repetition writes the same file again.
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let name = table.compacted(xxh3_64(names.join("\n").as_bytes()));
    done.written += 1;
    done.written_bytes += merged.len() as u64;
    lake.put(&format!("{folder}/{name}"), merged.into())?;
    lake.delete_all(&paths)?;
    done.removed += paths.len() as u64;
    done.removed_bytes += entries.iter().map(|entry| entry.len).sum::<u64>();
    Ok(())
}

/// Returns a file with the rows of `files`, each once.
fn merged(table: Table, files: Vec<Bytes>) -> Result<Vec<u8>, ParquetError> {
    let mut out = Vec::new();
    let files = files.into_iter().map(SerializedFileReader::new);
    match table {
        Table::Samples => {
            let mut samples = Samples::default();
            for file in files {
                samples.read(&file?)?;
            }
            samples.settle();
            samples.write(&mut out)?;
        }
        Table::Stacks => {
            let mut stacks = Stacks::default();
            for file in files {
                stacks.read(&file?)?;
            }
            stacks.write(|_| true, &mut out)?;
        }
        Table::Accounts => {
            // The latest of each session and writer; its figures are sums since the session began.
            let mut latest: BTreeMap<(u64, u64), Account> = BTreeMap::new();
            for file in files {
                for account in read_accounts(&file?)? {
                    let key = (account.id, account.writer);
                    let known = latest.get(&key).map_or(0, |known| known.session.last_sequence);
                    if account.session.last_sequence >= known {
                        latest.insert(key, account);
                    }
                }
            }
            let accounts: Vec<Account> = latest.into_values().collect();
            write_accounts(&accounts, &mut out)?;
        }
    }
    Ok(out)
}

/// Removes the folders of all days that ended more than `keep_days` days ago.
///
/// # Errors
/// If the object store fails.
pub fn expire(lake: &Lake, keep_days: u64, now_ns: u64) -> Result<Done, LakeError> {
    let today = (now_ns / HOUR_NS / 24).cast_signed();
    let first_day = today.saturating_sub(i64::try_from(keep_days).unwrap_or(i64::MAX));
    let mut done = Done::default();
    for service in lake.run(lake.services())? {
        for date in lake.run(lake.dates(&service))? {
            if Folder::day(&date).is_none_or(|day| day >= first_day) {
                continue;
            }
            let entries = lake.run(lake.files(&date))?;
            let paths: Vec<String> = entries.iter().map(Entry::path).collect();
            lake.delete_all(&paths)?;
            done.removed += paths.len() as u64;
            done.removed_bytes += entries.iter().map(|entry| entry.len).sum::<u64>();
        }
    }
    Ok(done)
}
