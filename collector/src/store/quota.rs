//! Simulates a full disk in tests: files of a directory with a quota cannot grow beyond it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

static QUOTAS: Mutex<Option<FxHashMap<PathBuf, Arc<AtomicU64>>>> = Mutex::new(None);

/// Limits the length of files in `directory` to `limit` bytes, which may change later.
pub(super) fn set(directory: &Path, limit: Arc<AtomicU64>) {
    QUOTAS.lock().get_or_insert_default().insert(directory.to_owned(), limit);
}

/// Returns the maximum length of the file at `path`, `None` without a quota.
pub(super) fn of(path: &Path) -> Option<u64> {
    let quotas = QUOTAS.lock();
    let limit = quotas.as_ref()?.get(path.parent()?)?;
    // Relaxed: a test changes the limit between two operations, not during one.
    Some(limit.load(Ordering::Relaxed))
}
