//! Unwind tables that are not in memory: `.debug_frame` of a library's file, or of its separate debug file.
//!
//! Problem: code that was compiled without `.eh_frame` (`-fno-asynchronous-unwind-tables`, Go) has its tables among the
//! debug information only, often compressed, and often in a file of its own.
//! Approach: the section is read once, when no table in memory covers a pc of the library; entries are found by a
//! sorted list of their functions.
//! Invariants: a separate file counts only with the build id of the library; a search allocates nothing.
//! Sources: DWARF 5, chapter 6.4.1; GDB manual, "Separate Debug Files"; System V ABI, "Compressed Sections".

use std::io::Read as _;
use std::path::Path;

use flate2::read::ZlibDecoder;
use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, DebugFrameOffset, FrameDescriptionEntry, LittleEndian, UnwindSection,
};
use object::elf;
use object::read::elf::{FileHeader, SectionHeader};

use super::symbols::{Header, debug_files, debug_link, file_build_id, open_object};
use super::tables::{Slice, VENDOR};

/// Largest section read, in bytes; that of a library with 100,000 functions has some 5 MB.
const MAX_BYTES: u64 = 64 << 20;

/// The functions in `.debug_frame` of one library, by the addresses it was linked at.
#[derive(Debug)]
pub struct DebugFrames {
    bytes: Vec<u8>,
    /// Start of each function and offset of its entry, sorted.
    starts: Box<[(u64, usize)]>,
}

impl DebugFrames {
    /// Reads the tables of the library at `path`; `None` if neither its file nor its debug file has any.
    pub fn load(path: &Path, build_id: &[u8]) -> Option<Self> {
        let (own, link) = read(path, build_id)?;
        let separate = || {
            // Nothing else shows that two files belong together.
            let paths = (!build_id.is_empty()).then(|| debug_files(path, build_id, link));
            paths.into_iter().flatten().find_map(|path| read(&path, build_id)?.0)
        };
        let bytes = own.or_else(separate)?;
        let starts = starts(&section(&bytes));
        (!starts.is_empty()).then_some(Self { bytes, starts })
    }

    /// Returns the entry of the function at `pc`, as linked.
    pub(super) fn function(
        &self,
        pc: u64,
    ) -> Option<(FrameDescriptionEntry<Slice<'_>>, DebugFrame<Slice<'_>>, BaseAddresses)> {
        let after = self.starts.partition_point(|&(start, _)| start <= pc);
        let (_, offset) = *self.starts.get(after.checked_sub(1)?)?;
        let (section, bases) = (section(&self.bytes), BaseAddresses::default());
        let function =
            section.fde_from_offset(&bases, DebugFrameOffset(offset), DebugFrame::cie_from_offset).ok()?;
        function.contains(pc).then_some((function, section, bases))
    }

    pub fn bytes(&self) -> usize {
        self.bytes.capacity() + size_of_val(&*self.starts)
    }
}

fn section(bytes: &[u8]) -> DebugFrame<Slice<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_vendor(VENDOR);
    section.set_address_size(8);
    section
}

fn starts(section: &DebugFrame<Slice<'_>>) -> Box<[(u64, usize)]> {
    let mut starts = Vec::new();
    let bases = BaseAddresses::default();
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(function) = partial.parse(DebugFrame::cie_from_offset)
            // The linker sets the address of functions that it has left out to 0.
            && function.initial_address() != 0
        {
            starts.push((function.initial_address(), function.offset()));
        }
    }
    starts.sort_unstable();
    starts.into_boxed_slice()
}

/// Reads `.debug_frame` of a file, if it has one, and the name of its debug file; `None` if the file is another one.
#[allow(clippy::type_complexity, reason = "a section and a name")]
fn read(path: &Path, build_id: &[u8]) -> Option<(Option<Vec<u8>>, Option<Vec<u8>>)> {
    let data = open_object(path).ok()?;
    let header = Header::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    if file_build_id(&sections, endian, &data) != build_id {
        return None;
    }
    let link = debug_link(&sections, endian, &data);
    let frames = sections.section_by_name(endian, b".debug_frame").and_then(|(_, section)| {
        if section.sh_type(endian) == elf::SHT_NOBITS || section.sh_size(endian) > MAX_BYTES {
            return None;
        }
        let Some((how, offset, size)) = section.compression(endian, &data).ok()? else {
            return Some(section.data(endian, &data).ok()?.to_vec());
        };
        if how.ch_type.get(endian) != elf::ELFCOMPRESS_ZLIB {
            return None;
        }
        let packed = object::ReadRef::read_bytes_at(&data, offset, size).ok()?;
        let mut bytes = Vec::new();
        ZlibDecoder::new(packed).take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    });
    Some((frames, link))
}
