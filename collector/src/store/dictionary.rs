//! Encodes and decodes the rows of a dictionary, and the rows by the numbers of a session.

use profile::dictionary::{Dictionary, FrameRow, MethodRow, Node, SessionRows, StackRow, Tables};

use super::column::{BlockError, BlockReader, BlockWriter};

/// Number of rows of each table.
pub(super) type RowCounts = [usize; 5];

/// Number after the last one of each kind of entries of a session.
pub(super) type EntryEnds = [u32; 4];

/// Writes fields of rows as columns, in this order.
macro_rules! write_columns {
    ($block:ident, $rows:ident: $($field:ident),*) => {
        $($block.column($rows.iter().map(|row| row.$field.into()));)*
    };
}

/// Reads columns into fields of rows; memory holds nothing twice.
macro_rules! read_columns {
    ($block:ident, $rows:ident: $($field:ident),*) => {
        $(fill(&mut $block, $rows, |row, number| row.$field = number as _)?;)*
    };
}

/// Returns the rows after the first `stored` as one block.
pub(super) fn encode(dictionary: &Dictionary, stored: RowCounts) -> Result<Vec<u8>, BlockError> {
    let tables = dictionary.tables();
    let [strings, methods, frames, nodes, stacks] = stored;
    let mut block = BlockWriter::default();
    let strings = tables.strings.since(strings);
    block.number(strings.len() as u64);
    strings.for_each(|text| block.text(text));
    let methods = &tables.methods[methods..];
    block.number(methods.len() as u64);
    write_columns!(block, methods: id, class_name, name, signature, source_file);
    block.column(methods.iter().map(|row| u64::from(row.modifiers) << 1 | u64::from(row.hidden)));
    let frames = &tables.frames[frames..];
    block.number(frames.len() as u64);
    write_columns!(block, frames: id, kind, method);
    block.column(frames.iter().map(|row| u64::from(row.bci.wrapping_add(1) as u32)));
    write_columns!(block, frames: line, symbol, library);
    let nodes = &tables.nodes[nodes..];
    block.number(nodes.len() as u64);
    block.ascending(nodes.iter().map(|row| row.parent.into()));
    write_columns!(block, nodes: frame);
    let stacks = &tables.stacks[stacks..];
    block.number(stacks.len() as u64);
    block.ascending(stacks.iter().map(|row| row.node.into()));
    write_columns!(block, stacks: stop);
    block.finish()
}

/// Appends the rows of a block made by [`encode`] to `dictionary`, which must not be used after an error.
pub(super) fn append(dictionary: &mut Dictionary, block: &[u8]) -> Result<(), BlockError> {
    dictionary.append(|tables| append_rows(tables, block))
}

fn append_rows(tables: &mut Tables, bytes: &[u8]) -> Result<(), BlockError> {
    let mut block = BlockReader::new(bytes)?;
    for _ in 0..block.rows()? {
        tables.strings.append(block.text()?);
    }
    let methods: &mut [MethodRow] = extend(&mut tables.methods, block.rows()?);
    read_columns!(block, methods: id, class_name, name, signature, source_file);
    fill(&mut block, methods, |row, modifiers| {
        (row.modifiers, row.hidden) = ((modifiers >> 1) as u32, modifiers & 1 == 1);
    })?;
    let frames: &mut [FrameRow] = extend(&mut tables.frames, block.rows()?);
    read_columns!(block, frames: id, kind, method);
    fill(&mut block, frames, |row, bci| row.bci = (bci as i32).wrapping_sub(1))?;
    read_columns!(block, frames: line, symbol, library);
    let (first, count) = (tables.nodes.len() as u64, block.rows()?);
    let nodes: &mut [Node] = extend(&mut tables.nodes, count);
    let mut rows = (first..).zip(nodes.iter_mut());
    // Queries rely on the order of nodes, so a damaged parent becomes the root.
    block.each_ascending(count, |parent| {
        if let Some((number, row)) = rows.next() {
            row.parent = if parent < number { parent as u32 } else { 0 };
        }
    })?;
    read_columns!(block, nodes: frame);
    let nodes = tables.nodes.len() as u64;
    let stacks: &mut [StackRow] = extend(&mut tables.stacks, block.rows()?);
    let mut rows = stacks.iter_mut();
    block.each_ascending(rows.len(), |node| {
        if let Some(row) = rows.next() {
            row.node = if node < nodes { node as u32 } else { 1 };
        }
    })?;
    read_columns!(block, stacks: stop);
    Ok(())
}

/// Appends `count` empty rows and returns them.
fn extend<T: Clone + Default>(rows: &mut Vec<T>, count: usize) -> &mut [T] {
    let first = rows.len();
    rows.reserve_exact(count);
    rows.resize(first + count, T::default());
    &mut rows[first..]
}

/// Reads a column into `rows`.
fn fill<T>(block: &mut BlockReader, rows: &mut [T], set: impl Fn(&mut T, u64)) -> Result<(), BlockError> {
    rows.iter_mut().try_for_each(|row| {
        set(row, block.number()?);
        Ok(())
    })
}

/// Returns a block of the rows with numbers from `stored` on, `None` if there are none.
pub(super) fn encode_numbers(rows: &SessionRows, stored: EntryEnds) -> Result<Option<Vec<u8>>, BlockError> {
    if rows.ends().into_iter().zip(stored).all(|(end, stored)| end <= stored.max(1)) {
        return Ok(None);
    }
    let mut block = BlockWriter::default();
    let SessionRows { strings, methods, frames, nodes, .. } = rows;
    for (rows, from) in [strings, methods, frames].into_iter().zip(stored) {
        let rows: Vec<(u32, u32)> = rows.since(from).map(|(number, row)| (number, *row)).collect();
        block.number(rows.len() as u64);
        block.ascending(rows.iter().map(|row| row.0.into()));
        block.ascending(rows.iter().map(|row| row.1.into()));
    }
    let rows: Vec<(u32, (u32, u32))> = nodes.since(stored[3]).map(|(number, row)| (number, *row)).collect();
    block.number(rows.len() as u64);
    block.ascending(rows.iter().map(|row| row.0.into()));
    block.ascending(rows.iter().map(|row| row.1.0.into()));
    block.column(rows.iter().map(|row| row.1.1.into()));
    block.finish().map(Some)
}

/// Adds the numbers of a block made by [`encode_numbers`], which refer to rows of `dictionary`.
pub(super) fn append_numbers(
    rows: &mut SessionRows,
    bytes: &[u8],
    dictionary: &Dictionary,
) -> Result<(), BlockError> {
    let mut block = BlockReader::new(bytes)?;
    for set in [SessionRows::set_string, SessionRows::set_method, SessionRows::set_frame] {
        let count = block.rows()?;
        let numbers = block.ascending(count)?;
        for (number, row) in numbers.into_iter().zip(block.ascending(count)?) {
            set(rows, number as u32, row as u32);
        }
    }
    let count = block.rows()?;
    let (numbers, nodes, stops) = (block.ascending(count)?, block.ascending(count)?, block.narrow(count)?);
    for ((number, node), stop) in numbers.into_iter().zip(nodes).zip(stops) {
        // Other kinds are looked up with a check; nodes are followed to the root without one.
        if node < dictionary.nodes().len() as u64 {
            rows.set_node(number as u32, node as u32, stop);
        }
    }
    Ok(())
}
