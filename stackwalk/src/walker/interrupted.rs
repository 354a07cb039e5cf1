//! The one frame stopped at an arbitrary instruction.
//!
//! The code around the pc proposes where the return address lies. The word found there must be a return address: the
//! instruction before it calls, and the caller's frame is where it must be. Otherwise the walk stops.

use super::walk::{Code, Cursor, Doing, Emit, Step, Walk};
use crate::cache::CompiledKind;
use crate::cpu::{
    Around, BODY_AHEAD, CODE_AFTER, CODE_BEFORE, INTERPRETER_BCP, INTERPRETER_EXIT_BYTES,
    INTERPRETER_FIXED_BYTES, INTERPRETER_METHOD, MAX_PUSHED_WORDS, METHOD_ENTRY_BYTES, OSR_PROLOGUE_BYTES,
    RETURN_ENTRY_BYTES, RETURNS_BY_REGISTER, STRING_CODE_REACH, Unwind, caller_by, enters_method,
    interpreter_exit, is_interpreter_return_entry, keeps_length, prologue, searches_string, state_in_body,
};
use crate::frame::{Frame, Method};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::stop::Stop;

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
                BlobKind::Upcall => self.interrupted_upcall(cursor, &blob),
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
        let next = match self.taken_by_entry(cursor.pc, blob) {
            Some(taken) => self.caller_of_entry_code(cursor, taken),
            None => self.verified(cursor, blob, self.nmethod_rule(cursor.pc, blob)?),
        };
        let mut next = next.ok_or(Stop::BadFrame(cursor.pc));
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
            // After the longest prologue only barriers follow, which run with the frame complete.
            let state = if around.from_entry { prologue(around) } else { Unwind::Whole };
            if state != Unwind::Whole {
                return Ok(state);
            }
        }
        let around = self.around(pc, blob.code_begin, blob, &mut bytes)?;
        let mut bytes = [0; BODY_AHEAD];
        let ahead = self.code_ahead(pc, blob, &mut bytes).unwrap_or_default();
        let native = blob.kind == BlobKind::NativeWrapper;
        Ok(state_in_body(around, ahead, native, self.hotspot.layout.thread.saved_exception_pc))
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

    /// The code of `blob` from `pc` on, as many bytes as fit `bytes`.
    pub(super) fn code_ahead<'b>(&self, pc: u64, blob: &CodeBlob, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
        self.code_between(pc, blob.code_end.min(pc.saturating_add(bytes.len() as u64)), bytes)
    }

    /// The code of `blob` before `pc`, as many bytes as fit `bytes`.
    pub(super) fn code_behind<'b>(&self, pc: u64, blob: &CodeBlob, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
        self.code_between(blob.code_begin.max(pc.saturating_sub(bytes.len() as u64)), pc, bytes)
    }

    /// The code from `start` up to `end`, if it fits `bytes` and can be read.
    pub(super) fn code_between<'b>(&self, start: u64, end: u64, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
        let code = bytes.get_mut(..usize::try_from(end.checked_sub(start)?).ok()?)?;
        self.memory.read(start, code).ok()?;
        Some(code)
    }

    /// The result of `look` at the code from `start` up to `end`, if it can be read and fits the buffer of the cache:
    /// code of this length is too long for a signal stack. `look` must not call this.
    pub(super) fn look_at_code<R>(&self, start: u64, end: u64, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut bytes = self.cache.code.try_borrow_mut().ok()?;
        Some(look(self.code_between(start, end, &mut bytes[..])?))
    }

    /// The caller by `rule` if it is one; otherwise with words pushed below the complete frame.
    pub(super) fn verified(&self, cursor: Cursor, blob: &CodeBlob, rule: Unwind) -> Option<Cursor> {
        let found = self.unwind_code(cursor, blob, rule).filter(|caller| self.is_caller(caller));
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
        // Locals may hold a stale return address at the same distance. Only one whose call leads to this code counts.
        (1..=MAX_PUSHED_WORDS).find_map(|words| {
            let lowered = Cursor { sp: cursor.sp.wrapping_add(words * 8), ..cursor };
            let caller = self.unwind_code(lowered, blob, Unwind::Whole)?;
            (self.is_caller(&caller) && self.calls_into(caller.pc, blob)).then_some(caller)
        })
    }

    /// The caller of a frame below which a string search keeps words, if the code around the pc searches a string: the
    /// return address by the plain rule is then a stale one.
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
    /// C2's `indexOf` (`string_indexof` in `c2_MacroAssembler_x86.cpp`, JDK 11 to 25) keeps sp in a register before it
    /// copies short strings to the stack, and pushes that register last.
    fn caller_above_saved_sp(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let saved = [self.stack.word(cursor.sp), Some(self.capture.registers.string_search_sp())];
        saved.into_iter().flatten().find_map(|sp| {
            let words = sp.checked_sub(cursor.sp)? / 8;
            if !self.on_stack(sp, cursor.sp) || words == 0 || words > MAX_PUSHED_WORDS {
                return None;
            }
            let caller = self.unwind_code(Cursor { sp, ..cursor }, blob, Unwind::Whole)?;
            self.is_caller(&caller).then_some(caller)
        })
    }

    /// The caller of a frame below which inlined string code keeps a length.
    fn caller_above_length(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let start = blob.code_begin.max(cursor.pc.saturating_sub(STRING_CODE_REACH));
        let end = blob.code_end.min(cursor.pc.saturating_add(STRING_CODE_REACH));
        let at = usize::try_from(cursor.pc.checked_sub(start)?).ok()?;
        if !self.look_at_code(start, end, |code| keeps_length(code, at))? {
            return None;
        }
        self.unwind_code(cursor, blob, Unwind::Below(1)).filter(|caller| self.is_caller(caller))
    }

    /// The caller by `rule`, unchecked.
    pub(super) fn unwind(&self, cursor: Cursor, size: u64, rule: Unwind) -> Option<Cursor> {
        if rule == Unwind::FramePointer && !self.on_stack(cursor.fp, cursor.sp) {
            return None;
        }
        let word = |address| self.stack.word(address);
        let caller = caller_by(rule, cursor.registers(), size, &self.capture.registers, word)?;
        Some(Cursor::new(caller, Doing::CallingJava))
    }

    /// Interpreter code: running bytecodes, or building or leaving a frame.
    fn interrupted_interpreter(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        if let Some(step) = self.leaving_interpreter(cursor) {
            return Ok(step);
        }
        let mut code = [0; RETURN_ENTRY_BYTES];
        let restores_caller = self.memory.read(cursor.pc, &mut code).is_ok()
            && is_interpreter_return_entry(&code)
            || self.allocates_returned_object(cursor.pc);
        if !restores_caller
            && self.may_enter_method(cursor.pc)
            && let Some(step) = self.entering_interpreter(cursor)
        {
            return Ok(step);
        }
        let bad = Stop::BadFrame(cursor.pc);
        let lowest = cursor.fp.wrapping_sub(INTERPRETER_FIXED_BYTES);
        if !self.on_stack(cursor.fp, cursor.sp) || cursor.sp > lowest {
            return Err(bad);
        }
        let method = Method(self.slot(cursor.fp, INTERPRETER_METHOD)?);
        let bcp = self.slot(cursor.fp, INTERPRETER_BCP)?;
        let bcps = [self.capture.registers.bytecode_pointer(), bcp];
        let emit = self.interpreted_frame(cursor, method, &bcps).ok_or(Stop::InvalidMethod(method.0))?;
        let next = self
            .caller_of_interpreter(cursor)
            .and_then(|caller| if self.is_caller(&caller) { Ok(caller) } else { Err(bad) });
        Ok(Step { emit, next })
    }

    /// Returns whether the interpreter code at `pc` may be entering a method.
    fn may_enter_method(&self, pc: u64) -> bool {
        let mut ahead = [0; METHOD_ENTRY_BYTES];
        (ahead.is_empty() || self.memory.read(pc, &mut ahead).is_ok()) && enters_method(&ahead)
    }

    /// A method is being entered: registers hold the method and, until bytecodes run, its caller's sp.
    fn entering_interpreter(&mut self, cursor: Cursor) -> Option<Step> {
        let method = Method(self.capture.registers.entered_method());
        let built = cursor.fp.checked_sub(cursor.sp);
        let building = built.is_some_and(|depth| depth < INTERPRETER_FIXED_BYTES);
        // The caller's sp is pushed first; its register then becomes the bytecode pointer.
        let sender_sp = match built {
            Some(8..INTERPRETER_FIXED_BYTES) => {
                self.slot(cursor.fp, self.hotspot.layout.frame.interpreter_sender_sp).ok()?
            }
            _ => self.capture.registers.sender_sp(self.hotspot.jdk_major()),
        };
        let next = if building {
            // fp is set already: the fixed part is being pushed.
            self.unwind(cursor, 0, Unwind::FramePointer).filter(|caller| self.is_caller(caller))?
        } else if self.on_stack(sender_sp, cursor.sp) {
            let by_stack = [Unwind::Return, Unwind::Pushed]
                .iter()
                .find_map(|&rule| self.unwind(cursor, 0, rule).filter(|caller| self.is_caller(caller)));
            let pc = self.capture.registers.popped_return_address();
            let popped = Cursor { pc, sp: sender_sp, fp: cursor.fp, doing: Doing::CallingJava };
            by_stack.or(Some(popped).filter(|caller| self.is_caller(caller)))?
        } else {
            return None;
        };
        // No bytecode pointer proves what is remembered.
        let bytecodes = self.read_bytecodes(method).filter(|read| read.native || read.size > 0)?;
        let place = cursor.place();
        let emit = Emit::One(if bytecodes.native {
            Frame::NativeMethod { method, compiled: false, place }
        } else {
            Frame::Interpreted { method, bci: None, place }
        });
        let from_compiled = !self.in_interpreter(next.pc) && next.pc != self.started.call_stub_return;
        let sp = if from_compiled && self.on_stack(sender_sp, next.sp) { sender_sp } else { next.sp };
        // Without arguments, popping the return address leaves nothing of the callee's on the stack.
        self.caller_may_keep_sp = true;
        Some(Step { emit, next: Ok(Cursor { sp, ..next }) })
    }

    /// A method has been left: its frame is gone, the return address is in a register or about to be popped, and
    /// another register holds the caller's sp.
    fn leaving_interpreter(&mut self, cursor: Cursor) -> Option<Step> {
        let mut code = [0; INTERPRETER_EXIT_BYTES];
        self.memory.read(cursor.pc, &mut code).ok()?;
        let (pc, sp) = self.capture.registers.interpreter_return();
        let popped = Cursor { pc, sp: sp.max(cursor.sp), fp: cursor.fp, doing: Doing::CallingJava };
        let next = if let Some(rule) = interpreter_exit(&code) {
            self.unwind(cursor, 0, rule)?
        } else if !RETURNS_BY_REGISTER && self.on_stack(sp, cursor.sp) && self.hotspot.is_code(popped.pc) {
            popped
        } else {
            return None;
        };
        let next = Cursor { sp: next.sp.max(sp.min(self.capture.stack_high)), ..next };
        if !self.is_caller(&next) {
            return None;
        }
        // The interpreter may have restored the caller's sp already.
        self.caller_may_keep_sp = true;
        Some(Step { emit: Emit::Nothing, next: Ok(next) })
    }
}
