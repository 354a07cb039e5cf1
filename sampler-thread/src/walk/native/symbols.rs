//! Names of functions from a library's file.
//!
//! Problem: the VM's symbol table has 60,000 entries with 3 MB of names, of which a profile needs some hundred.
//! Approach: 12 bytes per function are kept, sorted by address; a name is read from the file when it is needed.
//! Invariant: a file is used only if its build id is that of the library in memory (both may have none).
//! Sources: System V ABI (symbol table); GDB manual, "Separate Debug Files" (where they are looked for).

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadCache, ReadRef, elf};

/// Libraries are of 64 bits.
pub(crate) type Header = elf::FileHeader64<Endianness>;

/// Longest name read, in bytes; longer ones are cut.
const MAX_NAME: usize = 1024;

/// Largest size of a function whose size is unknown, in bytes.
const MAX_UNSIZED: u32 = 4096;

/// Folder of separate debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// One function.
#[derive(Debug, Clone, Copy)]
struct Function {
    start: u32,
    size: u32,
    /// Offset of its name in the string table.
    name: u32,
}

/// The source of names.
#[derive(Debug)]
enum Source {
    File(File),
    Memory(Vec<u8>),
}

/// Functions of one library, by the addresses it was linked at.
#[derive(Debug)]
pub struct Symbols {
    source: Source,
    /// Position of the names in the file.
    strings: u64,
    functions: Vec<Function>,
}

impl Symbols {
    /// Reads the functions of the library at `path`, or of its debug file if it was stripped; `None` if there are none, or
    /// if the files have another build id.
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
        let (strings, functions) = {
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
        Some(Self { source: Source::Memory(bytes), strings, functions })
    }

    /// Returns the bytes of the table.
    pub fn bytes(&self) -> usize {
        self.functions.capacity() * size_of::<Function>()
    }

    /// Returns the mangled name of the function at `address`, as linked.
    pub fn name(&self, address: u64) -> Option<Vec<u8>> {
        let address = u32::try_from(address).ok()?;
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        if address - function.start >= function.size {
            return None;
        }
        self.read_name(function.name).ok().filter(|name| !name.is_empty())
    }

    fn read_name(&self, offset: u32) -> io::Result<Vec<u8>> {
        let mut name = vec![0; MAX_NAME];
        let at = self.strings + u64::from(offset);
        let read = match &self.source {
            Source::File(file) => file.read_at(&mut name, at)?,
            Source::Memory(bytes) => {
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                io::Read::read(&mut &*rest, &mut name)?
            }
        };
        let end = name.iter().take(read).position(|&byte| byte == 0).unwrap_or(read);
        name.truncate(end);
        Ok(name)
    }
}

/// The symbols of one file.
struct SymbolFile {
    symbols: Option<Symbols>,
    /// Whether these are all functions, not only the exported ones.
    is_whole: bool,
    /// Name of the separate debug file.
    debug_file: Option<Vec<u8>>,
}

impl SymbolFile {
    fn open(path: &Path, build_id: &[u8]) -> Option<Self> {
        let data = ReadCache::new(File::open(path).ok()?);
        let header = Header::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &data).ok()?;
        if file_build_id(&sections, endian, &data) != build_id {
            return None;
        }
        let debug_file = sections
            .section_by_name(endian, b".gnu_debuglink")
            .and_then(|(_, section)| section.data(endian, &data).ok())
            .and_then(|content| content.split(|&byte| byte == 0).next())
            .map(<[u8]>::to_vec);
        let file = File::open(path).ok()?;
        let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, at);
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            if let Some((strings, functions)) = functions(&sections, endian, &read, kind) {
                let symbols = Some(Symbols { source: Source::File(file), strings, functions });
                return Some(Self { symbols, is_whole: kind == elf::SHT_SYMTAB, debug_file });
            }
        }
        Some(Self { symbols: None, is_whole: false, debug_file })
    }
}

/// Entries of a symbol table that are read at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// Returns the position of the names and the sorted functions of a symbol table; `None` if there are none.
///
/// The table is read in chunks and twice, to allocate only what is kept: libjvm's has 1.7 MB.
fn functions<'d, R: ReadRef<'d>>(
    sections: &SectionTable<'d, Header, R>,
    endian: Endianness,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    kind: elf::SectionType,
) -> Option<(u64, Vec<Function>)> {
    let table = sections.iter().find(|section| section.sh_type(endian) == kind)?;
    let strings = sections.section(table.link(endian)).ok()?.sh_offset(endian);
    let (begin, bytes) = (table.sh_offset(endian), table.sh_size(endian));
    let mut count = 0;
    each_function(begin, bytes, endian, read, |_| count += 1).ok()?;
    let mut functions: Vec<Function> = Vec::with_capacity(count);
    each_function(begin, bytes, endian, read, |function| functions.push(function)).ok()?;
    // Of several functions at an address the largest comes first, then a global one; ties are ordered by name.
    functions.sort_unstable_by_key(|function| {
        (function.start, u32::MAX - (function.size & !LOCAL), function.size & LOCAL, function.name)
    });
    functions.dedup_by_key(|function| function.start);
    // Assembler sources often leave the size out.
    let mut next = u32::MAX;
    for function in functions.iter_mut().rev() {
        function.size &= !LOCAL;
        if function.size == 0 {
            function.size = (next - function.start).min(MAX_UNSIZED);
        }
        next = function.start;
    }
    (!functions.is_empty()).then_some((strings, functions))
}

/// Set in the size of functions that are not global while they are sorted; no function has 2 GB.
const LOCAL: u32 = 1 << 31;

/// Visits the functions of the symbol table of `bytes` bytes at `begin` in the file.
fn each_function(
    begin: u64,
    bytes: u64,
    endian: Endianness,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    mut visit: impl FnMut(Function),
) -> io::Result<()> {
    each_symbol(begin, bytes, read, |symbol| {
        let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        if !is_code || symbol.is_undefined(endian) {
            return;
        }
        let address = |value: u64| u32::try_from(value).ok();
        if let (Some(start), Some(size)) = (address(symbol.st_value(endian)), address(symbol.st_size(endian)))
        {
            let size = (size & !LOCAL) | if symbol.st_bind() == elf::STB_GLOBAL { 0 } else { LOCAL };
            visit(Function { start, size, name: symbol.st_name(endian) });
        }
    })
}

/// Visits the symbols of the table of `bytes` bytes at `begin` in the file.
pub(crate) fn each_symbol(
    begin: u64,
    bytes: u64,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    mut visit: impl FnMut(&elf::Sym64<Endianness>),
) -> io::Result<()> {
    const ENTRY: usize = size_of::<elf::Sym64<Endianness>>();
    let mut buffer = [0; ENTRIES_AT_ONCE * ENTRY];
    let mut done = 0;
    while done < bytes / ENTRY as u64 * ENTRY as u64 {
        let length = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(buffer.len()) / ENTRY * ENTRY;
        let chunk = buffer.get_mut(..length).unwrap_or_default();
        read(begin.saturating_add(done), chunk)?;
        done += length as u64;
        for entry in chunk.as_chunks::<ENTRY>().0 {
            if let Ok((symbol, _)) = object::pod::from_bytes::<elf::Sym64<Endianness>>(entry) {
                visit(symbol);
            }
        }
    }
    Ok(())
}

fn file_build_id<'d, R: ReadRef<'d>>(
    sections: &SectionTable<'d, Header, R>,
    endian: Endianness,
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
fn debug_files(path: &Path, build_id: &[u8], debug_file: Option<Vec<u8>>) -> impl Iterator<Item = PathBuf> {
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
