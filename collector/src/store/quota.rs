//! A disk that can be full, for tests: files of a directory that has a quota cannot grow beyond it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

static QUOTAS: Mutex<Option<FxHashMap<PathBuf, Arc<AtomicU64>>>> = Mutex::new(None);

/// Limits the length of files in `directory` to the number, which may be changed later.
pub(super) fn set(directory: &Path, limit: Arc<AtomicU64>) {
    QUOTAS.lock().get_or_insert_default().insert(directory.to_owned(), limit);
}

/// Bytes that the file at `path` may have, `None` if it has no quota.
pub(super) fn of(path: &Path) -> Option<u64> {
    let quotas = QUOTAS.lock();
    let limit = quotas.as_ref()?.get(path.parent()?)?;
    // Relaxed: a test changes the limit between two operations, not during one.
    Some(limit.load(Ordering::Relaxed))
}
