//! The table of samples: a row for each sample, or for several that the agent merged.
//!
//! A row is identified by its session, the number of its message in the session, and its place in the message. Rows
//! that two writers have, because an agent sent a message again, are equal in these.

use std::io::Write;

use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedFileReader;
use profile::dictionary::stop::UNKNOWN;

use super::columns::{Column, Group, Labels, Values, create, pairs_of, write_group};
use super::texts::Texts;

/// Rows of a group: some MB in memory.
const ROWS_A_GROUP: usize = 1 << 17;

/// Microseconds of a minute.
const MINUTE_US: i64 = 60_000_000;

const SCHEMA: &str = "message samples {
    required int64 time (TIMESTAMP(MICROS, true));
    required int64 cpu_ns;
    required int64 samples;
    required int64 stack_id;
    required binary stop (STRING);
    required binary host (STRING);
    required int64 process;
    required binary thread (STRING);
    required binary thread_kind (STRING);
    required int64 thread_id;
    required int64 virtual_thread;
    required group labels (MAP) {
        repeated group key_value {
            required binary key (STRING);
            required binary value (STRING);
        }
    }
    required binary session (STRING);
    required int64 sequence;
    required int32 row;
    required int32 thread_number;
    required int32 carrier;
}";

/// A sample; texts are numbers in [`Samples::texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRow {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// CPU time that it stands for.
    pub cpu_ns: i64,
    /// Number of samples merged into it.
    pub samples: i64,
    /// Id of its stack by content.
    pub stack: i64,
    /// Why the walk of the stack ended.
    pub stop: u32,
    /// Host name.
    pub host: u32,
    /// Process id.
    pub process: i64,
    /// Name of the thread.
    pub thread: u32,
    /// Kind of the thread.
    pub thread_kind: u32,
    /// Kernel id of the thread.
    pub thread_id: i64,
    /// Java's id of a virtual thread, else 0.
    pub virtual_thread: i64,
    /// Labels of the process, as `key=value` in lines.
    pub labels: u32,
    /// Session, 16 hexadecimal digits.
    pub session: u32,
    /// Number of the message in the session.
    pub sequence: i64,
    /// Place in the message.
    pub row: i32,
    /// Number of the thread in the session.
    pub thread_number: i32,
    /// Number of the carrier of a virtual thread, else 0.
    pub carrier: i32,
}

/// Samples with their texts.
#[derive(Debug, Default)]
pub struct Samples {
    /// Texts of the rows.
    pub texts: Texts,
    /// The samples.
    pub rows: Vec<SampleRow>,
}

impl Samples {
    /// Drops rows that are there twice, and sorts the others by minute, stack and time, in which they compress best and
    /// statistics of row groups distinguish times. Of two equal rows, the one with a known stack remains.
    pub fn settle(&mut self) {
        let unknown = self.texts.number(UNKNOWN.as_bytes());
        let identity = |row: &SampleRow| (row.session, row.sequence, row.row);
        self.rows.sort_unstable_by_key(|row| (identity(row), row.stop == unknown));
        self.rows.dedup_by_key(|row| identity(row));
        self.rows.sort_unstable_by_key(|row| {
            (row.time_us.div_euclid(MINUTE_US), row.stack, row.time_us, identity(row))
        });
    }

    /// Writes the rows to `out`.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&self, out: impl Write + Send) -> Result<(), ParquetError> {
        let mut file = create(out, SCHEMA)?;
        for rows in self.rows.chunks(ROWS_A_GROUP) {
            write_group(&mut file, &self.columns(rows))?;
        }
        file.close()?;
        Ok(())
    }

    /// Returns the columns of the schema.
    fn columns(&self, rows: &[SampleRow]) -> Vec<Column> {
        let long = |of: fn(&SampleRow) -> i64| Values::Long(rows.iter().map(of).collect()).into();
        let int = |of: fn(&SampleRow) -> i32| Values::Int(rows.iter().map(of).collect()).into();
        let text = |of: fn(&SampleRow) -> u32| {
            Values::Text(rows.iter().map(|row| self.texts.get(of(row))).collect()).into()
        };
        let mut labels = Labels::default();
        // Neighbours are mostly of one process.
        for same in rows.chunk_by(|one, next| one.labels == next.labels) {
            let pairs = pairs_of(self.texts.string(same[0].labels).lines());
            same.iter().for_each(|_| labels.push(&pairs));
        }
        let [keys, values] = labels.columns();
        vec![
            long(|row| row.time_us),
            long(|row| row.cpu_ns),
            long(|row| row.samples),
            long(|row| row.stack),
            text(|row| row.stop),
            text(|row| row.host),
            long(|row| row.process),
            text(|row| row.thread),
            text(|row| row.thread_kind),
            long(|row| row.thread_id),
            long(|row| row.virtual_thread),
            keys,
            values,
            text(|row| row.session),
            long(|row| row.sequence),
            int(|row| row.row),
            int(|row| row.thread_number),
            int(|row| row.carrier),
        ]
    }

    /// Adds the rows of a file.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn read<R: ChunkReader + 'static>(
        &mut self,
        file: &SerializedFileReader<R>,
    ) -> Result<(), ParquetError> {
        for group in Group::all(file) {
            let (group, first) = (group?, self.rows.len());
            self.read_group(&group)?;
            self.read_processes(&group, first)?;
        }
        Ok(())
    }

    /// Adds the rows of a row group, without the columns that describe processes.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn read_group(&mut self, group: &Group<'_>) -> Result<(), ParquetError> {
        let first = self.rows.len();
        let times = group.longs("time")?;
        self.rows.extend(times.into_iter().map(|time_us| SampleRow { time_us, ..SampleRow::default() }));
        let rows = &mut self.rows[first..];
        let mut long = |name: &str, set: fn(&mut SampleRow, i64)| {
            group
                .longs(name)
                .map(|values| rows.iter_mut().zip(values).for_each(|(row, value)| set(row, value)))
        };
        long("cpu_ns", |row, value| row.cpu_ns = value)?;
        long("samples", |row, value| row.samples = value)?;
        long("stack_id", |row, value| row.stack = value)?;
        long("thread_id", |row, value| row.thread_id = value)?;
        long("virtual_thread", |row, value| row.virtual_thread = value)?;
        long("sequence", |row, value| row.sequence = value)?;
        let mut int = |name: &str, set: fn(&mut SampleRow, i32)| {
            group
                .ints(name)
                .map(|values| rows.iter_mut().zip(values).for_each(|(row, value)| set(row, value)))
        };
        int("row", |row, value| row.row = value)?;
        int("thread_number", |row, value| row.thread_number = value)?;
        int("carrier", |row, value| row.carrier = value)?;
        let texts = &mut self.texts;
        let mut text = |name: &str, set: fn(&mut SampleRow, u32)| {
            let values = group.texts(name)?;
            rows.iter_mut().zip(values).for_each(|(row, value)| set(row, texts.number(value.data())));
            Ok::<_, ParquetError>(())
        };
        text("stop", |row, value| row.stop = value)?;
        text("thread", |row, value| row.thread = value)?;
        text("thread_kind", |row, value| row.thread_kind = value)?;
        text("session", |row, value| row.session = value)
    }

    /// Reads the columns that describe processes into the rows from `first` on.
    fn read_processes(&mut self, group: &Group<'_>, first: usize) -> Result<(), ParquetError> {
        let (rows, texts) = (&mut self.rows[first..], &mut self.texts);
        rows.iter_mut().zip(group.longs("process")?).for_each(|(row, process)| row.process = process);
        let hosts = group.texts("host")?;
        rows.iter_mut().zip(hosts).for_each(|(row, host)| row.host = texts.number(host.data()));
        let (keys, lists) = group.text_lists("labels.key_value.key")?;
        let (values, _) = group.text_lists("labels.key_value.value")?;
        let mut pairs = keys.iter().zip(&values);
        for (row, len) in rows.iter_mut().zip(lists.lens()) {
            row.labels = texts.number(&joined(pairs.by_ref().take(len)));
        }
        Ok(())
    }
}

/// Returns labels in lines.
fn joined<'a>(pairs: impl Iterator<Item = (&'a ByteArray, &'a ByteArray)>) -> Vec<u8> {
    let lines = pairs.map(|(key, value)| [key.data(), b"=", value.data()].concat());
    lines.collect::<Vec<_>>().join(&b'\n')
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn samples() -> Samples {
        let mut samples = Samples::default();
        let mut text = |text: &str| samples.texts.number(text.as_bytes());
        let (session, stop, unknown) = (text("00000000000000aa"), text("end_of_stack"), text(UNKNOWN));
        let labels = [text("version=2\nzone=a=b"), text("")];
        let row = SampleRow { session, stop, cpu_ns: 10, samples: 1, ..SampleRow::default() };
        samples.rows = vec![
            SampleRow { time_us: 61_000_000, stack: 5, sequence: 3, row: 0, labels: labels[0], ..row },
            SampleRow { time_us: 5_000_000, stack: 9, sequence: 2, row: 1, labels: labels[1], ..row },
            // The same sample from another writer, which lacks the names.
            SampleRow { time_us: 7_000_000, stack: 1, stop: unknown, sequence: 2, row: 0, ..row },
            SampleRow { time_us: 7_000_000, stack: -4, sequence: 2, row: 0, labels: labels[0], ..row },
        ];
        samples
    }

    #[test]
    fn equal_rows_are_dropped_and_the_others_sorted() {
        let mut samples = samples();
        samples.settle();
        let kept: Vec<_> = samples.rows.iter().map(|row| (row.time_us, row.stack)).collect();
        assert_eq!(kept, [(7_000_000, -4), (5_000_000, 9), (61_000_000, 5)]);
    }

    #[test]
    fn rows_round_trip() {
        let mut written = samples();
        written.settle();
        let mut out = Vec::new();
        written.write(&mut out).expect("a file");
        let file = SerializedFileReader::new(Bytes::from(out)).expect("own file");
        let mut read = Samples::default();
        read.read(&file).expect("own file");
        assert_eq!(read.rows.len(), written.rows.len());
        for (own, other) in read.rows.iter().zip(&written.rows) {
            let texts = |samples: &Samples, row: &SampleRow| {
                [row.session, row.stop, row.labels, row.thread].map(|number| samples.texts.string(number))
            };
            assert_eq!(texts(&read, own), texts(&written, other));
            assert_eq!(
                (own.time_us, own.cpu_ns, own.stack, own.sequence, own.row),
                (other.time_us, other.cpu_ns, other.stack, other.sequence, other.row)
            );
        }
    }
}
