//! From the registers of a native frame to those of its caller, by the rows of `.eh_frame` or `.debug_frame`.
//!
//! Problem: finding and running the rows for a pc takes a microsecond, and a profile meets the same pcs all the time.
//! Approach: a row is reduced to a small [`Rule`] and cached with the addresses that it is for; the few rows with
//! expressions (PLT entries, signal trampolines) are run each time.
//! Invariants: nothing is allocated; a missing row, or one that needs a register that was not recovered, is an error;
//! the caller's sp (the CFA) is above the frame's own; what a signal has interrupted is marked as interrupted. Where a
//! call leaves the return address in a register, the newest frame may find it there.
//! Source: DWARF 5, chapter 6.4.

use std::ops::Range;

use gimli::{
    CfaRule, Evaluation, EvaluationResult, EvaluationStorage, LittleEndian, Piece, Register, RegisterRule,
    Section as _, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindTableRow, Value,
};
use stackwalk::{
    DWARF_ROW_RULES, DWARF_SAVED, DWARF_STACK_POINTER, Memory, NativeRegisters, NativeStop,
    RETURNS_BY_REGISTER, StackCopy,
};

use super::debug_frames::DebugFrames;
use super::tables::{Loaded, Section, Slice, Tables};

/// Most registers with a rule in one row.
const ALL_RULES: usize = DWARF_ROW_RULES;
/// The same for walks in signal handlers: rows are copied on the stack while they are decoded. Compiled code has rules
/// for the callee-saved registers and the return address only, on aarch64 for vector registers as well; rows with all
/// registers are those of signal trampolines, which are recognised by their code.
pub const FEW_RULES: usize = if RETURNS_BY_REGISTER { DWARF_ROW_RULES } else { DWARF_SAVED.len() + 1 };
/// Most rows that are remembered within another.
const MAX_ROWS: usize = 4;

/// Memory for rows with at most so many rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowsOf<const RULES: usize>;

impl<const RULES: usize> UnwindContextStorage<usize> for RowsOf<RULES> {
    type Rules = [(Register, RegisterRule<usize>); RULES];
    type Stack = Box<[Row<RULES>; MAX_ROWS]>;
}

type Row<const RULES: usize> = UnwindTableRow<usize, RowsOf<RULES>>;

/// Position of the return address in [`DWARF_SAVED`].
const RETURN: usize = DWARF_SAVED.len() - 1;

/// Most operations of an expression; those of linkers and C libraries need ten.
const MAX_OPERATIONS: u32 = 64;

/// Memory for an expression: a stack of values, of which linkers and C libraries need three.
#[derive(Debug, Clone, Copy)]
struct ExpressionStorage;

impl<'t> EvaluationStorage<Slice<'t>> for ExpressionStorage {
    type Stack = [Value; 16];
    type ExpressionStack = [(Slice<'t>, Slice<'t>); 1];
    type Result = [Piece<Slice<'t>>; 1];
}

/// Rule for the registers of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// There is no caller.
    Root,
    /// The code ends a signal handler: the registers of the interrupted code are in the `ucontext` on top of the stack.
    Signal,
    /// CFA = register + offset; saved registers are at an offset from the CFA.
    Offsets {
        /// DWARF number.
        register: u8,
        /// Bytes.
        offset: i32,
        /// By [`DWARF_SAVED`].
        saved: [Saved; DWARF_SAVED.len()],
    },
}

/// The place of the caller's value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// Still in the register.
    Same,
    /// At this offset from the CFA, in words.
    At(i16),
    /// Unknown.
    Undefined,
}

/// Why no rule was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRule {
    /// The tables do not cover the pc, or cannot be read.
    Missing,
    /// The row has expressions or is that of a signal's frame; see [`Unwinder::run`].
    Expression,
}

/// The tables that hold a row.
#[derive(Debug)]
pub enum Source<'a, M: ?Sized> {
    Memory(&'a M, &'a Tables),
    /// Those of the library's files, and the difference between an address in memory and as linked.
    Files(&'a DebugFrames, u64),
}

impl<M: ?Sized> Clone for Source<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for Source<'_, M> {}

/// Buffers for reading rows; one with more rules is not found.
#[derive(Debug)]
pub struct Unwinder<const RULES: usize = ALL_RULES> {
    context: UnwindContext<usize, RowsOf<RULES>>,
    section: Section,
}

impl<const RULES: usize> Default for Unwinder<RULES> {
    fn default() -> Self {
        Self { context: UnwindContext::new_in(), section: Section::default() }
    }
}

impl<const RULES: usize> Unwinder<RULES> {
    /// Returns the rule of the frame that continues at `next`, and the addresses in memory that have it, the first
    /// value among them. That is `pc`, an address inside the running or calling instruction, or `next` where a signal
    /// handler returns to: no call precedes that code, so it may be the first of its function.
    ///
    /// # Errors
    /// [`NoRule`].
    pub fn rule<M: Memory + ?Sized>(
        &mut self,
        source: Source<'_, M>,
        pc: u64,
        next: u64,
    ) -> (u64, Result<(Range<u64>, Rule), NoRule>) {
        let (pc, row, bias) = match source {
            Source::Memory(memory, tables) => {
                let (pc, loaded) = self.function_of_frame(memory, tables, pc, next);
                (pc, loaded.and_then(|loaded| self.row_of_loaded(loaded, pc)), 0)
            }
            Source::Files(frames, bias) => {
                let at_next = frames.function(next.wrapping_sub(bias));
                let is_returned_to = at_next.is_some_and(|(function, ..)| function.is_signal_trampoline());
                let pc = if is_returned_to { next } else { pc };
                (pc, self.row_of_file(frames, pc.wrapping_sub(bias)), bias)
            }
        };
        let rule = match row {
            None => Err(NoRule::Missing),
            Some((_, _, true)) => Err(NoRule::Expression),
            Some((row, ..)) => reduce(row).map(|rule| {
                (row.start_address().wrapping_add(bias)..row.end_address().wrapping_add(bias), rule)
            }),
        };
        (pc, rule)
    }

    /// Loads the function of the frame that continues at `next`; returns the address of [`Self::rule`] as well.
    #[inline(never)]
    fn function_of_frame<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        tables: &Tables,
        pc: u64,
        next: u64,
    ) -> (u64, Option<Loaded>) {
        let loaded = self.section.load(memory, tables, pc);
        let function = loaded.and_then(|loaded| self.section.loaded(loaded, pc));
        match function.map(|(function, ..)| (function.contains(next), function.is_signal_trampoline())) {
            _ if pc == next => (pc, loaded),
            Some((true, is_signal)) => (if is_signal { next } else { pc }, loaded),
            _ => {
                let at_next = self.section.load(memory, tables, next);
                let function = at_next.and_then(|loaded| self.section.loaded(loaded, next));
                match function.is_some_and(|(function, ..)| function.is_signal_trampoline()) {
                    true => (next, at_next),
                    false => (pc, self.section.load(memory, tables, pc)),
                }
            }
        }
    }

    /// Returns the address of the function at `pc`, according to the tables.
    pub fn function_start<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        tables: &Tables,
        pc: u64,
    ) -> Option<u64> {
        self.section.function(memory, tables, pc).map(|(function, ..)| function.initial_address())
    }

    /// Returns the registers of the caller by a row with expressions.
    ///
    /// # Errors
    /// [`NativeStop`].
    pub fn run<M: Memory + ?Sized>(
        &mut self,
        source: Source<'_, M>,
        pc: u64,
        registers: &NativeRegisters,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        let no_rule = NativeStop::NoRule(pc);
        let (row, bytes, is_signal) = self.row(source, pc).ok_or(no_rule)?;
        let evaluate = |expression: &UnwindExpression<usize>, initial: Option<u64>| {
            let UnwindExpression { offset, length } = *expression;
            let end = offset.checked_add(length).ok_or(no_rule)?;
            let code = bytes.get(offset..end).ok_or(no_rule)?;
            run_expression(Slice::new(code, LittleEndian), initial, registers, stack)?.ok_or(no_rule)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                registers.dwarf_value(register.0).ok_or(no_rule)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => evaluate(expression, None)?,
        };
        let mut values = [0; DWARF_SAVED.len()];
        for (value, &number) in values.iter_mut().zip(&DWARF_SAVED) {
            *value = match row.register(Register(number)) {
                Some(RegisterRule::Offset(offset)) => word(stack, cfa.wrapping_add_signed(offset))?,
                Some(RegisterRule::Expression(expression)) => word(stack, evaluate(&expression, Some(cfa))?)?,
                Some(RegisterRule::ValExpression(expression)) => evaluate(&expression, Some(cfa))?,
                Some(RegisterRule::Undefined) if number == DWARF_SAVED[RETURN] => {
                    return Err(NativeStop::Root);
                }
                None | Some(RegisterRule::SameValue) => registers.dwarf_value(number).unwrap_or(0),
                _ => 0,
            };
        }
        // A trampoline restores sp from the interrupted context, all others from the CFA.
        let sp = match row.register(Register(DWARF_STACK_POINTER)) {
            Some(RegisterRule::Expression(expression)) => word(stack, evaluate(&expression, Some(cfa))?)?,
            _ => cfa,
        };
        let caller = finish(registers, sp, values)?;
        Ok(NativeRegisters { interrupted: is_signal, ..caller })
    }

    /// Returns the row for `pc`, the section that its expressions refer to, and whether its frame is that of a signal.
    fn row<'s, M: Memory + ?Sized>(
        &'s mut self,
        source: Source<'s, M>,
        pc: u64,
    ) -> Option<(&'s Row<RULES>, &'s [u8], bool)> {
        match source {
            Source::Memory(memory, tables) => {
                let loaded = self.section.load(memory, tables, pc)?;
                self.row_of_loaded(loaded, pc)
            }
            Source::Files(frames, bias) => self.row_of_file(frames, pc.wrapping_sub(bias)),
        }
    }

    /// Returns [`Self::row`] of a function that is loaded.
    fn row_of_loaded(&mut self, loaded: Loaded, pc: u64) -> Option<(&Row<RULES>, &[u8], bool)> {
        let Self { context, section } = self;
        let (function, section, bases) = section.loaded(loaded, pc)?;
        let is_signal = function.is_signal_trampoline();
        let row = function.unwind_info_for_address(&section, &bases, context, pc).ok()?;
        Some((row, section.reader().slice(), is_signal))
    }

    /// Returns [`Self::row`] of an address as linked. A function of its own, so that a walk in a signal handler has no
    /// room on its stack for what it does not use.
    #[inline(never)]
    fn row_of_file<'s>(
        &'s mut self,
        frames: &'s DebugFrames,
        pc: u64,
    ) -> Option<(&'s Row<RULES>, &'s [u8], bool)> {
        let (function, section, bases) = frames.function(pc)?;
        let is_signal = function.is_signal_trampoline();
        let row = function.unwind_info_for_address(&section, &bases, &mut self.context, pc).ok()?;
        Some((row, section.reader().slice(), is_signal))
    }
}

fn reduce<const RULES: usize>(row: &Row<RULES>) -> Result<Rule, NoRule> {
    let mut saved = [Saved::Same; DWARF_SAVED.len()];
    for (place, &number) in saved.iter_mut().zip(&DWARF_SAVED) {
        *place = match row.register(Register(number)) {
            None | Some(RegisterRule::SameValue) => Saved::Same,
            Some(RegisterRule::Undefined) => Saved::Undefined,
            Some(RegisterRule::Offset(offset)) if offset % 8 == 0 => {
                i16::try_from(offset / 8).map(Saved::At).map_err(|_| NoRule::Expression)?
            }
            Some(RegisterRule::Expression(_) | RegisterRule::ValExpression(_)) => {
                return Err(NoRule::Expression);
            }
            Some(_) => return Err(NoRule::Missing),
        };
    }
    match saved[RETURN] {
        Saved::Undefined => return Ok(Rule::Root),
        Saved::Same if !RETURNS_BY_REGISTER => return Err(NoRule::Missing),
        Saved::Same => {}
        Saved::At(_) => {}
    }
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Ok(Rule::Offsets {
            register: u8::try_from(register.0).map_err(|_| NoRule::Missing)?,
            offset: i32::try_from(*offset).map_err(|_| NoRule::Missing)?,
            saved,
        }),
        CfaRule::Expression(_) => Err(NoRule::Expression),
    }
}

impl Rule {
    /// Returns the registers of the caller by this rule; `pc` is part of the error.
    ///
    /// # Errors
    /// [`NativeStop`].
    pub fn apply(
        &self,
        pc: u64,
        registers: &NativeRegisters,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        let (register, offset, saved) = match self {
            Self::Root => return Err(NativeStop::Root),
            Self::Signal => {
                return NativeRegisters::of_signal(registers.sp, stack).ok_or(NativeStop::NoRule(pc));
            }
            Self::Offsets { register, offset, saved } => (register, offset, saved),
        };
        let base = registers.dwarf_value(u16::from(*register)).ok_or(NativeStop::NoRule(pc))?;
        let cfa = base.wrapping_add_signed(i64::from(*offset));
        let mut values = [0; DWARF_SAVED.len()];
        for ((value, &number), place) in values.iter_mut().zip(&DWARF_SAVED).zip(saved) {
            *value = match place {
                Saved::Same if number == DWARF_SAVED[RETURN] => {
                    registers.dwarf_value(number).ok_or(NativeStop::NoRule(pc))?
                }
                Saved::Same => registers.dwarf_value(number).unwrap_or(0),
                Saved::At(words) => {
                    let address = cfa.wrapping_add_signed(i64::from(*words) * 8);
                    match word(stack, address) {
                        Ok(word) => word,
                        // In epilogues, rows refer to registers that are already popped, below sp.
                        Err(_) if address < registers.sp => registers.dwarf_value(number).unwrap_or(0),
                        Err(stop) => return Err(stop),
                    }
                }
                Saved::Undefined => 0,
            };
        }
        finish(registers, cfa, values)
    }
}

/// Returns the caller's registers from the values of [`DWARF_SAVED`].
fn finish(
    callee: &NativeRegisters,
    sp: u64,
    values: [u64; DWARF_SAVED.len()],
) -> Result<NativeRegisters, NativeStop> {
    let caller = NativeRegisters::restored(sp, values);
    if caller.pc == 0 {
        return Err(NativeStop::Root);
    }
    let may_keep_sp = RETURNS_BY_REGISTER && callee.interrupted;
    if sp < callee.sp || sp == callee.sp && !may_keep_sp || !sp.is_multiple_of(8) {
        return Err(NativeStop::NoRule(callee.pc));
    }
    Ok(caller)
}

fn word(stack: &StackCopy<'_>, address: u64) -> Result<u64, NativeStop> {
    stack.word(address).ok_or(NativeStop::Unreadable(address))
}

/// Returns the value of an expression; `None` if it needs an unknown value.
#[inline(never)]
fn run_expression(
    expression: Slice<'_>,
    initial: Option<u64>,
    registers: &NativeRegisters,
    stack: &StackCopy<'_>,
) -> Result<Option<u64>, NativeStop> {
    // The vDSO's and the PLT's rows are for 64-bit code, DWARF format 4.
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    let mut evaluation = Evaluation::<_, ExpressionStorage>::new_in(expression, encoding);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut step = evaluation.evaluate();
    loop {
        step = match step {
            Ok(EvaluationResult::Complete) => {
                return Ok(evaluation.value_result().and_then(|value| value.to_u64(u64::MAX).ok()));
            }
            Ok(EvaluationResult::RequiresRegister { register, .. }) => {
                let Some(value) = registers.dwarf_value(register.0) else { return Ok(None) };
                evaluation.resume_with_register(Value::Generic(value))
            }
            Ok(EvaluationResult::RequiresMemory { address, size: 8, space: None, .. }) => {
                evaluation.resume_with_memory(Value::Generic(word(stack, address)?))
            }
            _ => return Ok(None),
        };
    }
}

const _: () = assert!(size_of::<Rule>() <= 8 + 4 * DWARF_SAVED.len());
