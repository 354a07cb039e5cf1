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
use crate::cpu::rules::{FrameRegisters, Unwind};

/// Bytes of a frame record: saved frame pointer and return address.
pub const FRAME_RECORD_BYTES: u64 = 16;

/// Bytes of a return address that a call has pushed.
pub(crate) const RETURN_ADDRESS_BYTES: u64 = 8;

/// True if a call leaves the return address in a register, so that a caller may have the same sp.
pub const RETURNS_BY_REGISTER: bool = false;

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

/// Words from fp to the `JavaCallWrapper*` in the frame of the call stub, where the tables lack it: they have it.
pub(crate) const ENTRY_WRAPPER: Option<i32> = None;

/// Words above sp that may hold temporaries pushed by compiled code: string search intrinsics push registers
/// and copy up to 64 bytes to an aligned buffer (`string_indexof` in `macroAssembler_x86.cpp`); 18 words seen.
pub(crate) const MAX_PUSHED_WORDS: u64 = 32;

/// Bytes between the sp of the Java frame that native code returns to and the sp in its anchor.
///
/// Wrappers and stubs set the anchor with sp as it is at the call, the interpreter after two words and its
/// arguments (`MacroAssembler::call_VM_base`); more means that frames of a stub called by the VM lie in between.
pub(crate) const ANCHOR_SLACK: u64 = 256;

/// The return address that is saved in `word`, which this CPU does not sign.
#[must_use]
pub const fn return_address(word: u64, _stack: u64) -> u64 {
    word
}

/// The rules that may lead from a stub without fixed frame, which is calling C code, to its caller, each with the bytes
/// that lie on top.
///
/// Stubs that forward exceptions keep nothing but the return address and a word of alignment; the others
/// keep fp as frame pointer and saved registers on top. The order matters: fp of a forwarding stub is
/// already that of the frame it returns to.
pub(crate) const CALLING_STUB_RULES: [(u64, Unwind); 3] =
    [(0, Unwind::OnTop), (RETURN_ADDRESS_BYTES, Unwind::OnTop), (0, Unwind::FramePointer)];

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
        Unwind::Return | Unwind::OnTop => (sp.checked_add(RETURN_ADDRESS_BYTES)?, false),
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
