//! Going on in the heap: from the return barrier into the copies of `StackChunk`s, and from one chunk to the next.
//!
//! Frames lie in a chunk as they lay on the stack, with two differences: the bottom of a chunk takes the place of a
//! return address, and links to interpreter frames are distances in words instead of addresses.
//!
//! ```text
//! newest frame of a chunk: pc at [sp-8], link at [sp-16]
//! link to an interpreter frame, at address a:   fp = a + 8 * [a]
//! interpreter frame, caller's sp (slot -1):     sp = fp + 8 * [fp-8]
//! interpreter frame, last local (slot -7):      fp + 8 * [fp-56]; the word above it ends the frame
//! ```
//!
//! Sources: `cpu/x86/{stackChunkFrameStream,continuationFreezeThaw}_x86.inline.hpp`,
//! `share/runtime/stackChunkFrameStream.inline.hpp`, `share/runtime/continuationFreezeThaw.cpp`, JDK 21 and 25.

use super::walk::{Cursor, Doing, Emit, Step, Walk};
use crate::arch::{
    CODE_AFTER, CODE_BEFORE, INTERPRETER_LOCALS, INTERPRETER_METHOD, INTERPRETER_SENDER_SP, ROOM_AHEAD,
    Unwind, brought_back, has_to_make_room,
};
use crate::capture::Capture;
use crate::frame::{Frame, Method, Missing};
use crate::frozen::{CHUNK_LINK_BYTES, Frozen};
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
        let sp = chunk.base().saturating_add(CHUNK_LINK_BYTES);
        let pc = self.word(sp.wrapping_sub(8))?;
        self.aligned(Cursor { pc, sp, fp: self.link(pc, sp.wrapping_sub(16))?, doing: Doing::CallingJava })
    }

    /// The caller of `Continuation.doYield`, whose frame the VM copies into the newest chunk with all those up to the
    /// entry; the chunk's own frames do not change meanwhile.
    ///
    /// Once the chunk says that it has the copies, the walk goes on there, and the frames on the stack are left out.
    /// Until then the last copy may have put the return barrier where the chunk has the pc of its newest frame; the
    /// frames of such a chunk cannot be reached.
    /// Source: `freeze_fast_copy`, `finalize_freeze` and `finish_freeze` in `continuationFreezeThaw.cpp`.
    pub(super) fn caller_of_yield(&mut self, caller: Cursor) -> Result<Cursor, Stop> {
        let Some(chunk) = self.thawing.frozen.chunk(0).filter(|_| !self.thawing.in_heap()) else {
            return Ok(caller);
        };
        let newest = chunk.word(chunk.base().saturating_add(8));
        if newest.is_some() && newest == self.started.continuation_barrier {
            self.thawing.frozen = Frozen::NONE;
        } else if newest == Some(caller.pc) && self.is_same_method(&caller, &chunk)? {
            return self.next_chunk();
        }
        Ok(caller)
    }

    /// The frames below a stub that brings some back from the heap; `stub` is shown above them.
    ///
    /// Until it makes room for them nothing was taken out of the chunk.
    /// `Continuation.yield0` is the newest frame of a thread that has yielded, is nowhere else on its stack and comes back
    /// first: while the chunk begins with it, nothing was taken out. Later it cannot be told whether a frame is on its
    /// way, which a gap says; those still in the chunk are all older. One frame is brought back at a time, two after a
    /// yield; only short chunks are emptied at once, and of those nothing is left to go on with.
    /// Source: `thaw_fast`, `thaw_slow`, `finalize_thaw` in `continuationFreezeThaw.cpp`.
    pub(super) fn step_thaw(&mut self, cursor: Cursor, stub: Option<Frame>) -> Step {
        let shown = stub.map_or(Emit::Nothing, Emit::One);
        if self.has_to_make_room(cursor.pc) {
            return Step { emit: shown, next: self.next_chunk() };
        }
        match self.newest_method() {
            Some(method) if self.calls_yield(method) => Step { emit: shown, next: self.next_chunk() },
            Some(_) if !self.thawing.frozen.is_emptied() => {
                self.thawing.gap = true;
                let gap = Frame::Gap { missing: Missing::Thawing, place: cursor.place() };
                let emit = stub.map_or(Emit::One(gap), |stub| Emit::Two(stub, gap));
                Step { emit, next: self.next_chunk() }
            }
            _ => Step { emit: shown, next: Err(Stop::ContinuationBarrier) },
        }
    }

    /// The same of such a stub stopped at any instruction.
    ///
    /// It begins with the entry's sp, or goes there at once, and makes room for frames: what lies at its sp and fp is
    /// the carrier's or what older frames have left behind. Only at its last instructions, where it goes to the newest
    /// frame, are the frames back.
    /// Source: `generate_cont_thaw` in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 21 and 25.
    pub(super) fn step_interrupted_thaw(
        &mut self,
        cursor: Cursor,
        blob: &CodeBlob,
        stub: Frame,
    ) -> Result<Step, Stop> {
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes)?;
        let Capture { rax, rbx, .. } = self.capture;
        let (sp, rule) = match (around.after, brought_back(around.after, rax, rbx, cursor.sp)) {
            (_, Some(sp)) => (sp, Unwind::Pushed),
            ([0xc3, ..], None) => (cursor.sp, Unwind::Return),
            _ => return Ok(self.step_thaw(cursor, Some(stub))),
        };
        let caller = self.unwind(Cursor { sp, ..cursor }, 0, rule).filter(|caller| self.is_caller(caller));
        Ok(Step { emit: Emit::One(stub), next: caller.ok_or(Stop::ContinuationBarrier) })
    }

    /// Whether the stub at `pc` has taken no frame yet.
    fn has_to_make_room(&self, pc: u64) -> bool {
        let mut ahead = [0; ROOM_AHEAD];
        !self.thawing.in_heap() && self.memory.read(pc, &mut ahead).is_ok() && has_to_make_room(&ahead)
    }

    /// The method of the newest frame of the newest chunk.
    fn newest_method(&mut self) -> Option<Method> {
        let chunk = self.thawing.frozen.chunk(0).filter(|_| !self.thawing.in_heap())?;
        let pc = chunk.word(chunk.base().saturating_add(8))?;
        if self.in_interpreter(pc) {
            return frozen_interpreted(&chunk).map(Method);
        }
        let cursor = Cursor::calling(pc, chunk.base().saturating_add(CHUNK_LINK_BYTES), 0);
        let entry = self.compiled_at(cursor, BlobKind::Nmethod)?;
        self.cache.scope(entry.first).map(|scope| scope.method)
    }

    /// Whether the newest frame of `chunk`, which has the pc of `caller`, is of the same method: pcs of the interpreter
    /// are those of many.
    fn is_same_method(&self, caller: &Cursor, chunk: &StackCopy<'_>) -> Result<bool, Stop> {
        if !self.in_interpreter(caller.pc) {
            return Ok(true);
        }
        match frozen_interpreted(chunk) {
            None if self.thawing.frozen.end_of(0) > chunk.end() => Err(Stop::CopyEnd),
            frozen => Ok(frozen.is_some() && frozen == interpreted(&self.stack, caller.fp)),
        }
    }

    /// Whether the VM has put the anchor at the entry of the continuation: from there on frames are being moved, and
    /// those between the anchor and the sp are in the heap, on the stack or both.
    /// Source: `set_anchor_to_entry` in `continuationFreezeThaw.cpp`; the entry's address is its sp.
    pub(super) fn is_at_entry(&self, anchor_sp: u64) -> bool {
        anchor_sp != 0 && anchor_sp == self.capture.cont_entry
    }

    /// Whether a caller with this sp would lie below the oldest frame of the chunk being walked.
    pub(super) fn leaves_chunk(&self, sp: u64) -> bool {
        self.thawing.in_heap() && sp.saturating_add(CHUNK_LINK_BYTES) >= self.high
    }

    /// The frame pointer of the frame at `pc`, saved by its callee at `address`.
    pub(super) fn link(&self, pc: u64, address: u64) -> Result<u64, Stop> {
        let saved = self.word(address)?;
        let relative = self.thawing.in_heap() && self.in_interpreter(pc);
        Ok(if relative { address.wrapping_add(saved.wrapping_mul(8)) } else { saved })
    }

    /// The caller of the frozen interpreter frame at `cursor.fp`.
    pub(super) fn caller_of_frozen_interpreter(&self, cursor: Cursor) -> Result<Cursor, Stop> {
        let distance = |slot| self.slot(cursor.fp, slot).map(|words| words.wrapping_mul(8));
        let last_local = cursor.fp.wrapping_add(distance(INTERPRETER_LOCALS)?);
        let doing = Doing::CallingJava;
        if last_local.wrapping_add(8) >= self.high {
            // The oldest frame of the chunk: the words of a caller's link are not its own.
            return Ok(Cursor { pc: 0, sp: self.high, fp: 0, doing });
        }
        let pc = self.slot(cursor.fp, 1)?;
        let sp = if self.in_interpreter(pc) {
            cursor.fp.wrapping_add(16)
        } else {
            cursor.fp.wrapping_add(distance(INTERPRETER_SENDER_SP)?)
        };
        Ok(Cursor { pc, sp, fp: self.link(pc, cursor.fp)?, doing })
    }
}

/// The method of the interpreter frame at `fp`, by its address.
fn interpreted(stack: &StackCopy<'_>, fp: u64) -> Option<u64> {
    stack.word(fp.wrapping_add_signed(INTERPRETER_METHOD.wrapping_mul(8)))
}

/// The same of the newest frame of a chunk, whose link is a distance.
fn frozen_interpreted(chunk: &StackCopy<'_>) -> Option<u64> {
    let words = chunk.word(chunk.base())?;
    interpreted(chunk, chunk.base().wrapping_add(words.wrapping_mul(8)))
}
