//! Native code of this process: which library holds a pc, who called it, and what it is called.
//!
//! Problem: walking must not allocate or read files, libraries come and go, and most of them never appear in a stack.
//! Approach: the list of libraries comes from `/proc/self/maps`; a walk that meets a library whose tables are not loaded
//! yet, or no library at all, ends there and leaves a note; [`NativeLibraries::prepare`] then loads what was missing
//! and the walk is made again.
//! Invariants: [`NativeCode::caller`] allocates nothing; tables are read where they lie and through checked reads, so
//! that a library that is unloaded cannot make a walk fault; what `prepare` costs is bounded by time shares, not by hope.
//! The decision is told in `design/native-unwinding.md`.

mod image;
pub mod maps;
mod names;
mod rules;
pub(crate) mod symbols;
mod tables;
mod unwind;

use std::path::Path;
use std::time::{Duration, Instant};

use stackwalk::{Memory, NativeCode, NativeRegisters, NativeStop, StackCopy};

use image::Image;
use rules::Rules;
use symbols::Symbols;
use unwind::{NoRule, Unwinder};

pub use names::{NativeName, Owner};

/// Where the list of libraries comes from.
const MAPS: &str = "/proc/self/maps";

/// Longest time a list is believed.
const BELIEVED: Duration = Duration::from_secs(2);
/// Looks may take this share of the time, because an unknown pc may stay unknown, and a process with 10,000 threads has
/// 20,000 mappings.
const LOOK_SHARE: u32 = 200;
/// Time for looks that may be saved up: libraries are loaded in bursts, each look takes 0.1 to 1 ms.
const SAVED_UP: Duration = Duration::from_millis(20);

/// Libraries whose tables or symbols are kept; far above what processes load.
const MAX_LOADED: usize = 2_000;

/// All native code.
#[derive(Debug)]
pub struct NativeLibraries {
    libraries: Vec<Library>,
    unwinder: Unwinder,
    rules: Rules,
    /// What the last walk missed.
    missing: Missing,
    /// When the list was read last.
    looked: Option<Instant>,
    /// Time spent on looks beyond what was saved up, still to be earned.
    owed: Duration,
    /// Time saved up for looks.
    saved: Duration,
    /// Grows whenever the list changes.
    list: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Nothing,
    /// This library's tables.
    Tables(usize),
    /// Any library at a pc.
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
    /// Where the library's first byte lies.
    base: u64,
    image: Option<Image>,
    symbols: Option<Option<Symbols>>,
}

impl Default for NativeLibraries {
    fn default() -> Self {
        Self {
            libraries: Vec::new(),
            unwinder: Unwinder::default(),
            rules: Rules::default(),
            missing: Missing::Nothing,
            looked: None,
            owed: Duration::ZERO,
            saved: SAVED_UP,
            list: 0,
        }
    }
}

impl NativeLibraries {
    /// Loads what the last walk missed; returns whether that walk may now get further.
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
            Missing::Library => self.may_look() && self.look(),
        }
    }

    /// Looks for libraries that were unloaded; called now and then outside of a walk. Returns whether any pc may mean
    /// another function than before.
    pub fn refresh(&mut self) -> bool {
        self.looked.is_none_or(|at| at.elapsed() >= BELIEVED) && self.may_look() && self.look()
    }

    fn may_look(&self) -> bool {
        self.looked.is_none_or(|at| at.elapsed() / LOOK_SHARE >= self.owed)
    }

    /// Number of the present list of libraries: with another one a pc may mean another function.
    pub fn list(&self) -> u64 {
        self.list
    }

    /// Reads the list of libraries; returns whether it changed.
    fn look(&mut self) -> bool {
        let start = Instant::now();
        let changed = match std::fs::read(MAPS) {
            Ok(bytes) => self.update(&String::from_utf8_lossy(&bytes)),
            Err(_) => false,
        };
        let earned =
            self.looked.map_or(Duration::ZERO, |at| start.saturating_duration_since(at) / LOOK_SHARE);
        let took = start.elapsed();
        let have = (self.saved + earned.saturating_sub(self.owed)).min(SAVED_UP);
        self.owed = took.saturating_sub(have);
        self.saved = have.saturating_sub(took);
        self.looked = Some(Instant::now());
        changed
    }

    /// Takes over a list of mappings; libraries that are still there keep what was loaded of them.
    fn update(&mut self, text: &str) -> bool {
        let mut found: Vec<Library> = Vec::new();
        let mut first: Option<maps::Mapping<'_>> = None;
        for mapping in maps::parse(text) {
            let has_file = mapping.inode != 0 || mapping.path == "[vdso]";
            if mapping.offset == 0 && has_file {
                first = Some(mapping);
            }
            let head = first.filter(|head| head.inode == mapping.inode && head.path == mapping.path);
            if let (true, Some(head)) = (mapping.executable, head) {
                found.push(Library {
                    start: mapping.start,
                    end: mapping.end,
                    offset: mapping.offset,
                    inode: mapping.inode,
                    path: mapping.path.into(),
                    base: head.start,
                    image: None,
                    symbols: None,
                });
            }
        }
        let same = found.len() == self.libraries.len()
            && found.iter().zip(&self.libraries).all(|(new, old)| new.is_same(old));
        if same {
            return false;
        }
        for old in self.libraries.drain(..) {
            if let Some(new) = found.iter_mut().find(|new| new.is_same(&old)) {
                (new.image, new.symbols) = (old.image, old.symbols);
            }
        }
        self.libraries = found;
        self.rules.forget();
        self.list += 1;
        true
    }

    fn index_of(&self, pc: u64) -> Option<usize> {
        let after = self.libraries.partition_point(|library| library.start <= pc);
        let index = after.checked_sub(1)?;
        self.libraries.get(index).filter(|library| pc < library.end).map(|_| index)
    }

    /// Bytes of all symbols and rules held.
    pub fn bytes(&self) -> usize {
        let symbols = self.libraries.iter().filter_map(|library| library.symbols.as_ref()?.as_ref());
        symbols.map(Symbols::bytes).sum::<usize>() + self.rules.bytes()
    }

    /// The same for a walk, which reads tables from `memory`.
    pub fn reading<'a, M: Memory + ?Sized>(&'a mut self, memory: &'a M) -> NativeView<'a, M> {
        NativeView { libraries: self, memory }
    }
}

/// All native code with the memory it lies in.
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
        interrupted: bool,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        // A return address may belong to the next function already if the call never returns.
        let pc = registers.pc.wrapping_sub(u64::from(!interrupted));
        let Self { libraries: native, memory } = self;
        if let Some(rule) = native.rules.of(pc) {
            return rule.apply(pc, registers, stack);
        }
        let Some(index) = native.index_of(pc) else {
            native.missing = Missing::Library;
            return Err(NativeStop::UnknownCode(pc));
        };
        let Some(image) = native.libraries.get(index).and_then(|library| library.image.as_ref()) else {
            native.missing = Missing::Tables(index);
            return Err(NativeStop::NoRule(pc));
        };
        let tables = image.tables.as_ref().ok_or(NativeStop::NoRule(pc))?;
        match native.unwinder.rule(*memory, tables, pc) {
            Ok(rule) => {
                native.rules.put(pc, rule);
                rule.apply(pc, registers, stack)
            }
            Err(NoRule::Expression) => native.unwinder.run(*memory, tables, pc, registers, stack),
            Err(NoRule::Missing) => Err(NativeStop::NoRule(pc)),
        }
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

    fn symbols<M: Memory + ?Sized>(&mut self, memory: &M, build_id: &[u8]) -> Option<&Symbols> {
        let Self { path, base, end, .. } = self;
        let load = || {
            if path.starts_with('/') {
                return Symbols::load(Path::new(&**path), build_id);
            }
            // The vDSO is whole in its one mapping.
            let mut bytes = vec![0; usize::try_from(*end - *base).ok()?];
            memory.read(*base, &mut bytes).ok()?;
            Symbols::of_bytes(bytes)
        };
        self.symbols.get_or_insert_with(load).as_ref()
    }
}
