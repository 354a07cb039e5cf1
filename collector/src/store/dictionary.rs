//! Encodes and decodes the rows of a dictionary, and the row maps of sessions.

use std::ops::{Deref, DerefMut};

use profile::dictionary::{Dictionary, FrameRow, MethodRow, Node, SessionRows, StackRow, Tables};

use super::column::{BlockError, BlockReader, BlockWriter};

/// Number of rows of each table.
pub(super) type RowCounts = [usize; 5];

/// Returns the rows after the first `stored` as one block.
pub(super) fn encode(dictionary: &Dictionary, stored: RowCounts) -> Result<Vec<u8>, BlockError> {
    let tables = dictionary.tables();
    let [strings, methods, frames, nodes, stacks] = stored;
    let mut block = BlockWriter::default();
    let strings = tables.strings.since(strings);
    block.number(strings.len() as u64);
    for text in strings {
        block.text(text);
    }
    let methods = &tables.methods[methods..];
    block.number(methods.len() as u64);
    block.column(methods.iter().map(|row| row.id));
    block.column(methods.iter().map(|row| row.class_name.into()));
    block.column(methods.iter().map(|row| row.name.into()));
    block.column(methods.iter().map(|row| row.signature.into()));
    block.column(methods.iter().map(|row| row.source_file.into()));
    block.column(methods.iter().map(|row| u64::from(row.modifiers) << 1 | u64::from(row.hidden)));
    let frames = &tables.frames[frames..];
    block.number(frames.len() as u64);
    block.column(frames.iter().map(|row| row.id));
    block.column(frames.iter().map(|row| row.kind.into()));
    block.column(frames.iter().map(|row| row.method.into()));
    block.column(frames.iter().map(|row| u64::from(row.bci.wrapping_add(1) as u32)));
    block.column(frames.iter().map(|row| row.line.into()));
    block.column(frames.iter().map(|row| row.symbol.into()));
    block.column(frames.iter().map(|row| row.library.into()));
    let nodes = &tables.nodes[nodes..];
    block.number(nodes.len() as u64);
    block.ascending(nodes.iter().map(|row| row.parent.into()));
    block.column(nodes.iter().map(|row| row.frame.into()));
    let stacks = &tables.stacks[stacks..];
    block.number(stacks.len() as u64);
    block.ascending(stacks.iter().map(|row| row.node.into()));
    block.column(stacks.iter().map(|row| row.stop.into()));
    block.finish()
}

/// Appends the rows of a block made by [`encode`] to `dictionary`, which must not be used after an error.
pub(super) fn append(dictionary: &mut Dictionary, block: &[u8]) -> Result<(), BlockError> {
    dictionary.append(|tables| append_rows(tables, block))
}

/// Columns are read into rows one by one, so that memory holds nothing twice.
fn append_rows(tables: &mut Tables, bytes: &[u8]) -> Result<(), BlockError> {
    let mut block = BlockReader::new(bytes)?;
    for _ in 0..block.rows()? {
        tables.strings.append(block.text()?);
    }
    let (first, rows) = (tables.methods.len(), block.rows()?);
    tables.methods.resize(first + rows, MethodRow::default());
    let methods = &mut tables.methods[first..];
    fill(&mut block, methods, |row, id| row.id = id)?;
    fill(&mut block, methods, |row, string| row.class_name = string as u32)?;
    fill(&mut block, methods, |row, string| row.name = string as u32)?;
    fill(&mut block, methods, |row, string| row.signature = string as u32)?;
    fill(&mut block, methods, |row, string| row.source_file = string as u32)?;
    fill(&mut block, methods, |row, modifiers| {
        (row.modifiers, row.hidden) = ((modifiers >> 1) as u32, modifiers & 1 == 1);
    })?;
    let (first, rows) = (tables.frames.len(), block.rows()?);
    tables.frames.resize(first + rows, FrameRow::default());
    let frames = &mut tables.frames[first..];
    fill(&mut block, frames, |row, id| row.id = id)?;
    fill(&mut block, frames, |row, kind| row.kind = kind as u8)?;
    fill(&mut block, frames, |row, method| row.method = method as u32)?;
    fill(&mut block, frames, |row, bci| row.bci = (bci as i32).wrapping_sub(1))?;
    fill(&mut block, frames, |row, line| row.line = line as u32)?;
    fill(&mut block, frames, |row, symbol| row.symbol = symbol as u32)?;
    fill(&mut block, frames, |row, library| row.library = library as u32)?;
    let (first, rows) = (tables.nodes.len(), block.rows()?);
    let nodes = &mut tables.nodes;
    nodes.reserve_exact(rows);
    block.each_ascending(rows, |parent| {
        // Queries rely on the order, so a damaged parent becomes the root.
        let parent = u32::try_from(parent).ok().filter(|&parent| (parent as usize) < nodes.len());
        nodes.push(Node { parent: parent.unwrap_or(0), frame: 0 });
    })?;
    fill(&mut block, &mut nodes[first..], |row, frame| row.frame = frame as u32)?;
    let (first, rows) = (tables.stacks.len(), block.rows()?);
    tables.stacks.resize(first + rows, StackRow::default());
    let stacks = &mut tables.stacks[first..];
    let mut row = 0;
    let nodes = nodes.len();
    block.each_ascending(rows, |node| {
        let node = u32::try_from(node).ok().filter(|&node| (node as usize) < nodes);
        stacks[row].node = node.unwrap_or(1);
        row += 1;
    })?;
    fill(&mut block, stacks, |row, stop| row.stop = stop as u32)
}

/// Reads a column into `rows`.
fn fill<T>(block: &mut BlockReader, rows: &mut [T], set: impl Fn(&mut T, u64)) -> Result<(), BlockError> {
    rows.iter_mut().try_for_each(|row| {
        set(row, block.number()?);
        Ok(())
    })
}

/// Dictionary rows by the entry numbers of a session, and how many of them the database has.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredRows {
    rows: SessionRows,
    /// First number of each kind that is not stored.
    stored: [u32; 4],
}

impl Deref for StoredRows {
    type Target = SessionRows;

    fn deref(&self) -> &SessionRows {
        &self.rows
    }
}

impl DerefMut for StoredRows {
    fn deref_mut(&mut self) -> &mut SessionRows {
        &mut self.rows
    }
}

impl StoredRows {
    /// Returns a block of the rows that are not stored, `None` if all are.
    pub(super) fn encode(&self) -> Result<Option<Vec<u8>>, BlockError> {
        if self.rows.ends().into_iter().zip(self.stored).all(|(end, stored)| end <= stored.max(1)) {
            return Ok(None);
        }
        let mut block = BlockWriter::default();
        let SessionRows { strings, methods, frames, nodes, .. } = &self.rows;
        for (rows, from) in [strings, methods, frames].into_iter().zip(self.stored) {
            let rows: Vec<(u32, u32)> = rows.since(from).map(|(number, row)| (number, *row)).collect();
            block.number(rows.len() as u64);
            block.ascending(rows.iter().map(|row| row.0.into()));
            block.ascending(rows.iter().map(|row| row.1.into()));
        }
        let rows: Vec<(u32, (u32, u32))> =
            nodes.since(self.stored[3]).map(|(number, row)| (number, *row)).collect();
        block.number(rows.len() as u64);
        block.ascending(rows.iter().map(|row| row.0.into()));
        block.ascending(rows.iter().map(|row| row.1.0.into()));
        block.column(rows.iter().map(|row| row.1.1.into()));
        block.finish().map(Some)
    }

    /// Marks everything as stored.
    pub(super) fn set_stored(&mut self) {
        self.stored = self.rows.ends();
    }

    /// Adds the numbers of a block made by [`encode`](Self::encode), which stand for rows of `dictionary`.
    pub(super) fn append(&mut self, bytes: &[u8], dictionary: &Dictionary) -> Result<(), BlockError> {
        let mut block = BlockReader::new(bytes)?;
        let setters = [SessionRows::set_string, SessionRows::set_method, SessionRows::set_frame];
        for set in setters {
            let rows = block.rows()?;
            let (numbers, rows) = (block.ascending(rows)?, block.ascending(rows)?);
            for (number, row) in numbers.into_iter().zip(rows) {
                set(&mut self.rows, number as u32, row as u32);
            }
        }
        let rows = block.rows()?;
        let (numbers, nodes, stops) = (block.ascending(rows)?, block.ascending(rows)?, block.narrow(rows)?);
        for ((number, node), stop) in numbers.into_iter().zip(nodes).zip(stops) {
            // Other kinds are looked up with a check; nodes are followed to the root without one.
            if node < dictionary.nodes().len() as u64 {
                self.rows.set_node(number as u32, (node as u32, stop));
            }
        }
        self.set_stored();
        Ok(())
    }

    /// Returns the same numbers for rows of `new` with the content of those of `old`; nothing of it is stored yet.
    pub(super) fn renumbered(&self, new: &mut Dictionary, old: &Dictionary) -> StoredRows {
        StoredRows { rows: self.rows.renumbered(new, old), stored: [0; 4] }
    }
}
