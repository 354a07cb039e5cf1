//! State shared by the writer, upkeep and readers of a store.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lake::write::spool::{Delivery, Spool};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::damage::SetAside;
use super::error::StoreError;
use super::follow::Follower;
use super::partition::Partition;
use super::read::DictionaryReader;
use super::tally::Tally;

/// Limits of the size and the age of a store's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// All data is deleted after this time.
    pub age: Duration,
    /// Maximum bytes of all files; beyond, the oldest data is deleted.
    pub bytes: u64,
    /// Single samples are kept for this time, then only sums of minutes.
    pub samples: Duration,
    /// Sums of minutes are kept for this time, then only sums of hours.
    pub minutes: Duration,
    /// Sums of hours are kept for this time, then only sums of days.
    pub hours: Duration,
}

/// Time between folds of a store without a lake.
const FOLD_EVERY: Duration = Duration::from_secs(60);

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    fn default() -> Self {
        Retention { age: 90 * DAY, bytes: 20 << 30, samples: 2 * DAY, minutes: 14 * DAY, hours: 60 * DAY }
    }
}

/// Intervals of a lake that a store fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Longest time of an interval; one with very many samples ends earlier.
    pub every: Duration,
    /// Most bytes of intervals that wait on the disk.
    pub spool_bytes: u64,
}

impl Default for Intervals {
    /// 4 GB are about an hour of a hundred busy JVMs.
    fn default() -> Self {
        Intervals { every: FOLD_EVERY, spool_bytes: 4 << 30 }
    }
}

/// Counters since the store was opened, and sizes, for monitoring.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    pub messages: u64,
    pub received_bytes: u64,
    pub samples: u64,
    pub commits: u64,
    pub commit_ns: u64,
    pub folds: u64,
    pub failures: u64,
    pub waiting_requests: u64,
    pub open_samples: u64,
    pub stored_bytes: u64,
    pub dictionary_bytes: u64,
    pub dictionary_refused: u64,
    pub session_bytes: u64,
    pub virtual_threads_folded: u64,
    pub sessions_turned_away: u64,
    pub partitions: u64,
    pub early_partitions: u64,
    pub dictionaries_read: u64,
    pub failing: Option<StoreError>,
    pub lake: Option<Delivery>,
}

/// State shared by the writer and readers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) retention: Retention,
    /// Oldest first; the last one is written to. Empty only while a store is being opened.
    pub(super) partitions: RwLock<Vec<Arc<Partition>>>,
    /// Files that are set aside because they are damaged.
    pub(super) set_aside: Mutex<Vec<SetAside>>,
    /// Counters, and the error of the last write; sizes are added when the status is read.
    pub(super) status: Mutex<Status>,
    pub(super) tally: Mutex<Tally>,
    /// State of logging failures.
    pub(super) failure_log: Mutex<FailureLog>,
    /// Receives stored samples, if there is a follower.
    pub(super) follower: OnceLock<Arc<dyn Follower>>,
    /// Number of writers by session.
    pub(super) connected: Mutex<FxHashMap<u64, usize>>,
    pub(super) early_start: Mutex<EarlyStart>,
    pub(super) dictionary_reader: Arc<DictionaryReader>,
    /// Intervals for a lake, if the store fills one.
    pub(super) spool: Option<Arc<Spool>>,
    /// Time between folds.
    pub(super) fold_every: Duration,
    /// Keeps other processes out of the directory.
    _lock: File,
}

impl Shared {
    pub(super) fn new(
        directory: &Path,
        retention: Retention,
        partitions: Vec<Arc<Partition>>,
        set_aside: Vec<SetAside>,
        lock: File,
    ) -> Shared {
        Shared {
            directory: directory.to_owned(),
            retention,
            partitions: RwLock::new(partitions),
            set_aside: Mutex::new(set_aside),
            status: Mutex::default(),
            tally: Mutex::default(),
            failure_log: Mutex::default(),
            follower: OnceLock::new(),
            connected: Mutex::default(),
            early_start: Mutex::new(EarlyStart { not_before: Instant::now(), last_began: None }),
            dictionary_reader: Arc::default(),
            spool: None,
            fold_every: FOLD_EVERY,
            _lock: lock,
        }
    }

    pub(super) fn current(&self) -> Result<Arc<Partition>, StoreError> {
        self.partitions.read().last().cloned().ok_or(StoreError::Closed)
    }
}

/// Marks a session as connected until it is dropped.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) session: u64,
    pub(super) shared: Arc<Shared>,
}

impl Connected {
    pub(super) fn new(session: u64, shared: &Arc<Shared>) -> Connected {
        *shared.connected.lock().entry(session).or_default() += 1;
        Connected { session, shared: Arc::clone(shared) }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut connected = self.shared.connected.lock();
        let left = connected.get_mut(&self.session).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            connected.remove(&self.session);
        }
    }
}

/// Time for which writes must succeed until a failure is logged as over: on a nearly full disk, short messages fit
/// between longer ones.
pub(super) const RECOVERY: Duration = Duration::from_secs(1);

/// Decides which results of writes are logged.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// The last failure that was logged, `None` once its end was logged.
    error: Option<StoreError>,
    /// Time since which writes succeed.
    good_since: Option<Instant>,
}

impl FailureLog {
    /// Returns whether to log `result`: a failure other than the last one, or the end of a failure.
    pub(super) fn should_log(&mut self, result: Result<(), StoreError>, now: Instant) -> bool {
        let Some(error) = result.err() else {
            let good_since = *self.good_since.get_or_insert(now);
            return now.duration_since(good_since) >= RECOVERY && self.error.take().is_some();
        };
        self.good_since = None;
        self.error.replace(error) != Some(error)
    }
}

/// Limits on early partitions.
#[derive(Debug)]
pub(super) struct EarlyStart {
    /// No early partition begins before this time.
    pub(super) not_before: Instant,
    /// When the last early partition began.
    pub(super) last_began: Option<Instant>,
}

pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nearly_full_disk_is_logged_once() {
        let (mut log, start) = (FailureLog::default(), Instant::now());
        let mut at = |ms, result| log.should_log(result, start + Duration::from_millis(ms));
        assert!(!at(0, Ok(())), "a success without a failure before it is not logged");
        assert!(at(100, Err(StoreError::Full)));
        // A short message fits between two that do not.
        assert!(!at(200, Ok(())) && !at(300, Err(StoreError::Full)) && !at(400, Ok(())));
        assert!(at(500, Err(StoreError::Closed)), "another failure");
        assert!(!at(600, Ok(())) && !at(1500, Ok(())));
        assert!(at(1600, Ok(())) && !at(1700, Ok(())));
        assert!(at(1800, Err(StoreError::Closed)));
    }
}
