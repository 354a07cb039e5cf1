//! Rows of a dictionary as blocks, and back.

use proto::v1::FrameKind;

use super::super::column::{BlockError, BlockReader, BlockWriter};
use super::{Dictionary, FrameRow, MethodRow, Node, STRING_BYTES, StackRow, content_id};

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
        let strings = &self.strings[strings..];
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
        block.column(stacks.iter().map(|row| row.id));
        block.ascending(stacks.iter().map(|row| row.node.into()));
        block.column(stacks.iter().map(|row| row.stop.into()));
        block.finish()
    }

    /// Appends the rows of a block made by [`encode_since`](Self::encode_since) at this dictionary's end.
    pub(in super::super) fn append(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        let mut block = BlockReader::new(bytes)?;
        let is_open = !self.is_closed;
        for _ in 0..block.rows()? {
            let text = block.text()?;
            let number = self.strings.len() as u32;
            self.strings.push(text.as_str().into());
            self.string_bytes += text.len() + STRING_BYTES;
            if is_open {
                self.known.string_of.insert(content_id(1, &[], text.as_bytes()), number);
                self.known.by_text.insert(text.into(), number);
            }
        }
        let rows = block.rows()?;
        let (id, class_name) = (block.column(rows)?, block.narrow(rows)?);
        let (name, signature) = (block.narrow(rows)?, block.narrow(rows)?);
        let (source_file, modifiers) = (block.narrow(rows)?, block.column(rows)?);
        for row in 0..rows {
            if is_open && id[row] != 0 {
                self.known.method_of.insert(id[row], self.methods.len() as u32);
            }
            self.methods.push(MethodRow {
                id: id[row],
                class_name: class_name[row],
                name: name[row],
                signature: signature[row],
                source_file: source_file[row],
                modifiers: (modifiers[row] >> 1) as u32,
                hidden: modifiers[row] & 1 == 1,
            });
        }
        let rows = block.rows()?;
        let (id, kind) = (block.column(rows)?, block.narrow(rows)?);
        let (method, bci) = (block.narrow(rows)?, block.narrow(rows)?);
        let (line, symbol) = (block.narrow(rows)?, block.narrow(rows)?);
        for row in 0..rows {
            let number = self.frames.len() as u32;
            if is_open && id[row] != 0 {
                self.known.frame_of.insert(id[row], number);
            } else if is_open && kind[row] == FrameKind::Marker as u32 {
                self.known.markers.insert(symbol[row], number);
            }
            self.frames.push(FrameRow {
                id: id[row],
                kind: kind[row] as u8,
                method: method[row],
                bci: (bci[row] as i32).wrapping_sub(1),
                line: line[row],
                symbol: symbol[row],
            });
        }
        let rows = block.rows()?;
        let (parent, frame) = (block.ascending(rows)?, block.narrow(rows)?);
        for (parent, frame) in parent.into_iter().zip(frame) {
            let number = self.nodes.len() as u32;
            // Queries rely on the order, so a damaged parent becomes the root.
            let parent = u32::try_from(parent).ok().filter(|&parent| parent < number).unwrap_or(0);
            if is_open {
                self.known.children.insert((parent, frame), number);
            }
            self.nodes.push(Node { parent, frame });
        }
        let rows = block.rows()?;
        let (id, node, stop) = (block.column(rows)?, block.ascending(rows)?, block.narrow(rows)?);
        for row in 0..rows {
            let node = u32::try_from(node[row]).ok().filter(|&node| (node as usize) < self.nodes.len());
            if is_open && id[row] != 0 {
                self.known.stack_of.insert(id[row], self.stacks.len() as u32);
            }
            let (node, stop) = (node.unwrap_or(1), stop[row]);
            if is_open {
                self.known.stack_at.entry((node, stop)).or_insert(self.stacks.len() as u32);
            }
            self.stacks.push(StackRow { id: id[row], node, stop });
        }
        Ok(())
    }
}
