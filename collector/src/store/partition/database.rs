//! One SQLite file: the connections to it, and what lies beside it on the disk.
//!
//! Problem: one thread writes while any number of queries read, and none of them may make the writer wait or fail; what
//! was committed survives the loss of power; and a partition that is closed is one file, which can be removed or copied.
//! Approach: a file that is written to has a write-ahead log, forced to the disk by each commit; whoever reads sees the
//! moment at which it began, on a connection of its own. The index of the log is kept in memory by SQLite's file layer
//! `unix-excl`, which keeps other processes out as well; nothing else needs space on the disk to read or to start.
//! A closed file has no log: it is changed seldom, by one connection alone, while nobody reads.
//! Invariant: the log is forced to the disk before a commit returns, and is never parted from its file: whoever removes
//! or renames takes care of both.
//!
//! Sources: SQLite 3.54, `src/os_unix.c` and `src/wal.c`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::super::error::StoreError;

/// As long as most blocks: shorter pages made files a fifth longer and reading slower (`design/store.md`).
const PAGE_BYTES: u64 = 16 << 10;

/// Pages a connection keeps in memory. Blocks are read once a query, so more helps little.
const CACHE_BYTES: usize = 8 << 20;

/// Connections that wait for the next query; what they have in memory is given back.
const MOST_IDLE: usize = 2;

/// Pages of the log that make the writer copy them to the file, and the length that is kept of it: 4 MiB.
const LOG_PAGES: u64 = 256;

/// A log is only longer than this after a large fold, or while queries without a gap between them keep it in use.
const LONG_LOG_BYTES: u64 = 8 * LOG_PAGES * PAGE_BYTES;

/// How long what has to be alone with the file waits for queries; it is tried again a minute later.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a connection waits for a lock. Within the process nobody holds one for long; another process would have
/// to be a tool somebody started by hand.
const BUSY: Duration = Duration::from_secs(2);

/// Extension of files that are not finished, which the next start removes.
pub(in super::super) const UNFINISHED: &str = "new";

/// What SQLite puts behind the name of a file for its log, and for what undoes a transaction in a file without one.
const BESIDE: [&str; 2] = ["-wal", "-journal"];

/// An open file. Dropping it copies the log to the file and removes the log.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    /// The connection that writes, made when it is needed, and anew after an error of the disk.
    writer: Mutex<Option<Connection>>,
    /// Connections to read with.
    idle: Mutex<Vec<Connection>>,
    /// Held by whoever reads; taken alone to change the file as a whole.
    gate: RwLock<()>,
    /// Whether the log is left as it is: until it is known that this is a store, and if it is only to be read.
    keeps_log: AtomicBool,
    /// Whether there is a log.
    has_log: AtomicBool,
}

/// A view of one moment; nothing that is written later is seen.
#[derive(Debug)]
pub(in super::super) struct Reading<'d> {
    database: &'d Database,
    /// Taken out only when this is dropped.
    connection: Option<Connection>,
    _gate: RwLockReadGuard<'d, ()>,
}

impl Reading<'_> {
    pub(super) fn connection(&self) -> Result<&Connection, StoreError> {
        self.connection.as_ref().ok_or(StoreError::Closed)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // One that does not end its transaction would hold on to that moment for ever.
        let is_well = connection.execute_batch("COMMIT").and_then(|()| connection.release_memory()).is_ok();
        let mut idle = self.database.idle.lock();
        if is_well && idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }
}

impl Database {
    /// Opens the file at `path`; one that is new, or empty, gets what `create` says. A log is not touched until
    /// [`Database::take_over`].
    pub(super) fn open(path: &Path, create: &str) -> Result<Database, StoreError> {
        let keeps_log = fs::metadata(beside(path, BESIDE[0])).is_ok_and(|log| log.len() > 0);
        let database = Database {
            path: path.to_owned(),
            writer: Mutex::new(None),
            idle: Mutex::new(Vec::new()),
            gate: RwLock::new(()),
            keeps_log: AtomicBool::new(keeps_log),
            has_log: AtomicBool::new(false),
        };
        let connection = database.connect(OpenFlags::SQLITE_OPEN_CREATE)?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables == 0 {
            let begin =
                format!("PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; BEGIN IMMEDIATE;");
            let made = connection.execute_batch(&begin);
            made.and_then(|()| connection.execute_batch(&format!("{create} COMMIT;")))
                .map_err(|error| database.explained(error.into()))?;
        }
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        // Relaxed, here and below: who changes it is alone with the file, and locks tell the others.
        database.has_log.store(mode == "wal", Ordering::Relaxed);
        database.idle.lock().push(connection);
        Ok(database)
    }

    /// From now on the log is this process's: it is copied to the file as it gets long, and when this is dropped.
    pub(super) fn take_over(&self) {
        self.keeps_log.store(false, Ordering::Relaxed);
        self.idle.lock().clear();
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A connection to the file that is there; one that retention, or somebody else, has removed is not made again.
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
        if let Some(bytes) = super::super::quota::of(&self.path) {
            let pages = (bytes / PAGE_BYTES).clamp(1, u32::MAX.into());
            connection.execute_batch(&format!("PRAGMA max_page_count = {pages}"))?;
        }
        Ok(connection)
    }

    /// Begins to read at this moment.
    pub(super) fn begin_read(&self) -> Result<Reading<'_>, StoreError> {
        let gate = self.gate.read();
        let waiting = self.idle.lock().pop();
        let connection = waiting.map_or_else(|| self.connect_again(), Ok)?;
        connection.execute_batch("BEGIN")?;
        // The moment is that of the first look at the file.
        connection.prepare_cached("SELECT count(*) FROM meta")?.query_row([], |_| Ok(()))?;
        Ok(Reading { database: self, connection: Some(connection), _gate: gate })
    }

    /// Makes what `change` does durable, all of it or nothing.
    pub(super) fn write(
        &self,
        change: impl FnOnce(&Connection) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let connection = match writer.take() {
            Some(connection) => connection,
            None => self.connect_writer().map_err(|error| self.explained(error))?,
        };
        #[cfg(test)]
        if let Some(bytes) = super::super::quota::of(&self.path) {
            let pages = (bytes / PAGE_BYTES).clamp(1, u32::MAX.into());
            connection.execute_batch(&format!("PRAGMA max_page_count = {pages}"))?;
        }
        let result = transact(&connection, change);
        // After an error of the disk nothing is known of what the connection remembers: the next write makes a new one.
        if !matches!(result, Err(StoreError::Io(_))) {
            *writer = Some(connection);
        }
        result.map_err(|error| self.explained(error))
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

    /// SQLite tells a full disk apart from other errors, but not a quota, nor what has no space but tells it late. The
    /// file system is asked then, by a file beside this one that is written where this one ends.
    fn explained(&self, error: StoreError) -> StoreError {
        let StoreError::Io(_) = error else { return error };
        let path = self.path.with_extension(format!("trial.{UNFINISHED}"));
        let trial = || -> io::Result<()> {
            let file = File::create(&path)?;
            file.write_all_at(&[1; 64 << 10], self.lengths().max().unwrap_or(0))?;
            file.sync_all()
        };
        let told = trial();
        // If it cannot be removed now, the next start does.
        let _ = fs::remove_file(&path);
        told.err().map_or(error, StoreError::from)
    }

    fn lengths(&self) -> impl Iterator<Item = u64> {
        let beside = BESIDE.map(|suffix| beside(&self.path, suffix));
        let paths = [self.path.clone()].into_iter().chain(beside);
        paths.filter_map(|path| Some(fs::metadata(path).ok()?.len()))
    }

    /// Bytes on the disk, those of the log included.
    pub(super) fn bytes(&self) -> u64 {
        self.lengths().sum()
    }

    /// Bytes of the file alone.
    pub(super) fn length(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// Copies a log that is long to the file and makes it short, unless somebody reads.
    pub(super) fn shorten_log(&self) -> Result<(), StoreError> {
        let log_bytes = fs::metadata(beside(&self.path, BESIDE[0])).map_or(0, |log| log.len());
        if log_bytes > LONG_LOG_BYTES {
            self.alone(|connection| Ok(connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?))?;
        }
        Ok(())
    }

    /// Makes one file of a closed partition; not yet, if somebody reads.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        if self.has_log.load(Ordering::Relaxed) {
            self.alone(|connection| {
                let mode: String =
                    connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
                self.has_log.store(mode == "wal", Ordering::Relaxed);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Changes the file with nobody reading and no other connection; `None` if queries go on for too long. The
    /// connection is closed behind it.
    pub(super) fn alone<R>(
        &self,
        change: impl FnOnce(&Connection) -> Result<R, StoreError>,
    ) -> Result<Option<R>, StoreError> {
        let Some(_gate) = self.gate.try_write_for(PATIENCE) else { return Ok(None) };
        let mut writer = self.writer.lock();
        self.idle.lock().clear();
        let waiting = writer.take();
        let result =
            waiting.map_or_else(|| self.connect_again(), Ok).and_then(|connection| change(&connection));
        result.map(Some).map_err(|error| self.explained(error))
    }

    /// Makes the file as long as what it holds, with no other connection and no log; `None` as for [`Database::alone`].
    pub(super) fn compact(&self) -> Result<Option<()>, StoreError> {
        let shorter = self.path.with_extension(UNFINISHED);
        let Some(_gate) = self.gate.try_write_for(PATIENCE) else { return Ok(None) };
        let writer = self.writer.lock();
        self.idle.lock().clear();
        debug_assert!(writer.is_none() && !self.has_log.load(Ordering::Relaxed), "closed before");
        let copy = || -> Result<(), StoreError> {
            // SQLite wants to make it by itself.
            let _ = fs::remove_file(&shorter);
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
        copied.map(Some).map_err(|error| self.explained(error))
    }

    /// Gives the file another name in its folder, durably; nobody reads yet.
    pub(super) fn rename(&mut self, path: &Path) -> Result<(), StoreError> {
        self.idle.get_mut().clear();
        if let Some(connection) = self.writer.get_mut().take() {
            connection.close().map_err(|(_, error)| error)?;
        }
        if fs::metadata(beside(&self.path, BESIDE[0])).is_ok_and(|log| log.len() > 0) {
            return Err(self.explained(StoreError::Io(io::ErrorKind::Other)));
        }
        renamed(&self.path, path)?;
        self.path = path.to_owned();
        Ok(())
    }

    /// Removes the file and what lies beside it; queries under way end undisturbed.
    pub(super) fn remove(&self) -> Result<(), StoreError> {
        remove(&self.path)
    }
}

/// Removes the database at `path`. Its log goes last: without it the file would be half of something.
pub(in super::super) fn remove(path: &Path) -> Result<(), StoreError> {
    fs::remove_file(path)?;
    for suffix in BESIDE {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Whether `path` was left by a database with this `extension` that was removed, or by one that was never finished.
pub(in super::super) fn is_left_over(path: &Path, extension: &str) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let owner = BESIDE.iter().find_map(|suffix| name.strip_suffix(suffix));
    let Some((_, last)) = owner.unwrap_or(name).rsplit_once('.') else { return false };
    let is_parted = |owner: &str| last == extension && !path.with_file_name(owner).exists();
    last == UNFINISHED || owner.is_some_and(is_parted)
}

pub(super) fn transact(
    connection: &Connection,
    change: impl FnOnce(&Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Dropped without a commit, it is undone.
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

/// Why the system does not let the file be opened; SQLite tells only that it could not.
fn refusal(path: &Path, create: OpenFlags) -> Option<io::Error> {
    let flags = AccessFlags::R_OK | AccessFlags::W_OK;
    let folder = path.parent().unwrap_or(path);
    let is_asked_itself = path.exists() || create.is_empty();
    let asked = if is_asked_itself { access(path, flags) } else { access(folder, flags) };
    asked.err().map(io::Error::from)
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
