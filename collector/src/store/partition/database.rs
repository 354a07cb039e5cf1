//! One SQLite file: its connections, and its log.
//!
//! One thread writes while any number of queries read, each a snapshot on its own connection. A file that is written to
//! has a write-ahead log, which each commit forces to the disk. SQLite's file layer `unix-excl` keeps the index of the
//! log in memory and locks out other processes, so reading and starting need no space on the disk. A closed file has no
//! log: one connection changes it, rarely, while there is no reader.
//! Invariant: the log is forced to the disk before a commit returns, and file and log are removed and renamed together.
//!
//! Sources: SQLite 3.54, `src/os_unix.c` and `src/wal.c`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::super::error::StoreError;

/// Page size, as long as most blocks; shorter pages make files longer and reading slower (`design/store.md`).
pub(in super::super) const PAGE_BYTES: u64 = 16 << 10;

/// Page cache of a connection. A query reads each block once, so a larger cache helps little.
const CACHE_BYTES: usize = 8 << 20;

/// Mode of new files: profiles have names of private programs.
pub(in super::super) const PRIVATE: u32 = 0o600;

/// Maximum idle connections kept for the next queries; their page caches are released.
const MOST_IDLE: usize = 2;

/// Length of the log, in pages, at which a commit copies it to the file, and to which it is truncated: 4 MiB.
const LOG_PAGES: u64 = 256;

/// Length of a log that upkeep shortens. It occurs after a large fold, or while overlapping queries use the log.
const LONG_LOG_BYTES: u64 = 8 * LOG_PAGES * PAGE_BYTES;

/// Maximum wait for readers before an exclusive change, which is otherwise tried again a minute later.
const PATIENCE: Duration = Duration::from_millis(200);

/// Maximum wait for a lock. Locks within the process are short; another process can only be a tool started by a user.
const BUSY: Duration = Duration::from_secs(2);

/// Extension of partition files.
pub(in super::super) const EXTENSION: &str = "sqlite";

/// Extension of unfinished files, which the next start removes.
pub(in super::super) const UNFINISHED: &str = "new";

/// Suffixes of SQLite's write-ahead log and rollback journal.
const LOG_SUFFIXES: [&str; 2] = ["-wal", "-journal"];

/// An open file. Drop copies the log to the file and removes the log.
#[derive(Debug)]
pub(in super::super) struct Database {
    path: PathBuf,
    /// The connection that writes, opened on demand, and reopened after an error of the disk.
    writer: Mutex<Option<Connection>>,
    idle: Mutex<Vec<Connection>>,
    /// Shared by readers; exclusive for changes of the file as a whole.
    readers: RwLock<()>,
    /// True if the log must not change: before the file is known to be of a store, and if it is opened for reading.
    keeps_log: AtomicBool,
    /// True if there is a log.
    has_log: AtomicBool,
}

/// A snapshot of the database; later writes are invisible.
#[derive(Debug)]
pub(in super::super) struct Reading<'d> {
    database: &'d Database,
    /// `None` only during drop.
    connection: Option<Connection>,
    _guard: RwLockReadGuard<'d, ()>,
}

impl Reading<'_> {
    pub(in super::super) fn connection(&self) -> Result<&Connection, StoreError> {
        self.connection.as_ref().ok_or(StoreError::Closed)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // A connection with an open transaction would keep its snapshot, so it is closed.
        let is_well = connection.execute_batch("COMMIT").and_then(|()| connection.release_memory()).is_ok();
        let mut idle = self.database.idle.lock();
        if is_well && idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }
}

impl Database {
    /// Opens the file at `path`; a new or empty one is initialized with the statements `create`. An existing log
    /// remains unchanged until [`Database::take_over`].
    pub(super) fn open(path: &Path, create: &str) -> Result<Database, StoreError> {
        let keeps_log = length(&beside(path, LOG_SUFFIXES[0])) > 0;
        let database = Database {
            path: path.to_owned(),
            writer: Mutex::new(None),
            idle: Mutex::new(Vec::new()),
            readers: RwLock::new(()),
            keeps_log: AtomicBool::new(keeps_log),
            has_log: AtomicBool::new(false),
        };
        // SQLite makes files that everybody may read, and gives a log the mode of its database. Connecting reports
        // errors.
        let _ = File::options().write(true).create_new(true).mode(PRIVATE).open(path);
        let connection = database.connect(OpenFlags::SQLITE_OPEN_CREATE)?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables == 0 {
            let begin =
                format!("PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; BEGIN IMMEDIATE;");
            let made = connection.execute_batch(&begin);
            made.and_then(|()| connection.execute_batch(&format!("{create} COMMIT;")))
                .map_err(|error| database.with_cause(error.into()))?;
        }
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        // Relaxed, here and below: it changes only under the exclusive lock.
        database.has_log.store(mode == "wal", Ordering::Relaxed);
        database.idle.lock().push(connection);
        Ok(database)
    }

    /// Permits this process to copy the log to the file, at commits and on drop.
    pub(super) fn take_over(&self) {
        self.keeps_log.store(false, Ordering::Relaxed);
        self.idle.lock().clear();
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a connection to the existing file; a removed file is not created again.
    fn connect_again(&self) -> Result<Connection, StoreError> {
        self.connect(OpenFlags::empty())
    }

    fn connect(&self, create: OpenFlags) -> Result<Connection, StoreError> {
        let connection = connect(&self.path, create).map_err(|error| match refusal(&self.path, create) {
            Some(refusal) => refusal.into(),
            None => StoreError::from(error),
        })?;
        if self.keeps_log.load(Ordering::Relaxed) {
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
        #[cfg(test)]
        super::super::tests::quota::apply(&self.path, &connection)?;
        Ok(connection)
    }

    pub(in super::super) fn begin_read(&self) -> Result<Reading<'_>, StoreError> {
        let readers = self.readers.read();
        let waiting = self.idle.lock().pop();
        let connection = waiting.map_or_else(|| self.connect_again(), Ok)?;
        connection.execute_batch("BEGIN")?;
        // The snapshot is taken at the first read.
        connection.prepare_cached("SELECT count(*) FROM meta")?.query_row([], |_| Ok(()))?;
        Ok(Reading { database: self, connection: Some(connection), _guard: readers })
    }

    /// Commits `change` durably, all of it or nothing.
    pub(super) fn write(
        &self,
        change: impl FnOnce(&Connection) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let connection = match writer.take() {
            Some(connection) => connection,
            None => self.connect_writer().map_err(|error| self.with_cause(error))?,
        };
        #[cfg(test)]
        super::super::tests::quota::apply(&self.path, &connection)?;
        let result = transact(&connection, change);
        // After an error of the disk the state of the connection is unknown: the next write opens a new one.
        if !matches!(result, Err(StoreError::Io(_))) {
            *writer = Some(connection);
        }
        result.map_err(|error| self.with_cause(error))
    }

    fn connect_writer(&self) -> Result<Connection, StoreError> {
        let connection = self.connect_again()?;
        let log_bytes = LOG_PAGES * PAGE_BYTES;
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = {LOG_PAGES}; PRAGMA journal_size_limit = {log_bytes}"
        ))?;
        self.has_log.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    /// Returns the cause of an I/O error. SQLite reports a full disk, but neither a quota nor a file system that
    /// reports missing space late. A trial file of this length, written beside this one, finds those.
    fn with_cause(&self, error: StoreError) -> StoreError {
        let StoreError::Io(_) = error else { return error };
        let path = self.path.with_extension(format!("trial.{UNFINISHED}"));
        let trial = || -> io::Result<()> {
            let file = File::create(&path)?;
            file.write_all_at(&[1; 64 << 10], self.lengths().max().unwrap_or(0))?;
            file.sync_all()
        };
        let result = trial();
        // If it cannot be removed now, the next start removes it.
        let _ = fs::remove_file(&path);
        result.err().map_or(error, StoreError::from)
    }

    /// Returns the lengths of the file and of its logs.
    fn lengths(&self) -> impl Iterator<Item = u64> {
        [""].into_iter().chain(LOG_SUFFIXES).map(|suffix| length(&beside(&self.path, suffix)))
    }

    /// Returns the bytes on the disk, including the log.
    pub(in super::super) fn bytes(&self) -> u64 {
        self.lengths().sum()
    }

    /// Returns the length of the file without the log.
    pub(in super::super) fn length(&self) -> u64 {
        length(&self.path)
    }

    /// Copies a long log to the file and truncates it, unless there is a reader.
    pub(in super::super) fn shorten_log(&self) -> Result<(), StoreError> {
        if length(&beside(&self.path, LOG_SUFFIXES[0])) > LONG_LOG_BYTES {
            self.exclusively(|connection| Ok(connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?))?;
        }
        Ok(())
    }

    /// Removes the log of a closed partition, unless there is a reader.
    pub(super) fn remove_log(&self) -> Result<(), StoreError> {
        if self.has_log.load(Ordering::Relaxed) {
            self.exclusively(|connection| {
                let mode: String =
                    connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
                self.has_log.store(mode == "wal", Ordering::Relaxed);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Runs `change` without readers and other connections, and closes its connection; returns `None` if readers do not
    /// end within [`PATIENCE`].
    pub(super) fn exclusively<R>(
        &self,
        change: impl FnOnce(&Connection) -> Result<R, StoreError>,
    ) -> Result<Option<R>, StoreError> {
        let Some(_guard) = self.readers.try_write_for(PATIENCE) else { return Ok(None) };
        let mut writer = self.writer.lock();
        self.idle.lock().clear();
        let waiting = writer.take();
        let result =
            waiting.map_or_else(|| self.connect_again(), Ok).and_then(|connection| change(&connection));
        result.map(Some).map_err(|error| self.with_cause(error))
    }

    /// Removes free pages from the file, which has no log; returns `None` as for [`Database::exclusively`].
    pub(super) fn compact(&self) -> Result<Option<()>, StoreError> {
        let shorter = self.path.with_extension(UNFINISHED);
        let Some(_guard) = self.readers.try_write_for(PATIENCE) else { return Ok(None) };
        let writer = self.writer.lock();
        self.idle.lock().clear();
        debug_assert!(writer.is_none() && !self.has_log.load(Ordering::Relaxed), "closed before");
        let copy = || -> Result<(), StoreError> {
            // SQLite requires that the target does not exist or is empty.
            let _ = fs::remove_file(&shorter);
            let mode = fs::metadata(&self.path)?.permissions().mode() & 0o777;
            File::options().write(true).create_new(true).mode(mode).open(&shorter)?;
            let connection = self.connect_again()?;
            let name = ToSqlOutput::Borrowed(ValueRef::Text(shorter.as_os_str().as_encoded_bytes()));
            connection.execute("VACUUM INTO ?", [name])?;
            drop(connection);
            File::open(&shorter)?.sync_all()?;
            renamed(&shorter, &self.path)
        };
        let copied = copy();
        if copied.is_err() {
            let _ = fs::remove_file(&shorter);
        }
        copied.map(Some).map_err(|error| self.with_cause(error))
    }

    /// Renames the file in its folder, durably; there is no reader yet.
    pub(in super::super) fn rename(&mut self, path: &Path) -> Result<(), StoreError> {
        self.idle.get_mut().clear();
        if let Some(connection) = self.writer.get_mut().take() {
            connection.close().map_err(|(_, error)| error)?;
        }
        if length(&beside(&self.path, LOG_SUFFIXES[0])) > 0 {
            return Err(self.with_cause(StoreError::Io(io::ErrorKind::Other)));
        }
        renamed(&self.path, path)?;
        self.path = path.to_owned();
        Ok(())
    }

    /// Removes the file and its log; queries in progress are unaffected.
    pub(in super::super) fn remove(&self) -> Result<(), StoreError> {
        remove(&self.path)
    }
}

/// Removes the database at `path`. The log is removed last, because the file is incomplete without it.
pub(in super::super) fn remove(path: &Path) -> Result<(), StoreError> {
    fs::remove_file(path)?;
    LOG_SUFFIXES.iter().try_for_each(|suffix| if_found(fs::remove_file(beside(path, suffix))))
}

/// Renames the database at `from`, its log first: a start removes a log whose file is gone.
pub(in super::super) fn rename_with_logs(from: &Path, to: &Path) -> Result<(), StoreError> {
    LOG_SUFFIXES
        .iter()
        .try_for_each(|suffix| if_found(fs::rename(beside(from, suffix), beside(to, suffix))))?;
    renamed(from, to)
}

/// Returns the result of an operation on a file that may be missing.
fn if_found(result: io::Result<()>) -> Result<(), StoreError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns the length of the file at `path`, 0 if there is none.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Returns whether `path` is an unfinished file, or the log of a removed database with this `extension`.
pub(in super::super) fn is_left_over(path: &Path, extension: &str) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let owner = LOG_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    let Some((_, last)) = owner.unwrap_or(name).rsplit_once('.') else { return false };
    let is_parted = |owner: &str| last == extension && !path.with_file_name(owner).exists();
    last == UNFINISHED || owner.is_some_and(is_parted)
}

pub(super) fn transact(
    connection: &Connection,
    change: impl FnOnce(&Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Drop without a commit rolls back.
    change(&transaction)?;
    Ok(transaction.commit()?)
}

fn connect(path: &Path, create: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = create
        | OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags_and_vfs(path, flags, c"unix-excl")?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection
        .execute_batch(&format!("PRAGMA cache_size = -{}; PRAGMA synchronous = FULL", CACHE_BYTES >> 10))?;
    Ok(connection)
}

/// Returns the error of the system when the file cannot be opened; SQLite reports no cause.
fn refusal(path: &Path, create: OpenFlags) -> Option<io::Error> {
    let flags = AccessFlags::R_OK | AccessFlags::W_OK;
    let folder = path.parent().unwrap_or(path);
    let is_existing = path.exists() || create.is_empty();
    access(if is_existing { path } else { folder }, flags).err().map(io::Error::from)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn renamed(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to)?;
    if let Some(directory) = to.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
