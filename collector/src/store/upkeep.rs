//! Upkeep: new partitions, roll-ups, and retention.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::error::StoreError;
use super::handover;
use super::memory::PartitionMemory;
use super::partition::{self, Partition, UNFINISHED};
use super::rollup::Level;
use super::shared::{Retention, Shared};

/// Extension of partition files.
pub(super) const EXTENSION: &str = "sqlite";

/// A partition is closed after this time, however small.
const PARTITION_S: u64 = 86_400;

/// A partition is closed at this share of the bytes allowed in all, so that size can be kept by removing files.
const PARTITION_SHARE: u64 = 10;

/// Memory of closed partitions, roughly, that is kept for questions: a month and a half of a fleet that fills 10 MB a
/// day. What the oldest ones have beyond is read again whenever it is asked for.
pub(super) const MOST_CLOSED_BYTES: usize = 256 << 20;

/// Files of a store. Those that begin early are tens of MB long unless somebody takes pains to make them shorter, and
/// each is up to three open files.
const MOST_PARTITIONS: usize = 256;

/// An hour is summed up this long after its end, when what was under way has arrived; later arrivals are added.
const GRACE_S: u64 = 120;

/// Path of a partition that begins at `now_s`: names sort by time.
pub(super) fn new_path(directory: &Path, now_s: u64) -> PathBuf {
    (0..)
        .map(|number| directory.join(format!("{now_s:012}-{number:03}.{EXTENSION}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| directory.to_owned())
}

/// What is due at `now_s`.
pub(super) fn run(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let due = maintain_current(shared, now_s).and(maintain_closed(shared, now_s));
    // Whatever has failed: space may be what is missing.
    remove_oldest(shared, now_s)?;
    due
}

/// Sums up hours, and begins a new partition if it is time.
fn maintain_current(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let current = shared.current()?;
    current.roll(Level::Hour, now_s.saturating_sub(GRACE_S))?;
    if has_reached_limit(&current, &shared.retention, now_s) {
        begin_next(shared, &current, now_s)?;
    }
    unload_oldest(&shared.partitions.read(), MOST_CLOSED_BYTES);
    shared.current()?.shorten_log()
}

/// Makes one file each of closed partitions, and lowers their resolution as they age. What fails with one of them does
/// not keep the others.
fn maintain_closed(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let closed: Vec<Arc<Partition>> = {
        let partitions = shared.partitions.read();
        partitions[..partitions.len() - 1].to_vec()
    };
    let mut result = Ok(());
    for partition in &closed {
        let one = partition.compact().and_then(|()| coarsen(partition, &shared.retention, now_s));
        result = result.and(one);
    }
    result
}

fn has_reached_limit(partition: &Partition, retention: &Retention, now_s: u64) -> bool {
    let coverage = *partition.coverage.read();
    coverage.end_s > 0
        && (now_s >= coverage.created_s + PARTITION_S
            || partition.length() > retention.bytes / PARTITION_SHARE)
}

/// Goes on in a new partition although the current one is neither a day old nor long: its memory is all but full, and
/// whoever comes next shall have names as well.
pub(super) fn begin_early(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    let current = shared.current()?;
    let (names, sessions) = {
        let memory = current.memory.read();
        (memory.dictionary.bytes(), memory.session_bytes())
    };
    tracing::warn!(
        names,
        sessions,
        "names or sessions have all but filled the memory of a partition: the next one begins before its time"
    );
    begin_next(shared, &current, now_s)?;
    unload_oldest(&shared.partitions.read(), MOST_CLOSED_BYTES);
    remove_oldest(shared, now_s)
}

/// Sets the memory of the oldest closed partitions aside while all of them take too much.
pub(super) fn unload_oldest(partitions: &[Arc<Partition>], limit: usize) {
    let mut bytes = 0;
    for partition in partitions.iter().rev().skip(1) {
        let mut memory = partition.memory.write();
        bytes += memory.bytes();
        // What is open no file has as blocks.
        if bytes > limit && !memory.is_unloaded && memory.open.is_empty() {
            *memory = PartitionMemory::unloaded(&memory);
        }
    }
}

/// Closes the current partition and goes on in a new one.
fn begin_next(shared: &Shared, current: &Arc<Partition>, now_s: u64) -> Result<(), StoreError> {
    current.fold()?;
    // A closed partition gets nothing more, so its last hours are whole.
    for level in Level::COARSE {
        current.roll(level, u64::MAX)?;
    }
    let connected: FxHashSet<u64> = shared.connected.lock().keys().copied().collect();
    let next = create_next(current, &connected, &new_path(&shared.directory, now_s), now_s)?;
    tracing::info!(partition = %next.path().display(), "a new partition of the store begins");
    shared.partitions.write().push(Arc::new(next));
    current.close();
    Ok(())
}

/// A new partition at `path` that has what sessions of `current` refer to. It gets its name last, for a file under that
/// name is what the next start goes on with.
fn create_next(
    current: &Partition,
    connected: &FxHashSet<u64>,
    path: &Path,
    now_s: u64,
) -> Result<Partition, StoreError> {
    let unfinished = path.with_extension(UNFINISHED);
    let made = Partition::open(&unfinished, now_s, false).and_then(|mut next| {
        handover::hand_over(&next, current, connected, now_s.saturating_mul(1_000_000_000))?;
        next.fold()?;
        next.rename(path)?;
        Ok(next)
    });
    if made.is_err() {
        // Space is what is missing most often. What cannot be removed now is removed by the next start.
        let _ = partition::remove(&unfinished);
    }
    made
}

/// Removes partitions that were never finished, because the disk was full or the collector was killed, and what is left
/// of those that were removed.
pub(super) fn remove_unfinished(directory: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if partition::is_left_over(&path, EXTENSION) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Takes from a closed partition the resolution that its age does not entitle it to.
fn coarsen(partition: &Partition, retention: &Retention, now_s: u64) -> Result<(), StoreError> {
    let coverage = *partition.coverage.read();
    let age_s = now_s.saturating_sub(coverage.end_s);
    let limits = [retention.samples, retention.minutes, retention.hours];
    let levels = limits.iter().take_while(|limit| age_s > limit.as_secs()).count() as u64;
    if levels > coverage.removed {
        if !partition.remove_levels(levels)? {
            return Ok(());
        }
        tracing::info!(partition = %partition.path().display(), levels, "resolution lowered");
    }
    Ok(())
}

/// Removes closed partitions that are too old, and the oldest ones while there are too many bytes.
fn remove_oldest(shared: &Shared, now_s: u64) -> Result<(), StoreError> {
    loop {
        let oldest = {
            let mut partitions = shared.partitions.write();
            let Some(oldest) = partitions.first().filter(|_| partitions.len() > 1).cloned() else {
                return Ok(());
            };
            let bytes: u64 = partitions.iter().map(|partition| partition.bytes()).sum();
            let fits = bytes <= shared.retention.bytes && partitions.len() <= MOST_PARTITIONS;
            let coverage = *oldest.coverage.read();
            // Without samples it is as old as its sessions.
            let end_s = if coverage.end_s == 0 { coverage.created_s } else { coverage.end_s };
            let age_s = now_s.saturating_sub(end_s);
            if fits && age_s <= shared.retention.age.as_secs() {
                return Ok(());
            }
            partitions.remove(0);
            oldest
        };
        oldest.remove()?;
        tracing::info!(partition = %oldest.path().display(), "the oldest partition is removed");
    }
}
