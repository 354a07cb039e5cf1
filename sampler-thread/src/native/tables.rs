//! Reads unwind tables in place, one function at a time.
//!
//! Problem: the VM's tables have 2 MB, of which a profile needs some hundred functions.
//! Approach: `.eh_frame_hdr` is searched in place; FDE and CIE of the function are copied into a buffer, which is a
//! section of its own for the decoder.
//! Invariants: every read is checked, so that an unloaded library causes an error, not a fault; nothing is allocated;
//! entries that exceed [`SECTION_BYTES`] are refused.
//! Sources: Linux Standard Base Core 5.0, chapters 10.5 and 10.6.

use gimli::{
    BaseAddresses, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian, UnwindSection,
};
use stackwalk::Memory;

pub(super) type Slice<'t> = EndianSlice<'t, LittleEndian>;

/// The meaning of instructions that processors define for themselves: one of them says that a return address is signed.
pub(super) const VENDOR: gimli::Vendor =
    if cfg!(target_arch = "aarch64") { gimli::Vendor::AArch64 } else { gimli::Vendor::Default };

/// Bytes for FDE and CIE of one function; those of libjvm's largest functions have 3 KB.
const SECTION_BYTES: usize = 16 << 10;

/// Entries of the search table that are read at once.
const BLOCK: u64 = 64;
/// Bytes of an entry: offsets of a function and of its FDE.
const ENTRY_BYTES: u64 = 8;

/// Encodings of the header's fields, in the order they have there: version, pointer (relative to itself), count, table
/// (relative to the header). All linkers write these.
const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// Address of `.eh_frame_hdr`.
    header: u64,
    /// Entries of its table.
    count: u64,
}

/// A buffer for FDE and CIE of one function.
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
    /// Returns the tables whose header lies from `start` to `end`; `None` if they cannot be searched.
    pub fn read<M: Memory + ?Sized>(memory: &M, start: u64, end: u64) -> Option<Self> {
        let encodings = memory.read_u32(start).ok()?.to_le_bytes();
        let count = u64::from(memory.read_u32(start.checked_add(8)?).ok()?);
        let max = end.checked_sub(start)?.checked_sub(12)? / ENTRY_BYTES;
        (encodings == ENCODINGS && (1..=max).contains(&count)).then_some(Self { header: start, count })
    }

    /// Returns the address of the FDE of the last function that begins at `pc` or before it; entries are read to
    /// `buffer`.
    fn fde_address<M: Memory + ?Sized>(&self, memory: &M, pc: u64, buffer: &mut [u8]) -> Option<u64> {
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
        let block = buffer.get_mut(..usize::try_from((high - low) * ENTRY_BYTES).ok()?)?;
        memory.read(at(low), block).ok()?;
        let entries = block.as_chunks::<4>().0.as_chunks::<2>().0;
        let begins = |entry: &[[u8; 4]; 2]| absolute(u32::from_le_bytes(entry[0])) <= pc;
        let entry = entries.get(entries.partition_point(begins).checked_sub(1)?)?;
        Some(absolute(u32::from_le_bytes(entry[1])))
    }
}

/// Position of a function's CIE and FDE in the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loaded {
    address: u64,
    /// Its begin and end in the buffer.
    begin: usize,
    end: usize,
}

impl Section {
    /// Reads the FDE of the function at `pc`. Inlined, because the result is large for the stack of a signal handler.
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "the decoder's own types")]
    pub fn function<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        tables: &Tables,
        pc: u64,
    ) -> Option<(FrameDescriptionEntry<Slice<'_>>, EhFrame<Slice<'_>>, BaseAddresses)> {
        let loaded = self.load(memory, tables, pc)?;
        self.loaded(loaded, pc)
    }

    /// Decodes the FDE that the buffer holds, if it is that of the function at `pc`. Inlined as [`Self::function`].
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "the decoder's own types")]
    pub(super) fn loaded(
        &self,
        Loaded { address, begin, end }: Loaded,
        pc: u64,
    ) -> Option<(FrameDescriptionEntry<Slice<'_>>, EhFrame<Slice<'_>>, BaseAddresses)> {
        let mut section = EhFrame::new(self.bytes.get(..end)?, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(VENDOR);
        // Pointers in the FDE are relative to its original address.
        let bases = BaseAddresses::default().set_eh_frame(address.wrapping_sub(begin as u64));
        let found = section
            .fde_from_offset(&bases, EhFrameOffset(begin), |section, bases, offset| {
                section.cie_from_offset(bases, offset)
            })
            .ok()?;
        found.contains(pc).then_some((found, section, bases))
    }

    /// Copies CIE and FDE of the function at `pc`, or of the last one before it, to the buffer.
    #[inline(never)]
    pub(super) fn load<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        tables: &Tables,
        pc: u64,
    ) -> Option<Loaded> {
        let address = tables.fde_address(memory, pc, &mut self.bytes)?;
        // The CIE comes first; the second word of the FDE is its distance from there.
        let back = memory.read_u32(address.checked_add(4)?).ok()?;
        let common = address.checked_add(4)?.checked_sub(u64::from(back))?;
        let begin = self.copy(memory, common, 0)?;
        let end = self.copy(memory, address, begin)?;
        let distance = u32::try_from(begin.checked_add(4)?).ok()?;
        self.bytes.get_mut(begin..)?.get_mut(4..8)?.copy_from_slice(&distance.to_le_bytes());
        Some(Loaded { address, begin, end })
    }

    /// Copies the entry at `address` to offset `begin`; returns the end offset.
    fn copy<M: Memory + ?Sized>(&mut self, memory: &M, address: u64, begin: usize) -> Option<usize> {
        let length = memory.read_u32(address).ok()?;
        // 0 ends a section; the maximum means a 64-bit length, which no linker writes here.
        let length = usize::try_from(length).ok().filter(|&length| length >= 4)?.checked_add(4)?;
        let end = begin.checked_add(length)?;
        memory.read(address, self.bytes.get_mut(begin..end)?).ok()?;
        Some(end)
    }
}
