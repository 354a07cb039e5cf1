//! The frame of an upcall stub, through which native code calls Java (JDK 21 and later).
//!
//! ```text
//! stp x29, x30, [sp, #-16]!   mov x29, sp   sub sp, sp, #n   ...
//! add x0, sp, #data   [mov x1, receiver]   mov x8, on_entry   blr x8   ...   blr x8
//! ...   add x0, sp, #data   mov x8, on_exit   blr x8   ...   mov sp, x29   ldp x29, x30, [sp], #16   ret
//! ```
//!
//! From `mov x29, sp` to the last load x29 is the frame pointer, also where the stub pushes registers around a barrier.
//! Source: `UpcallLinker::make_upcall_stub` in `cpu/aarch64/upcallLinker_aarch64.cpp`, JDK 21 and 25.

use super::instruction::{PUSH_RECORD, RET, called_register, first, instructions, sp_change};
use crate::cpu::rules::{Unwind, UpcallFrame};

/// Bytes of an upcall stub that [`upcall_frame`] looks at: up to the return address of its first call, with all
/// argument registers spilled and all preserved registers saved.
pub(crate) const UPCALL_START: usize = 384;

/// `mov x29, sp`.
const SET_FRAME_POINTER: u32 = 0x9100_03fd;
/// Most instructions between the address of the frame's data and the call that takes it: a receiver and a target, three
/// each.
const CALL_INSTRUCTIONS: usize = 8;

/// The frame of the upcall stub with this code, of which [`UPCALL_START`] bytes are enough; `None` for other code.
pub(crate) fn upcall_frame(code: &[u8]) -> Option<UpcallFrame> {
    let mut all = instructions(code);
    if all.next()? != PUSH_RECORD || all.next()? != SET_FRAME_POINTER {
        return None;
    }
    let bytes = u64::try_from(sp_change(all.next()?).checked_neg()?).ok().filter(|bytes| *bytes > 0)?;
    // add x0, sp, #imm.
    let is_address = |instruction: u32| instruction & 0xffc0_03ff == 0x9100_03e0;
    let at = instructions(code).position(is_address)?;
    let data = u64::from(instructions(code).nth(at)? >> 10 & 0xfff);
    let behind = instructions(code).skip(at).take(CALL_INSTRUCTIONS);
    let call =
        at.checked_add(behind.clone().position(|instruction| called_register(instruction).is_some())?)?;
    let entered = u64::try_from(call.checked_add(1)?.checked_mul(4)?).ok()?;
    (data < bytes).then_some(UpcallFrame { bytes, data, entered })
}

/// State of an upcall stub's frame this many bytes behind its first instruction; `after` is the code from there on.
pub(crate) fn upcall_state(offset: u64, after: &[u8]) -> Unwind {
    match offset {
        0..4 => Unwind::Return,
        4..8 => Unwind::Pushed,
        _ if first(after) == Some(RET) => Unwind::Return,
        _ => Unwind::FramePointer,
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::cpu::aarch64::instruction::{LEAVE, POP_RECORD};

    /// enter; sub sp, sp, #0x120; str x0, [sp, #0x10]; str x19, [sp, #0x50]; add x0, sp, #0xe0; mov x1; movk x1;
    /// mov x8; movk x8; movk x8; blr x8; mov x28, x0
    const STUB: [u32; 13] = [
        PUSH_RECORD,
        0x9100_03fd,
        0xd104_83ff,
        0xf900_0be0,
        0xf900_2bf3,
        0x9103_83e0,
        0xd282_4681,
        0xf2aa_cf01,
        0xd28a_cf08,
        0xf2a2_4688,
        0xf2c0_0fe8,
        0xd63f_0100,
        0xaa00_03fc,
    ];

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    #[test]
    fn frame_of_a_stub() {
        let frame = UpcallFrame { bytes: 0x120, data: 0xe0, entered: 48 };
        assert_eq!(upcall_frame(&bytes(&STUB)), Some(frame));
        for length in 0..12 {
            assert_eq!(upcall_frame(&bytes(&STUB[..length])), None, "{length}");
        }
        let mut small = STUB;
        small[2] = 0xd101_03ff;
        assert_eq!(upcall_frame(&bytes(&small)), None, "data outside of the frame");
        assert_eq!(upcall_frame(&bytes(&STUB[1..])), None, "another start");
    }

    #[test]
    fn states() {
        use Unwind::{FramePointer, Pushed, Return};
        let code = bytes(&STUB);
        let states = [0, 4, 8, 48].map(|offset| upcall_state(offset, &code[offset as usize..]));
        assert_eq!(states, [Return, Pushed, FramePointer, FramePointer]);
        let exit = [LEAVE, POP_RECORD, RET].map(|next| upcall_state(200, &bytes(&[next])));
        assert_eq!(exit, [FramePointer, FramePointer, Return]);
    }
}
