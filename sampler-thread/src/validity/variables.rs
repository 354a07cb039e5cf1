//! Finds variables of the VM's library through the symbol table of its file.
//!
//! Problem: some state of the VM is in variables that it does not export.
//! Approach: the table is read in chunks. Only names of variables of the right size are read, in file order: libjvm has
//! 4,000 variables, and reading their names one by one takes 3 ms.
//! All variables are found at once, when the first of them is needed.
//! Invariant: a variable whose name or size differs is not found.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};

use crate::walk::native::blocks::Blocks;
use crate::walk::native::symbols::{Header, each_symbol};

/// Longest name compared, in bytes.
const MAX_NAME: usize = 64;

/// Names and bytes of the variables.
const VARIABLES: [(&str, u64); 4] = [
    ("_ZN11JvmtiExport19_redefinition_countE", 8),
    ("_ZN11JvmtiExport22_has_redefined_a_classE", 1),
    ("_ZN14NMethodSweeper11_traversalsE", 8),
    ("_ZN14NMethodSweeper28_total_nof_code_cache_sweepsE", 8),
];

/// Addresses of variables; `None` for one that the library does not have or does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Located {
    /// `JvmtiExport::_redefinition_count` (seen in JDK 17, 21, 25), of 8 bytes.
    pub redefinition_count: Option<u64>,
    /// `JvmtiExport::_has_redefined_a_class` (JDK 11), of one byte.
    pub has_redefined_a_class: Option<u64>,
    /// `NMethodSweeper::_traversals` (up to JDK 19), of 8 bytes: sweeps of the code cache that have begun.
    pub sweeps_begun: Option<u64>,
    /// `NMethodSweeper::_total_nof_code_cache_sweeps` (up to JDK 19), of 8 bytes: those that have ended.
    pub sweeps_ended: Option<u64>,
}

/// Variables of the VM's library.
#[derive(Debug, Default)]
pub struct Variables {
    /// File of the library, and its load bias.
    library: Option<(PathBuf, u64)>,
    located: OnceLock<Located>,
}

impl Variables {
    /// The variables of the library with this file and load bias.
    pub fn of(library: (PathBuf, u64)) -> Self {
        Self { library: Some(library), located: OnceLock::new() }
    }

    /// Locates the variables; takes milliseconds at the first call, so only the sampler thread calls it.
    pub(crate) fn locate(&self) -> Located {
        *self.located.get_or_init(|| {
            let found = self.library.as_ref().and_then(|(path, bias)| {
                let found = find(path, &VARIABLES)?;
                Some(found.map(|address| address.map(|address| address.wrapping_add(*bias))))
            });
            let [redefinition_count, has_redefined_a_class, sweeps_begun, sweeps_ended] =
                found.unwrap_or_default();
            let located = Located { redefinition_count, has_redefined_a_class, sweeps_begun, sweeps_ended };
            tracing::debug!("variables of the VM's library: {located:x?}");
            located
        })
    }

    /// Returns where the variables are; nothing is known before [`Self::locate`].
    pub(crate) fn located(&self) -> Located {
        self.located.get().copied().unwrap_or_default()
    }

    /// Variables that are already located.
    #[cfg(test)]
    pub(crate) fn at(located: Located) -> Self {
        Self { library: None, located: OnceLock::from(located) }
    }
}

/// Returns the addresses as linked of the variables with these names and sizes in the file at `path`.
fn find<const N: usize>(path: &Path, variables: &[(&str, u64); N]) -> Option<[Option<u64>; N]> {
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
    let mut found = [None; N];
    for candidate in &candidates {
        let name = names.get(candidate.name);
        for ((text, size), address) in variables.iter().zip(&mut found) {
            if *size == candidate.bytes && name == Some(text.as_bytes()) {
                *address = Some(candidate.address);
            }
        }
    }
    Some(found)
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
        let name = "DW.ref.rust_eh_personality";
        let found = find(&program, &[(name, 4), ("no_such_variable", 8), (name, 8)]);
        let Some([None, None, Some(address)]) = found else { panic!("{found:?}") };
        assert_ne!(address, 0);
        assert_eq!(find(Path::new("/nonexistent"), &[(name, 8)]), None);
    }

    #[test]
    fn nothing_is_known_before_variables_are_located() {
        let program = std::env::current_exe().expect("a program");
        let variables = Variables::of((program, 0));
        assert_eq!(variables.located(), Located::default());
        assert_eq!(variables.locate(), Located::default(), "a program without a VM");
    }
}
