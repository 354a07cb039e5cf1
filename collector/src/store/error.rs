//! Errors of the store.

use std::io;

use super::column::BlockError;

/// Version of tables and columns; a store with a later version is refused. Version 1 has no checksums of keys.
pub(super) const SCHEMA: u64 = 2;

/// Why the store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("the disk of the store is full")]
    Full,
    #[error("the store cannot be read or written: {0}")]
    Io(io::ErrorKind),
    #[error("the directory contains no store; 'tickwalk collect --store DIR' makes one and fills it")]
    NoStore,
    #[error("the store is in use by another process; query a running collector at its --http address")]
    InUse,
    #[error(
        "the store has schema version {0}, but this program reads versions 1 to {SCHEMA}; use the release that wrote it"
    )]
    Version(u64),
    #[error("a file of the store is damaged or is not a partition")]
    Damaged,
    /// A block of a file cannot be read.
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(
        "the lake cannot be written and its spool is full; check the lake, or permit more with --lake-spool; the agent retries"
    )]
    LakeFull,
    #[error("the store cannot write as fast as samples arrive; the agent retries")]
    Behind,
    #[error("the symbols of the session were dropped; reconnect to resend them")]
    SymbolsDropped,
    #[error("the store has no memory for another session; retry in a minute, when its next partition begins")]
    TooManySessions,
    #[error("the writer of the store has ended; restart the collector")]
    WriterEnded,
    #[error("the store is closed")]
    Closed,
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
            StoreError::Behind | StoreError::LakeFull => io::ErrorKind::ResourceBusy,
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
                tracing::debug!(%error, "SQLite reported an error");
                StoreError::Io(io::ErrorKind::Other)
            }
            _ => {
                tracing::error!(%error, "SQLite reported an error");
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
