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

use super::{Cursor, Doing, Walk};
use crate::arch::{INTERPRETER_LOCALS, INTERPRETER_SENDER_SP};
use crate::frozen::{CHUNK_LINK_BYTES, Frozen};
use crate::memory::Memory;
use crate::stop::Stop;

/// How far a walk has come through the places its frames lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thawing<'w> {
    frozen: Frozen<'w>,
    /// Chunks entered so far; 0 while the walk is on the thread's stack.
    entered: usize,
}

impl<'w> Thawing<'w> {
    pub(super) fn new(frozen: Frozen<'w>) -> Self {
        Self { frozen, entered: 0 }
    }

    /// Forgets the copies: the frames on the stack and those in the heap are being moved from one to the other.
    pub(super) fn forget(&mut self) {
        self.frozen = Frozen::NONE;
    }

    pub(super) fn in_heap(&self) -> bool {
        self.entered > 0
    }
}

impl<M: Memory> Walk<'_, M> {
    /// The newest frame of the next chunk; past the last one, the end of the virtual thread's stack.
    pub(super) fn next_chunk(&mut self) -> Result<Cursor, Stop> {
        let Some(chunk) = self.thawing.frozen.chunk(self.thawing.entered) else {
            let whole = self.thawing.frozen.is_whole();
            return Err(if whole { Stop::EndOfContinuation } else { Stop::ContinuationBarrier });
        };
        self.thawing.entered += 1;
        self.stack = chunk;
        self.low = chunk.base();
        self.high = chunk.end();
        let sp = chunk.base().saturating_add(CHUNK_LINK_BYTES);
        let pc = self.word(sp.wrapping_sub(8))?;
        self.aligned(Cursor { pc, sp, fp: self.link(pc, sp.wrapping_sub(16))?, doing: Doing::CallingJava })
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
