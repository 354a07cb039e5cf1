//! Where a library's variable lies, by the symbol table of its file.
//!
//! Problem: a few facts of the VM are in variables that it does not export.
//! Approach: the table is read piece by piece, and of the names only those of variables of the wanted size.
//! Invariant: nothing is kept.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{ReadCache, elf};

use super::symbols::{Header, each_symbol};

/// Longest name compared, in bytes.
const MAX_NAME: usize = 64;

/// Address as linked, and bytes, of the first of these variables (name and bytes) that the file at `path` tells of.
pub fn find(path: &Path, wanted: &[(&str, u64)]) -> Option<(u64, u64)> {
    let file = File::open(path).ok()?;
    let data = ReadCache::new(File::open(path).ok()?);
    let header = Header::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let table = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_SYMTAB)?;
    let strings = sections.section(table.link(endian)).ok()?.sh_offset(endian);
    let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, at);
    let mut found = None;
    each_symbol(table.sh_offset(endian), table.sh_size(endian), &read, |symbol| {
        let bytes = symbol.st_size(endian);
        let is_candidate = symbol.st_type() == elf::STT_OBJECT && !symbol.is_undefined(endian);
        if found.is_some() || !is_candidate || wanted.iter().all(|(_, size)| *size != bytes) {
            return;
        }
        let mut name = [0; MAX_NAME];
        let at = strings.saturating_add(symbol.st_name(endian).into());
        let length = file.read_at(&mut name, at).unwrap_or(0);
        let name = name.get(..length).and_then(|name| name.split(|&byte| byte == 0).next());
        if wanted.iter().any(|(text, size)| *size == bytes && name == Some(text.as_bytes())) {
            found = Some((symbol.st_value(endian), bytes));
        }
    })
    .ok()?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_this_program() {
        let program = std::env::current_exe().expect("a program");
        // Part of every Rust program that unwinds.
        let found = find(&program, &[("DW.ref.rust_eh_personality", 8)]);
        assert!(found.is_some_and(|(address, bytes)| address != 0 && bytes == 8));
        assert_eq!(find(&program, &[("DW.ref.rust_eh_personality", 4)]), None, "of another size");
        assert_eq!(find(&program, &[("no_such_variable", 8)]), None);
        assert_eq!(find(Path::new("/nonexistent"), &[("DW.ref.rust_eh_personality", 8)]), None);
    }
}
