//! Stubs and adapters stopped at an arbitrary instruction: VM code that is neither compiled Java nor interpreter.
//!
//! Each kind has its own frame shapes. The code around the pc shows which applies, and a return address at the place
//! that the shape names proves it.

use super::walk::{Cursor, Doing, Emit, Step, Walk};
use crate::cpu::{
    ADAPTER_SAVE_REACH, Around, CALL_STUB_REACH, CODE_AFTER, CODE_BEFORE, FRAME_RECORD_BYTES,
    MAX_PUSHED_WORDS, RESERVATION_REACH, RETURNS_BY_REGISTER, Unwind, entry_barrier_callers, entry_frame,
    has_saved_sender_sp, keeps_entry_sp, linker_pops_argument, patching_adapter, reserved_words,
    sp_without_return_address, stub_exit, stub_states, words_below,
};
use crate::frame::{Blob, Frame};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::stop::Stop;

/// Most bytes of the frame of a stub without fixed frame that keeps fp as frame pointer: all registers with their
/// vectors.
const MAX_STUB_FRAME: u64 = 1 << 12;

impl<M: Memory> Walk<'_, M> {
    /// VM code other than nmethods and interpreter.
    pub(super) fn interrupted_stub(&mut self, cursor: Cursor, blob: &CodeBlob) -> Result<Step, Stop> {
        if let Some(built) = self.in_call_stub(cursor.pc, blob) {
            return self.interrupted_entry(cursor, built);
        }
        let stub = Frame::Stub { blob: Blob(blob.address), place: cursor.place() };
        if blob.kind == BlobKind::ContinuationStubs {
            return self.step_interrupted_thaw(cursor, blob, stub);
        }
        // A thread that runs no Java code was not called by any.
        let java = if self.capture.thread == 0 { None } else { self.caller_of_stub(cursor, blob) };
        let next = match java {
            Some(next) => Ok(next),
            None => self.native_caller_of_stub(cursor).unwrap_or(Err(Stop::BadFrame(cursor.pc))),
        };
        Ok(Step { emit: Emit::One(stub), next })
    }

    fn caller_of_stub(&mut self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        if let Some(caller) = self.caller_of_forward_exception(cursor, blob) {
            // The return address may have been taken off already.
            self.caller_may_keep_sp = true;
            return caller;
        }
        let dispatch = matches!(blob.kind, BlobKind::Adapter | BlobKind::Leaf);
        let doing = if dispatch { Doing::CallingJava } else { Doing::CallingVm };
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        if let Some(source) = self.entered_by_jump_from(cursor, blob) {
            return Some(source);
        }
        if linker_pops_argument(around.before, around.after)
            && let Some(next) = self.caller_of_linker(cursor, blob)
        {
            return Some(next);
        }
        let sender_sp = self.capture.registers.sender_sp(self.hotspot.jdk_major());
        if let Some(sp) = sp_without_return_address(around.before, around.after, cursor.sp, sender_sp)
            && let Some(next) = self.caller_of_adapter(cursor, blob, sp)
        {
            return Some(next);
        }
        if let Some(caller) = self.caller_of_followed_stub(cursor, blob) {
            return Some(caller);
        }
        if let Some(caller) = self.caller_of_allocating_adapter(cursor, blob) {
            return Some(caller);
        }
        // The next instruction may be the return; the rules below would look where the frame was.
        let exit = stub_exit(around.after);
        let accepted = |next: &Cursor| self.is_caller(next) && self.may_have_called(next.pc, cursor.pc, blob);
        let left = exit.and_then(|rule| self.unwind(cursor, 0, rule)).filter(accepted);
        if let Some(next) = left.filter(|_| !dispatch) {
            return Some(Cursor { doing, ..next });
        }
        let proven = self
            .caller_of_entry_barrier(cursor, blob)
            .or_else(|| self.caller_of_runtime_stub(cursor, blob))
            .or_else(|| self.caller_of_saving_adapter(cursor, blob))
            .or_else(|| self.caller_by_register(cursor, around, blob));
        if proven.is_some() {
            return proven;
        }
        // Once the return address is popped, the word on top may be a stale one.
        if has_saved_sender_sp(around.before)
            && sender_sp == cursor.sp
            && let Some(next) = self.caller_of_adapter(cursor, blob, sender_sp)
        {
            return Some(Cursor { doing, ..next });
        }
        // Adapters and dispatch stubs have no frame; fp is that of some older one.
        let rules = if dispatch { [Unwind::Return; 3] } else { stub_states(around, blob.frame_bytes) };
        let by_rule =
            rules.iter().filter(|rule| blob.frame_bytes >= 16 || !rule.needs_size()).find_map(|&rule| {
                self.unwind(cursor, blob.frame_bytes, rule)
                    .filter(|next| self.is_caller(next) && self.may_have_called(next.pc, cursor.pc, blob))
            });
        let by_rule = by_rule.or_else(|| self.caller_above_routine(cursor, blob));
        let found = by_rule.or_else(|| self.caller_of_adapter(cursor, blob, sender_sp));
        found.map(|next| Cursor { doing, ..self.before_arguments(next, around, blob) })
    }

    /// The caller with the sp it had before an adapter moved sp for its arguments.
    ///
    /// Once sp is moved, the return address is on top again and a register holds the caller's sp; until then that
    /// register holds any value.
    fn before_arguments(&self, next: Cursor, around: Around<'_>, blob: &CodeBlob) -> Cursor {
        let raised = Cursor { sp: self.capture.registers.sender_sp(self.hotspot.jdk_major()), ..next };
        if blob.kind != BlobKind::Adapter || raised.sp <= next.sp || !self.on_stack(raised.sp, next.sp) {
            return next;
        }
        let candidates = if has_saved_sender_sp(around.before) { [raised, next] } else { [next, raised] };
        candidates.into_iter().find_map(|at| self.left_by_jump(at)).unwrap_or(next)
    }

    /// State of the call stub's frame, if `pc` is in the stub through which the VM calls Java.
    fn in_call_stub(&self, pc: u64, blob: &CodeBlob) -> Option<Unwind> {
        let returns = self.started.call_stub_return;
        if blob.kind != BlobKind::StubRoutines || pc.abs_diff(returns) > CALL_STUB_REACH {
            return None;
        }
        let start = blob.code_begin.max(returns.saturating_sub(CALL_STUB_REACH));
        let end = blob.code_end.min(returns.saturating_add(CALL_STUB_REACH));
        let index = |at: u64| at.checked_sub(start).and_then(|at| usize::try_from(at).ok());
        let (returns, pc) = (index(returns)?, index(pc)?);
        let wrapper = self.hotspot.layout.frame.entry_wrapper;
        self.look_at_code(start, end, |code| entry_frame(code, returns, pc, wrapper))?
    }

    /// The VM is about to call Java, or Java has returned to it.
    fn interrupted_entry(&mut self, cursor: Cursor, built: Unwind) -> Result<Step, Stop> {
        if built == Unwind::Whole {
            return self.step_entry(cursor);
        }
        let caller = self.unwind(cursor, 0, built).ok_or(Stop::BadFrame(cursor.pc))?;
        self.enter(cursor, caller, self.capture.registers.call_wrapper())
    }

    /// The code that called the stub of its entry barrier.
    ///
    /// The stub pushes a marker above its own frame; see [`entry_barrier_callers`]. The arguments that it saves below
    /// may equal the marker, so only one counts above which the stub was called from.
    pub(super) fn caller_of_entry_barrier(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        if blob.kind != BlobKind::StubRoutines {
            return None;
        }
        let callers = entry_barrier_callers(cursor.sp, cursor.fp, |address| self.stack.word(address));
        callers.into_iter().flatten().find_map(|(sp, fp)| {
            let caller = self.unwind(Cursor { sp, fp, ..cursor }, 0, Unwind::OnTop)?;
            (self.is_caller(&caller) && self.calls_routine(caller.pc, cursor.pc, blob))
                .then_some(Cursor { doing: Doing::CallingVm, ..caller })
        })
    }

    /// The caller of a C1 stub without fixed frame or of a routine of `StubRoutines`. Both are called directly, so a
    /// call of this very code proves the return address.
    ///
    /// This comes before the rules: `slow_subtype_check` (`c1_Runtime1_x86.cpp`) pushes registers, often runs long
    /// and builds no frame, while fp may be that of an interpreter frame further up, to which a rule by fp would
    /// jump. Space that it has reserved and not filled may hold the return address of an earlier call.
    fn caller_of_runtime_stub(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let routines = blob.kind == BlobKind::StubRoutines;
        if !(routines || blob.kind == BlobKind::RuntimeStub) || blob.frame_bytes != 0 {
            return None;
        }
        let called = |caller: &Cursor| {
            self.is_caller(caller)
                && match routines {
                    true => self.calls_routine(caller.pc, cursor.pc, blob),
                    false => self.calls_into(caller.pc, blob),
                }
        };
        let by_fp = self.unwind(cursor, 0, Unwind::FramePointer).filter(called);
        // Routines of the other kind keep fp as frame pointer and spill below it, where old addresses lie
        // (`kernel_crc32` in `macroAssembler_x86.cpp`).
        let found = by_fp.or_else(|| {
            if routines {
                return None;
            }
            let mut bytes = [0; RESERVATION_REACH as usize];
            let first = self.code_behind(cursor.pc, blob, &mut bytes).map_or(0, reserved_words);
            self.caller_above_pushed(cursor, first, blob)
        })?;
        Some(Cursor { doing: Doing::CallingVm, ..found })
    }

    /// The caller of a stub without fixed frame that has pushed `first` words or more: a return address whose call
    /// leads into the stub.
    pub(super) fn caller_above_pushed(&self, cursor: Cursor, first: u64, blob: &CodeBlob) -> Option<Cursor> {
        (first..=MAX_PUSHED_WORDS).find_map(|words| {
            let sp = cursor.sp.checked_add(words * 8)?;
            self.unwind(Cursor { sp, ..cursor }, 0, Unwind::OnTop)
                .filter(|caller| self.is_caller(caller) && self.calls_into(caller.pc, blob))
        })
    }

    /// The caller of code without fixed frame whose return address is in a register.
    ///
    /// A frame record with that address is this code's own. Otherwise the code may have pushed registers; where it
    /// jumps around, a search finds how many, proven by the caller of the caller.
    fn caller_by_register(&mut self, cursor: Cursor, around: Around<'_>, blob: &CodeBlob) -> Option<Cursor> {
        let has_size = blob.frame_bytes > FRAME_RECORD_BYTES;
        if !RETURNS_BY_REGISTER || has_size || cursor.sp != self.capture.sp {
            return None;
        }
        let by_register = self.unwind(cursor, 0, Unwind::Return).filter(|caller| self.is_caller(caller))?;
        let doing = match blob.kind {
            BlobKind::Adapter | BlobKind::Leaf => Doing::CallingJava,
            _ => Doing::CallingVm,
        };
        for rule in [Unwind::FramePointer, Unwind::Pushed] {
            let recorded = self.unwind(cursor, 0, rule).filter(|caller| caller.pc == by_register.pc);
            if let Some(caller) = recorded.filter(|caller| caller.sp - cursor.sp <= MAX_STUB_FRAME) {
                return Some(Cursor { doing, ..caller });
            }
        }
        let above = |words: u64| {
            let caller = Cursor { sp: cursor.sp.checked_add(8 * words)?, doing, ..by_register };
            let is_java = self.blob_at(caller.pc).is_ok_and(|code| code.kind == BlobKind::Nmethod);
            (!is_java || self.left_by_jump(caller).is_some()).then_some(caller)
        };
        let pushed = words_below(around.before);
        above(pushed).or_else(|| (0..=MAX_PUSHED_WORDS).step_by(2).find_map(above))
    }

    /// The caller of an adapter that saves or restores all registers around a call of the VM.
    ///
    /// Below the return address lie registers, among them stale return addresses; a register keeps the sp of the entry.
    /// Source: `patch_callers_callsite` in `cpu/x86/sharedRuntime_x86_64.cpp`, JDK 11 to 25.
    fn caller_of_saving_adapter(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let (sp, rule) = patching_adapter(cursor.sp, &self.capture.registers.preserved());
        if blob.kind != BlobKind::Adapter || !self.on_stack(sp, cursor.sp) {
            return None;
        }
        let start = blob.code_begin.max(cursor.pc.saturating_sub(ADAPTER_SAVE_REACH));
        if !self.look_at_code(start, cursor.pc, keeps_entry_sp)? {
            return None;
        }
        let caller = self.unwind(Cursor { sp, ..cursor }, 0, rule)?;
        self.is_caller(&caller).then_some(caller)
    }

    /// The caller, with this sp, of an adapter that has its return address in a register to move arguments.
    ///
    /// Right after the adapter has popped it, sp is the caller's.
    fn caller_of_adapter(&mut self, cursor: Cursor, blob: &CodeBlob, sp: u64) -> Option<Cursor> {
        let pc = self.capture.registers.popped_return_address();
        if blob.kind != BlobKind::Adapter || !self.on_stack(sp, cursor.sp) {
            return None;
        }
        let next = Cursor { pc, sp, fp: cursor.fp, doing: Doing::CallingJava };
        if !self.is_caller(&next) {
            return None;
        }
        self.caller_may_keep_sp = true;
        Some(next)
    }
    /// The caller of a method handle linker that has popped the return address, and perhaps an argument of the call.
    fn caller_of_linker(&mut self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let registers = &self.capture.registers;
        let (pc, sender_sp) =
            (registers.popped_return_address(), registers.sender_sp(self.hotspot.jdk_major()));
        if blob.kind != BlobKind::Leaf {
            return None;
        }
        // The interpreter's sp is that of its newest argument, and compiled code's lies above what an adapter has
        // pushed.
        let sp = if self.on_stack(sender_sp, cursor.sp) { sender_sp } else { cursor.sp };
        let next = Cursor { pc, sp, fp: cursor.fp, doing: Doing::CallingJava };
        if !self.is_caller(&next) {
            return None;
        }
        self.caller_may_keep_sp = true;
        Some(next)
    }
}
