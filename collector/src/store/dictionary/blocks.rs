//! Rows of a dictionary as blocks, and back.

use proto::v1::FrameKind;

use super::super::column::{BlockError, BlockReader, BlockWriter};
use super::{Dictionary, FrameRow, MethodRow, Node, StackRow};

/// How many rows of each table there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Mark {
    rows: [usize; 5],
}

impl Dictionary {
    /// Where the tables end now.
    pub(in super::super) fn mark(&self) -> Mark {
        Mark {
            rows: [
                self.strings.len(),
                self.methods.len(),
                self.frames.len(),
                self.nodes.len(),
                self.stacks.len(),
            ],
        }
    }

    /// The rows since `from`, as one block.
    pub(in super::super) fn encode_since(&self, from: Mark) -> Result<Vec<u8>, BlockError> {
        let [strings, methods, frames, nodes, stacks] = from.rows;
        let mut block = BlockWriter::default();
        let strings = self.strings.since(strings);
        block.number(strings.len() as u64);
        for text in strings {
            block.text(text);
        }
        let methods = &self.methods[methods..];
        block.number(methods.len() as u64);
        block.column(methods.iter().map(|row| row.id));
        block.column(methods.iter().map(|row| row.class_name.into()));
        block.column(methods.iter().map(|row| row.name.into()));
        block.column(methods.iter().map(|row| row.signature.into()));
        block.column(methods.iter().map(|row| row.source_file.into()));
        block.column(methods.iter().map(|row| u64::from(row.modifiers) << 1 | u64::from(row.hidden)));
        let frames = &self.frames[frames..];
        block.number(frames.len() as u64);
        block.column(frames.iter().map(|row| row.id));
        block.column(frames.iter().map(|row| row.kind.into()));
        block.column(frames.iter().map(|row| row.method.into()));
        block.column(frames.iter().map(|row| u64::from(row.bci.wrapping_add(1) as u32)));
        block.column(frames.iter().map(|row| row.line.into()));
        block.column(frames.iter().map(|row| row.symbol.into()));
        let nodes = &self.nodes[nodes..];
        block.number(nodes.len() as u64);
        block.ascending(nodes.iter().map(|row| row.parent.into()));
        block.column(nodes.iter().map(|row| row.frame.into()));
        let stacks = &self.stacks[stacks..];
        block.number(stacks.len() as u64);
        block.ascending(stacks.iter().map(|row| row.node.into()));
        block.column(stacks.iter().map(|row| row.stop.into()));
        block.finish()
    }

    /// Appends the rows of a block made by [`encode_since`](Self::encode_since) at this dictionary's end. Columns go to
    /// rows one by one, so that nothing is in memory twice. After an error the dictionary is of no use.
    pub(in super::super) fn append(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        let mut block = BlockReader::new(bytes)?;
        let [first_string, first_method, first_frame, first_node, first_stack] = self.mark().rows;
        for _ in 0..block.rows()? {
            let text = block.text()?;
            // A text that is there twice, which no collector writes, is found where it was first.
            if self.is_closed || self.strings.find(&text).is_some() {
                self.strings.push(text);
            } else {
                self.strings.add(&text);
            }
        }
        let rows = block.rows()?;
        self.methods.resize(first_method + rows, MethodRow::default());
        let methods = &mut self.methods[first_method..];
        fill(&mut block, methods, |row, id| row.id = id)?;
        fill(&mut block, methods, |row, string| row.class_name = string as u32)?;
        fill(&mut block, methods, |row, string| row.name = string as u32)?;
        fill(&mut block, methods, |row, string| row.signature = string as u32)?;
        fill(&mut block, methods, |row, string| row.source_file = string as u32)?;
        fill(&mut block, methods, |row, modifiers| {
            (row.modifiers, row.hidden) = ((modifiers >> 1) as u32, modifiers & 1 == 1);
        })?;
        let rows = block.rows()?;
        self.frames.resize(first_frame + rows, FrameRow::default());
        let frames = &mut self.frames[first_frame..];
        fill(&mut block, frames, |row, id| row.id = id)?;
        fill(&mut block, frames, |row, kind| row.kind = kind as u8)?;
        fill(&mut block, frames, |row, method| row.method = method as u32)?;
        fill(&mut block, frames, |row, bci| row.bci = (bci as i32).wrapping_sub(1))?;
        fill(&mut block, frames, |row, line| row.line = line as u32)?;
        fill(&mut block, frames, |row, symbol| row.symbol = symbol as u32)?;
        let rows = block.rows()?;
        self.nodes.reserve_exact(rows);
        let nodes = &mut self.nodes;
        block.each_ascending(rows, |parent| {
            // Queries rely on the order, so a damaged parent becomes the root.
            let parent = u32::try_from(parent).ok().filter(|&parent| (parent as usize) < nodes.len());
            nodes.push(Node { parent: parent.unwrap_or(0), frame: 0 });
        })?;
        fill(&mut block, &mut self.nodes[first_node..], |row, frame| row.frame = frame as u32)?;
        let rows = block.rows()?;
        self.stacks.resize(first_stack + rows, StackRow::default());
        let stacks = &mut self.stacks[first_stack..];
        let mut row = 0;
        let nodes = self.nodes.len();
        block.each_ascending(rows, |node| {
            let node = u32::try_from(node).ok().filter(|&node| (node as usize) < nodes);
            stacks[row].node = node.unwrap_or(1);
            row += 1;
        })?;
        fill(&mut block, stacks, |row, stop| row.stop = stop as u32)?;
        if !self.is_closed {
            self.find_again([first_string, first_method, first_frame, first_node, first_stack]);
        }
        Ok(())
    }

    /// Makes the rows from `first` on those that are found when they are told once more.
    fn find_again(&mut self, first: [usize; 5]) {
        let [_, methods, frames, nodes, stacks] = first.map(|first| first as u32);
        let known = &mut self.known;
        for (number, row) in (methods..).zip(&self.methods[first[1]..]).filter(|(_, row)| row.id != 0) {
            known.method_of.insert(row.id, number);
        }
        for (number, row) in (frames..).zip(&self.frames[first[2]..]) {
            if row.id != 0 {
                known.frame_of.insert(row.id, number);
            } else if row.kind == FrameKind::Marker as u8 {
                known.markers.insert(row.symbol, number);
            }
        }
        for (number, row) in (nodes..).zip(&self.nodes[first[3]..]) {
            known.children.insert((row.parent, row.frame), number);
        }
        for (number, row) in (stacks..).zip(&self.stacks[first[4]..]) {
            known.stack_at.entry((row.node, row.stop)).or_insert(number);
        }
    }
}

/// Reads a column into `rows`.
fn fill<T>(block: &mut BlockReader, rows: &mut [T], set: impl Fn(&mut T, u64)) -> Result<(), BlockError> {
    rows.iter_mut().try_for_each(|row| {
        set(row, block.number()?);
        Ok(())
    })
}
