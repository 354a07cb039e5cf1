//! The rows of a dictionary.

use super::texts::Texts;

/// A method; strings are row numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodRow {
    pub id: u64,
    pub class_name: u32,
    pub name: u32,
    pub signature: u32,
    pub source_file: u32,
    pub modifiers: u32,
    pub hidden: bool,
}

/// A frame; `method` 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    pub id: u64,
    pub kind: u8,
    pub method: u32,
    pub bci: i32,
    pub line: u32,
    pub symbol: u32,
    pub library: u32,
}

/// A frame below its caller. Node 0 is the root and has no frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// Node of the caller, always less than this node's number.
    pub parent: u32,
    pub frame: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackRow {
    /// Node of the newest frame.
    pub node: u32,
    /// String number of the stop reason of its walk.
    pub stop: u32,
}

/// The rows, by number.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Texts; 0 is empty and stands for "none".
    pub strings: Texts,
    /// Methods; 0 is the unknown one.
    pub methods: Vec<MethodRow>,
    /// Frames; 0 is the unknown one.
    pub frames: Vec<FrameRow>,
    /// Nodes; 0 is the root, 1 the node of the unknown stack.
    pub nodes: Vec<Node>,
    /// Stacks; 0 is the unknown one.
    pub stacks: Vec<StackRow>,
}

impl Tables {
    /// Returns the number of rows of each table, in the order of the fields.
    pub fn lens(&self) -> [usize; 5] {
        [self.strings.len(), self.methods.len(), self.frames.len(), self.nodes.len(), self.stacks.len()]
    }
}
