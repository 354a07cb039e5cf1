//! Finds a variable of a library through the symbol table of its file.
//!
//! Problem: some state of the VM is in variables that it does not export.
//! Approach: the table is read in chunks. Only names of variables of the right size are read, in file order: libjvm has
//! 4,000 variables, and reading their names one by one takes 3 ms.
//! Invariant: nothing is cached.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};

use crate::walk::native::blocks::Blocks;
use crate::walk::native::symbols::{Header, each_symbol};

/// Longest name compared, in bytes.
const MAX_NAME: usize = 64;

/// Returns address as linked and size of the first variable in the file at `path` that has one of these names and sizes.
pub fn find(path: &Path, variables: &[(&str, u64)]) -> Option<(u64, u64)> {
    let file = File::open(path).ok()?;
    let data = Blocks::open(path).ok()?;
    let header = Header::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let table = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_SYMTAB)?;
    let strings = sections.section(table.link(endian)).ok()?.sh_offset(endian);
    let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, at);
    let mut candidates: Vec<Candidate> = Vec::new();
    each_symbol(table.sh_offset(endian), table.sh_size(endian), &read, |symbol| {
        let bytes = symbol.st_size(endian);
        let is_variable = symbol.st_type() == elf::STT_OBJECT && !symbol.is_undefined(endian);
        if is_variable && variables.iter().any(|(_, size)| *size == bytes) {
            let name = strings.saturating_add(symbol.st_name(endian).into());
            candidates.push(Candidate { name, address: symbol.st_value(endian), bytes });
        }
    })
    .ok()?;
    candidates.sort_unstable_by_key(|candidate| candidate.name);
    let mut names = NameReader { file: &file, at: 0, buffer: Vec::new() };
    let found = candidates.iter().find(|candidate| {
        let name = names.get(candidate.name);
        variables.iter().any(|(text, size)| *size == candidate.bytes && name == Some(text.as_bytes()))
    });
    found.map(|candidate| (candidate.address, candidate.bytes))
}

/// A variable of the right size.
struct Candidate {
    /// Position of its name in the file.
    name: u64,
    /// As linked.
    address: u64,
    bytes: u64,
}

/// Bytes of names read at once.
const NAMES_AT_ONCE: usize = 16 << 10;

/// Reads names from a file through a buffer.
struct NameReader<'a> {
    file: &'a File,
    /// Position of the buffer in the file.
    at: u64,
    buffer: Vec<u8>,
}

impl NameReader<'_> {
    /// Returns the name at this position in the file, cut to [`MAX_NAME`].
    fn get(&mut self, at: u64) -> Option<&[u8]> {
        let end = self.at.saturating_add(self.buffer.len() as u64);
        if at < self.at || at.saturating_add(MAX_NAME as u64) > end {
            self.buffer.resize(NAMES_AT_ONCE, 0);
            let length = self.file.read_at(&mut self.buffer, at).unwrap_or(0);
            self.buffer.truncate(length);
            self.at = at;
        }
        let rest = self.buffer.get(usize::try_from(at - self.at).ok()?..)?;
        rest.get(..MAX_NAME).unwrap_or(rest).split(|&byte| byte == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_names_are_read_at_once() {
        let mut file = tempfile::tempfile().expect("a file");
        let text: Vec<u8> = (0..5000).flat_map(|n| format!("v{n:05}\0").into_bytes()).collect();
        std::io::Write::write_all(&mut file, &text).expect("written");
        let mut names = NameReader { file: &file, at: 0, buffer: Vec::new() };
        let mut reads = std::collections::BTreeSet::new();
        for n in 0..5000 {
            assert_eq!(names.get(n * 7), Some(format!("v{n:05}").as_bytes()));
            reads.insert(names.at);
        }
        // The last ones are at the end of the file, where there is less than a name may have.
        assert!(reads.len() <= 3 + MAX_NAME / 7, "{}", reads.len());
    }

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
