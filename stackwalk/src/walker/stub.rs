//! Stubs and adapters stopped at an arbitrary instruction: code of the VM that is neither compiled Java nor interpreter.
//!
//! Each kind has its own shapes; which of them applies is read from the code around the pc and proven by what lies at
//! the place it names.

use super::walk::{Cursor, Doing, Emit, Step, Walk};
use crate::arch::{
    Around, CALL_STUB_REACH, CODE_AFTER, CODE_BEFORE, ROOM_REACH, SAVING_REACH, Unwind, entry_frame,
    has_raised_sp, is_slot_move, keeps_sp_of_entry, prologue, room, takes_return_address,
};
use crate::frame::{Blob, Frame};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::limits::MAX_PUSHED_WORDS;
use crate::memory::Memory;
use crate::stop::Stop;

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
        // Whoever runs no Java was not called by any.
        let java = if self.capture.thread == 0 { None } else { self.caller_of_stub(cursor, blob) };
        let next = match java {
            Some(next) => Ok(next),
            None => self.native_caller_of_stub(cursor).unwrap_or(Err(Stop::BadFrame(cursor.pc))),
        };
        Ok(Step { emit: Emit::One(stub), next })
    }

    fn caller_of_stub(&mut self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let dispatch = matches!(blob.kind, BlobKind::Adapter | BlobKind::Leaf);
        let doing = if dispatch { Doing::CallingJava } else { Doing::CallingVm };
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        let rules = match (around.before.last(), around.after.first()) {
            // Adapters and dispatch stubs have no frame; fp is that of some older one.
            _ if dispatch => [Unwind::Return; 3],
            _ if takes_return_address(around) => [Unwind::Return; 3],
            // push rbp was the last instruction or pop rbp is the next.
            (Some(0x55), _) | (_, Some(0x5d)) => [Unwind::Pushed, Unwind::Whole, Unwind::FramePointer],
            _ if blob.frame_bytes == 0 => [Unwind::Return, Unwind::FramePointer, Unwind::Pushed],
            _ if is_slot_move(around) => [Unwind::Below(1), Unwind::FramePointer, Unwind::Return],
            _ if around.from_entry => [prologue(around.before), Unwind::Whole, Unwind::FramePointer],
            _ => [Unwind::Whole, Unwind::FramePointer, Unwind::Return],
        };
        if let Some(jumped) = self.jumped_into(cursor, blob) {
            return Some(jumped);
        }
        // `ret` and `leave; ret` say it themselves; the rules below would look where the frame was.
        let exit = match around.after {
            [0xc3, ..] => Some(Unwind::Return),
            [0xc9, 0xc3, ..] => Some(Unwind::FramePointer),
            _ => None,
        };
        let left = exit.and_then(|rule| self.unwind(cursor, 0, rule)).filter(|next| self.is_caller(next));
        if let Some(next) = left.filter(|_| !dispatch) {
            return Some(Cursor { doing, ..next });
        }
        let proven = self
            .caller_of_entry_barrier(cursor, blob)
            .or_else(|| self.caller_of_runtime_stub(cursor, blob))
            .or_else(|| self.caller_of_saving_adapter(cursor, blob));
        if proven.is_some() {
            return proven;
        }
        // Behind `pop rax` the word on top may be an older return address.
        if has_raised_sp(around.before)
            && self.capture.r13 == cursor.sp
            && let Some(next) = self.caller_of_adapter(cursor, blob)
        {
            return Some(Cursor { doing, ..next });
        }
        let by_rule =
            rules.iter().filter(|rule| blob.frame_bytes >= 16 || !rule.needs_size()).find_map(|&rule| {
                self.unwind(cursor, blob.frame_bytes, rule).filter(|next| self.is_caller(next))
            });
        let found = by_rule.or_else(|| self.caller_of_adapter(cursor, blob));
        found.map(|next| Cursor { doing, ..self.before_arguments(next, around, blob) })
    }

    /// The caller as it was before an adapter moved sp to make room for arguments.
    ///
    /// The return address is on top again then, and r13 is the caller's sp; before that r13 is any value.
    fn before_arguments(&self, next: Cursor, around: Around<'_>, blob: &CodeBlob) -> Cursor {
        let raised = Cursor { sp: self.capture.r13, ..next };
        if blob.kind != BlobKind::Adapter || raised.sp <= next.sp || !self.on_stack(raised.sp, next.sp) {
            return next;
        }
        let candidates = if has_raised_sp(around.before) { [raised, next] } else { [next, raised] };
        candidates.into_iter().find_map(|at| self.left_by_jump(at)).unwrap_or(next)
    }

    /// How much of its frame the stub has built through which the VM calls Java, if this is it.
    fn in_call_stub(&self, pc: u64, blob: &CodeBlob) -> Option<Unwind> {
        let returns = self.started.call_stub_return;
        if blob.kind != BlobKind::StubRoutines || pc.abs_diff(returns) > CALL_STUB_REACH {
            return None;
        }
        let mut bytes = [0; 2 * CALL_STUB_REACH as usize];
        let start = blob.code_begin.max(returns.saturating_sub(CALL_STUB_REACH));
        let end = blob.code_end.min(returns.saturating_add(CALL_STUB_REACH));
        let index = |at: u64| at.checked_sub(start).and_then(|at| usize::try_from(at).ok());
        let code = bytes.get_mut(..index(end)?)?;
        self.memory.read(start, code).ok()?;
        entry_frame(code, index(returns)?, index(pc)?, self.hotspot.layout.frame.entry_wrapper)
    }

    /// The VM is about to call Java, or Java has returned to it.
    fn interrupted_entry(&mut self, cursor: Cursor, built: Unwind) -> Result<Step, Stop> {
        if built == Unwind::Whole {
            return self.step_entry(cursor);
        }
        let caller = self.unwind(cursor, 0, built).ok_or(Stop::BadFrame(cursor.pc))?;
        self.enter(cursor, caller, self.capture.rdi)
    }

    /// The code whose entry barrier is being looked at.
    ///
    /// The barrier's stub (`generate_method_entry_barrier` in `stubGenerator_x86_64.cpp`, JDK 17 to 25) pushes a word
    /// of ones above its own frame, in place of which the return address would lie. The arguments that it saves below
    /// may be words of ones as well, so only one above which the stub was called from counts.
    pub(super) fn caller_of_entry_barrier(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        if blob.kind != BlobKind::StubRoutines {
            return None;
        }
        let above = |at: u64, words: u64| at.checked_add(words * 8);
        // Before `push rbp`, behind it, and with fp as frame pointer.
        let places = [
            Some((cursor.sp, Some(cursor.fp))),
            above(cursor.sp, 1).map(|at| (at, self.stack.word(cursor.sp))),
            above(cursor.fp, 1)
                .filter(|_| self.on_stack(cursor.fp, cursor.sp))
                .map(|at| (at, self.stack.word(cursor.fp))),
        ];
        places.into_iter().flatten().find_map(|(at, fp)| {
            if self.stack.word(at) != Some(u64::MAX) {
                return None;
            }
            let (pc, sp) = (self.stack.word(above(at, 1)?)?, above(at, 2)?);
            let caller = Cursor { pc, sp, fp: fp?, doing: Doing::CallingVm };
            (self.is_caller(&caller) && self.calls_into(pc, blob)).then_some(caller)
        })
    }

    /// C1's stubs without fixed frame and the routines of `StubRoutines` are called directly, so the return address
    /// proves itself.
    ///
    /// This comes before the rules: `slow_subtype_check` (`c1_Runtime1_x86.cpp`) pushes registers, often runs long
    /// and builds no frame, while fp may be that of an interpreter frame further up, to which a rule by fp would
    /// jump. In room that it has made and not filled lies the return address of an earlier call.
    fn caller_of_runtime_stub(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let routines = blob.kind == BlobKind::StubRoutines;
        if !(routines || blob.kind == BlobKind::RuntimeStub) || blob.frame_bytes != 0 {
            return None;
        }
        let called = |caller: &Cursor| self.is_caller(caller) && self.calls_into(caller.pc, blob);
        let by_fp = self.unwind(cursor, 0, Unwind::FramePointer).filter(called);
        // Routines of the other kind keep fp as frame pointer and spill below it, where old addresses lie
        // (`kernel_crc32` in `macroAssembler_x86.cpp`).
        let found = by_fp.or_else(|| {
            if routines {
                return None;
            }
            let first = self.room_of_stub(cursor.pc, blob).unwrap_or(0);
            (first..=MAX_PUSHED_WORDS).find_map(|words| {
                let sp = cursor.sp.checked_add(words * 8)?;
                self.unwind(Cursor { sp, ..cursor }, 0, Unwind::Return).filter(called)
            })
        })?;
        Some(Cursor { doing: Doing::CallingVm, ..found })
    }

    /// Words that lie above sp because the stub has made room for them.
    fn room_of_stub(&self, pc: u64, blob: &CodeBlob) -> Option<u64> {
        let mut bytes = [0; ROOM_REACH as usize];
        let start = blob.code_begin.max(pc.saturating_sub(ROOM_REACH));
        let code = bytes.get_mut(..usize::try_from(pc.checked_sub(start)?).ok()?)?;
        self.memory.read(start, code).ok()?;
        Some(room(code))
    }

    /// The caller of an adapter that saves or restores all registers around a call of the VM.
    ///
    /// Below the return address lie registers, among them old return addresses; r13 is sp as it was at the entry.
    /// Source: `patch_callers_callsite` in `cpu/x86/sharedRuntime_x86_64.cpp`, JDK 11 to 25.
    fn caller_of_saving_adapter(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let sp = self.capture.r13;
        if blob.kind != BlobKind::Adapter || !self.on_stack(sp, cursor.sp) {
            return None;
        }
        let mut bytes = [0; SAVING_REACH as usize];
        let start = blob.code_begin.max(cursor.pc.saturating_sub(SAVING_REACH));
        let code = bytes.get_mut(..usize::try_from(cursor.pc.checked_sub(start)?).ok()?)?;
        self.memory.read(start, code).ok()?;
        if !keeps_sp_of_entry(code) {
            return None;
        }
        let caller = self.unwind(Cursor { sp, ..cursor }, 0, Unwind::Return)?;
        self.is_caller(&caller).then_some(caller)
    }

    /// Adapters hold the return address in rax while they move arguments; r13 is the caller's sp then.
    ///
    /// Behind `pop rax` sp is the caller's already.
    fn caller_of_adapter(&mut self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let (pc, sp) = (self.capture.rax, self.capture.r13);
        if blob.kind != BlobKind::Adapter || !self.on_stack(sp, cursor.sp) {
            return None;
        }
        let next = Cursor { pc, sp, fp: cursor.fp, doing: Doing::CallingJava };
        if !self.is_caller(&next) {
            return None;
        }
        self.may_stay = true;
        Some(next)
    }
}
