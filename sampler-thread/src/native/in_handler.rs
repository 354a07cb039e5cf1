//! Unwind tables for walks inside a signal handler, on the thread that is walked.
//!
//! Problem: a handler must not read files, allocate or wait, so it cannot load tables when a walk needs them.
//! Approach: [`LibraryTables`] is a list of all libraries and where their tables are, made outside of handlers and
//! never changed; [`Rows`] are the buffers of one walk at a time, with the rules that walks have met.
//! Invariants: [`NativeCode::caller`] allocates nothing and takes no lock; tables are read in place by checked reads,
//! so a library that was unloaded causes an error, not a fault. Tables that are only in files are not used.
//! Decision: `design/stack-walk-api.md`.

use stackwalk::{Memory, NativeCode, NativeRegisters, NativeStop, StackCopy, ends_signal_handler};

use super::entry::Entry;
use super::image::Image;
use super::maps;
use super::rules::Rules;
use super::tables::Tables;
use super::unwind::{FEW_RULES, NoRule, Rule, Source, Unwinder};

/// All libraries at one moment, in the order of their addresses.
#[derive(Debug)]
pub struct LibraryTables {
    libraries: Box<[Library]>,
    entry: Entry,
    version: u64,
}

#[derive(Debug, Clone, Copy)]
struct Library {
    start: u64,
    end: u64,
    tables: Option<Tables>,
}

impl LibraryTables {
    /// Lists the libraries; `version` differs from that of other lists. Reads files and allocates.
    pub fn read<M: Memory + ?Sized>(memory: &M, version: u64) -> Self {
        let text = maps::read().unwrap_or_default();
        let library = |(mapping, base): (maps::Mapping<'_>, u64)| Library {
            start: mapping.start,
            end: mapping.end,
            tables: Image::read(memory, base).tables,
        };
        let libraries = maps::code_of_libraries(&text).map(library).collect();
        Self { libraries, entry: Entry::of_process(), version }
    }

    fn library_of(&self, pc: u64) -> Option<&Library> {
        let after = self.libraries.partition_point(|library| library.start <= pc);
        self.libraries.get(after.checked_sub(1)?).filter(|library| pc < library.end)
    }
}

/// Buffers and rules of one walk at a time; allocates nothing after it was made.
#[derive(Debug, Default)]
pub struct Rows {
    unwinder: Unwinder<FEW_RULES>,
    rules: Rules,
    /// Version of the list that the rules are from.
    version: u64,
}

impl Rows {
    /// Returns a view for a walk, which reads tables from `memory`.
    pub fn reading<'a, M: Memory + ?Sized>(
        &'a mut self,
        tables: &'a LibraryTables,
        memory: &'a M,
    ) -> RowsView<'a, M> {
        if self.version != tables.version {
            self.rules.forget();
            self.version = tables.version;
        }
        RowsView { rows: self, tables, memory }
    }
}

/// The tables of all libraries, with buffers and memory.
pub struct RowsView<'a, M: ?Sized> {
    rows: &'a mut Rows,
    tables: &'a LibraryTables,
    memory: &'a M,
}

impl<M: ?Sized> std::fmt::Debug for RowsView<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.tables.fmt(f)
    }
}

impl<M: Memory + ?Sized> NativeCode for RowsView<'_, M> {
    fn caller(
        &mut self,
        registers: &NativeRegisters,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        // A return address may belong to the next function if the call never returns.
        let pc = registers.pc.wrapping_sub(u64::from(!registers.interrupted));
        let Self { rows: Rows { unwinder, rules, .. }, tables, memory } = self;
        if let Some(rule) = rules.of(pc) {
            return rule.apply(pc, registers, stack);
        }
        if ends_signal_handler(*memory, registers.pc) {
            rules.put(pc, Rule::Signal);
            return Rule::Signal.apply(pc, registers, stack);
        }
        let library = tables.library_of(pc).ok_or(NativeStop::UnknownCode(pc))?;
        let source = Source::Memory(*memory, library.tables.as_ref().ok_or(NativeStop::NoRule(pc))?);
        let (pc, found) = unwinder.rule(source, pc, registers.pc);
        match found {
            Ok((_, rule)) => {
                rules.put(pc, rule);
                rule.apply(pc, registers, stack)
            }
            Err(NoRule::Expression) => unwinder.run(source, pc, registers, stack),
            Err(NoRule::Missing) if tables.entry.contains(pc) => Err(NativeStop::Root),
            Err(NoRule::Missing) => Err(NativeStop::NoRule(pc)),
        }
    }
}
