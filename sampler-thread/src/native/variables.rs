//! Addresses of variables and functions that the VM does not export.
//!
//! Problem: the VM's count of redefined classes, for example, is in a variable that only the symbol table of the
//! library's file names.
//! Approach: the table is read once for all symbols, in chunks, and only names of symbols of the right kind and size,
//! in file order: reading the names of libjvm's 4,000 variables one by one takes 3 ms.
//! Invariant: an address is valid only if the file is still the one that was loaded; its users check what is there.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};

use crate::native::symbols::{Header, each_symbol, open_object};

/// Longest name compared, in bytes.
const MAX_NAME: usize = 64;

/// The kind and the size of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A variable of this many bytes.
    Variable(u64),
    /// A place in assembler code, which has no size.
    Label,
}

/// `JvmtiExport::_redefinition_count` (seen in JDK 17, 21, 25), `JvmtiExport::_has_redefined_a_class` (11),
/// `NMethodSweeper::_traversals` and `NMethodSweeper::_total_nof_code_cache_sweeps` (up to JDK 19),
/// `NMethodSweeper::_bytes_changed` and `NMethodSweeper::_sweep_threshold_bytes` (17 to 19), the fault-tolerant load
/// with the place where it faults (missing in 17.0.2 and before, where it is generated code), and
/// `ClassLoadingService::_classes_unloaded_count` and `_shared_classes_unloaded_count` (11, 17, 21, 25 and 28).
const WANTED: [(&str, Kind); 10] = [
    ("_ZN11JvmtiExport19_redefinition_countE", Kind::Variable(8)),
    ("_ZN11JvmtiExport22_has_redefined_a_classE", Kind::Variable(1)),
    ("_ZN14NMethodSweeper11_traversalsE", Kind::Variable(8)),
    ("_ZN14NMethodSweeper28_total_nof_code_cache_sweepsE", Kind::Variable(8)),
    ("_ZN14NMethodSweeper14_bytes_changedE", Kind::Variable(8)),
    ("_ZN14NMethodSweeper22_sweep_threshold_bytesE", Kind::Variable(8)),
    ("SafeFetchN_impl", Kind::Label),
    ("_SafeFetchN_fault", Kind::Label),
    ("_ZN19ClassLoadingService23_classes_unloaded_countE", Kind::Variable(8)),
    ("_ZN19ClassLoadingService30_shared_classes_unloaded_countE", Kind::Variable(8)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    pub address: u64,
    pub bytes: u64,
}

/// Addresses in memory of the symbols in [`WANTED`]; `None` for one that is missing.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    redefinitions: Option<Variable>,
    /// Sweeps of the code cache that have begun, and those that have ended; each has 8 bytes.
    sweeps: (Option<u64>, Option<u64>),
    /// Bytes of code that have changed since the last sweep, and bytes from which on the next one comes.
    changes: Option<(u64, u64)>,
    safe_fetch: Option<u64>,
    /// Variables that refer to the counters of unloaded classes: ordinary and archived ones.
    unloaded_classes: Option<[u64; 2]>,
}

/// The symbols of the VM's library that it does not export.
#[derive(Debug, Default)]
pub struct HiddenSymbols {
    /// File of the VM's library, and its load bias.
    library: Option<(PathBuf, u64)>,
    found: OnceLock<Found>,
}

impl HiddenSymbols {
    /// The symbols of the library with this file and load bias.
    pub fn new(path: PathBuf, bias: u64) -> Self {
        Self { library: Some((path, bias)), found: OnceLock::new() }
    }

    /// A count of redefinitions of this size at `address`.
    #[cfg(test)]
    pub(crate) fn counted_at(address: u64, bytes: u64) -> Self {
        let redefinitions = Some(Variable { address, bytes });
        Self { library: None, found: OnceLock::from(Found { redefinitions, ..Found::default() }) }
    }

    /// Counts of sweeps at these addresses.
    #[cfg(test)]
    pub(crate) fn with_sweeps_at(begun: u64, ended: u64) -> Self {
        let sweeps = (Some(begun), Some(ended));
        Self { library: None, found: OnceLock::from(Found { sweeps, ..Found::default() }) }
    }

    /// Looks for them; takes milliseconds at the first call, so the sampler thread calls it, or one that makes a dump
    /// or a queue.
    pub fn prepare(&self) {
        self.found.get_or_init(|| {
            let found = self.library.as_ref().map(|(path, bias)| {
                let places = find(path, WANTED).map(|place| Some(place?.wrapping_add(*bias)));
                let [count, flag, begun, ended, changed, threshold, safe_fetch, fault, own, shared] = places;
                let variable = |bytes| move |address| Variable { address, bytes };
                // It faults where the handler looks for the fault: at its first instruction.
                let safe_fetch = safe_fetch.filter(|_| safe_fetch == fault);
                let redefinitions = count.map(variable(8)).or(flag.map(variable(1)));
                Found {
                    redefinitions,
                    sweeps: (begun, ended),
                    changes: changed.zip(threshold),
                    safe_fetch,
                    unloaded_classes: own.zip(shared).map(|(own, shared)| [own, shared]),
                }
            });
            let found = found.unwrap_or_default();
            if found.redefinitions.is_none() {
                tracing::info!(
                    "the VM's count of redefined classes was not found; any class may have been redefined"
                );
            }
            found
        });
    }

    /// Returns whether [`HiddenSymbols::prepare`] was called.
    pub fn is_prepared(&self) -> bool {
        self.found.get().is_some()
    }

    /// Returns where the VM counts redefinitions; `None` if that was not found, or not looked for.
    pub fn redefinitions(&self) -> Option<Variable> {
        self.found.get()?.redefinitions
    }

    /// Returns where the VM counts sweeps of the code cache that have begun, and those that have ended; `None` as
    /// above.
    pub fn sweeps(&self) -> (Option<u64>, Option<u64>) {
        self.found.get().map_or((None, None), |found| found.sweeps)
    }

    /// Returns where the VM counts the bytes of code that have changed since the last sweep, and where it keeps their
    /// number from which on the next sweep comes; `None` as above.
    pub fn changes(&self) -> Option<(u64, u64)> {
        self.found.get()?.changes
    }

    /// Returns the variables that refer to the VM's counters of unloaded classes, ordinary and archived ones; `None`
    /// as above.
    pub fn unloaded_classes(&self) -> Option<[u64; 2]> {
        self.found.get()?.unloaded_classes
    }

    /// Returns the address of the VM's fault-tolerant load; `None` if it was not found, or not looked for.
    pub fn safe_fetch(&self) -> Option<u64> {
        self.found.get()?.safe_fetch
    }
}

/// Returns the addresses, as linked, of these symbols in the file at `path`.
fn find<const N: usize>(path: &Path, wanted: [(&str, Kind); N]) -> [Option<u64>; N] {
    let mut found = [None; N];
    let Some((file, candidates)) = candidates(path, &wanted.map(|(_, kind)| kind)) else { return found };
    let mut names = NameReader { file: &file, at: 0, buffer: Vec::new() };
    for Candidate { name, address, kind } in candidates {
        let name = names.get(name).unwrap_or_default();
        let place = wanted.iter().position(|(text, of)| *of == kind && text.as_bytes() == name);
        if let Some(place) = place.and_then(|place| found.get_mut(place)) {
            *place = place.or(Some(address));
        }
    }
    found
}

/// A symbol of a wanted kind.
struct Candidate {
    /// Position of its name in the file.
    name: u64,
    /// Address as linked.
    address: u64,
    kind: Kind,
}

/// Returns the file and its symbols of these kinds, in the order of their names in the file.
fn candidates(path: &Path, kinds: &[Kind]) -> Option<(File, Vec<Candidate>)> {
    let file = File::open(path).ok()?;
    let data = open_object(path).ok()?;
    let header = Header::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let table = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_SYMTAB)?;
    let strings = sections.section(table.link(endian)).ok()?.sh_offset(endian);
    let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, at);
    let mut candidates: Vec<Candidate> = Vec::new();
    each_symbol(table.sh_offset(endian), table.sh_size(endian), &read, |symbol| {
        let kind = match (symbol.st_type(), symbol.st_size(endian)) {
            (elf::STT_OBJECT, bytes) => Kind::Variable(bytes),
            (elf::STT_FUNC | elf::STT_NOTYPE, 0) => Kind::Label,
            _ => return,
        };
        if kinds.contains(&kind) && !symbol.is_undefined(endian) {
            let name = strings.saturating_add(symbol.st_name(endian).into());
            candidates.push(Candidate { name, address: symbol.st_value(endian), kind });
        }
    })
    .ok()?;
    candidates.sort_unstable_by_key(|candidate| candidate.name);
    Some((file, candidates))
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
    fn symbols_of_this_program() {
        let program = std::env::current_exe().expect("a program");
        // Part of every Rust program that unwinds, and of every program.
        let personality = ("DW.ref.rust_eh_personality", Kind::Variable(8));
        let [first, missing, start, other_size] = find(
            &program,
            [
                personality,
                ("no_such_variable", Kind::Variable(8)),
                ("_init", Kind::Label),
                ("DW.ref.rust_eh_personality", Kind::Variable(4)),
            ],
        );
        assert!(first.is_some_and(|address| address != 0) && start.is_some_and(|address| address != 0));
        assert_eq!((missing, other_size), (None, None));
        assert_eq!(find(Path::new("/nonexistent"), [personality]), [None]);
    }

    #[test]
    fn nothing_is_known_before_it_was_looked_for() {
        let symbols = HiddenSymbols::new(std::env::current_exe().expect("a program"), 0);
        assert!(!symbols.is_prepared());
        symbols.prepare();
        assert!(symbols.is_prepared());
        let found = (symbols.redefinitions(), symbols.sweeps(), symbols.safe_fetch());
        assert_eq!(found, (None, (None, None), None), "a program without a VM");
    }
}
