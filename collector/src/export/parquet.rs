//! Parquet in two tables, for DuckDB, ClickHouse, Spark and whatever else speaks SQL over files.
//!
//! `samples` has a row for each sample, `stacks` a row for each distinct stack, joined by `stack_id`; a stack has its
//! frames as a list of names, leaf first, and once more in parts. Ids are signed, because not every reader knows
//! unsigned numbers; they are the bits of the session's ids, so that tables of several sessions can be joined.
//! Rows are written in groups, so that a long recording takes no more memory than one group and its stacks.
//!
//! Source: apache/parquet-format, `LogicalTypes.md` (lists of three levels, timestamps in microseconds).

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use rustc_hash::{FxHashMap, FxHashSet};

use super::account::{comments, service_name};
use super::frames::{Frames, kind_text};
use super::samples::Sample;
use crate::profile::{Profile, UNKNOWN};

/// Rows of a group of samples: about 4 MB while it is made.
const SAMPLES_A_GROUP: usize = 1 << 16;
/// Rows of a group of stacks, which are a hundred times larger than samples.
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

/// Writes `samples`, which are those of `profile` or some of them, and the stacks they have.
///
/// # Errors
/// If writing fails.
pub fn write(
    profile: &Profile,
    samples: impl Iterator<Item = Sample>,
    samples_out: impl Write + Send,
    stacks_out: impl Write + Send,
) -> io::Result<()> {
    let stacks = write_samples(profile, samples, samples_out).map_err(io::Error::other)?;
    write_stacks(profile, stacks, stacks_out).map_err(io::Error::other)
}

/// Writes the table of samples and returns the stacks in it, in order of first use.
fn write_samples(
    profile: &Profile,
    mut samples: impl Iterator<Item = Sample>,
    out: impl Write + Send,
) -> Result<Vec<u64>, ParquetError> {
    let hello = profile.hello();
    let (service, host) = (text(service_name(profile)), text(&hello.host));
    let mut threads: FxHashMap<u32, (ByteArray, i64)> = FxHashMap::default();
    let mut seen = FxHashSet::default();
    let mut stacks = Vec::new();
    let mut file = create(out, SAMPLES, profile)?;
    loop {
        let rows: Vec<Sample> = samples.by_ref().take(SAMPLES_A_GROUP).collect();
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            if seen.insert(row.stack) {
                stacks.push(row.stack);
            }
            threads.entry(row.thread).or_insert_with(|| {
                let known = profile.thread(row.thread);
                let tid = known.map_or(0, |thread| i64::from(thread.tid));
                (text(known.map_or(UNKNOWN, |thread| &thread.name)), tid)
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
        column::<Int64Type>(&mut group, &numbers(&|row| row.stack as i64), None)?;
        column::<Int64Type>(&mut group, &numbers(&|row| row.cpu_ns as i64), None)?;
        column::<Int64Type>(&mut group, &numbers(&|row| row.samples as i64), None)?;
        column::<BoolType>(&mut group, &rows.iter().map(|row| row.failed).collect::<Vec<bool>>(), None)?;
        group.close()?;
    }
    file.close()?;
    Ok(stacks)
}

fn write_stacks(profile: &Profile, stacks: Vec<u64>, out: impl Write + Send) -> Result<(), ParquetError> {
    let mut frames = Frames::new(profile);
    let mut file = create(out, STACKS, profile)?;
    for ids in stacks.chunks(STACKS_A_GROUP) {
        let lists: Vec<Vec<u32>> = ids.iter().map(|&id| frames.stack(id)).collect();
        let parts = frames.all();
        let elements: Vec<u32> = lists.iter().flatten().copied().collect();
        let lists = ListLevels::new(&lists);
        let texts =
            |of: &dyn Fn(u32) -> ByteArray| elements.iter().map(|&frame| of(frame)).collect::<Vec<_>>();
        let part =
            |of: &dyn Fn(&super::frames::FrameParts) -> ByteArray| texts(&|frame| of(&parts[frame as usize]));
        let mut group = file.next_row_group()?;
        column::<Int64Type>(&mut group, &ids.iter().map(|&id| id as i64).collect::<Vec<_>>(), None)?;
        let stops: Vec<ByteArray> = ids.iter().map(|&id| text(profile.stop_of(id))).collect();
        column::<ByteArrayType>(&mut group, &stops, None)?;
        column::<ByteArrayType>(&mut group, &texts(&|frame| text(frames.text(frame))), Some(&lists))?;
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
    file.close()?;
    Ok(())
}

/// How the values of a column that holds a list a row are divided among rows. No list here is empty, for every
/// stack has a frame or a marker.
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

fn create<W: Write + Send>(
    out: W,
    schema: &str,
    profile: &Profile,
) -> Result<SerializedFileWriter<W>, ParquetError> {
    let compression = Compression::GZIP(GzipLevel::default());
    let account =
        parquet::file::metadata::KeyValue::new("tickwalk.account".to_owned(), comments(profile).join("\n"));
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_created_by(concat!("tickwalk version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![account]))
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
