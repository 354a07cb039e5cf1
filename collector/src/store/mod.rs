//! Stores what agents send in an embedded database.
//!
//! One writer thread commits all waiting messages as one journal entry of an SQLite database; then their connections
//! acknowledge them. Every minute it folds the journal into compressed blocks. Each file (partition) covers up to a
//! day. Older partitions lose resolution, and are deleted by age and size.
//! Invariant: [`SessionWriter::append`] returns success only for messages that survive a power failure, and a message
//! is stored once however often it is sent.
//!
//! Schema, figures and the alternatives considered: `design/store.md`.

mod column;
mod damage;
mod dictionary;
mod error;
mod folding;
mod follow;
mod handover;
mod memory;
mod partition;
mod read;
mod rollup;
mod session;
mod shared;
mod tally;
#[cfg(test)]
mod tests;
mod upkeep;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use lake::write::spool::Spool;
use profile::source::{Extent, Gap, Part, Source};
use proto::framing::{FramedMessage, FramingError};
use proto::v1::Hello;

pub use column::BlockError;
pub use error::StoreError;
pub use follow::{Follower, StoredSamples};
pub use read::View;
pub use rollup::Level;
pub use shared::{Intervals, Retention, Status};
pub use tally::Tally;

use damage::SetAside;
use partition::{PRIVATE, Partition, Use};
use shared::{Connected, Shared, now_s};
use writer::{Append, Request};

/// Maximum number of requests that wait for the writer; each is at most one read from a connection.
const WAITING: usize = 256;

/// Longest time before a partition began that its samples can be from.
const BEFORE: Duration = Duration::from_secs(86_400);

/// Longest time after now that a sample can be from, in nanoseconds: an hour.
const AHEAD_NS: u64 = 3_600_000_000_000;

/// Name of the folder with the intervals for a lake.
const SPOOL: &str = "lake";

/// Name of the file that is locked while a store is open.
const LOCK: &str = "lock";

#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    /// `None` for a store that is only read.
    requests: Option<SyncSender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the store in `directory`, which is created if it does not exist, and starts its writer.
    ///
    /// # Errors
    /// If the directory or its files cannot be used, or are in use.
    pub fn open(directory: &Path, retention: Retention) -> Result<Store, StoreError> {
        Store::start(directory, retention, None)
    }

    /// Opens a store whose samples go into a lake as well: they wait in [`spool`](Store::spool).
    ///
    /// # Errors
    /// As [`open`](Store::open).
    pub fn open_for_lake(
        directory: &Path,
        retention: Retention,
        intervals: Intervals,
    ) -> Result<Store, StoreError> {
        Store::start(directory, retention, Some(intervals))
    }

    fn start(
        directory: &Path,
        retention: Retention,
        intervals: Option<Intervals>,
    ) -> Result<Store, StoreError> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut shared = open_shared(directory, retention, false)?;
        if let Some(Intervals { every, spool_bytes }) = intervals {
            let mut committed = 0;
            for partition in shared.partitions.read().iter() {
                committed = partition.last_interval()?.max(committed);
            }
            shared.spool = Some(Arc::new(Spool::open(&directory.join(SPOOL), spool_bytes, committed)?));
            shared.fold_every = every;
        }
        let shared = Arc::new(shared);
        let (sender, receiver) = sync_channel(WAITING);
        let writer_shared = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || writer::run(&writer_shared, &receiver))?;
        Ok(Store { shared, requests: Some(sender), writer: Some(writer) })
    }

    /// Opens the store in `directory` for queries only; its files are unchanged.
    ///
    /// # Errors
    /// If the directory contains no store, or the store is in use.
    pub fn open_for_reading(directory: &Path) -> Result<Store, StoreError> {
        if partition_paths(directory)?.is_empty() {
            return Err(StoreError::NoStore);
        }
        let shared = open_shared(directory, Retention::default(), true)?;
        Ok(Store { shared: Arc::new(shared), requests: None, writer: None })
    }

    /// Returns when the newest file was written to, in nanoseconds since the epoch.
    fn written_ns(&self) -> u64 {
        let written_ns = |partition: &Arc<Partition>| {
            let modified = fs::metadata(partition.database.path()).and_then(|file| file.modified()).ok()?;
            u64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
        };
        self.shared.partitions.read().iter().filter_map(written_ns).max().unwrap_or(0)
    }

    pub fn path(&self) -> &Path {
        &self.shared.directory
    }

    /// Returns the intervals that wait for a lake, if the store fills one.
    pub fn spool(&self) -> Option<&Arc<Spool>> {
        self.shared.spool.as_ref()
    }

    /// Returns a view of each partition, oldest first; the times of several may overlap a range.
    pub fn views(&self) -> Vec<View> {
        let partitions = self.shared.partitions.read();
        partitions
            .iter()
            .map(|partition| View::new(Arc::clone(partition), &self.shared.dictionary_reader))
            .collect()
    }

    /// Returns the `Hello` of a session, `None` if no readable partition has it.
    pub fn hello(&self, session: u64) -> Option<Hello> {
        self.views().iter().rev().find_map(|view| {
            let mut found = None;
            let read = view.sessions(Extent::Account, &|id| id == session, &mut |_, session| {
                found = Some(session.hello.clone());
            });
            if let Err(error) = read {
                tracing::warn!(%error, "a partition cannot be searched for a session");
            }
            found
        })
    }

    /// Returns a writer for the session that `hello` introduces.
    ///
    /// # Errors
    /// [`StoreError::Closed`] for a store that is only read.
    pub fn session(&self, hello: &Hello) -> Result<SessionWriter, StoreError> {
        let requests = self.requests.clone().ok_or(StoreError::Closed)?;
        let connected = Arc::new(Connected::new(hello.session_id, &self.shared));
        Ok(SessionWriter { requests, connected })
    }

    /// Passes all samples stored after this call to `follower`, once they are durable.
    ///
    /// # Errors
    /// [`StoreError::Closed`] for a store that has a follower, or that is not written to.
    pub fn follow(&self, follower: Arc<dyn Follower>) -> Result<(), StoreError> {
        if self.writer.is_none() {
            return Err(StoreError::Closed);
        }
        self.shared.follower.set(follower).map_err(|_| StoreError::Closed)
    }

    /// Folds open minutes into blocks without waiting for the next regular fold.
    ///
    /// # Errors
    /// If the fold fails; nothing is lost then.
    pub fn flush(&self) -> Result<(), StoreError> {
        let requests = self.requests.as_ref().ok_or(StoreError::Closed)?;
        writer::call(requests, Request::Fold).map(drop)
    }

    /// Runs upkeep: roll-ups, a new partition, retention. The writer also runs it every minute.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn maintain(&self) -> Result<(), StoreError> {
        let requests = self.requests.as_ref().ok_or(StoreError::Closed)?;
        writer::call(requests, Request::Upkeep).map(drop)
    }

    /// Returns the error of the last write, `None` if it succeeded; never waits for the writer.
    pub fn failing(&self) -> Option<StoreError> {
        let has_ended = self.writer.as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended { Some(StoreError::WriterEnded) } else { self.shared.status.lock().failing }
    }

    /// Returns what was received since the store was opened.
    pub fn tally(&self) -> Tally {
        self.shared.tally.lock().clone()
    }

    /// Returns counters and sizes; waits for a fold in progress.
    pub fn status(&self) -> Status {
        let stored = self.tally().stored;
        let partitions = self.shared.partitions.read().clone();
        let mut status = Status {
            samples: stored
                .values()
                .flat_map(BTreeMap::values)
                .fold(0, |sum, count| sum.saturating_add(*count)),
            partitions: partitions.len() as u64,
            // Relaxed: a statistics counter.
            dictionaries_read: self.shared.dictionary_reader.count.load(Ordering::Relaxed),
            failing: self.failing(),
            lake: self.shared.spool.as_ref().map(|spool| spool.delivery()),
            ..*self.shared.status.lock()
        };
        for partition in partitions {
            status.stored_bytes += partition.database.bytes();
            let memory = partition.memory.read();
            status.open_samples += memory.open_samples as u64;
            status.dictionary_bytes += memory.dictionary.bytes() as u64;
            status.dictionary_refused += memory.dictionary.refused() + memory.refused_entries;
            status.virtual_threads_folded += memory.folded_threads;
            status.session_bytes += memory.session_bytes() as u64;
        }
        status
    }

    /// Folds open minutes and ends the writer.
    ///
    /// # Errors
    /// If the last fold fails; its messages remain in the journal.
    pub fn close(mut self) -> Result<(), StoreError> {
        let result = if self.requests.is_some() { self.flush() } else { Ok(()) };
        self.end();
        result
    }

    fn end(&mut self) {
        if let Some(requests) = self.requests.take() {
            // The writer may have ended already.
            let _ = requests.send(Request::End);
        }
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the writer of the store panicked");
        }
    }
}

impl Source for Store {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        let views = self.views().into_iter().filter(|view| view.gap().is_none());
        views.map(|view| Box::new(view) as Box<dyn Part>).collect()
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = self.shared.set_aside.lock().iter().map(SetAside::gap).collect();
        gaps.extend(self.views().iter().filter_map(View::gap));
        gaps
    }

    /// A store that is open for reading ends with the last message of an agent.
    fn end_ns(&self) -> Option<u64> {
        if self.requests.is_some() {
            return None;
        }
        let latest_ns = self.written_ns().saturating_add(AHEAD_NS);
        let mut ends_ns = Vec::new();
        for view in self.views().into_iter().filter(|view| view.gap().is_none()) {
            let end_ns = view.range_ns().end;
            // A partition that cannot be read has no sessions; its next question finds the damage.
            let _ = view.sessions(Extent::Account, &|_| true, &mut |_, session| {
                ends_ns.push(session.last_ns.saturating_add(1).min(end_ns));
            });
        }
        // A clock that is ahead of all others does not decide where the store ends.
        let possible_ns = ends_ns.iter().copied().filter(|&end_ns| end_ns <= latest_ns).max();
        let end_ns = possible_ns.filter(|&end_ns| end_ns > 1).or(ends_ns.iter().copied().max());
        end_ns.filter(|&end_ns| end_ns > 1)
    }

    /// Agents send samples of up to a day before, taken while there was no collector, and clocks differ.
    fn plausible_ns(&self, now_ns: u64) -> Range<u64> {
        let created_s = |partition: &Arc<Partition>| partition.coverage.read().created_s;
        let first_s = self.shared.partitions.read().iter().map(created_s).min().unwrap_or(0);
        let end_ns = self.end_ns().unwrap_or(now_ns);
        let from_s = first_s.saturating_sub(BEFORE.as_secs());
        from_s.saturating_mul(1_000_000_000)..end_ns.saturating_add(AHEAD_NS)
    }

    fn cut(&self) -> Option<FramingError> {
        None
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

/// Stores the messages of one session. While it exists, the session counts as connected: its symbols are copied into
/// a new partition before those of sessions without a connection.
#[derive(Clone, Debug)]
pub struct SessionWriter {
    requests: SyncSender<Request>,
    connected: Arc<Connected>,
}

impl SessionWriter {
    /// Stores `messages` durably and returns the highest stored sequence number, which can be acknowledged. It is lower
    /// if the agent has to resend its symbols.
    ///
    /// # Errors
    /// If nothing could be stored, or the store refuses the session.
    pub fn append(&self, messages: Vec<FramedMessage>) -> Result<u64, StoreError> {
        let session = self.connected.session;
        let status = &self.connected.shared.status;
        status.lock().waiting_requests += 1;
        let append = |reply| Request::Append(Append { session, messages, reply });
        let result = writer::call(&self.requests, append);
        status.lock().waiting_requests -= 1;
        result
    }
}

/// Opens all partitions of the store in `directory`, and creates the first one unless `is_read_only`.
fn open_shared(directory: &Path, retention: Retention, is_read_only: bool) -> Result<Shared, StoreError> {
    let lock = lock(directory)?;
    if !is_read_only {
        upkeep::remove_unfinished(directory)?;
    }
    let mut paths = partition_paths(directory)?;
    if !is_read_only {
        make_private(&paths)?;
    }
    if paths.is_empty() {
        paths.push(upkeep::new_path(directory, now_s()));
    }
    let (partitions, damaged) = open_all(&paths, is_read_only, upkeep::MOST_CLOSED_BYTES)?;
    let set_aside = damage::set_aside(directory, damaged, is_read_only)?;
    Ok(Shared::new(directory, retention, partitions, set_aside, lock))
}

/// Removes permissions of all users from the files at `paths`, which an early version may have given. Those of the
/// group remain, because the owner may have given them.
fn make_private(paths: &[PathBuf]) -> Result<(), StoreError> {
    for path in paths {
        let Ok(metadata) = fs::metadata(path) else { continue };
        let mode = metadata.permissions().mode();
        if mode & 0o007 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & !0o007))?;
        }
    }
    Ok(())
}

/// Locks `directory` against other processes while the file is open.
fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
    let file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Returns the partition files of a store, oldest first.
fn partition_paths(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_partition(path))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Returns whether the file of this name in the directory of a store is a partition of it.
pub fn is_partition(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == partition::EXTENSION)
}

/// Opens partitions, the last one for writing. The newest of the others are loaded into memory, up to `limit` bytes.
/// Returns them and the paths of closed ones that are damaged.
fn open_all(
    paths: &[PathBuf],
    is_read_only: bool,
    limit: usize,
) -> Result<(Vec<Arc<Partition>>, Vec<PathBuf>), StoreError> {
    let Some((last, closed)) = paths.split_last() else { return Ok(Default::default()) };
    let refused = |path: &Path, error: StoreError| {
        tracing::error!(path = %path.display(), %error, "a partition cannot be opened");
        error
    };
    let now_s = now_s();
    let mut bytes = 0;
    let mut partitions = Vec::with_capacity(paths.len());
    let mut damaged = Vec::new();
    for path in closed.iter().rev() {
        let how = if bytes <= limit { Use::Loaded } else { Use::Unloaded };
        match Partition::open(path, now_s, is_read_only, how) {
            Ok(partition) => {
                bytes += partition.memory.read().bytes();
                partitions.push(Arc::new(partition));
            }
            Err(error) if damage::is_damage(path, error) => damaged.push(path.clone()),
            Err(error) => return Err(refused(path, error)),
        }
    }
    partitions.reverse();
    let last =
        Partition::open(last, now_s, is_read_only, Use::Current).map_err(|error| refused(last, error))?;
    partitions.push(Arc::new(last));
    upkeep::unload_oldest(&partitions, limit);
    Ok((partitions, damaged))
}
