//! A library in memory: its unwind tables and its build id.
//!
//! Problem: the file of a library may have been replaced or deleted, and the vDSO has none.
//! Approach: the program headers in memory lead to `.eh_frame_hdr` (`PT_GNU_EH_FRAME`) and the notes, which stripped
//! libraries have as well; files are read for symbols only, after a comparison of build ids (`super::symbols`).
//! Invariant: every read is checked.
//! Sources: System V ABI (program headers), Linux Standard Base Core 5.0, chapter 10.6 (`.eh_frame_hdr`).

use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use object::{Endianness, elf};
use stackwalk::Memory;

use super::tables::Tables;

type Header = elf::FileHeader64<Endianness>;

/// Bytes at the head of an image in which the program headers must lie; ld puts them right after the header.
const HEAD_BYTES: usize = 4096;

/// Largest segment of notes read.
const MAX_NOTES: u64 = 4096;

/// A library in memory.
#[derive(Debug, Default)]
pub struct Image {
    /// Difference between an address in memory and as linked.
    pub bias: u64,
    /// Its unwind tables, if they can be searched.
    pub tables: Option<Tables>,
    /// Its build id, empty if it has none.
    pub build_id: Vec<u8>,
}

impl Image {
    /// Reads the library at `base`; returns an empty image if it is not an ELF image.
    pub fn read<M: Memory + ?Sized>(memory: &M, base: u64) -> Self {
        Self::parse(memory, base).unwrap_or_default()
    }

    fn parse<M: Memory + ?Sized>(memory: &M, base: u64) -> Option<Self> {
        let bytes = copy(memory, base, HEAD_BYTES as u64)?;
        let header = Header::parse(&*bytes).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, &*bytes).ok()?;
        let first = segments
            .iter()
            .find(|segment| segment.p_type(endian) == elf::PT_LOAD && segment.p_offset(endian) == 0)?;
        let bias = base.wrapping_sub(first.p_vaddr(endian));
        let range = |segment: &elf::ProgramHeader64<Endianness>| {
            let start = bias.wrapping_add(segment.p_vaddr(endian));
            (start, start.saturating_add(segment.p_memsz(endian)))
        };
        let mut image = Self { bias, ..Self::default() };
        for segment in segments {
            let (start, end) = range(segment);
            match segment.p_type(endian) {
                elf::PT_NOTE if image.build_id.is_empty() => {
                    let align = segment.p_align(endian);
                    let notes = copy(memory, start, (end - start).min(MAX_NOTES));
                    image.build_id =
                        notes.and_then(|notes| build_id(endian, align, &notes)).unwrap_or_default();
                }
                elf::PT_GNU_EH_FRAME => {
                    image.tables = Tables::read(memory, start, end);
                }
                _ => {}
            }
        }
        Some(image)
    }
}

fn copy<M: Memory + ?Sized>(memory: &M, address: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    memory.read(address, &mut bytes).ok()?;
    Some(bytes)
}

fn build_id(endian: Endianness, align: u64, notes: &[u8]) -> Option<Vec<u8>> {
    let mut notes = NoteIterator::<Header>::new(endian, align, notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return Some(note.desc().to_vec());
        }
    }
    None
}
