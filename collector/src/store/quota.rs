//! A disk that can be full, for tests: files of a directory that has a quota cannot grow beyond it.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;
use rustc_hash::FxHashMap;

use super::error::StoreError;

static QUOTAS: Mutex<Option<FxHashMap<PathBuf, Arc<AtomicU64>>>> = Mutex::new(None);

/// Limits the length of files in `directory` to the number, which may be changed later.
pub(super) fn set(directory: &Path, limit: Arc<AtomicU64>) {
    QUOTAS.lock().get_or_insert_default().insert(directory.to_owned(), limit);
}

/// The file at `path` behind its quota, `None` if it has none.
pub(super) fn backend(path: &Path) -> Result<Option<Limited>, StoreError> {
    let directory = path.parent().unwrap_or(path);
    let Some(limit) = QUOTAS.lock().as_ref().and_then(|quotas| quotas.get(directory).cloned()) else {
        return Ok(None);
    };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    Ok(Some(Limited { file: FileBackend::new(file).map_err(StoreError::from)?, limit }))
}

#[derive(Debug)]
pub(super) struct Limited {
    file: FileBackend,
    limit: Arc<AtomicU64>,
}

impl Limited {
    fn check(&self, end: u64) -> io::Result<()> {
        // Relaxed: a test changes the limit between two operations, not during one.
        if end > self.limit.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Limited {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > self.file.len()? {
            self.check(len)?;
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
