//! Unwind tables where they lie: the row of one function is read when a pc of it is met for the first time.
//!
//! Problem: the VM's tables have 2 MB; copies of them, and the pages they are copied from, were most of what the agent
//! added to a process, for some hundreds of functions that a profile meets.
//! Approach: `.eh_frame_hdr` is searched in place, and description and common part (FDE and CIE) of the one function are
//! put side by side into a buffer, a section of their own for the decoder.
//! Invariants: every read is checked, so that a library that is unloaded meanwhile is an error and no fault; nothing is
//! allocated; what does not fit [`SECTION_BYTES`] is refused.
//! Sources: Linux Standard Base Core 5.0, chapters 10.5 and 10.6.

use gimli::{
    BaseAddresses, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian, UnwindSection,
};
use stackwalk::Memory;

pub(super) type Slice<'t> = EndianSlice<'t, LittleEndian>;

/// Room for one function's rows with their common part; those of libjvm's largest functions have 3 KB.
const SECTION_BYTES: usize = 16 << 10;

/// Entries of the search table that are read at once.
const BLOCK: u64 = 64;
/// Bytes of an entry: where a function begins and where its description lies, both from the table's section on.
const ENTRY_BYTES: u64 = 8;

/// Encodings of the header's fields, in the order they have there: version, pointer (relative to itself), count, table
/// (relative to the header). All linkers write these.
const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// Where the tables of one library are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// Address of `.eh_frame_hdr`.
    header: u64,
    /// Entries of its table.
    count: u64,
}

/// One function's rows, copied.
#[derive(Debug)]
pub struct Section {
    bytes: Box<[u8]>,
}

impl Default for Section {
    fn default() -> Self {
        Self { bytes: vec![0; SECTION_BYTES].into_boxed_slice() }
    }
}

impl Tables {
    /// The tables whose header lies from `start` to `end`; `None` if they cannot be searched.
    pub fn read<M: Memory + ?Sized>(memory: &M, (start, end): (u64, u64)) -> Option<Self> {
        let encodings = memory.read_u32(start).ok()?.to_le_bytes();
        let count = u64::from(memory.read_u32(start.checked_add(8)?).ok()?);
        let room = end.checked_sub(start)?.checked_sub(12)? / ENTRY_BYTES;
        (encodings == ENCODINGS && (1..=room).contains(&count)).then_some(Self { header: start, count })
    }

    /// Address of the description of the last function that begins at `pc` or before it.
    fn description<M: Memory + ?Sized>(&self, memory: &M, pc: u64) -> Option<u64> {
        let at = |index: u64| self.header.wrapping_add(12).wrapping_add(index.wrapping_mul(ENTRY_BYTES));
        let absolute = |offset: u32| self.header.wrapping_add_signed(i64::from(offset.cast_signed()));
        let (mut low, mut high) = (0, self.count);
        while high - low > BLOCK {
            let middle = low + (high - low) / 2;
            match absolute(memory.read_u32(at(middle)).ok()?) <= pc {
                true => low = middle,
                false => high = middle,
            }
        }
        let mut bytes = [0; (BLOCK * ENTRY_BYTES) as usize];
        let block = bytes.get_mut(..usize::try_from((high - low) * ENTRY_BYTES).ok()?)?;
        memory.read(at(low), block).ok()?;
        let entries = block.as_chunks::<4>().0.as_chunks::<2>().0;
        let begins = |entry: &[[u8; 4]; 2]| absolute(u32::from_le_bytes(entry[0])) <= pc;
        let entry = entries.get(entries.partition_point(begins).checked_sub(1)?)?;
        Some(absolute(u32::from_le_bytes(entry[1])))
    }
}

impl Section {
    /// Reads the description of the function around `pc`.
    #[allow(clippy::type_complexity, reason = "the decoder's own types")]
    pub fn function<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        tables: &Tables,
        pc: u64,
    ) -> Option<(FrameDescriptionEntry<Slice<'_>>, EhFrame<Slice<'_>>, BaseAddresses)> {
        let address = tables.description(memory, pc)?;
        // The common part comes first; the description tells by how much it lies before its own second word.
        let back = memory.read_u32(address.checked_add(4)?).ok()?;
        let common = address.checked_add(4)?.checked_sub(u64::from(back))?;
        let begin = self.copy(memory, common, 0)?;
        let end = self.copy(memory, address, begin)?;
        let distance = u32::try_from(begin.checked_add(4)?).ok()?;
        self.bytes.get_mut(begin..)?.get_mut(4..8)?.copy_from_slice(&distance.to_le_bytes());
        let mut section = EhFrame::new(self.bytes.get(..end)?, LittleEndian);
        section.set_address_size(8);
        // Pointers in the description are relative to where it was.
        let bases = BaseAddresses::default().set_eh_frame(address.wrapping_sub(begin as u64));
        let found = section
            .fde_from_offset(&bases, EhFrameOffset(begin), |section, bases, offset| {
                section.cie_from_offset(bases, offset)
            })
            .ok()?;
        found.contains(pc).then_some((found, section, bases))
    }

    /// Copies the entry at `address` to `begin`, and returns where it ends.
    fn copy<M: Memory + ?Sized>(&mut self, memory: &M, address: u64, begin: usize) -> Option<usize> {
        let length = memory.read_u32(address).ok()?;
        // 0 ends a section, the largest number announces a 64-bit length; no linker writes one here.
        let length = usize::try_from(length).ok().filter(|&length| length >= 4)?.checked_add(4)?;
        let end = begin.checked_add(length)?;
        memory.read(address, self.bytes.get_mut(begin..end)?).ok()?;
        Some(end)
    }
}
