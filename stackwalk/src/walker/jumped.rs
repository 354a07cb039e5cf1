//! Blobs that are entered by a jump, so that no return address says where from.
//!
//! ```text
//! SafepointBlob of a loop poll:    push rbx   push rbp   mov rbp, rsp   ...   store the polled pc above rbp
//! SafepointBlob of a return poll:             push rbp   mov rbp, rsp   ...
//! C1's exception stubs:            ...   leave   pop rcx   jmp rcx
//! ExceptionBlob:                   push rdx   sub rsp, n   ...   add rsp, n   pop rdx   ...   jmp r8
//! ```
//!
//! A poll in a loop faults, and the VM's signal handler goes on in the blob with the frame untouched; the polled pc is in
//! `JavaThread::_saved_exception_pc`, and the slot that `push rbx` made becomes the return address only later.
//! A poll at a return comes when the frame is gone; the method that polled is in `_saved_exception_pc` alone.
//! The ExceptionBlob is entered with the throwing pc in rdx and leaves with it, the frame untouched both times.
//! Sources: `generate_handler_blob` in `cpu/x86/sharedRuntime_x86_64.cpp`, `generate_exception_blob` in
//! `cpu/x86/{runtime,sharedRuntime}_x86_64.cpp`, `c2_safepointPollStubTable_x86.cpp`, JDK 11 to 25.

use super::walk::{Cursor, Doing, Step, Walk};
use crate::arch::{
    CODE_AFTER, CODE_BEFORE, EXCEPTION_TAIL, HandlerPlace, POLL_BLOB_START, PollFrame, Unwind, epilogue,
    handler_place, has_popped_throwing_pc, is_loop_poll_blob, leaving_poll_blob, poll_frame,
};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::stop::Stop;

impl<M: Memory> Walk<'_, M> {
    /// The code that the interrupted blob was entered from by a jump, as long as that shows nowhere on the stack.
    pub(super) fn jumped_into(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        match blob.kind {
            BlobKind::Safepoint => self.polled(cursor, blob),
            BlobKind::Exception => self.thrown(cursor, blob),
            // That of `handle_exception_from_callee` has a frame of two words, the others have none of fixed size.
            BlobKind::RuntimeStub if blob.frame_bytes <= 16 => self.caught(cursor, blob),
            _ => None,
        }
    }

    /// The method whose poll entered a SafepointBlob.
    fn polled(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let start = self.blob_start(blob)?;
        let mut next = [0; 2];
        self.memory.read(cursor.pc, &mut next).ok()?;
        let state = match leaving_poll_blob(&next) {
            Some(state) => state,
            None => poll_frame(&start, cursor.pc.checked_sub(blob.code_begin)?)?,
        };
        // Where the return address is or will be, and the frame pointer of the method.
        let (slot, fp) = match state {
            PollFrame::Nothing | PollFrame::Place => (cursor.sp, cursor.fp),
            PollFrame::Fp => (cursor.sp.checked_add(8)?, self.stack.word(cursor.sp)?),
            PollFrame::Done if self.on_stack(cursor.fp, cursor.sp) => {
                (cursor.fp.checked_add(8)?, self.stack.word(cursor.fp)?)
            }
            PollFrame::Done => return None,
        };
        if !is_loop_poll_blob(&start) {
            return self.returning_below(blob, slot, fp);
        }
        let sp = if state == PollFrame::Nothing { slot } else { slot.checked_add(8)? };
        self.left_by_jump(Cursor { pc: self.capture.saved_exception_pc, sp, fp, doing: Doing::Polling })
    }

    /// `cursor` if it is a whole compiled frame.
    pub(super) fn left_by_jump(&self, cursor: Cursor) -> Option<Cursor> {
        let code = self.blob_at(cursor.pc).ok().filter(|code| code.kind == BlobKind::Nmethod)?;
        let caller = self.unwind(cursor, code.frame_bytes, Unwind::Whole)?;
        self.is_caller(&caller).then_some(cursor)
    }

    fn blob_start(&self, blob: &CodeBlob) -> Option<[u8; POLL_BLOB_START]> {
        let mut start = [0; POLL_BLOB_START];
        self.memory.read(blob.code_begin, &mut start).ok()?;
        Some(start)
    }

    /// The method that polls at its return, whose return address is at `slot`; `None` for other polls.
    pub(super) fn returning_below(&self, blob: &CodeBlob, slot: u64, fp: u64) -> Option<Cursor> {
        let pc = self.capture.saved_exception_pc;
        if self.jumped || self.thawing.in_heap() || is_loop_poll_blob(&self.blob_start(blob)?) {
            return None;
        }
        let code = self.blob_at(pc).ok().filter(|code| code.kind == BlobKind::Nmethod)?;
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(pc, code.code_begin, &code, &mut bytes).ok()?;
        if epilogue(around, false, None) != Some(Unwind::Return) {
            return None;
        }
        let returning = Cursor { pc, sp: slot, fp, doing: Doing::Returning };
        let caller = self.unwind(returning, 0, Unwind::Return)?;
        self.is_caller(&caller).then_some(returning)
    }

    /// A method that polls at its return: its frame is gone.
    pub(super) fn step_returning(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        let blob = self.blob_at(cursor.pc)?;
        let entry = match self.remembered(cursor) {
            Some(entry) => entry,
            None => self.decode(cursor, &blob)?,
        };
        let next = self.unwind(cursor, 0, Unwind::Return).ok_or(Stop::BadFrame(cursor.pc));
        Ok(Step { emit: self.compiled_frames(cursor, &entry), next })
    }

    /// The method whose handler a C1 stub is about to jump to.
    fn caught(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        let doing = Doing::Polling;
        let Cursor { sp, fp, .. } = cursor;
        self.left_by_jump(match handler_place(around.before, around.after)? {
            HandlerPlace::AboveFp if self.on_stack(fp, sp) => Cursor {
                pc: self.stack.word(fp.checked_add(8)?)?,
                sp: fp.checked_add(16)?,
                fp: self.stack.word(fp)?,
                doing,
            },
            HandlerPlace::AboveFp => return None,
            HandlerPlace::Top => Cursor { pc: self.stack.word(sp)?, sp: sp.checked_add(8)?, fp, doing },
            HandlerPlace::Register => Cursor { pc: self.capture.rcx, sp, fp, doing },
        })
    }

    /// The method that threw, while the ExceptionBlob has not pushed its pc or has popped it.
    fn thrown(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let mut rest = [0; EXCEPTION_TAIL];
        let length = usize::try_from(blob.code_end.saturating_sub(cursor.pc)).ok()?.min(rest.len());
        let rest = rest.get_mut(..length)?;
        self.memory.read(cursor.pc, rest).ok()?;
        if cursor.pc != blob.code_begin && !has_popped_throwing_pc(rest) {
            return None;
        }
        self.left_by_jump(Cursor { pc: self.capture.rdx, doing: Doing::Polling, ..cursor })
    }
}
