//! Names of functions from a library's file.
//!
//! Problem: the VM's symbol table has 60,000 entries with 3 MB of names, of which a profile needs some hundred.
//! Approach: 12 bytes per function are kept; its name is read from the file when it is needed.
//! Invariant: a file is used only if its build id is that of the library in memory (both may have none).
//! Sources: System V ABI (symbol table); GDB manual, "Separate Debug Files" (where they are looked for).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{NativeEndian, ReadCache, ReadRef, elf};

use super::library_file::LibraryFile;
use super::starts::{Start, Starts};

/// Libraries are of 64 bits, in the byte order of the process.
pub(crate) type Header = elf::FileHeader64<NativeEndian>;

/// Longest name read, in bytes; longer ones are cut.
///
/// Names of template instances have thousands.
const MAX_NAME: usize = 1 << 14;

/// Bytes of a name that are read first; nine in ten of libjvm's are shorter.
const FIRST_NAME: usize = 128;

/// Largest size of a function whose size is unknown, in bytes.
const MAX_UNSIZED: u64 = 4096;

/// Folder of separate debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// Bytes of a symbol in its table.
const ENTRY: usize = size_of::<Entry>();

/// A symbol in its table.
type Entry = elf::Sym64<NativeEndian>;

/// A named function, by the addresses it was linked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Addresses of its code.
    pub range: Range<u64>,
    /// Its name, mangled.
    pub name: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    File(LibraryFile),
    Memory(Vec<u8>),
}

/// Functions of one library, by the addresses it was linked at.
#[derive(Debug)]
pub struct Symbols {
    source: Source,
    /// Position of their names.
    names: u64,
    starts: Starts,
}

impl Symbols {
    /// Reads the functions of the library at `path`, or of its debug file if it was stripped; `None` if there are none,
    /// or if the files have another build id.
    pub fn load(path: &Path, build_id: &[u8]) -> Option<Self> {
        let own = SymbolFile::open(path, build_id)?;
        if own.is_whole {
            return own.symbols;
        }
        debug_files(path, build_id, own.debug_file)
            .filter_map(|path| SymbolFile::open(&path, build_id))
            .find_map(|file| file.symbols)
            .or(own.symbols)
    }

    /// Reads the functions of a library that has no file, from its bytes.
    pub fn of_bytes(bytes: Vec<u8>) -> Option<Self> {
        let (names, starts) = {
            let data = &*bytes;
            let header = Header::parse(data).ok()?;
            let endian = header.endian().ok()?;
            let sections = header.sections(endian, data).ok()?;
            let read = |at: u64, into: &mut [u8]| {
                let rest = usize::try_from(at).ok().and_then(|at| data.get(at..)).unwrap_or_default();
                io::Read::read_exact(&mut &*rest, into)
            };
            functions(&sections, endian, &read, elf::SHT_DYNSYM)?
        };
        Some(Self { source: Source::Memory(bytes), names, starts })
    }

    pub fn bytes(&self) -> usize {
        self.starts.bytes()
    }

    /// Returns the function at `address`, as linked; its range ends where the next one begins.
    pub fn function(&self, address: u64) -> Option<Function> {
        let (range, name) =
            self.starts.last(address, MAX_UNSIZED).filter(|(range, _)| range.contains(&address))?;
        let name = self.read_name(name).ok().filter(|name| !name.is_empty())?;
        Some(Function { range, name })
    }

    fn read_name(&self, offset: u32) -> io::Result<Vec<u8>> {
        let at = self.names + u64::from(offset);
        let mut first = [0; FIRST_NAME];
        let read = self.read(at, &mut first)?;
        let first = first.get(..read).unwrap_or_default();
        if let Some(end) = first.iter().position(|&byte| byte == 0) {
            return Ok(first.get(..end).unwrap_or_default().to_vec());
        }
        let mut buffer = vec![0; MAX_NAME];
        let read = self.read(at, &mut buffer)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        Ok(bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec())
    }

    /// Reads bytes of the file; returns how many there were.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        match &self.source {
            // Without the file its functions have no names.
            Source::File(file) => file.read_at(into, at),
            Source::Memory(bytes) => {
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                io::Read::read(&mut &*rest, into)
            }
        }
    }
}

struct SymbolFile {
    symbols: Option<Symbols>,
    /// True if these are all functions, not only the exported ones.
    is_whole: bool,
    /// Name of the separate debug file.
    debug_file: Option<Vec<u8>>,
}

impl SymbolFile {
    fn open(path: &Path, build_id: &[u8]) -> Option<Self> {
        let data = open_object(path).ok()?;
        let header = Header::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &data).ok()?;
        if file_build_id(&sections, endian, &data) != build_id {
            return None;
        }
        let debug_file = debug_link(&sections, endian, &data);
        let file = File::open(path).ok()?;
        let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, at);
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            if let Some((names, starts)) = functions(&sections, endian, &read, kind) {
                let source = Source::File(LibraryFile::new(path, file).ok()?);
                let symbols = Some(Symbols { source, names, starts });
                return Some(Self { symbols, is_whole: kind == elf::SHT_SYMTAB, debug_file });
            }
        }
        Some(Self { symbols: None, is_whole: false, debug_file })
    }
}

/// Opens an object file, of which only what is needed is read.
pub(crate) fn open_object(path: &Path) -> io::Result<ReadCache<File>> {
    Ok(ReadCache::new(File::open(path)?))
}

/// Entries of a symbol table that are read at once.
const ENTRIES_AT_ONCE: usize = 1024;
/// Most functions for which memory is reserved before they are read: more than any JVM's.
const MAX_RESERVED: usize = 1 << 17;

/// Returns where the names of the symbol table of this kind are, and the functions in it; `None` if there are none.
///
/// The table is read in chunks, and only what is kept gets memory: libjvm's has 1.7 MB.
fn functions<'d, R: ReadRef<'d>>(
    sections: &SectionTable<'d, Header, R>,
    endian: NativeEndian,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    kind: elf::SectionType,
) -> Option<(u64, Starts)> {
    let section = sections.iter().find(|section| section.sh_type(endian) == kind)?;
    let names = sections.section(section.link(endian)).ok()?.sh_offset(endian);
    let (begin, bytes) = (section.sh_offset(endian), section.sh_size(endian));
    let most = usize::try_from(bytes).unwrap_or(usize::MAX) / ENTRY;
    let mut starts = Vec::with_capacity(most.min(MAX_RESERVED));
    let visited = each_symbol(begin, bytes, read, |symbol| {
        let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        if is_code
            && !symbol.is_undefined(endian)
            && let Ok(address) = u32::try_from(symbol.st_value(endian))
        {
            let is_global = symbol.st_bind() == elf::STB_GLOBAL;
            starts.push(Start::new(address, symbol.st_size(endian), is_global, symbol.st_name(endian)));
        }
    });
    visited.ok()?;
    Some((names, Starts::new(&starts)?))
}

/// Visits the symbols of the table of `bytes` bytes at `begin` in the file.
pub(crate) fn each_symbol(
    begin: u64,
    bytes: u64,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    mut visit: impl FnMut(&Entry),
) -> io::Result<()> {
    let mut buffer = [0; ENTRIES_AT_ONCE * ENTRY];
    let mut done = 0;
    while done < bytes / ENTRY as u64 * ENTRY as u64 {
        let length = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(buffer.len()) / ENTRY * ENTRY;
        let chunk = buffer.get_mut(..length).unwrap_or_default();
        read(begin.saturating_add(done), chunk)?;
        done += length as u64;
        for entry in chunk.as_chunks::<ENTRY>().0 {
            if let Ok((symbol, _)) = object::pod::from_bytes::<Entry>(entry) {
                visit(symbol);
            }
        }
    }
    Ok(())
}

/// Returns the name of a file's separate debug file.
pub(super) fn debug_link<'d, R: ReadRef<'d>>(
    sections: &SectionTable<'d, Header, R>,
    endian: NativeEndian,
    data: R,
) -> Option<Vec<u8>> {
    let (_, section) = sections.section_by_name(endian, b".gnu_debuglink")?;
    Some(section.data(endian, data).ok()?.split(|&byte| byte == 0).next()?.to_vec())
}

/// Returns the build id of a file, empty if it has none.
pub(super) fn file_build_id<'d, R: ReadRef<'d>>(
    sections: &SectionTable<'d, Header, R>,
    endian: NativeEndian,
    data: R,
) -> Vec<u8> {
    for section in sections.iter() {
        let Ok(Some(mut notes)) = section.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return note.desc().to_vec();
            }
        }
    }
    Vec::new()
}

/// Returns the paths where a stripped library's debug file may be.
pub(super) fn debug_files(
    path: &Path,
    build_id: &[u8],
    debug_file: Option<Vec<u8>>,
) -> impl Iterator<Item = PathBuf> + use<> {
    let hex: Vec<String> = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id = hex.split_first().filter(|(_, rest)| !rest.is_empty()).map(|(first, rest)| {
        Path::new(DEBUG_ROOT).join(".build-id").join(first).join(format!("{}.debug", rest.concat()))
    });
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let by_name = debug_file.into_iter().flat_map(move |name| {
        let name = Path::new(std::ffi::OsStr::from_bytes(&name)).to_owned();
        let below = folder.strip_prefix("/").unwrap_or(&folder);
        let debug = Path::new(DEBUG_ROOT).join(below).join(&name);
        [folder.join(&name), folder.join(".debug").join(&name), debug]
    });
    by_id.into_iter().chain(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_by_build_id_and_by_name() {
        let of = |build_id: &[u8], name: Option<&str>| -> Vec<PathBuf> {
            let name = name.map(|name| name.as_bytes().to_vec());
            debug_files(Path::new("/opt/lib/libx.so"), build_id, name).collect()
        };
        let by_id = "/usr/lib/debug/.build-id/0a/ff01.debug";
        let by_name = ["/opt/lib/x.debug", "/opt/lib/.debug/x.debug", "/usr/lib/debug/opt/lib/x.debug"];
        assert_eq!(of(&[0x0a, 0xff, 0x01], None), [Path::new(by_id)]);
        assert_eq!(of(&[], Some("x.debug")), by_name.map(Path::new));
        assert_eq!(of(&[0x0a, 0xff, 0x01], Some("x.debug")).len(), 4);
        assert_eq!(of(&[0x0a], None).len(), 0, "an id of one byte names no file");
    }
}
