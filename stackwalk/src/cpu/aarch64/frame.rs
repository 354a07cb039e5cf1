//! Frames: where the caller's registers lie, and the fixed slots of interpreter frames.
//!
//! ```text
//! [fp + 8]   return address      the frame record, at the high end of every frame of Java code and stubs:
//! [fp]       saved fp            the caller's sp is fp + 16
//! [fp - 8]   caller's sp         slots of interpreter frames
//! [fp - 24]  Method*
//! [fp - 64]  locals
//! [fp - 72]  bytecode pointer
//! ```
//!
//! A call leaves the return address in the link register; the callee saves it with its frame, if it builds one.
//! A return address may be signed in its unused high bits.
//! Sources: `cpu/aarch64/frame_aarch64.hpp`, `frame_aarch64.cpp`, `pauth_aarch64.hpp`, JDK 11 to 25; Linux
//! `Documentation/arch/arm64/pointer-authentication.rst` and `memory.rst`.

use super::registers::Registers;
use crate::cpu::rules::{FrameRegisters, Unwind};

/// Bytes of a frame record: saved frame pointer and return address.
pub const FRAME_RECORD_BYTES: u64 = 16;

/// Bytes of a return address in a frame record.
pub(crate) const RETURN_ADDRESS_BYTES: u64 = 8;

/// True if a call leaves the return address in a register, so that a caller may have the same sp.
pub const RETURNS_BY_REGISTER: bool = true;

/// Words from fp to the caller's sp, before an adapter has moved it.
pub(crate) const INTERPRETER_SENDER_SP: i64 = -1;
/// Words from fp to the `Method*` of an interpreter frame; the same from JDK 11 to 25, in no table.
pub(crate) const INTERPRETER_METHOD: i64 = -3;
/// Words from fp to the place of the last local, from JDK 21 on a distance from fp in words.
pub(crate) const INTERPRETER_LOCALS: i64 = -8;
/// Words from fp to the saved bytecode pointer.
pub(crate) const INTERPRETER_BCP: i64 = -9;
/// Bytes from fp to the lowest fixed slot: a complete interpreter frame reaches at least there.
pub(crate) const INTERPRETER_FIXED_BYTES: u64 = 80;
/// Words from fp to the `JavaCallWrapper*` in the frame of the call stub (`entry_frame_call_wrapper_offset`); in no
/// table.
pub(crate) const ENTRY_WRAPPER: Option<i32> = Some(-8);

/// Words above sp that may hold temporaries pushed by compiled code: collectors' barriers save up to 18 general
/// registers and some vector registers.
pub(crate) const MAX_PUSHED_WORDS: u64 = 64;

/// Bytes between the sp of the Java frame that native code returns to and the sp in its anchor. The interpreter
/// reserves space for all values of a method below the last one in use, and its anchor has the latter's address.
pub(crate) const ANCHOR_SLACK: u64 = 4096;

/// Bits of an address that every kernel lets user space use, unless a program requests more.
const ADDRESS_BITS: u32 = 48;

/// The return address that is saved in `word`, without its signature; `stack` is an address on the stack.
///
/// Signed addresses have bits above those of all addresses. Kernels with smaller address spaces sign from their highest
/// bit on, below which stacks lie.
#[must_use]
pub fn return_address(word: u64, stack: u64) -> u64 {
    if word >> ADDRESS_BITS == 0 {
        return word;
    }
    let bits = u64::BITS.saturating_sub(stack.leading_zeros()).clamp(39, ADDRESS_BITS);
    word & ((1 << bits) - 1)
}

/// The caller of `frame` by `rule`, unchecked; `size` is the complete frame's, `word` reads the stack.
pub(crate) fn caller_by(
    rule: Unwind,
    frame: FrameRegisters,
    size: u64,
    interrupted: &Registers,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<FrameRegisters> {
    let FrameRegisters { sp, fp, .. } = frame;
    let by_link = |sp: u64| Some(FrameRegisters { pc: return_address(interrupted.lr, sp), sp, fp });
    let sp = match rule {
        Unwind::Whole => sp.checked_add(size)?,
        Unwind::Below(words) => sp.checked_add(words.checked_mul(8)?)?.checked_add(size)?,
        Unwind::WholeFpLive => return by_link(sp.checked_add(size)?),
        Unwind::Return => return by_link(sp),
        Unwind::OnTop => {
            let pc = return_address(word(sp)?, sp);
            return Some(FrameRegisters { pc, sp: sp.checked_add(RETURN_ADDRESS_BYTES)?, fp });
        }
        Unwind::Pushed => sp.checked_add(FRAME_RECORD_BYTES)?,
        Unwind::FramePointer => fp.checked_add(FRAME_RECORD_BYTES)?,
    };
    let fp = word(sp.checked_sub(FRAME_RECORD_BYTES)?)?;
    let pc = return_address(word(sp.checked_sub(RETURN_ADDRESS_BYTES)?)?, sp);
    Some(FrameRegisters { pc, sp, fp })
}

/// True if the interpreter's entry of an intrinsic method jumps to a routine of `StubRoutines`, which then returns to
/// the method's caller.
///
/// Source: `generate_CRC32_update_entry` and others in `cpu/aarch64/templateInterpreterGenerator_aarch64.cpp`, JDK 11
/// to 25.
pub(crate) const METHODS_JUMP_TO_ROUTINES: bool = true;

/// The rules that may lead from a stub without fixed frame, which is calling C code, to its caller, each with the bytes
/// that lie on top.
pub(crate) const CALLING_STUB_RULES: [(u64, Unwind); 1] = [(0, Unwind::FramePointer)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_by_register_and_by_record() {
        let words = [0x10, 0x20, 0x7ffc, 0x1234, 0x7ff0, 0x0055_0000_0000_5678_u64];
        let word = |address: u64| words.get(usize::try_from(address.checked_sub(0x8000)? / 8).ok()?).copied();
        let registers = Registers { lr: 0x99, ..Registers::default() };
        let frame = FrameRegisters { pc: 0, sp: 0x8000, fp: 0x8010 };
        let by = |rule| caller_by(rule, frame, 32, &registers, word);
        let found = |pc, sp, fp| Some(FrameRegisters { pc, sp, fp });
        assert_eq!(by(Unwind::Return), found(0x99, 0x8000, 0x8010));
        assert_eq!(by(Unwind::WholeFpLive), found(0x99, 0x8020, 0x8010));
        assert_eq!(by(Unwind::Pushed), found(0x20, 0x8010, 0x10));
        assert_eq!(by(Unwind::OnTop), found(0x10, 0x8008, 0x8010));
        assert_eq!(by(Unwind::Whole), found(0x1234, 0x8020, 0x7ffc));
        assert_eq!(by(Unwind::FramePointer), by(Unwind::Whole));
        assert_eq!(by(Unwind::Below(2)), found(0x5678, 0x8030, 0x7ff0), "signed");
        assert_eq!(by(Unwind::Below(4)), None, "not copied");
    }

    #[test]
    fn signatures_lie_above_the_address_space() {
        let stack = 0x0000_ffff_8000_0000;
        assert_eq!(return_address(0x0000_aaaa_1234_5678, stack), 0x0000_aaaa_1234_5678);
        assert_eq!(return_address(0x007e_aaaa_1234_5678, stack), 0x0000_aaaa_1234_5678);
        assert_eq!(return_address(0x0012_3455_1234_5678, 0x7f_8000_0000), 0x55_1234_5678, "39 bits");
    }
}
