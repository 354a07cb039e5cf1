//! Native code of this process: the library of a pc, the caller of a frame, the name of a function.
//!
//! Problem: walking must not allocate or read files, and most libraries never appear in a stack.
//! Approach: libraries are listed from `/proc/self/maps`. A walk that meets an unknown library or needs tables that are
//! not loaded ends there; [`NativeLibraries::prepare`] loads them and the walk is repeated.
//! Invariants: [`NativeCode::caller`] allocates nothing; tables are read in place through checked reads, so that a walk
//! in an unloaded library does not fault; `prepare` takes a limited share of the time. Decision: `design/frames.md`.

mod debug_frames;
mod entry;
mod function_names;
mod image;
pub mod in_handler;
mod library_file;
pub mod maps;
mod row_rules;
mod rules;
mod starts;
pub(crate) mod symbols;
mod tables;
mod unwind;
pub mod variables;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stackwalk::{Memory, NativeCode, NativeRegisters, NativeStop, StackCopy, ends_signal_handler};

use crate::clock;
use debug_frames::DebugFrames;
use entry::Entry;
use image::Image;
use row_rules::RowRules;
use rules::Rules;
use symbols::Symbols;
use unwind::{NoRule, Rule, Source, Unwinder};

pub use function_names::{NativeName, Owner};

/// Longest time for which the list is used if the loader does not count libraries, and if it has loaded none: a program
/// may map code by itself.
const MAX_AGE: Duration = Duration::from_secs(2);
const MAX_AGE_UNCHANGED: Duration = Duration::from_secs(30);
/// The CPU time of reading the list is at most one part in this many of the time: an unknown pc may stay unknown, and a
/// process with 10,000 threads has 20,000 mappings.
const READ_SHARE: u32 = 200;
/// Most time for reading that may accumulate: libraries are loaded in bursts, reading takes 0.1 to 1 ms.
const MAX_SAVED: Duration = Duration::from_millis(20);

/// Libraries whose functions are in every profile; their symbol tables take 2 and 0.5 ms to read.
const PRELOADED: [&str; 2] = ["libjvm.so", "libc.so.6"];

/// Most libraries whose tables or symbols are kept; processes load far fewer.
const MAX_LOADED: usize = 2_000;

#[derive(Debug)]
pub struct NativeLibraries {
    libraries: Vec<Library>,
    entry: Entry,
    unwinder: Unwinder,
    rules: Rules,
    rows: RowRules,
    /// Data that the last walk needed.
    missing: Missing,
    /// Time of the last reading of the list.
    list_read: Option<Instant>,
    /// CPU time of reading that exceeded the saved time.
    owed: Duration,
    /// CPU time left for reading.
    saved: Duration,
    list: u64,
    /// The same without changes that only added libraries.
    places: u64,
    /// The loader's count of libraries before the list was read.
    loads: Option<u64>,
    /// Version of the list whose libraries are preloaded.
    preloaded: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Nothing,
    /// The tables of this library.
    Tables(usize),
    /// The tables in the files of this library.
    DebugFrames(usize),
    Library,
}

/// One executable mapping.
#[derive(Debug)]
struct Library {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    path: Box<str>,
    /// Address of the library's first byte.
    base: u64,
    image: Option<Image>,
    symbols: Option<Option<Symbols>>,
    debug_frames: Option<Option<DebugFrames>>,
    /// Path and build id, once a function was named.
    identity: Option<Arc<str>>,
}

impl Default for NativeLibraries {
    fn default() -> Self {
        Self {
            libraries: Vec::new(),
            entry: Entry::of_process(),
            unwinder: Unwinder::default(),
            rules: Rules::default(),
            rows: RowRules::default(),
            missing: Missing::Nothing,
            list_read: None,
            owed: Duration::ZERO,
            saved: MAX_SAVED,
            list: 0,
            places: 0,
            loads: None,
            preloaded: 0,
        }
    }
}

impl NativeLibraries {
    /// Loads what the last walk needed; returns whether a repeated walk may get further.
    pub fn prepare<M: Memory + ?Sized>(&mut self, memory: &M) -> bool {
        match std::mem::replace(&mut self.missing, Missing::Nothing) {
            Missing::Nothing => false,
            Missing::Tables(index) => {
                let loaded = self.libraries.iter().filter(|library| library.image.is_some()).count();
                match self.libraries.get_mut(index) {
                    Some(library) if loaded < MAX_LOADED => {
                        library.image = Some(Image::read(memory, library.base));
                        true
                    }
                    _ => false,
                }
            }
            Missing::DebugFrames(index) => {
                self.libraries.get_mut(index).is_some_and(Library::load_debug_frames)
            }
            Missing::Library => self.may_read_list() && self.read_list(),
        }
    }

    /// Reads the list again if it is old, or if the loader's count of libraries, if it has one, is another than before;
    /// to be called outside of a walk. Returns whether the list changed.
    pub fn refresh(&mut self, loads: Option<u64>) -> bool {
        let max_age = match (loads, self.loads) {
            (None, _) => MAX_AGE,
            (now, before) if now == before => MAX_AGE_UNCHANGED,
            _ => Duration::ZERO,
        };
        if self.list_read.is_some_and(|at| at.elapsed() < max_age) || !self.may_read_list() {
            return false;
        }
        self.loads = loads;
        self.read_list()
    }

    /// Reads the symbol tables that every profile needs, unless they are there; to be called between two drains.
    pub fn preload<M: Memory + ?Sized>(&mut self, memory: &M) {
        if std::mem::replace(&mut self.preloaded, self.list) == self.list {
            return;
        }
        for library in &mut self.libraries {
            if PRELOADED.contains(&library.file_name()) {
                library.with_symbols(memory, |_, _| ());
            }
        }
    }

    fn may_read_list(&self) -> bool {
        self.list_read.is_none_or(|at| at.elapsed() / READ_SHARE >= self.owed)
    }

    /// Returns the version of the list of libraries; with another one a pc may belong to another function.
    pub fn list(&self) -> u64 {
        self.list
    }

    /// Returns the version of the places of libraries: while it is the same, what was in a library still is.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// Reads the list of libraries; returns whether it changed.
    fn read_list(&mut self) -> bool {
        // CPU time: on a busy machine a thread may wait long for its processor in between.
        let (start, start_cpu_ns) = (Instant::now(), clock::own_cpu_nanos());
        let changed = maps::read().is_ok_and(|text| self.update(&text));
        let earned =
            self.list_read.map_or(Duration::ZERO, |at| start.saturating_duration_since(at) / READ_SHARE);
        let took = Duration::from_nanos(clock::own_cpu_nanos().saturating_sub(start_cpu_ns));
        let have = (self.saved + earned.saturating_sub(self.owed)).min(MAX_SAVED);
        self.owed = took.saturating_sub(have);
        self.saved = have.saturating_sub(took);
        self.list_read = Some(Instant::now());
        changed
    }

    /// Replaces the list by that of `text`, the content of `/proc/self/maps`; libraries that are still mapped keep what
    /// was loaded. Returns whether the list changed.
    pub(crate) fn update(&mut self, text: &str) -> bool {
        let library = |(mapping, base): (maps::Mapping<'_>, u64)| Library {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            inode: mapping.inode,
            path: mapping.path.into(),
            base,
            image: None,
            symbols: None,
            debug_frames: None,
            identity: None,
        };
        let mut found: Vec<Library> = maps::code_of_libraries(text).map(library).collect();
        let same = found.len() == self.libraries.len()
            && found.iter().zip(&self.libraries).all(|(new, old)| new.is_same(old));
        if same {
            return false;
        }
        let mut is_gone = false;
        for old in self.libraries.drain(..) {
            match found.iter_mut().find(|new| new.is_same(&old)) {
                Some(new) => {
                    (new.image, new.symbols, new.debug_frames) = (old.image, old.symbols, old.debug_frames);
                    new.identity = old.identity;
                }
                None => is_gone = true,
            }
        }
        self.libraries = found;
        // Rules are those of code in libraries, so a new library has none yet.
        if is_gone {
            self.rules.forget();
            self.rows.forget();
            self.places += 1;
        }
        self.list += 1;
        true
    }

    fn index_of(&self, pc: u64) -> Option<usize> {
        let after = self.libraries.partition_point(|library| library.start <= pc);
        let index = after.checked_sub(1)?;
        self.libraries.get(index).filter(|library| pc < library.end).map(|_| index)
    }

    pub fn bytes(&self) -> usize {
        let symbols = self.libraries.iter().filter_map(|library| library.symbols.as_ref()?.as_ref());
        let frames = self.libraries.iter().filter_map(|library| library.debug_frames.as_ref()?.as_ref());
        symbols.map(Symbols::bytes).sum::<usize>()
            + frames.map(DebugFrames::bytes).sum::<usize>()
            + self.rules.bytes()
            + self.rows.bytes()
    }

    /// Returns a view for a walk, which reads tables from `memory`.
    pub fn reading<'a, M: Memory + ?Sized>(&'a mut self, memory: &'a M) -> NativeView<'a, M> {
        NativeView { libraries: self, memory }
    }
}

/// All native code, with its memory.
pub struct NativeView<'a, M: ?Sized> {
    libraries: &'a mut NativeLibraries,
    memory: &'a M,
}

impl<M: ?Sized> std::fmt::Debug for NativeView<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.libraries.fmt(f)
    }
}

impl<M: Memory + ?Sized> NativeCode for NativeView<'_, M> {
    fn caller(
        &mut self,
        registers: &NativeRegisters,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        // A return address may belong to the next function if the call never returns.
        let pc = registers.pc.wrapping_sub(u64::from(!registers.interrupted));
        let Self { libraries: native, memory } = self;
        if let Some(rule) = native.rules.of(pc) {
            return rule.apply(pc, registers, stack);
        }
        // Static libraries and runtimes bring such code of their own, often without a table.
        if ends_signal_handler(*memory, registers.pc) {
            if native.index_of(pc).is_some() {
                native.rules.put(pc, Rule::Signal);
            }
            return Rule::Signal.apply(pc, registers, stack);
        }
        // Both pcs are in one row, so the code that is returned to is no function of its own: its tables need no look.
        if let Some(rule) = native.rows.of([pc, registers.pc]) {
            native.rules.put(pc, rule);
            return rule.apply(pc, registers, stack);
        }
        let Some(index) = native.index_of(pc) else {
            native.missing = Missing::Library;
            return Err(NativeStop::UnknownCode(pc));
        };
        let NativeLibraries { libraries, entry, unwinder, rules, rows, missing, .. } = &mut **native;
        let library = libraries.get(index);
        let Some((library, image)) = library.and_then(|library| Some((library, library.image.as_ref()?)))
        else {
            *missing = Missing::Tables(index);
            return Err(NativeStop::NoRule(pc));
        };
        let in_memory = image.tables.as_ref().map(|tables| Source::Memory(*memory, tables));
        let debug_frames = library.debug_frames.as_ref();
        let in_files = debug_frames.and_then(Option::as_ref).map(|frames| Source::Files(frames, image.bias));
        for source in [in_memory, in_files].into_iter().flatten() {
            let (pc, found) = unwinder.rule(source, pc, registers.pc);
            match found {
                Ok((row, rule)) => {
                    rules.put(pc, rule);
                    // Tables in files count only where those in memory have no row.
                    if let Source::Memory(..) = source {
                        rows.put(pc, &row, rule);
                    }
                    return rule.apply(pc, registers, stack);
                }
                Err(NoRule::Expression) => return unwinder.run(source, pc, registers, stack),
                Err(NoRule::Missing) => {}
            }
        }
        if entry.contains(pc) {
            rules.put(pc, Rule::Root);
            return Err(NativeStop::Root);
        }
        if debug_frames.is_none() {
            *missing = Missing::DebugFrames(index);
        }
        Err(NativeStop::NoRule(pc))
    }
}

impl Library {
    fn is_same(&self, other: &Self) -> bool {
        (self.start, self.end, self.offset, self.inode) == (other.start, other.end, other.offset, other.inode)
            && self.path == other.path
    }

    fn file_name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Looks for tables in the files; returns whether there are any.
    fn load_debug_frames(&mut self) -> bool {
        let build_id = self.image.as_ref().map(|image| &*image.build_id).unwrap_or_default();
        let frames = DebugFrames::load(Path::new(&*self.path), build_id);
        self.debug_frames.insert(frames).is_some()
    }

    /// Calls `read` with the image and the symbols, if there are any; loads both if necessary.
    fn with_symbols<M: Memory + ?Sized, R>(
        &mut self,
        memory: &M,
        read: impl FnOnce(&Image, Option<&Symbols>) -> R,
    ) -> R {
        let Self { path, base, end, image, symbols, .. } = self;
        let image = image.get_or_insert_with(|| Image::read(memory, *base));
        let load = || {
            if path.starts_with('/') {
                return Symbols::load(Path::new(&**path), &image.build_id);
            }
            // The vDSO consists of a single mapping.
            let mut bytes = vec![0; usize::try_from(*end - *base).ok()?];
            memory.read(*base, &mut bytes).ok()?;
            Symbols::of_bytes(bytes)
        };
        let symbols = symbols.get_or_insert_with(load).as_ref();
        read(image, symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_stay_until_a_library_is_gone() {
        const FIRST: &str = "\
            1000-2000 r--p 00000000 fe:00 11 /lib/liba.so\n\
            2000-3000 r-xp 00001000 fe:00 11 /lib/liba.so\n";
        const SECOND: &str = "\
            5000-6000 r-xp 00000000 fe:00 12 /lib/libb.so\n";
        let mut native = NativeLibraries::default();
        assert!(native.update(FIRST));
        let versions = (native.list(), native.places());
        native.rules.put(0x2010, Rule::Root);
        native.rows.put(0x2010, &(0x2000..0x2020), Rule::Root);
        let known = |native: &NativeLibraries| (native.rules.of(0x2010), native.rows.of([0x2010, 0x2011]));

        assert!(!native.update(FIRST));
        assert_eq!((native.list(), native.places()), versions);
        assert!(native.update(&[FIRST, SECOND].concat()));
        assert_eq!((native.list(), native.places()), (versions.0 + 1, versions.1), "one was added");
        assert_eq!(known(&native), (Some(Rule::Root), Some(Rule::Root)));

        // Another file at the same addresses.
        assert!(native.update(&[FIRST, SECOND].concat().replace(" 11 ", " 13 ")));
        assert_eq!((native.list(), native.places()), (versions.0 + 2, versions.1 + 1));
        assert_eq!(known(&native), (None, None));
    }
}
