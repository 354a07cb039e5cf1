//! A thread that is turning its newest compiled frame into interpreter frames.
//!
//! Problem: compiled code that proves wrong is left through a stub (uncommon trap, deoptimisation handler) that calls
//! the VM twice; a program whose assumptions break often spends a tenth of its time there.
//! Approach: during the first call (collecting values) the compiled frame still lies below the stub's, as a caller
//! like any other. During the second one it is gone: in its place stand interpreter frames, as many as methods were
//! inlined, whose links are set but whose methods are filled in only during the call. Their methods are those of the
//! compiled code, which the VM remembers in the thread's `vframeArray`.
//! Invariant: the record is believed only if the frame it describes ended exactly where the new frames end.
//! Sources: `runtime/deoptimization.cpp`, `runtime/vframeArray.hpp`, `generate_deopt_blob` and
//! `generate_uncommon_trap_blob` in `cpu/x86/sharedRuntime_x86_64.cpp` and `runtime_x86_64.cpp`, JDK 11 to 25.

use super::{Cursor, Doing, Emit, Step, Walk};
use crate::frame::{Blob, Frame};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::stop::Stop;

/// Words at the head of a `vframeArray` in which the deoptimised frame's description is looked for: it follows the
/// owner and a link, and starts with sp, pc and code of the frame in every JDK, in this order.
const RECORD_WORDS: usize = 8;

impl<M: Memory> Walk<'_, M> {
    /// The stub's frame while the VM fills in interpreter frames: it has taken the anchor's sp away by then, but left
    /// its pc, and its fp, under which the stub's frame is complete.
    pub(super) fn at_unpacking(&self) -> Option<Cursor> {
        let (pc, fp) = (self.capture.anchor_pc, self.capture.anchor_fp);
        let blob = self.blob_at(pc).ok().filter(|blob| blob.kind == BlobKind::Deoptimization)?;
        let sp = fp.checked_add(16)?.checked_sub(blob.frame_bytes)?;
        // The stub aligns sp for the call, and moves arguments between the anchor's pc and it.
        let called_from = self.stack.word((sp & !15).checked_sub(8)?)?;
        let calls = called_from >= pc && called_from < blob.code_end;
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
        if self.in_interpreter(next.pc) && self.capture.vframe_array_head != 0 {
            return self.step_unpacking(next).ok_or(Stop::Deoptimizing);
        }
        let emit = Emit::One(Frame::Stub { blob: Blob(blob.address), place: cursor.place() });
        let next = if self.is_caller(&next) { Ok(next) } else { Err(Stop::Deoptimizing) };
        Ok(Step { emit, next })
    }

    /// Interpreter frames that may not have their methods yet; `newest` is the newest of them.
    fn step_unpacking(&mut self, newest: Cursor) -> Option<Step> {
        let (original, blob) = self.deoptimized_frame()?;
        let entry = match self.remembered(original) {
            Some(entry) => entry,
            None => self.decode(original, &blob).ok()?,
        };
        let mut at = newest;
        let mut end = 0;
        for _ in 0..entry.count {
            if !self.in_interpreter(at.pc) || !self.on_stack(at.fp, at.sp) {
                return None;
            }
            end = self.slot(at.fp, self.hotspot.layout.frame.interpreter_sender_sp).ok()?;
            at = self.caller_of_interpreter(at).ok()?;
        }
        let same_place = original.sp.checked_add(blob.frame_bytes) == Some(end);
        let emit = self.compiled_frames(Cursor { sp: newest.sp, fp: newest.fp, ..original }, &entry);
        (same_place && self.is_caller(&at)).then_some(Step { emit, next: Ok(at) })
    }

    /// The frame that was deoptimised and its code, from the VM's record.
    fn deoptimized_frame(&self) -> Option<(Cursor, CodeBlob)> {
        let mut bytes = [0; RECORD_WORDS * 8];
        self.memory.read(self.capture.vframe_array_head, &mut bytes).ok()?;
        let words = bytes.as_chunks::<8>().0;
        words.windows(3).find_map(|window| {
            let [sp, pc, code] = <&[[u8; 8]; 3]>::try_from(window).ok()?.map(u64::from_ne_bytes);
            let blob = self.on_stack(sp, self.capture.stack_low).then(|| self.blob_at(pc).ok()).flatten()?;
            let frame = Cursor { pc, sp, fp: 0, doing: Doing::CallingVm };
            (blob.address == code && blob.kind == BlobKind::Nmethod).then_some((frame, blob))
        })
    }
}
