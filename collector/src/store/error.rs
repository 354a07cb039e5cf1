//! Why the store cannot do what it was asked to.

use std::fmt;
use std::io;

use super::column::BlockError;

/// Version of tables and columns; a store of another version is refused.
pub(super) const SCHEMA: u64 = 1;

/// Why the store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk, or the quota on it, is full.
    Full,
    /// Reading or writing failed for another reason.
    Io(io::ErrorKind),
    /// There is no store in the directory.
    NoStore,
    /// Another process has the store open.
    InUse,
    /// The store was written by another version of its schema.
    Version(u64),
    /// A file of the store is damaged, or not of the store.
    Damaged,
    /// A block in the store cannot be read.
    Block(BlockError),
    /// So much waits to be written that nothing more is taken.
    Behind,
    /// The session's names are wanted again, which an agent learns when it comes back.
    SymbolsDropped,
    /// There is no memory for one more session, and the next partition cannot be begun.
    TooManySessions,
    /// The store has been closed.
    Closed,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Full => f.write_str("the disk of the store is full"),
            StoreError::Io(kind) => write!(f, "the store cannot be read or written: {kind}"),
            StoreError::NoStore => f.write_str("there is no store here"),
            StoreError::InUse => f.write_str(
                "the store is in use by another process; a running collector answers at its --http address",
            ),
            StoreError::Version(version) => {
                write!(
                    f,
                    "the store has schema version {version}, this program reads {}",
                    SCHEMA
                )
            }
            StoreError::Damaged => f.write_str("the store is damaged"),
            StoreError::Block(error) => error.fmt(f),
            StoreError::Behind => f.write_str("the store cannot write as fast as samples arrive"),
            StoreError::SymbolsDropped => f.write_str("the session's names are wanted again, come back to send them"),
            StoreError::TooManySessions => f.write_str(
                "the store has no memory for one more session until its next partition begins, within a minute",
            ),
            StoreError::Closed => f.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<BlockError> for StoreError {
    fn from(error: BlockError) -> Self {
        StoreError::Block(error)
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreError::Full
            }
            kind => StoreError::Io(kind),
        }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        io::Error::from(match error {
            StoreError::Full => io::ErrorKind::StorageFull,
            StoreError::Io(kind) => kind,
            StoreError::Behind => io::ErrorKind::ResourceBusy,
            _ => io::ErrorKind::InvalidData,
        })
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse,
            Some(ErrorCode::TooBig) => StoreError::Block(BlockError::TooLong),
            Some(ErrorCode::OutOfMemory) => StoreError::Io(io::ErrorKind::OutOfMemory),
            Some(ErrorCode::ReadOnly) => StoreError::Io(io::ErrorKind::ReadOnlyFilesystem),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                tracing::debug!(%error, "the database reports");
                StoreError::Io(io::ErrorKind::Other)
            }
            _ => {
                tracing::error!(%error, "the database reports");
                StoreError::Damaged
            }
        }
    }
}

impl From<StoreError> for profile::source::ReadError {
    fn from(error: StoreError) -> Self {
        profile::source::ReadError(error.to_string())
    }
}
