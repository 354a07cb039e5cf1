//! Row groups of many files, fetched by requests for ranges and decoded on all processors.
//!
//! Of a large file, its end is read first, with the places and statistics of its row groups, and then the row groups
//! that are wanted, one request each: their columns are adjacent. A small file is read with one request.
//! Invariant: the memory of what was fetched and decoded, but not yet taken, is limited whatever the lake has.

use std::cell::Cell;
use std::num::NonZero;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, buf};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use crate::layout::Table;
use crate::storage::{Entry, Lake, LakeError, PARALLEL};
use crate::table::columns::Group;

/// Files up to this size are read whole: at 100 MB a second that takes less time than a second request.
const SMALL_BYTES: u64 = 1 << 20;

/// Bytes at the end of a large file that are read first. The footer of a file with 14 row groups has 40 KB.
const TAIL_BYTES: u64 = 64 << 10;

/// Time between two looks at the deadline.
const TICK: Duration = Duration::from_millis(100);

/// Progress of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Requests to the object store, those that list files among them.
    pub requests: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Files that were begun.
    pub files: u64,
}

/// Reads a lake until a deadline.
pub struct Fetcher<'f> {
    /// The lake.
    pub lake: &'f Lake,
    /// Returns whether the result is no longer needed.
    pub is_over: &'f dyn Fn() -> bool,
    /// Called several times a second.
    pub report: &'f dyn Fn(Progress),
    /// Requests, bytes and files so far.
    pub done: Cell<Progress>,
}

/// The footer of a file; of a small one, the whole file as well.
struct Head {
    path: String,
    metadata: ParquetMetaData,
    whole: Option<Bytes>,
}

/// A row group that is to be fetched.
struct Unit {
    head: Arc<Head>,
    group: usize,
}

/// A range of a file's bytes.
#[derive(Clone)]
struct Piece {
    start: u64,
    bytes: Bytes,
}

impl Length for Piece {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Piece {
    type T = buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.slice(start..self.len()).map(Bytes::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.slice(start..start.saturating_add(length as u64))
    }
}

impl Piece {
    fn slice(&self, range: Range<u64>) -> Result<Bytes, ParquetError> {
        if range.start < self.start || range.end > self.len() || range.is_empty() {
            return Err(ParquetError::EOF("a column lies outside of its row group".into()));
        }
        let at = |offset: u64| (offset - self.start) as usize;
        Ok(self.bytes.slice(at(range.start)..at(range.end)))
    }
}

impl Fetcher<'_> {
    /// Runs `work` until it is done or its result is no longer needed.
    pub fn run<T>(&self, work: impl Future<Output = Result<T, LakeError>>) -> Result<T, LakeError> {
        self.lake.run(async {
            let mut work = pin!(work);
            let mut ticks = tokio::time::interval(TICK);
            loop {
                tokio::select! {
                    result = &mut work => return result,
                    _ = ticks.tick() => {
                        if (self.is_over)() {
                            return Err(LakeError::Late);
                        }
                        (self.report)(self.done.get());
                    }
                }
            }
        })
    }

    /// Decodes the row groups of a table's files for which `is_wanted` holds, and calls `take` with the results in the
    /// order of the files.
    pub fn each<T: Send + 'static>(
        &self,
        entries: &[&Entry],
        table: Table,
        is_wanted: impl Fn(&RowGroupMetaData) -> bool,
        decode: impl Fn(&Group<'_>) -> Result<T, ParquetError> + Send + Sync + 'static,
        mut take: impl FnMut(T) -> Result<(), LakeError>,
    ) -> Result<(), LakeError> {
        let (decode, is_wanted) = (Arc::new(decode), &is_wanted);
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let files = entries.iter().filter(|entry| Table::of_file(&entry.name) == Some(table));
        self.run(async {
            let heads = stream::iter(files).map(|entry| self.head(entry)).buffered(PARALLEL);
            let units = heads.map_ok(|head| stream::iter(units_of(head, is_wanted))).try_flatten();
            let fetched = units.map(|unit| async { self.fetch(unit?).await }).buffered(PARALLEL);
            let decoded = fetched.map(|fetched| async {
                let ((unit, piece), decode) = (fetched?, Arc::clone(&decode));
                let head = Arc::clone(&unit.head);
                let work = move || {
                    let group = Group::of(&head.metadata, unit.group, piece);
                    group.and_then(|group| decode(&group))
                };
                // The library's decoder may panic over a damaged file.
                let decoded = tokio::task::spawn_blocking(work).await;
                let decoded = decoded.unwrap_or_else(|error| Err(ParquetError::General(error.to_string())));
                decoded.map_err(|error| damaged(&unit.head.path, &error))
            });
            let mut decoded = pin!(decoded.buffered(processors));
            while let Some(rows) = decoded.try_next().await? {
                take(rows)?;
            }
            Ok(())
        })
    }

    async fn get(&self, path: &str, range: Range<u64>) -> Result<Bytes, LakeError> {
        let bytes = self.lake.get_range(path, range).await?;
        let done = self.done.get();
        self.done.set(Progress {
            requests: done.requests + 1,
            bytes: done.bytes + bytes.len() as u64,
            ..done
        });
        Ok(bytes)
    }

    /// Reads the footer of a file.
    async fn head(&self, entry: &Entry) -> Result<Head, LakeError> {
        let (path, len) = (entry.path(), entry.len);
        let done = self.done.get();
        self.done.set(Progress { files: done.files + 1, ..done });
        let mut tail_bytes = if len <= SMALL_BYTES { len } else { TAIL_BYTES };
        loop {
            let tail = self.get(&path, len - tail_bytes..len).await?;
            let mut reader = ParquetMetaDataReader::new();
            match reader.try_parse_sized(&tail, len) {
                Err(ParquetError::NeedMoreData(needed)) if needed as u64 > tail_bytes => {
                    tail_bytes = (needed as u64).min(len);
                }
                parsed => {
                    let metadata = parsed.and_then(|()| reader.finish());
                    let metadata = metadata.map_err(|error| damaged(&path, &error))?;
                    let whole = Some(tail).filter(|tail| tail.len() as u64 == len);
                    return Ok(Head { path, metadata, whole });
                }
            }
        }
    }

    async fn fetch(&self, unit: Unit) -> Result<(Unit, Piece), LakeError> {
        if let Some(bytes) = unit.head.whole.clone() {
            return Ok((unit, Piece { start: 0, bytes }));
        }
        let range = bytes_of(unit.head.metadata.row_group(unit.group));
        let bytes = self.get(&unit.head.path, range.clone()).await?;
        Ok((unit, Piece { start: range.start, bytes }))
    }
}

/// Returns the wanted row groups of a file.
fn units_of(head: Head, is_wanted: &impl Fn(&RowGroupMetaData) -> bool) -> Vec<Result<Unit, LakeError>> {
    let head = Arc::new(head);
    let groups = head.metadata.row_groups().iter().enumerate();
    let wanted = groups.filter(|(_, group)| is_wanted(group)).map(|(group, _)| group);
    wanted.map(|group| Ok(Unit { head: Arc::clone(&head), group })).collect()
}

/// Returns the range of a row group's bytes, from its first column to its last one.
fn bytes_of(group: &RowGroupMetaData) -> Range<u64> {
    let columns = group.columns().iter();
    let ranges = columns.map(|column| {
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let start = start.max(0).cast_unsigned();
        start..start.saturating_add(column.compressed_size().max(0).cast_unsigned())
    });
    ranges.reduce(|all, own| all.start.min(own.start)..all.end.max(own.end)).unwrap_or(0..0)
}

fn damaged(path: &str, error: &ParquetError) -> LakeError {
    LakeError::Damaged(path.to_owned(), error.to_string())
}
