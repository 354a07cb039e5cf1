//! Columns of a Parquet file in memory: written and read as whole row groups, without Arrow.
//!
//! Columns are found by name, so a reader accepts files with further columns.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::{ReaderProperties, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader};
use parquet::file::serialized_reader::{SerializedFileReader, SerializedRowGroupReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// zstd's level: higher ones save a few percent and take several times as long.
const LEVEL: i32 = 3;

/// Version of the tables' columns, in the metadata of each file. Later versions only add columns.
pub const VERSION: &str = "1";

/// Values of a column, those of all lists one after the other.
#[derive(Debug)]
pub enum Values {
    /// 64-bit numbers.
    Long(Vec<i64>),
    /// 32-bit numbers.
    Int(Vec<i32>),
    /// Texts, or bytes.
    Text(Vec<ByteArray>),
}

/// Levels of a column with a list for each row.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl Lists {
    /// Appends a list of this length.
    pub fn push(&mut self, len: usize) {
        self.definition.extend((0..len.max(1)).map(|_| i16::from(len > 0)));
        self.repetition.extend((0..len.max(1)).map(|at| i16::from(at > 0)));
    }

    /// Returns the lengths of the lists.
    pub fn lens(&self) -> Vec<usize> {
        let mut lens = Vec::new();
        for (&definition, &repetition) in self.definition.iter().zip(&self.repetition) {
            if repetition == 0 {
                lens.push(usize::from(definition > 0));
            } else if let Some(last) = lens.last_mut() {
                *last += 1;
            }
        }
        lens
    }
}

/// Labels of rows, `key=value` each: two columns of a map.
#[derive(Debug, Default)]
pub struct Labels {
    keys: Vec<ByteArray>,
    values: Vec<ByteArray>,
    lists: Lists,
}

impl Labels {
    /// Appends the labels of a row.
    pub fn push(&mut self, pairs: &[(ByteArray, ByteArray)]) {
        self.keys.extend(pairs.iter().map(|(key, _)| key.clone()));
        self.values.extend(pairs.iter().map(|(_, value)| value.clone()));
        self.lists.push(pairs.len());
    }

    /// Returns the columns of keys and values.
    pub fn columns(self) -> [Column; 2] {
        let column = |values| Column { values: Values::Text(values), lists: Some(self.lists.clone()) };
        [column(self.keys), column(self.values)]
    }
}

/// Returns keys and values of labels.
pub fn pairs_of<'l>(labels: impl Iterator<Item = &'l str>) -> Vec<(ByteArray, ByteArray)> {
    let pairs = labels.map(|label| label.split_once('=').unwrap_or((label, "")));
    pairs.map(|(key, value)| (ByteArray::from(key), ByteArray::from(value))).collect()
}

/// A column of a row group.
#[derive(Debug)]
pub struct Column {
    /// Values of all rows.
    pub values: Values,
    /// Lists of the rows, for a column that has some.
    pub lists: Option<Lists>,
}

impl From<Values> for Column {
    fn from(values: Values) -> Column {
        Column { values, lists: None }
    }
}

/// Starts a file of the table with this schema.
pub fn create<W: Write + Send>(out: W, schema: &str) -> Result<SerializedFileWriter<W>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_created_by(concat!("tickwalk version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new("tickwalk.lake".to_owned(), VERSION.to_owned())]))
        .build();
    SerializedFileWriter::new(out, Arc::new(parse_message_type(schema)?), Arc::new(properties))
}

/// Writes a row group with these columns, in the order of the schema.
pub fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    columns: &[Column],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for Column { values, lists } in columns {
        let lists = lists.as_ref();
        match values {
            Values::Long(values) => write::<Int64Type, W>(&mut group, values, lists)?,
            Values::Int(values) => write::<Int32Type, W>(&mut group, values, lists)?,
            Values::Text(values) => write::<ByteArrayType, W>(&mut group, values, lists)?,
        }
    }
    group.close()?;
    Ok(())
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    lists: Option<&Lists>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("one column too many".into()))?;
    let definition = lists.map(|lists| lists.definition.as_slice());
    let repetition = lists.map(|lists| lists.repetition.as_slice());
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}

/// Returns the smallest and the largest number of a column of a row group, if the file has them.
pub fn range_of(group: &RowGroupMetaData, name: &str) -> Option<(i64, i64)> {
    let mut columns = group.columns().iter().filter(|column| column.column_path().string() == name);
    match columns.find_map(ColumnChunkMetaData::statistics)? {
        Statistics::Int64(range) => Some((*range.min_opt()?, *range.max_opt()?)),
        _ => None,
    }
}

/// A row group that is read.
pub struct Group<'f> {
    group: Box<dyn RowGroupReader + 'f>,
}

impl<'f> Group<'f> {
    /// Returns row group number `at` of a file; `bytes` has all of its columns.
    pub fn of<R: ChunkReader + 'static>(
        metadata: &'f ParquetMetaData,
        at: usize,
        bytes: R,
    ) -> Result<Group<'f>, ParquetError> {
        let (pages, properties) =
            (metadata.page_index_for_row_group(at), ReaderProperties::builder().build());
        let group = metadata.row_group(at);
        let reader = SerializedRowGroupReader::new(Arc::new(bytes), group, pages, Arc::new(properties))?;
        Ok(Group { group: Box::new(reader) })
    }

    /// Returns the row groups of a file.
    pub fn all<R: ChunkReader + 'static>(
        file: &'f SerializedFileReader<R>,
    ) -> impl Iterator<Item = Result<Group<'f>, ParquetError>> {
        (0..file.num_row_groups()).map(|at| Ok(Group { group: file.get_row_group(at)? }))
    }

    /// Reads a column of 64-bit numbers.
    pub fn longs(&self, name: &str) -> Result<Vec<i64>, ParquetError> {
        Ok(self.read::<Int64Type>(name)?.0)
    }

    /// Reads a column of 32-bit numbers.
    pub fn ints(&self, name: &str) -> Result<Vec<i32>, ParquetError> {
        Ok(self.read::<Int32Type>(name)?.0)
    }

    /// Reads a column of texts.
    pub fn texts(&self, name: &str) -> Result<Vec<ByteArray>, ParquetError> {
        Ok(self.read::<ByteArrayType>(name)?.0)
    }

    /// Reads a column of lists of texts.
    pub fn text_lists(&self, name: &str) -> Result<(Vec<ByteArray>, Lists), ParquetError> {
        self.read::<ByteArrayType>(name)
    }

    /// Reads a column of lists of numbers.
    pub fn int_lists(&self, name: &str) -> Result<(Vec<i32>, Lists), ParquetError> {
        self.read::<Int32Type>(name)
    }

    fn read<T: DataType>(&self, name: &str) -> Result<(Vec<T::T>, Lists), ParquetError> {
        let columns = self.group.metadata().columns();
        let is_wanted = |column: &&ColumnChunkMetaData| {
            column.column_path().string() == name && column.column_type() == T::get_physical_type()
        };
        let at = columns.iter().position(|column| is_wanted(&column));
        let at = at.ok_or_else(|| ParquetError::General(format!("the file has no column {name}")))?;
        let rows = usize::try_from(self.group.metadata().num_rows()).unwrap_or(0);
        let mut reader = get_typed_column_reader::<T>(self.group.get_column_reader(at)?);
        let (mut values, mut lists) = (Vec::new(), Lists::default());
        let mut read = 0;
        while read < rows {
            let (records, ..) = reader.read_records(
                rows - read,
                Some(&mut lists.definition),
                Some(&mut lists.repetition),
                &mut values,
            )?;
            if records == 0 {
                return Err(ParquetError::General(format!("column {name} has too few rows")));
            }
            read += records;
        }
        Ok((values, lists))
    }
}

/// Returns the text of a value; a damaged one is shown with replacement characters.
pub fn text(value: &ByteArray) -> String {
    String::from_utf8_lossy(value.data()).into_owned()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn columns_and_lists_round_trip() {
        let schema = "message m { required int64 n; required group l (LIST) { repeated group list { \
                      required binary element (STRING); } } }";
        let mut lists = Lists::default();
        [0, 2, 1, 0].into_iter().for_each(|len| lists.push(len));
        let texts: Vec<ByteArray> = ["a", "b", "c"].map(ByteArray::from).into();
        let mut out = Vec::new();
        let mut file = create(&mut out, schema).expect("a schema");
        let columns = [
            Column::from(Values::Long(vec![4, -1, 9, 5])),
            Column { values: Values::Text(texts.clone()), lists: Some(lists) },
        ];
        write_group(&mut file, &columns).expect("a group");
        file.close().expect("a file");
        let file = SerializedFileReader::new(Bytes::from(out)).expect("own file");
        let group = Group::all(&file).next().expect("one group").expect("own group");
        assert_eq!(group.longs("n").expect("a column"), [4, -1, 9, 5]);
        assert_eq!(range_of(file.metadata().row_group(0), "n"), Some((-1, 9)));
        let (values, lists) = group.text_lists("l.list.element").expect("a column");
        assert_eq!((values, lists.lens()), (texts, vec![0, 2, 1, 0]));
        assert!(group.longs("missing").is_err());
    }
}
