//! Positions of a walk from which on the rest repeats whenever the copied bytes above are the same.
//!
//! Problem: consecutive samples of a thread share their older frames, and walking these again finds nothing new.
//! Approach: [`Frames::position`] returns everything that the remaining steps depend on besides the copied bytes, the code
//! ([`Frames::code`]) and what is fixed for a thread. From there on the walk reads no byte below
//! [`Position::lowest_read`]: the copy is cut there.
//! Invariant: a position exists only on the thread's stack, between two frames, where no register of the capture decides
//! on the next step. Stubs are the exception, so users leave out positions at stubs and above them.

use super::Frames;
use super::walk::{Doing, Emit};
use crate::cpu::FRAME_RECORD_BYTES;
use crate::hotspot::nmethod::Compilation;
use crate::memory::Memory;

/// State of a walk in front of a frame that is calling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Return address.
    pub pc: u64,
    /// Stack pointer of the frame.
    pub sp: u64,
    /// Frame pointer register while the frame runs.
    pub fp: u64,
    is_calling_java: bool,
    has_followed_jump: bool,
}

impl Position {
    /// Returns the lowest address that the remaining steps read.
    #[must_use]
    pub fn lowest_read(&self) -> u64 {
        self.sp.saturating_sub(FRAME_RECORD_BYTES)
    }
}

impl<M: Memory> Frames<'_, M> {
    /// Returns the position of the walk if the next frame is calling and lies on the thread's stack.
    pub fn position(&mut self) -> Option<Position> {
        let (Emit::Nothing, Ok(cursor), None) = (self.pending, self.next, self.stop) else { return None };
        let walk = self.walk.as_mut()?;
        let is_calling_java = match cursor.doing {
            Doing::CallingJava => true,
            Doing::CallingVm => false,
            _ => return None,
        };
        if walk.thawing.in_heap() || walk.thawing.gap || walk.caller_may_keep_sp {
            return None;
        }
        let has_followed_jump = walk.has_followed_jump;
        let position =
            Position { pc: cursor.pc, sp: cursor.sp, fp: cursor.fp, is_calling_java, has_followed_jump };
        walk.stack = walk.stack.from(position.lowest_read());
        Some(position)
    }

    /// Returns the code of the last frame, if it is compiled.
    #[must_use]
    pub fn code(&self) -> Option<Compilation> {
        self.walk.as_ref()?.code
    }
}
