//! Frames: where the caller's registers lie, and the fixed slots of interpreter frames.
//!
//! ```text
//! [fp + 8]   return address      the frame record, at the high end of every frame that saves fp:
//! [fp]       saved fp            the caller's sp is fp + 16
//! [fp - 8]   caller's sp         slots of interpreter frames
//! [fp - 24]  Method*
//! [fp - 56]  locals
//! [fp - 64]  bytecode pointer
//! ```
//!
//! Sources: `cpu/x86/frame_x86.hpp`, `frame_x86.cpp`, JDK 11 to 25.

use super::registers::Registers;
use crate::arch::rules::{FrameRegisters, Unwind};

/// Bytes of a frame record: saved frame pointer and return address.
pub const FRAME_RECORD_BYTES: u64 = 16;

/// Bytes of a return address that a call has pushed.
pub(crate) const RETURN_ADDRESS_BYTES: u64 = 8;

/// Words from fp to the caller's sp, before an adapter has moved it.
pub(crate) const INTERPRETER_SENDER_SP: i64 = -1;
/// Words from fp to the `Method*` of an interpreter frame; the same from JDK 11 to 25, in no table.
pub(crate) const INTERPRETER_METHOD: i64 = -3;
/// Words from fp to the place of the last local, from JDK 21 on a distance from fp in words.
pub(crate) const INTERPRETER_LOCALS: i64 = -7;
/// Words from fp to the saved bytecode pointer.
pub(crate) const INTERPRETER_BCP: i64 = -8;
/// Bytes from fp to the lowest fixed slot: a complete interpreter frame reaches at least there.
pub(crate) const INTERPRETER_FIXED_BYTES: u64 = 72;

/// Words above sp that may hold temporaries pushed by compiled code: string search intrinsics push registers
/// and copy up to 64 bytes to an aligned buffer (`string_indexof` in `macroAssembler_x86.cpp`); 18 words seen.
pub(crate) const MAX_PUSHED_WORDS: u64 = 32;

/// The caller of `frame` by `rule`, unchecked; `size` is the complete frame's, `word` reads the stack.
///
/// Registers of the interrupted thread hold no return address here.
pub(crate) fn caller_by(
    rule: Unwind,
    frame: FrameRegisters,
    size: u64,
    _interrupted: &Registers,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<FrameRegisters> {
    let FrameRegisters { sp, fp, .. } = frame;
    let (sp, saved_fp) = match rule {
        Unwind::Whole => (sp.checked_add(size)?, true),
        Unwind::Below(words) => (sp.checked_add(words.checked_mul(8)?)?.checked_add(size)?, true),
        Unwind::WholeFpLive => (sp.checked_add(size)?, false),
        Unwind::Return => (sp.checked_add(RETURN_ADDRESS_BYTES)?, false),
        Unwind::Pushed => (sp.checked_add(FRAME_RECORD_BYTES)?, true),
        Unwind::FramePointer => (fp.checked_add(FRAME_RECORD_BYTES)?, true),
    };
    let fp = if saved_fp { word(sp.checked_sub(FRAME_RECORD_BYTES)?)? } else { fp };
    Some(FrameRegisters { pc: word(sp.checked_sub(RETURN_ADDRESS_BYTES)?)?, sp, fp })
}

/// Address of the return address of a call out of a frame with this sp, which is aligned to 16 bytes for the call.
pub(crate) fn return_address_of_call(sp: u64) -> Option<u64> {
    (sp & !15).checked_sub(RETURN_ADDRESS_BYTES)
}
