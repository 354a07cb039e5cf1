//! The bytes of an nmethod's debug information: read in blocks, or from a copy of all of it.
//!
//! Problem: from JDK 23 on debug information lies outside the code cache, where each read may be a system call. Up to
//! JDK 22 it lies in the blob, where reads are loads.
//! Approach: one decoder over [`DebugBytes`]; blocks are large where a read is expensive and small where it is cheap.
//! Invariant: no byte outside the bounds of its part is returned.

use super::nmethod::DebugInfo;
use crate::memory::{Block, Memory, Span, Unreadable, Window};

/// Part of the debug information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// `PcDesc`s.
    Pcs,
    Scopes,
    /// Addresses of methods and classes.
    Metadata,
}

/// Access to the parts by offset.
pub(crate) trait DebugBytes {
    /// Size of a part in bytes.
    fn size(&self, part: Part) -> u64;

    /// The `length` bytes at `offset` of a part.
    ///
    /// # Errors
    /// [`Unreadable`] if they are not all in the part, or cannot be read.
    fn get(&mut self, part: Part, offset: u64, length: usize) -> Result<&[u8], Unreadable>;

    /// The 32-bit number at `offset` of a part.
    ///
    /// # Errors
    /// As [`DebugBytes::get`].
    fn number(&mut self, part: Part, offset: u64) -> Result<i32, Unreadable>;

    /// Number of `PcDesc`s that are searched one after the other, because they are in one block.
    fn entries_at_once(&self) -> u64;
}

/// Block buffers, one for each part.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pcs: Window<1024>,
    scopes: Window<1024>,
    metadata: Window<512>,
}

impl Windows {
    pub(crate) const EMPTY: Self =
        Self { pcs: Window::EMPTY, scopes: Window::EMPTY, metadata: Window::EMPTY };
}

/// Records of callers are written before those of callees, so most of a block should lie below.
const SCOPES_LEAD: u64 = 768;
const METADATA_LEAD: u64 = 128;
/// Size of the blocks that are read by loads.
const LOADED_BLOCK: usize = 64;

/// Debug information that is read in blocks.
pub(crate) struct Windowed<'a, M: ?Sized> {
    memory: &'a M,
    windows: &'a mut Windows,
    debug: &'a DebugInfo,
    is_loaded: bool,
}

impl<'a, M: Memory + ?Sized> Windowed<'a, M> {
    /// Debug information with these bounds; drops what the windows held.
    pub(crate) fn new(memory: &'a M, windows: &'a mut Windows, debug: &'a DebugInfo) -> Self {
        windows.pcs.clear();
        windows.scopes.clear();
        windows.metadata.clear();
        Self { memory, windows, debug, is_loaded: debug.is_loaded(memory) }
    }

    fn region(&self, part: Part) -> Span {
        match part {
            Part::Pcs => self.debug.pcs,
            Part::Scopes => self.debug.scopes,
            Part::Metadata => self.debug.metadata,
        }
    }
}

impl<M: Memory + ?Sized> DebugBytes for Windowed<'_, M> {
    fn size(&self, part: Part) -> u64 {
        self.region(part).size()
    }

    fn get(&mut self, part: Part, offset: u64, length: usize) -> Result<&[u8], Unreadable> {
        let Span { start: low, end } = self.region(part);
        let start = low.checked_add(offset).ok_or(Unreadable(offset))?;
        let most = if self.is_loaded { LOADED_BLOCK } else { usize::MAX };
        let block = |lead| Block { low, lead: if self.is_loaded { 0 } else { lead }, most };
        let (memory, rest) = (self.memory, Span { start, end });
        match part {
            Part::Pcs => self.windows.pcs.get(memory, rest, length, block(0)),
            Part::Scopes => self.windows.scopes.get(memory, rest, length, block(SCOPES_LEAD)),
            Part::Metadata => self.windows.metadata.get(memory, rest, length, block(METADATA_LEAD)),
        }
    }

    fn number(&mut self, part: Part, offset: u64) -> Result<i32, Unreadable> {
        self.memory.read_i32(self.region(part).start.wrapping_add(offset))
    }

    fn entries_at_once(&self) -> u64 {
        if self.is_loaded { 4 } else { 64 }
    }
}

/// A copy of all three parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied<'a> {
    pub(crate) pcs: &'a [u8],
    pub(crate) scopes: &'a [u8],
    pub(crate) metadata: &'a [u8],
}

impl Copied<'_> {
    fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::Pcs => self.pcs,
            Part::Scopes => self.scopes,
            Part::Metadata => self.metadata,
        }
    }
}

impl DebugBytes for Copied<'_> {
    fn size(&self, part: Part) -> u64 {
        self.part(part).len() as u64
    }

    fn get(&mut self, part: Part, offset: u64, length: usize) -> Result<&[u8], Unreadable> {
        let start = usize::try_from(offset).map_err(|_| Unreadable(offset))?;
        let found = self.part(part).get(start..).and_then(|rest| rest.get(..length));
        found.ok_or(Unreadable(offset))
    }

    fn number(&mut self, part: Part, offset: u64) -> Result<i32, Unreadable> {
        let bytes = self.get(part, offset, 4)?;
        bytes.try_into().map(i32::from_ne_bytes).map_err(|_| Unreadable(offset))
    }

    fn entries_at_once(&self) -> u64 {
        4
    }
}
