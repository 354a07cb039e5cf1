//! Upkeep: new partitions, roll-ups, and retention.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::damage;
use super::error::StoreError;
use super::handover;
use super::memory::PartitionMemory;
use super::partition::{self, EXTENSION, Partition, UNFINISHED, Use};
use super::rollup::Level;
use super::shared::{Retention, Shared};

/// A partition is closed after this time, whatever its size.
const PARTITION_S: u64 = 86_400;

/// A partition is closed when it exceeds one part in this many of the permitted bytes, so that deleting whole files
/// keeps the limit.
const PARTITION_SHARE: u64 = 10;

/// Maximum memory of closed partitions (estimated): a month and a half of a fleet that writes 10 MB a day. Older
/// partitions are read from their files for each query.
pub(super) const MOST_CLOSED_BYTES: usize = 256 << 20;

/// Maximum number of files of a store. Early partitions have tens of MB unless a hostile session makes them shorter;
/// each takes up to three open files.
const MOST_PARTITIONS: usize = 256;

/// Delay between the end of an hour and its roll-up; samples that arrive later are added.
const GRACE_S: u64 = 120;

/// Returns the path of a new partition that begins at `now_s`; names sort by time.
pub(super) fn new_path(directory: &Path, now_s: u64) -> PathBuf {
    (0..)
        .map(|number| directory.join(format!("{now_s:012}-{number:03}.{EXTENSION}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| directory.to_owned())
}

/// Runs all upkeep that is due at `now_s`.
pub(super) fn run(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let due = maintain_current(shared, now_s).and(maintain_closed(shared, now_s));
    // Runs even after a failure, which may be due to missing space.
    let bytes: u64 = shared.partitions.read().iter().map(|partition| partition.database.bytes()).sum();
    let oldest_s = now_s.saturating_sub(shared.retention.age.as_secs());
    damage::remove_old(&mut shared.set_aside.lock(), oldest_s, shared.retention.bytes.saturating_sub(bytes));
    remove_oldest(shared, now_s)?;
    due
}

/// Rolls up hours, and begins a new partition when the current one has reached a limit.
fn maintain_current(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let current = shared.current()?;
    current.roll(Level::Hour, now_s.saturating_sub(GRACE_S))?;
    if has_reached_limit(&current, &shared.retention, now_s) {
        begin_next(shared, &current, now_s)?;
    }
    unload_oldest(&shared.partitions.read(), MOST_CLOSED_BYTES);
    shared.current()?.database.shorten_log()
}

/// Removes the logs of closed partitions and lowers their resolution as they age. After a failure of one partition,
/// the others are still processed; returns the first failure.
fn maintain_closed(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let partitions = shared.partitions.read().clone();
    let mut result = Ok(());
    for pair in partitions.windows(2) {
        let age_s = now_s.saturating_sub(end_s(&pair[0], &pair[1]));
        let one = pair[0].compact().and_then(|()| coarsen(&pair[0], &shared.retention, age_s));
        result = result.and(one);
    }
    result
}

/// Returns the time of the last data of a closed partition, which `next` follows. Clocks of agents can be ahead, but
/// nothing is younger than the next partition.
fn end_s(partition: &Partition, next: &Partition) -> u64 {
    let coverage = *partition.coverage.read();
    // A partition without samples has the age of its sessions.
    let end_s = if coverage.end_s == 0 { coverage.created_s } else { coverage.end_s };
    end_s.min(next.coverage.read().created_s)
}

fn has_reached_limit(partition: &Partition, retention: &Retention, now_s: u64) -> bool {
    let coverage = *partition.coverage.read();
    coverage.end_s > 0
        && (now_s >= coverage.created_s + PARTITION_S
            || partition.database.length() > retention.bytes / PARTITION_SHARE)
}

/// Begins a new partition early, because the memory of the current one is nearly full.
pub(super) fn begin_early(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let current = shared.current()?;
    {
        let memory = current.memory.read();
        let (dictionary_bytes, session_bytes) = (memory.dictionary.bytes(), memory.session_bytes());
        tracing::warn!(
            dictionary_bytes,
            session_bytes,
            "symbols or sessions nearly fill the memory of the current partition; the next one begins early"
        );
    }
    begin_next(shared, &current, now_s)?;
    unload_oldest(&shared.partitions.read(), MOST_CLOSED_BYTES);
    remove_oldest(shared, now_s)
}

/// Unloads the oldest closed partitions until the others take at most `limit` bytes of memory.
pub(super) fn unload_oldest(partitions: &[Arc<Partition>], limit: usize) {
    let mut bytes = 0;
    for partition in partitions.iter().rev().skip(1) {
        let mut memory = partition.memory.write();
        bytes += memory.bytes();
        // Open minutes are not in the file as blocks.
        if bytes > limit && !memory.is_unloaded && memory.open.is_empty() {
            *memory = PartitionMemory::unloaded(&memory);
        }
    }
}

/// Closes the current partition and continues in a new one.
fn begin_next(shared: &Shared, current: &Arc<Partition>, now_s: u64) -> Result<(), StoreError> {
    current.fold(shared.spool.as_deref())?;
    // A closed partition receives no more samples, so its last buckets are complete.
    for level in Level::COARSE {
        current.roll(level, u64::MAX)?;
    }
    let connected: FxHashSet<u64> = shared.connected.lock().keys().copied().collect();
    let next = create_next(current, &connected, &new_path(&shared.directory, now_s), now_s)?;
    tracing::info!(partition = %next.database.path().display(), "began a new partition");
    shared.partitions.write().push(Arc::new(next));
    current.close();
    Ok(())
}

/// Creates a partition at `path` with the sessions that continue from `current`. It gets its final name last, because
/// a start continues with the newest file of such a name.
fn create_next(
    current: &Partition,
    connected: &FxHashSet<u64>,
    path: &Path,
    now_s: u64,
) -> Result<Partition, StoreError> {
    let unfinished = path.with_extension(UNFINISHED);
    let made = Partition::open(&unfinished, now_s, false, Use::Current).and_then(|mut next| {
        let now_ns = now_s.saturating_mul(1_000_000_000);
        handover::hand_over(&mut next.memory.write(), &current.memory.read(), connected, now_ns);
        // Everything of its sessions is in the lake already.
        next.fold(None)?;
        next.database.rename(path)?;
        Ok(next)
    });
    if made.is_err() {
        // Most often the disk is full. If the file cannot be removed now, the next start removes it.
        let _ = partition::remove(&unfinished);
    }
    made
}

/// Removes unfinished partitions, left by a full disk or a killed process, and remains of removed ones.
pub(super) fn remove_unfinished(directory: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if partition::is_left_over(&path, EXTENSION) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Removes the levels of a closed partition of this age that the retention does not permit.
fn coarsen(partition: &Partition, retention: &Retention, age_s: u64) -> Result<(), StoreError> {
    let limits = [retention.samples, retention.minutes, retention.hours];
    let levels = limits.iter().take_while(|limit| age_s > limit.as_secs()).count() as u64;
    let removed = partition.coverage.read().removed;
    if levels > removed && partition.remove_levels(levels)? {
        tracing::info!(partition = %partition.database.path().display(), levels, "removed the finest levels of a partition");
    }
    Ok(())
}

/// Removes closed partitions that are too old, and the oldest ones while the store has too many bytes or files.
fn remove_oldest(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    loop {
        let oldest = {
            let mut partitions = shared.partitions.write();
            let [oldest, next, ..] = &partitions[..] else { return Ok(()) };
            let bytes: u64 = partitions.iter().map(|partition| partition.database.bytes()).sum();
            let fits = bytes <= shared.retention.bytes && partitions.len() <= MOST_PARTITIONS;
            let age_s = now_s.saturating_sub(end_s(oldest, next));
            if fits && age_s <= shared.retention.age.as_secs() {
                return Ok(());
            }
            partitions.remove(0)
        };
        oldest.database.remove()?;
        tracing::info!(partition = %oldest.database.path().display(), "removed the oldest partition");
    }
}
