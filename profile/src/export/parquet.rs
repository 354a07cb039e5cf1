//! Parquet in two tables, for DuckDB, ClickHouse, Spark and other SQL engines that read files.
//!
//! `samples` has a row for each sample, `stacks` a row for each distinct stack, joined by `stack_id`. A stack has its
//! frames as a list of names, leaf first, and as lists of their parts. Ids are signed, because some readers do not
//! support unsigned numbers.
//! Invariant: two rows of `stacks` have the same id if and only if their content is equal (apart from collisions of
//! 64-bit hashes), in all sessions, so tables of several sessions can be read as one. Rows are written in groups, so
//! the memory for a long recording is that of one group and its stacks.
//!
//! Source: apache/parquet-format, `LogicalTypes.md` (lists of three levels, timestamps in microseconds).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::Profiles;
use super::comments::comments;
use super::frames::Frames;
use crate::dictionary::frame_parts::{FrameParts, kind_text};
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::source::Sample;

/// Rows of a group of samples: about 4 MB in memory.
const SAMPLES_A_GROUP: usize = 1 << 16;
/// Rows of a group of stacks; a stack is a hundred times larger than a sample.
const STACKS_A_GROUP: usize = 1 << 12;

const SAMPLES: &str = "message samples {
    required int64 time (TIMESTAMP(MICROS, true));
    required binary service (STRING);
    required binary host (STRING);
    required int64 process;
    required int64 thread_id;
    required binary thread (STRING);
    required int64 stack_id;
    required int64 cpu_ns;
    required int64 samples;
    required boolean failed;
}";

const STACKS: &str = "message stacks {
    required int64 stack_id;
    required binary stop (STRING);
    required group frames (LIST) {
        repeated group list {
            required binary element (STRING);
        }
    }
    required group details (LIST) {
        repeated group list {
            required group element {
                required binary class (STRING);
                required binary method (STRING);
                required binary file (STRING);
                required int32 line;
                required binary kind (STRING);
            }
        }
    }
}";

/// Writes a table of `profile` to `out`.
pub fn write(profile: &ProcessProfile, table: Table, out: impl Write + Send) -> io::Result<()> {
    let mut file = Tables::create(table, out).map_err(io::Error::other)?;
    file.add(profile).and_then(|()| file.finish()).map_err(io::Error::other)
}

/// Writes a table of several processes to `out`.
pub fn write_each(profiles: Profiles<'_>, table: Table, out: impl Write + Send) -> Result<(), QueryError> {
    let mut file = Tables::create(table, out).map_err(io::Error::other)?;
    for profile in profiles {
        file.add(&profile?).map_err(io::Error::other)?;
    }
    Ok(file.finish().map_err(io::Error::other)?)
}

/// The file of one table.
struct Tables<W: Write + Send> {
    table: Table,
    file: SerializedFileWriter<W>,
    /// Ids of the rows of `stacks` that are written.
    known: FxHashSet<i64>,
    accounts: Vec<String>,
    modes: BTreeSet<&'static str>,
}

impl<W: Write + Send> Tables<W> {
    fn create(table: Table, out: W) -> Result<Self, ParquetError> {
        let schema = match table {
            Table::Samples => SAMPLES,
            Table::Stacks => STACKS,
        };
        Ok(Tables {
            table,
            file: create(out, schema)?,
            known: FxHashSet::default(),
            accounts: Vec::new(),
            modes: BTreeSet::new(),
        })
    }

    fn add(&mut self, profile: &ProcessProfile) -> Result<(), ParquetError> {
        let mut stacks = Stacks::new(profile, std::mem::take(&mut self.known));
        match self.table {
            Table::Samples => write_samples(profile, &mut stacks, &mut self.file)?,
            Table::Stacks => {
                for sample in profile.samples() {
                    stacks.id(sample.stack);
                }
                write_stacks(profile, &mut stacks, &mut self.file)?;
            }
        }
        self.known = stacks.known;
        self.accounts.extend(comments(profile));
        self.modes.insert(profile.session().mode().name());
        Ok(())
    }

    fn finish(mut self) -> Result<(), ParquetError> {
        let account = KeyValue::new("tickwalk.account".to_owned(), self.accounts.join("\n"));
        self.file.append_key_value_metadata(account);
        let modes = self.modes.into_iter().collect::<Vec<_>>().join(",");
        self.file.append_key_value_metadata(KeyValue::new("tickwalk.mode".to_owned(), modes));
        self.file.close()?;
        Ok(())
    }
}

/// One of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// A row for each sample.
    Samples,
    /// A row for each distinct stack.
    Stacks,
}

/// Ids of stacks in both tables: hashes of their rows in the table of stacks, because stack numbers are local to a
/// session.
struct Stacks<'p> {
    profile: &'p ProcessProfile,
    frames: Frames<'p>,
    /// Hashes of frames, by number.
    hashes: Vec<u64>,
    by_number: FxHashMap<u32, i64>,
    known: FxHashSet<i64>,
    /// Id and number in the session of each new row of the table, in order of first use.
    rows: Vec<(i64, u32)>,
}

impl<'p> Stacks<'p> {
    fn new(profile: &'p ProcessProfile, known: FxHashSet<i64>) -> Self {
        Stacks {
            profile,
            frames: Frames::new(profile),
            hashes: Vec::new(),
            by_number: FxHashMap::default(),
            known,
            rows: Vec::new(),
        }
    }

    fn id(&mut self, stack: u32) -> i64 {
        if let Some(&id) = self.by_number.get(&stack) {
            return id;
        }
        let frames = self.frames.stack(stack);
        for frame in self.hashes.len()..self.frames.all().len() {
            self.hashes.push(hash_of(&self.frames.all()[frame]));
        }
        let mut content = Vec::with_capacity(8 * frames.len() + 16);
        frames.iter().for_each(|&frame| {
            content.extend_from_slice(&self.hashes[frame as usize].to_le_bytes());
        });
        content.extend_from_slice(self.profile.root_of(stack).as_bytes());
        let id = xxh3_64(&content).cast_signed();
        self.by_number.insert(stack, id);
        // Stacks that differ only in details outside of the table, such as byte code indices, share a row.
        if self.known.insert(id) {
            self.rows.push((id, stack));
        }
        id
    }
}

/// Returns a hash of a frame's columns in the table of stacks.
fn hash_of(frame: &FrameParts) -> u64 {
    let mut content = Vec::new();
    for part in [&frame.text, &frame.class, &frame.method, &frame.file, &kind_text(frame.kind)] {
        content.extend_from_slice(part.as_bytes());
        // Separates names: this byte never occurs in UTF-8.
        content.push(0xff);
    }
    content.extend_from_slice(&frame.line.to_le_bytes());
    xxh3_64(&content)
}

fn write_samples(
    profile: &ProcessProfile,
    stacks: &mut Stacks<'_>,
    file: &mut SerializedFileWriter<impl Write + Send>,
) -> Result<(), ParquetError> {
    let hello = profile.hello();
    let (service, host) = (text(profile.session().service()), text(&hello.host));
    let mut threads: FxHashMap<u32, (ByteArray, i64)> = FxHashMap::default();
    for rows in profile.samples().chunks(SAMPLES_A_GROUP) {
        let stack_ids: Vec<i64> = rows.iter().map(|row| stacks.id(row.stack)).collect();
        for row in rows {
            threads.entry(row.thread).or_insert_with(|| {
                let known = profile.thread(row.thread);
                let tid = known.map_or(0, |thread| i64::from(thread.tid));
                (text(profile.thread_name(row.thread)), tid)
            });
        }
        let count = rows.len();
        let numbers = |of: &dyn Fn(&Sample) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
        let mut group = file.next_row_group()?;
        column::<Int64Type>(&mut group, &numbers(&|row| (row.time_ns / 1000) as i64), None)?;
        column::<ByteArrayType>(&mut group, &vec![service.clone(); count], None)?;
        column::<ByteArrayType>(&mut group, &vec![host.clone(); count], None)?;
        column::<Int64Type>(&mut group, &vec![i64::from(hello.pid); count], None)?;
        column::<Int64Type>(&mut group, &numbers(&|row| threads[&row.thread].1), None)?;
        let names: Vec<ByteArray> = rows.iter().map(|row| threads[&row.thread].0.clone()).collect();
        column::<ByteArrayType>(&mut group, &names, None)?;
        column::<Int64Type>(&mut group, &stack_ids, None)?;
        column::<Int64Type>(&mut group, &numbers(&|row| row.cpu_ns as i64), None)?;
        column::<Int64Type>(&mut group, &numbers(&|row| i64::from(row.count)), None)?;
        column::<BoolType>(
            &mut group,
            &rows.iter().map(|row| profile.is_failed(row.stack)).collect::<Vec<bool>>(),
            None,
        )?;
        group.close()?;
    }
    Ok(())
}

fn write_stacks(
    profile: &ProcessProfile,
    stacks: &mut Stacks<'_>,
    file: &mut SerializedFileWriter<impl Write + Send>,
) -> Result<(), ParquetError> {
    let Stacks { frames, rows, .. } = stacks;
    for rows in rows.chunks(STACKS_A_GROUP) {
        let lists: Vec<Vec<u32>> = rows.iter().map(|&(_, stack)| frames.stack(stack)).collect();
        let parts = frames.all();
        let elements: Vec<u32> = lists.iter().flatten().copied().collect();
        let lists = ListLevels::new(&lists);
        let texts =
            |of: &dyn Fn(u32) -> ByteArray| elements.iter().map(|&frame| of(frame)).collect::<Vec<_>>();
        let part = |of: &dyn Fn(&FrameParts) -> ByteArray| texts(&|frame| of(&parts[frame as usize]));
        let mut group = file.next_row_group()?;
        column::<Int64Type>(&mut group, &rows.iter().map(|&(id, _)| id).collect::<Vec<_>>(), None)?;
        let stops: Vec<ByteArray> = rows.iter().map(|&(_, stack)| text(profile.root_of(stack))).collect();
        column::<ByteArrayType>(&mut group, &stops, None)?;
        column::<ByteArrayType>(&mut group, &part(&|frame| text(&frame.text)), Some(&lists))?;
        column::<ByteArrayType>(
            &mut group,
            &part(&|frame| text(&frame.class.replace('/', "."))),
            Some(&lists),
        )?;
        column::<ByteArrayType>(&mut group, &part(&|frame| text(&frame.method)), Some(&lists))?;
        column::<ByteArrayType>(&mut group, &part(&|frame| text(&frame.file)), Some(&lists))?;
        let lines: Vec<i32> = elements.iter().map(|&frame| parts[frame as usize].line as i32).collect();
        column::<Int32Type>(&mut group, &lines, Some(&lists))?;
        column::<ByteArrayType>(&mut group, &part(&|frame| text(&kind_text(frame.kind))), Some(&lists))?;
        group.close()?;
    }
    Ok(())
}

/// Repetition and definition levels of a column with a list per row. No list is empty, because every stack has a
/// frame or a marker.
struct ListLevels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl ListLevels {
    fn new(lists: &[Vec<u32>]) -> Self {
        let repetition: Vec<i16> =
            lists.iter().flat_map(|list| (0..list.len()).map(|position| i16::from(position > 0))).collect();
        ListLevels { definition: vec![1; repetition.len()], repetition }
    }
}

fn create<W: Write + Send>(out: W, schema: &str) -> Result<SerializedFileWriter<W>, ParquetError> {
    let compression = Compression::GZIP(GzipLevel::default());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_created_by(concat!("tickwalk version ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    SerializedFileWriter::new(out, Arc::new(parse_message_type(schema)?), Arc::new(properties))
}

/// Writes the next column of a row group.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    lists: Option<&ListLevels>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("one column too many".into()))?;
    let definition = lists.map(|lists| lists.definition.as_slice());
    let repetition = lists.map(|lists| lists.repetition.as_slice());
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text)
}
