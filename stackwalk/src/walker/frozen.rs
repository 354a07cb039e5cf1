//! Frames in the heap: from the return barrier into the copies of `StackChunk`s, and from one chunk to the next.
//!
//! Frames lie in a chunk as they lay on the stack, with two differences: the bottom of a chunk takes the place of a
//! return address, and saved frame pointers of interpreter frames are distances in words instead of addresses.
//!
//! ```text
//! newest frame of a chunk: its pc and its fp in the frame record below it
//! saved fp of an interpreter frame, at address a:   fp = a + 8 * [a]
//! interpreter frame, caller's sp slot s:            sp = fp + 8 * [s]
//! interpreter frame, locals slot l:                 fp + 8 * [l] is the last local; the word above it ends the frame
//! ```
//!
//! Sources: `cpu/x86/{stackChunkFrameStream,continuationFreezeThaw}_x86.inline.hpp`,
//! `share/runtime/stackChunkFrameStream.inline.hpp`, `share/runtime/continuationFreezeThaw.cpp`, JDK 21 and 25.

use super::walk::{Cursor, Doing, Emit, Step, Walk};
use crate::cpu::{
    CODE_AFTER, CODE_BEFORE, FRAME_RECORD_BYTES, INTERPRETER_LOCALS, INTERPRETER_METHOD,
    INTERPRETER_SENDER_SP, RETURN_ADDRESS_BYTES, THAW_REACH, is_before_reservation, return_address,
    thawed_frame,
};
use crate::frame::{Frame, Method, Missing};
use crate::frozen::Frozen;
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::{Memory, StackCopy};
use crate::stop::Stop;

impl<M: Memory> Walk<'_, M> {
    /// The newest frame of the next chunk; past the last one, the end of the virtual thread's stack.
    pub(super) fn next_chunk(&mut self) -> Result<Cursor, Stop> {
        let Some(chunk) = self.thawing.frozen.chunk(self.thawing.entered) else {
            return Err(if self.thawing.frozen.is_whole() {
                if self.thawing.gap { Stop::EndPastThaw } else { Stop::EndOfContinuation }
            } else if self.thawing.in_heap() && self.stack.end() < self.high {
                Stop::CopyEnd
            } else {
                Stop::ContinuationBarrier
            });
        };
        self.high = self.thawing.frozen.end_of(self.thawing.entered);
        self.thawing.entered += 1;
        self.stack = chunk;
        self.low = chunk.base();
        let sp = chunk.base().saturating_add(FRAME_RECORD_BYTES);
        let (pc, fp) = self.frame_record(sp)?;
        self.aligned(Cursor { pc, sp, fp, doing: Doing::CallingJava })
    }

    /// The caller of `Continuation.doYield`, whose frame the VM copies into the newest chunk with all those up to the
    /// entry; the chunk's own frames do not change meanwhile.
    ///
    /// Once the chunk holds the copies, the walk continues there and leaves out the frames on the stack. Until then the
    /// previous thaw may have put the return barrier in place of the pc of the chunk's newest frame; the frames of such
    /// a chunk cannot be reached.
    /// Source: `freeze_fast_copy`, `finalize_freeze` and `finish_freeze` in `continuationFreezeThaw.cpp`.
    pub(super) fn caller_of_yield(&mut self, caller: Cursor) -> Result<Cursor, Stop> {
        let Some(chunk) = self.thawing.frozen.chunk(0).filter(|_| !self.thawing.in_heap()) else {
            return Ok(caller);
        };
        let newest = newest_pc(&chunk);
        if newest.is_some() && newest == self.started.continuation_barrier {
            self.thawing.frozen = Frozen::NONE;
        } else if newest == Some(caller.pc) && self.is_same_method(&caller, &chunk)? {
            return self.next_chunk();
        }
        Ok(caller)
    }

    /// The frames below a stub that thaws some; `stub` is the stub's own frame.
    ///
    /// Until the stub reserves stack space for frames, the chunk has all of them.
    /// `Continuation.yield0` is the newest frame of a thread that has yielded, occurs nowhere else on its stack and is
    /// thawed first: while the chunk begins with it, the chunk has all frames. Later a frame may be neither in the
    /// chunk nor on the stack, so a gap is yielded; those in the chunk are all older. One frame is thawed at a time,
    /// two after a yield. Only short chunks are thawed at once, and of those no frame remains.
    /// Source: `thaw_fast`, `thaw_slow`, `finalize_thaw` in `continuationFreezeThaw.cpp`.
    pub(super) fn step_thaw(&mut self, cursor: Cursor, stub: Option<Frame>) -> Step {
        let emit = stub.map_or(Emit::Nothing, Emit::One);
        if self.is_before_reservation(cursor.pc) {
            return Step { emit, next: self.next_chunk() };
        }
        match self.newest_method() {
            Some(method) if self.calls_yield(method) => Step { emit, next: self.next_chunk() },
            Some(_) if !self.thawing.frozen.is_emptied() => {
                self.thawing.gap = true;
                let gap = Frame::Gap { missing: Missing::Thawing, place: cursor.place() };
                let emit = stub.map_or(Emit::One(gap), |stub| Emit::Two(stub, gap));
                Step { emit, next: self.next_chunk() }
            }
            _ => Step { emit, next: Err(Stop::ContinuationBarrier) },
        }
    }

    /// Steps out of a thaw stub that was interrupted at any instruction.
    ///
    /// The stub sets sp to the continuation's entry and reserves space for frames: the words at its sp and fp are the
    /// carrier's, or stale. Only at its last instructions, where it returns to the newest frame, are the frames thawed.
    /// Source: `generate_cont_thaw` in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 21 and 25.
    pub(super) fn step_interrupted_thaw(
        &mut self,
        cursor: Cursor,
        blob: &CodeBlob,
        stub: Frame,
    ) -> Result<Step, Stop> {
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes)?;
        let thawed = thawed_frame(around.after, &self.capture.registers, cursor.sp);
        let Some((sp, rule)) = thawed else { return Ok(self.step_thaw(cursor, Some(stub))) };
        let caller = self.unwind(Cursor { sp, ..cursor }, 0, rule).filter(|caller| self.is_caller(caller));
        Ok(Step { emit: Emit::One(stub), next: caller.ok_or(Stop::ContinuationBarrier) })
    }

    /// Returns whether the stub at `pc` has yet to reserve space for frames.
    fn is_before_reservation(&self, pc: u64) -> bool {
        let mut ahead = [0; THAW_REACH];
        !self.thawing.in_heap() && self.memory.read(pc, &mut ahead).is_ok() && is_before_reservation(&ahead)
    }

    /// The method of the newest frame of the newest chunk.
    fn newest_method(&mut self) -> Option<Method> {
        let chunk = self.thawing.frozen.chunk(0).filter(|_| !self.thawing.in_heap())?;
        let pc = newest_pc(&chunk)?;
        if self.in_interpreter(pc) {
            return frozen_interpreted(&chunk).map(Method);
        }
        let cursor = Cursor::calling(pc, chunk.base().saturating_add(FRAME_RECORD_BYTES), 0);
        let entry = self.compiled_at(cursor, BlobKind::Nmethod)?;
        self.cache.scope(entry.first).map(|scope| scope.method)
    }

    /// Returns whether the newest frame of `chunk`, which has the pc of `caller`, is of the same method: pcs of the
    /// interpreter are those of many.
    fn is_same_method(&self, caller: &Cursor, chunk: &StackCopy<'_>) -> Result<bool, Stop> {
        if !self.in_interpreter(caller.pc) {
            return Ok(true);
        }
        match frozen_interpreted(chunk) {
            None if self.thawing.frozen.end_of(0) > chunk.end() => Err(Stop::CopyEnd),
            frozen => Ok(frozen.is_some() && frozen == interpreted(&self.stack, caller.fp)),
        }
    }

    /// Returns whether the VM has put the anchor at the entry of the continuation: from there on frames are being
    /// moved, and those between the anchor and the sp are in the heap, on the stack or both. Source:
    /// `set_anchor_to_entry` in `continuationFreezeThaw.cpp`; the entry's address is its sp.
    pub(super) fn is_at_entry(&self, anchor_sp: u64) -> bool {
        anchor_sp != 0 && anchor_sp == self.capture.cont_entry
    }

    /// Returns whether a caller with this sp would lie below the oldest frame of the chunk being walked.
    pub(super) fn leaves_chunk(&self, sp: u64) -> bool {
        self.thawing.in_heap() && sp.saturating_add(FRAME_RECORD_BYTES) >= self.high
    }

    /// pc and fp of the frame at `sp`, from the frame record below it.
    pub(super) fn frame_record(&self, sp: u64) -> Result<(u64, u64), Stop> {
        let pc = return_address(self.word(sp.wrapping_sub(RETURN_ADDRESS_BYTES))?, self.capture.stack_high);
        Ok((pc, self.saved_fp(pc, sp.wrapping_sub(FRAME_RECORD_BYTES))?))
    }

    /// The frame pointer of the frame at `pc`, saved by its callee at `address`.
    fn saved_fp(&self, pc: u64, address: u64) -> Result<u64, Stop> {
        let saved = self.word(address)?;
        let is_distance = self.thawing.in_heap() && self.in_interpreter(pc);
        Ok(if is_distance { address.wrapping_add(saved.wrapping_mul(8)) } else { saved })
    }

    /// The caller of the frozen interpreter frame at `cursor.fp`.
    pub(super) fn caller_of_frozen_interpreter(&self, cursor: Cursor) -> Result<Cursor, Stop> {
        let distance = |slot| self.slot(cursor.fp, slot).map(|words| words.wrapping_mul(8));
        let last_local = cursor.fp.wrapping_add(distance(INTERPRETER_LOCALS)?);
        let doing = Doing::CallingJava;
        if last_local.wrapping_add(8) >= self.high {
            // The oldest frame of the chunk: the words above it are no frame record.
            return Ok(Cursor { pc: 0, sp: self.high, fp: 0, doing });
        }
        let pc = return_address(self.slot(cursor.fp, 1)?, self.capture.stack_high);
        let sp = if self.in_interpreter(pc) {
            cursor.fp.wrapping_add(FRAME_RECORD_BYTES)
        } else {
            cursor.fp.wrapping_add(distance(INTERPRETER_SENDER_SP)?)
        };
        Ok(Cursor { pc, sp, fp: self.saved_fp(pc, cursor.fp)?, doing })
    }
}

/// The method of the interpreter frame at `fp`, by its address.
fn interpreted(stack: &StackCopy<'_>, fp: u64) -> Option<u64> {
    stack.word(fp.wrapping_add_signed(INTERPRETER_METHOD.wrapping_mul(8)))
}

fn newest_pc(chunk: &StackCopy<'_>) -> Option<u64> {
    let word = chunk.word(chunk.base().saturating_add(FRAME_RECORD_BYTES - RETURN_ADDRESS_BYTES))?;
    Some(return_address(word, u64::MAX))
}

/// The method of the newest frame of a chunk, an interpreter frame whose saved fp is a distance.
fn frozen_interpreted(chunk: &StackCopy<'_>) -> Option<u64> {
    let words = chunk.word(chunk.base())?;
    interpreted(chunk, chunk.base().wrapping_add(words.wrapping_mul(8)))
}
