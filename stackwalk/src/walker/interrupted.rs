//! The one frame stopped at an arbitrary instruction.
//!
//! The code around the pc proposes where the return address lies; what is found there must be a return address
//! (the instruction before it calls, the caller's frame is where it must be) or the walk stops.

use super::walk::{Code, Cursor, Doing, Emit, Step, Walk};
use crate::arch::{
    Around, CODE_AFTER, CODE_BEFORE, INTERPRETER_BCP, INTERPRETER_LOWEST, INTERPRETER_METHOD,
    SAVED_REGISTERS_REACH, STRING_CODE_REACH, Unwind, epilogue, is_interpreter_return,
    is_interpreter_return_entry, is_slot_move, keeps_length, operands, prologue, pushed_words,
    saved_registers, searches_string,
};
use crate::cache::CompiledKind;
use crate::frame::{Frame, Method};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::limits::MAX_PUSHED_WORDS;
use crate::memory::Memory;
use crate::stop::Stop;

/// Bytes after an on-stack-replacement entry that may be prologue.
const OSR_PROLOGUE_BYTES: u64 = 48;

/// Bytes with which the interpreter takes a frame up again, at most.
const RETURN_ENTRY_BYTES: usize = 24;

impl<M: Memory> Walk<'_, M> {
    pub(super) fn step_interrupted(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        match self.code_at(cursor.pc) {
            Err(Stop::NativeCode(pc)) => {
                let next = self.caller_of_leaf_call(cursor).ok_or(Stop::NativeCode(pc))?;
                Ok(Step { emit: Emit::Nothing, next: Ok(next) })
            }
            Err(stop) => Err(stop),
            Ok(Code::Interpreter) => self.interrupted_interpreter(cursor),
            Ok(Code::CallStub) => self.step_caller(cursor),
            // The first instruction of its stub: nothing was taken out of the chunk.
            Ok(Code::ContinuationBarrier) => Ok(Step { emit: Emit::Nothing, next: self.next_chunk() }),
            Ok(Code::Blob(blob)) => match blob.kind {
                BlobKind::Nmethod | BlobKind::NativeWrapper => self.interrupted_nmethod(cursor, &blob),
                BlobKind::Deoptimization => self.interrupted_deoptimization(cursor, &blob),
                BlobKind::Interpreter => Err(Stop::BadFrame(cursor.pc)),
                _ => self.interrupted_stub(cursor, &blob),
            },
        }
    }

    fn interrupted_nmethod(&mut self, cursor: Cursor, blob: &CodeBlob) -> Result<Step, Stop> {
        if let Some(step) = self.interrupted_handler(cursor, blob)? {
            return Ok(step);
        }
        if let Some(caller) = self.caller_of_static_call_stub(cursor, blob) {
            return Ok(Step { emit: Emit::Nothing, next: Ok(caller) });
        }
        let entry = match self.remembered(cursor) {
            Some(entry) => entry,
            None => self.decode(cursor, blob)?,
        };
        let rule = self.nmethod_rule(cursor.pc, blob)?;
        let mut next = self.verified(cursor, blob, rule).ok_or(Stop::BadFrame(cursor.pc));
        if entry.kind == CompiledKind::ContinuationYield {
            next = next.and_then(|caller| self.caller_of_yield(caller));
        }
        Ok(Step { emit: self.compiled_frames(cursor, &entry), next })
    }

    /// State of an nmethod's frame at `pc`.
    fn nmethod_rule(&self, pc: u64, blob: &CodeBlob) -> Result<Unwind, Stop> {
        let layout = &self.hotspot.layout.nmethod;
        if blob.frame_bytes == 0 {
            return Ok(Unwind::Return);
        }
        let verified = layout.verified_entry(self.memory, blob)?;
        let osr = layout.osr_entry(self.memory, blob.address)?;
        let complete = blob.frame_complete.is_some_and(|complete| pc >= complete);
        // Code without such an entry has the address of its first instruction there.
        let in_osr_prologue = osr > verified && pc >= osr && pc - osr < OSR_PROLOGUE_BYTES;
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        if in_osr_prologue || !complete {
            let entry = if in_osr_prologue { osr } else { verified };
            if pc <= entry {
                return Ok(Unwind::Return);
            }
            let around = self.around(pc, entry, blob, &mut bytes)?;
            // Beyond the longest prologue only barriers are left, which run with the frame complete.
            let state = if around.from_entry { prologue(around.before) } else { Unwind::Whole };
            if state != Unwind::Whole {
                return Ok(state);
            }
        }
        let around = self.around(pc, blob.code_begin, blob, &mut bytes)?;
        let native = blob.kind == BlobKind::NativeWrapper;
        let in_exit = epilogue(around, native, self.hotspot.layout.thread.saved_exception_pc);
        if let (None, Some(words)) = (in_exit, pushed_words(around)) {
            return Ok(Unwind::Below(words));
        }
        if is_slot_move(around) {
            return Ok(Unwind::Below(1));
        }
        if let (None, false, Some(words)) = (in_exit, native, operands(around)) {
            return Ok(Unwind::Below(words));
        }
        if let (None, Some(words)) = (in_exit, self.saved_registers(pc, blob)) {
            return Ok(Unwind::Below(words));
        }
        // Wrappers keep fp as frame pointer and push registers around calls.
        Ok(in_exit.unwrap_or(if native { Unwind::FramePointer } else { Unwind::Whole }))
    }

    /// Reads the instructions around `pc`, from `entry` on if it is near enough.
    pub(super) fn around<'b>(
        &self,
        pc: u64,
        entry: u64,
        blob: &CodeBlob,
        bytes: &'b mut [u8],
    ) -> Result<Around<'b>, Stop> {
        let start = entry.max(pc.saturating_sub(CODE_BEFORE)).max(blob.code_begin).min(pc);
        let end = blob.code_end.min(pc.saturating_add(CODE_AFTER));
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        let code = bytes.get_mut(..length).ok_or(Stop::UnknownCode(pc))?;
        self.memory.read(start, code)?;
        let middle = usize::try_from(pc - start).unwrap_or(0);
        let (before, after) = code.split_at_checked(middle).ok_or(Stop::UnknownCode(pc))?;
        Ok(Around { before, after, from_entry: start == entry })
    }

    /// The caller by `rule` if it is one; otherwise with words pushed below the complete frame.
    pub(super) fn verified(&self, cursor: Cursor, blob: &CodeBlob, rule: Unwind) -> Option<Cursor> {
        let found = self.unwind(cursor, blob.frame_bytes, rule).filter(|caller| self.is_caller(caller));
        if rule == Unwind::Whole
            && found.is_some()
            && let Some(caller) = self.caller_of_string_search(cursor, blob)
        {
            return Some(caller);
        }
        let complete = matches!(rule, Unwind::Whole | Unwind::Below(_) | Unwind::FramePointer);
        if found.is_some() || blob.frame_bytes < 16 || !complete {
            return found;
        }
        if let Some(caller) =
            self.caller_above_saved_sp(cursor, blob).or_else(|| self.caller_above_length(cursor, blob))
        {
            return Some(caller);
        }
        // Locals may hold an old return address at the same distance; only the one whose call leads to this
        // very code counts.
        (1..=MAX_PUSHED_WORDS).find_map(|words| {
            let lowered = Cursor { sp: cursor.sp.wrapping_add(words * 8), ..cursor };
            let caller = self.unwind(lowered, blob.frame_bytes, Unwind::Whole)?;
            (self.is_caller(&caller) && self.calls_into(caller.pc, blob)).then_some(caller)
        })
    }

    /// The same where the search is seen in the code: what lies where the return address would be without the search is
    /// an old one.
    fn caller_of_string_search(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let saved = self.stack.word(cursor.sp)?;
        if saved.wrapping_sub(cursor.sp) > MAX_PUSHED_WORDS * 8 {
            return None;
        }
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        if searches_string(around) { self.caller_above_saved_sp(cursor, blob) } else { None }
    }

    /// The caller of a frame below which a string search keeps buffers and registers.
    ///
    /// C2's `indexOf` (`string_indexof` in `c2_MacroAssembler_x86.cpp`, JDK 11 to 25) remembers sp in rcx before it
    /// copies short strings to the stack, and pushes rcx last.
    fn caller_above_saved_sp(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let saved = [self.stack.word(cursor.sp), Some(self.capture.rcx)];
        saved.into_iter().flatten().find_map(|sp| {
            let words = sp.checked_sub(cursor.sp)? / 8;
            if !self.on_stack(sp, cursor.sp) || words == 0 || words > MAX_PUSHED_WORDS {
                return None;
            }
            let caller = self.unwind(Cursor { sp, ..cursor }, blob.frame_bytes, Unwind::Whole)?;
            self.is_caller(&caller).then_some(caller)
        })
    }

    /// Words below the complete frame that code at `pc` restores registers from.
    pub(super) fn saved_registers(&self, pc: u64, blob: &CodeBlob) -> Option<u64> {
        let mut bytes = [0; SAVED_REGISTERS_REACH as usize];
        let length = blob.code_end.checked_sub(pc)?.min(SAVED_REGISTERS_REACH);
        let code = bytes.get_mut(..usize::try_from(length).ok()?)?;
        self.memory.read(pc, code).ok()?;
        saved_registers(code)
    }

    /// The caller of a frame below which inlined string code keeps a length.
    fn caller_above_length(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let start = blob.code_begin.max(cursor.pc.saturating_sub(STRING_CODE_REACH));
        let end = blob.code_end.min(cursor.pc.saturating_add(STRING_CODE_REACH));
        let mut bytes = [0; 2 * STRING_CODE_REACH as usize];
        let code = bytes.get_mut(..usize::try_from(end.checked_sub(start)?).ok()?)?;
        self.memory.read(start, code).ok()?;
        if !keeps_length(code, usize::try_from(cursor.pc.checked_sub(start)?).ok()?) {
            return None;
        }
        self.unwind(cursor, blob.frame_bytes, Unwind::Below(1)).filter(|caller| self.is_caller(caller))
    }

    /// The caller by `rule`, unchecked.
    pub(super) fn unwind(&self, cursor: Cursor, size: u64, rule: Unwind) -> Option<Cursor> {
        let word = |address: u64| self.stack.word(address);
        let (pc, sp, fp) = match rule {
            Unwind::Whole | Unwind::WholeFpLive => {
                let sp = cursor.sp.checked_add(size)?;
                let live = rule == Unwind::WholeFpLive;
                (word(sp.checked_sub(8)?)?, sp, if live { cursor.fp } else { word(sp.checked_sub(16)?)? })
            }
            Unwind::Below(words) => {
                let sp = cursor.sp.checked_add(words.checked_mul(8)?)?;
                return self.unwind(Cursor { sp, ..cursor }, size, Unwind::Whole);
            }
            Unwind::Return => (word(cursor.sp)?, cursor.sp.checked_add(8)?, cursor.fp),
            Unwind::Pushed => {
                (word(cursor.sp.checked_add(8)?)?, cursor.sp.checked_add(16)?, word(cursor.sp)?)
            }
            Unwind::FramePointer => {
                if !self.on_stack(cursor.fp, cursor.sp) {
                    return None;
                }
                (word(cursor.fp.checked_add(8)?)?, cursor.fp.checked_add(16)?, word(cursor.fp)?)
            }
        };
        Some(Cursor { pc, sp, fp, doing: Doing::CallingJava })
    }

    /// Interpreter code: running bytecodes, or building or leaving a frame.
    fn interrupted_interpreter(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        if let Some(step) = self.leaving_interpreter(cursor) {
            return Ok(step);
        }
        let mut code = [0; RETURN_ENTRY_BYTES];
        let resumes = self.memory.read(cursor.pc, &mut code).is_ok() && is_interpreter_return_entry(&code);
        if !resumes && let Some(step) = self.entering_interpreter(cursor) {
            return Ok(step);
        }
        let bad = Stop::BadFrame(cursor.pc);
        let lowest = cursor.fp.wrapping_add_signed(INTERPRETER_LOWEST * 8);
        if !self.on_stack(cursor.fp, cursor.sp) || cursor.sp > lowest {
            return Err(bad);
        }
        let method = Method(self.slot(cursor.fp, INTERPRETER_METHOD)?);
        let bcp = self.slot(cursor.fp, INTERPRETER_BCP)?;
        let bcps = [self.capture.r13, bcp];
        let emit = self.interpreted_frame(cursor, method, &bcps).ok_or(Stop::InvalidMethod(method.0))?;
        let next = self
            .caller_of_interpreter(cursor)
            .and_then(|caller| if self.is_caller(&caller) { Ok(caller) } else { Err(bad) });
        Ok(Step { emit, next })
    }

    /// A method is being entered: rbx is the method and, until bytecodes run, r13 its caller's sp.
    fn entering_interpreter(&mut self, cursor: Cursor) -> Option<Step> {
        let method = Method(self.capture.rbx);
        let built = cursor.fp.checked_sub(cursor.sp);
        let building = built.is_some_and(|depth| depth < 72);
        // r13 is pushed first and then becomes the bytecode pointer.
        let sender_sp = match built {
            Some(8..72) => self.slot(cursor.fp, self.hotspot.layout.frame.interpreter_sender_sp).ok()?,
            _ => self.capture.r13,
        };
        let next = if building {
            // fp is set already: the fixed part is being pushed.
            self.unwind(cursor, 0, Unwind::FramePointer).filter(|caller| self.is_caller(caller))?
        } else if self.on_stack(sender_sp, cursor.sp) {
            let by_stack = [Unwind::Return, Unwind::Pushed]
                .iter()
                .find_map(|&rule| self.unwind(cursor, 0, rule).filter(|caller| self.is_caller(caller)));
            let in_rax =
                Cursor { pc: self.capture.rax, sp: sender_sp, fp: cursor.fp, doing: Doing::CallingJava };
            by_stack.or(Some(in_rax).filter(|caller| self.is_caller(caller)))?
        } else {
            return None;
        };
        let bytecodes = self.bytecodes(method, |bytecodes| bytecodes.native || bytecodes.size > 0)?;
        let place = cursor.place();
        let emit = Emit::One(if bytecodes.native {
            Frame::NativeMethod { method, compiled: false, place }
        } else {
            Frame::Interpreted { method, bci: None, place }
        });
        let from_compiled = !self.in_interpreter(next.pc) && next.pc != self.started.call_stub_return;
        let sp = if from_compiled && self.on_stack(sender_sp, next.sp) { sender_sp } else { next.sp };
        // Without arguments, popping the return address leaves nothing of the callee's on the stack.
        self.may_stay = true;
        Some(Step { emit, next: Ok(Cursor { sp, ..next }) })
    }

    /// A method has been left: its frame is gone, the return address is in r13 or about to be popped there,
    /// and rbx is the caller's sp.
    fn leaving_interpreter(&mut self, cursor: Cursor) -> Option<Step> {
        let mut code = [0; 2];
        self.memory.read(cursor.pc, &mut code).ok()?;
        let sp = self.capture.rbx;
        let popped =
            Cursor { pc: self.capture.r13, sp: sp.max(cursor.sp), fp: cursor.fp, doing: Doing::CallingJava };
        let next = if is_interpreter_return(&code) {
            self.unwind(cursor, 0, Unwind::Return)?
        } else if self.on_stack(sp, cursor.sp) && self.hotspot.is_code(popped.pc) {
            popped
        } else {
            return None;
        };
        let next = Cursor { sp: next.sp.max(sp.min(self.capture.stack_high)), ..next };
        if !self.is_caller(&next) {
            return None;
        }
        // Behind `mov rsp, rbx` the caller's sp is in place already, and only the jump to it is left.
        self.may_stay = true;
        Some(Step { emit: Emit::Nothing, next: Ok(next) })
    }
}
