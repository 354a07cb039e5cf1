//! Deoptimisation: a thread replaces its newest compiled frame by interpreter frames.
//!
//! Problem: compiled code whose assumptions break is left through a stub (uncommon trap, deoptimisation handler) that
//! calls the VM twice; a program whose assumptions break often spends a tenth of its time there.
//! Approach: until the first call has collected the values, the compiled frame lies below the stub's, as a caller like
//! any other. Then it is replaced by interpreter frames, as many as methods were inlined, whose frame records are set
//! but whose methods are filled in only by the second call. Their methods are those of the compiled code, which the VM
//! keeps in the thread's `vframeArray`; the signal handler copies the sp and pc of the frame from there.
//!
//! ```text
//! handler    call 1: values collected    frames laid             call 2: methods filled in      interpreter
//! [--- compiled frame on the stack ---]  [- sp and pc of the record, frame records of the frames -] [--- whole ---]
//!            record ----------------------------------------------------------->
//! ```
//!
//! Invariant: the record is used only if the frame it describes ended exactly where the new frames end.
//! Sources: `runtime/deoptimization.cpp`, `runtime/vframeArray.hpp`, `generate_deopt_blob` and
//! `generate_uncommon_trap_blob` in `cpu/x86/sharedRuntime_x86_64.cpp` and `runtime_x86_64.cpp`,
//! `emit_deopt_handler` in `cpu/x86/x86_64.ad` and `c1_LIRAssembler_x86.cpp`, JDK 11 to 28.

use super::walk::{Cursor, Doing, Emit, Step, Walk};
use crate::cache::CompiledPc;
use crate::cpu::{
    CODE_AFTER, CODE_BEFORE, DEOPT_CALL_BYTES, DEOPT_CALL_REACH, DEOPT_HANDLER_BYTES, DeoptPlace,
    FRAME_RECORD_BYTES, RETURN_ADDRESS_BYTES, Unwind, deopt_handler_pushed_bytes, deopt_place, is_deopt_call,
    return_address, return_address_of_call,
};
use crate::frame::{Blob, Frame};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::stop::Stop;

/// The frame that is being replaced.
struct Replaced {
    entry: CompiledPc,
    cursor: Cursor,
    /// The address at which it ended, where the caller's sp was.
    end: u64,
}

impl<M: Memory> Walk<'_, M> {
    /// Returns whether the VM has begun to replace the newest compiled frame.
    pub(super) fn is_replacing(&self) -> bool {
        self.capture.deoptimized_pc != 0
    }

    /// The stub's frame while the VM fills in interpreter frames: the anchor's sp is cleared, its pc and its fp are
    /// not, and the stub's frame is complete below that fp.
    pub(super) fn at_unpacking(&self) -> Option<Cursor> {
        let (pc, fp) = (self.capture.anchor_pc, self.capture.anchor_fp);
        let blob = self.blob_at(pc).ok().filter(|blob| blob.kind == BlobKind::Deoptimization)?;
        let sp = fp.checked_add(FRAME_RECORD_BYTES)?.checked_sub(blob.frame_bytes)?;
        // The stub aligns sp for the call, and moves arguments between the anchor's pc and it.
        let calls = match return_address_of_call(sp) {
            Some(at) => (pc..blob.code_end).contains(&self.stack.word(at)?),
            None => true,
        };
        (calls && self.on_stack(sp, self.capture.stack_low)).then_some(Cursor {
            pc,
            sp,
            fp,
            doing: Doing::CallingVm,
        })
    }

    /// The stub that calls the VM to deoptimise the frame that entered it.
    pub(super) fn step_deoptimization(&mut self, cursor: Cursor, blob: &CodeBlob) -> Result<Step, Stop> {
        let next = self
            .caller_of_fixed_frame(cursor, blob.frame_bytes, Doing::CallingVm)
            .map_err(|_| Stop::Deoptimizing)?;
        if self.in_interpreter(next.pc) && self.is_replacing() {
            return self.step_replacing(next.fp, next.sp).ok_or(Stop::Deoptimizing);
        }
        let emit = Emit::One(Frame::Stub { blob: Blob(blob.address), place: cursor.place() });
        let next = if self.is_caller(&next) { Ok(next) } else { Err(Stop::Deoptimizing) };
        Ok(Step { emit, next })
    }

    /// The same step from a stub that was interrupted at any instruction.
    pub(super) fn interrupted_deoptimization(
        &mut self,
        cursor: Cursor,
        blob: &CodeBlob,
    ) -> Result<Step, Stop> {
        let emit = Emit::One(Frame::Stub { blob: Blob(blob.address), place: cursor.place() });
        if self.is_replacing() {
            if let Some(frame) = self.still_below(cursor, blob) {
                return Ok(Step { emit, next: Ok(frame) });
            }
            return self.step_replacing(cursor.fp, cursor.sp).ok_or(Stop::Deoptimizing);
        }
        let next = self.caller_of_deoptimization(cursor, blob).ok_or(Stop::Deoptimizing)?;
        Ok(Step { emit, next: Ok(next) })
    }

    /// The compiled frame, while it lies untouched below the stub's although the record exists.
    fn still_below(&mut self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let frame = self.replaced()?.cursor;
        let by_fp = cursor.fp.checked_add(FRAME_RECORD_BYTES)? == frame.sp && cursor.fp >= cursor.sp;
        let by_size = cursor.sp.checked_add(blob.frame_bytes)? == frame.sp;
        let returns = return_address(self.word(frame.sp.checked_sub(RETURN_ADDRESS_BYTES)?).ok()?, frame.sp);
        let (here, there) = (self.blob_at(returns).ok()?, self.blob_at(frame.pc).ok()?);
        ((by_fp || by_size) && here.address == there.address).then_some(frame)
    }

    /// The caller of a stub that has not yet called the VM, or has finished: compiled code in the first case, the
    /// interpreter in the second.
    fn caller_of_deoptimization(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        let rules: &[Unwind] = match deopt_place(around) {
            DeoptPlace::Returning => &[Unwind::Return],
            DeoptPlace::Pushed => &[Unwind::Pushed],
            DeoptPlace::NoReturnAddress => &[],
            DeoptPlace::Complete => {
                // Only a frame of this stub's size; fp may still belong to an older one.
                let near = cursor.fp.checked_sub(cursor.sp).is_some_and(|depth| depth <= blob.frame_bytes);
                if near { &[Unwind::FramePointer, Unwind::Whole] } else { &[Unwind::Whole] }
            }
        };
        let next = rules.iter().find_map(|&rule| {
            let next = self.unwind(cursor, blob.frame_bytes, rule)?;
            (self.is_caller(&next) && self.is_deoptimized(&next)).then_some(next)
        })?;
        Some(Cursor { doing: Doing::CallingVm, ..next })
    }

    /// Returns whether a deoptimisation stub returns to this cursor: interpreter frames replace a frame, or a whole
    /// compiled frame is to be replaced.
    fn is_deoptimized(&self, next: &Cursor) -> bool {
        self.in_interpreter(next.pc) || self.is_whole(*next)
    }

    /// Returns whether the compiled frame at a cursor is complete and has a caller.
    fn is_whole(&self, cursor: Cursor) -> bool {
        let Ok(blob) = self.blob_at(cursor.pc) else { return false };
        let caller = self.unwind_code(cursor, &blob, Unwind::Whole);
        blob.kind == BlobKind::Nmethod && caller.is_some_and(|caller| self.is_caller(&caller))
    }

    /// The methods of the replaced frame, whose interpreter frames may not have them yet, and its caller.
    ///
    /// `fp` is that of the newest of these frames, or of the stub above them; none lies below `low`.
    fn step_replacing(&mut self, fp: u64, low: u64) -> Option<Step> {
        let Replaced { entry, cursor, end } = self.replaced()?;
        let sender_sp = self.hotspot.layout.frame.interpreter_sender_sp;
        let mut at = Cursor { fp, sp: low, ..cursor };
        // The stub's own frame may come first.
        for _ in 0..=entry.count {
            if !self.on_stack(at.fp, low) {
                return None;
            }
            if self.slot(at.fp, sender_sp).ok()? == end {
                let next = self.caller_of_interpreter(at).ok().filter(|next| self.is_caller(next))?;
                let emit = self.compiled_frames(Cursor { sp: low, fp, ..cursor }, &entry);
                return Some(Step { emit, next: Ok(next) });
            }
            let older = self.slot(at.fp, 0).ok()?;
            let returns = return_address(self.slot(at.fp, 1).ok()?, at.fp);
            if older <= at.fp || !self.in_interpreter(returns) {
                return None;
            }
            at.fp = older;
        }
        None
    }

    /// The frame that is being replaced, from the VM's record.
    fn replaced(&mut self) -> Option<Replaced> {
        let (pc, sp) = (self.capture.deoptimized_pc, self.capture.deoptimized_sp);
        let cursor = Cursor { pc, sp, fp: 0, doing: Doing::CallingVm };
        let blob = self.blob_at(pc).ok().filter(|blob| blob.kind == BlobKind::Nmethod)?;
        let end = sp.checked_add(self.frame_bytes(&blob, sp)?)?;
        if !self.on_stack(end, self.capture.stack_low) {
            return None;
        }
        let entry = match self.remembered(cursor) {
            Some(entry) => entry,
            None => self.decode(cursor, &blob).ok()?,
        };
        Some(Replaced { entry, cursor, end })
    }

    /// A compiled method's deoptimisation handler: its frame is complete, and the return address that led here is kept
    /// in it. From JDK 26 on the handler's entry is behind the call that it jumps back to.
    pub(super) fn interrupted_handler(
        &mut self,
        cursor: Cursor,
        blob: &CodeBlob,
    ) -> Result<Option<Step>, Stop> {
        let handler = self.hotspot.layout.nmethod.deopt_handler(self.memory, blob)?;
        let start = handler.saturating_sub(DEOPT_CALL_BYTES);
        if cursor.pc < start || cursor.pc >= handler.saturating_add(DEOPT_HANDLER_BYTES) {
            return Ok(None);
        }
        let pushed = if cursor.pc < handler {
            let mut bytes = [0; DEOPT_CALL_REACH];
            self.memory.read(start, &mut bytes)?;
            if cursor.pc > start || !is_deopt_call(&bytes) {
                return Ok(None);
            }
            0
        } else {
            let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
            let around = self.around(cursor.pc, handler, blob, &mut bytes)?;
            deopt_handler_pushed_bytes(around.before).ok_or(Stop::Deoptimizing)?
        };
        let sp = cursor.sp.wrapping_add(pushed);
        let frame = Cursor { pc: handler, sp, fp: cursor.fp, doing: Doing::Polling };
        if !self.is_whole(frame) {
            return Err(Stop::Deoptimizing);
        }
        Ok(Some(Step { emit: Emit::Nothing, next: Ok(frame) }))
    }
}
