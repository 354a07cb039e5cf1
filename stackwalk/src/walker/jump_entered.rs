//! Blobs that are entered by a jump, so that no return address shows which code entered them.
//!
//! A poll in a loop faults, and the VM's signal handler continues in the blob with the frame untouched. The polled pc
//! is in `JavaThread::_saved_exception_pc`; the blob later stores it in the slot that it pushed for the return address.
//! A poll at a return comes when the frame is gone. The method that polled is in `_saved_exception_pc` alone. The
//! ExceptionBlob is entered and left with the throwing pc in a register and the method's frame untouched.
//! Sources: `generate_handler_blob` in `cpu/x86/sharedRuntime_x86_64.cpp`, `generate_exception_blob` in
//! `cpu/x86/{runtime,sharedRuntime}_x86_64.cpp`, `c2_safepointPollStubTable_x86.cpp`, JDK 11 to 25.

use super::walk::{Cursor, Doing, Step, Walk};
use crate::cpu::{
    CODE_AFTER, CODE_BEFORE, EXCEPTION_TAIL, FRAME_RECORD_BYTES, HandlerPlace, POLL_BLOB_START,
    POLL_EXIT_BYTES, PollFrame, RETURN_ADDRESS_BYTES, Unwind, epilogue, handler_place,
    has_popped_throwing_pc, is_loop_poll_blob, poll_exit, poll_frame,
};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::stop::Stop;

impl<M: Memory> Walk<'_, M> {
    /// The code that entered the interrupted blob by a jump, while no return address on the stack leads to it.
    pub(super) fn entered_by_jump_from(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        match blob.kind {
            BlobKind::Safepoint => self.polled(cursor, blob),
            BlobKind::Exception => self.thrown(cursor, blob),
            // That of `handle_exception_from_callee` has a frame of two words, the others have none of fixed size.
            BlobKind::RuntimeStub if blob.frame_bytes <= FRAME_RECORD_BYTES => self.caught(cursor, blob),
            _ => None,
        }
    }

    /// The method whose poll entered a SafepointBlob.
    fn polled(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let start = self.blob_start(blob)?;
        let mut next = [0; POLL_EXIT_BYTES];
        self.memory.read(cursor.pc, &mut next).ok()?;
        let state = match poll_exit(&next) {
            Some(state) => state,
            None => poll_frame(&start, cursor.pc.checked_sub(blob.code_begin)?)?,
        };
        // Where the return address is or will be, and the frame pointer of the method.
        let (slot, fp) = match state {
            PollFrame::Untouched | PollFrame::SlotPushed => (cursor.sp, cursor.fp),
            PollFrame::FpPushed => {
                (cursor.sp.checked_add(RETURN_ADDRESS_BYTES)?, self.stack.word(cursor.sp)?)
            }
            PollFrame::Complete if self.on_stack(cursor.fp, cursor.sp) => {
                (cursor.fp.checked_add(RETURN_ADDRESS_BYTES)?, self.stack.word(cursor.fp)?)
            }
            PollFrame::Complete => return None,
        };
        if !is_loop_poll_blob(&start) {
            return self.returning_below(blob, slot, fp);
        }
        let sp = if state == PollFrame::Untouched { slot } else { slot.checked_add(RETURN_ADDRESS_BYTES)? };
        self.left_by_jump(Cursor { pc: self.capture.saved_exception_pc, sp, fp, doing: Doing::Polling })
    }

    /// `cursor` if it is a whole compiled frame.
    pub(super) fn left_by_jump(&self, cursor: Cursor) -> Option<Cursor> {
        let code = self.blob_at(cursor.pc).ok().filter(|code| code.kind == BlobKind::Nmethod)?;
        let caller = self.unwind_code(cursor, &code, Unwind::Whole)?;
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
        if self.has_followed_jump || self.thawing.in_heap() || is_loop_poll_blob(&self.blob_start(blob)?) {
            return None;
        }
        let code = self.blob_at(pc).ok().filter(|code| code.kind == BlobKind::Nmethod)?;
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(pc, code.code_begin, &code, &mut bytes).ok()?;
        if epilogue(around, false, None) != Some(Unwind::Return) {
            return None;
        }
        let returning = Cursor { pc, sp: slot, fp, doing: Doing::Returning };
        let caller = self.unwind(returning, 0, self.returning_rule(&returning))?;
        self.is_caller(&caller).then_some(returning)
    }

    /// The rule for a method whose frame is gone: a stub has saved its return address, or runs its first instruction.
    fn returning_rule(&self, cursor: &Cursor) -> Unwind {
        if cursor.sp == self.capture.sp { Unwind::Return } else { Unwind::OnTop }
    }

    /// A method that polls at its return: its frame is gone.
    pub(super) fn step_returning(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        let blob = self.blob_at(cursor.pc)?;
        let entry = match self.remembered(cursor) {
            Some(entry) => entry,
            None => self.decode(cursor, &blob)?,
        };
        let rule = self.returning_rule(&cursor);
        let next = self.unwind(cursor, 0, rule).ok_or(Stop::BadFrame(cursor.pc));
        Ok(Step { emit: self.compiled_frames(cursor, &entry), next })
    }

    /// The method whose exception handler a C1 stub is about to jump to.
    fn caught(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        let method = match handler_place(around.before, around.after)? {
            HandlerPlace::AboveFp => self.unwind(cursor, 0, Unwind::FramePointer)?,
            HandlerPlace::Top => self.unwind(cursor, 0, Unwind::OnTop)?,
            HandlerPlace::Register => Cursor { pc: self.capture.registers.exception_handler(), ..cursor },
        };
        self.left_by_jump(Cursor { doing: Doing::Polling, ..method })
    }

    /// The method that threw, while the throwing pc is not on the ExceptionBlob's stack.
    fn thrown(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let mut bytes = [0; EXCEPTION_TAIL];
        let ahead = self.code_ahead(cursor.pc, blob, &mut bytes)?;
        if cursor.pc != blob.code_begin && !has_popped_throwing_pc(ahead) {
            return None;
        }
        self.left_by_jump(Cursor {
            pc: self.capture.registers.throwing_pc(),
            doing: Doing::Polling,
            ..cursor
        })
    }
}
