//! State of the stub that thaws frames of a virtual thread, and the return barrier.
//!
//! ```text
//! ldr x8, [x28, #cont_entry]   mov sp, x8      the return barrier alone
//! call prepare_thaw                            mov x9, x0: bytes of the frames to thaw
//! sub x8, sp, x9   and ...   mov sp, x8        space for them
//! call thaw                                    mov x9, x0: sp of the newest frame
//! sub sp, x9, #16   mov x29, sp   mov sp, x29   ldp x29, x30, [sp], #16   ret
//! ```
//!
//! The return barrier saves x0 and d0 around both calls.
//! Source: `generate_cont_thaw` in `cpu/aarch64/stubGenerator_aarch64.cpp`, JDK 21 and 25.

use super::frame::FRAME_RECORD_BYTES;
use super::instruction::{LEAVE, POP_RECORD, RET, instructions, thread_load};
use super::registers::Registers;
use crate::cpu::rules::Unwind;

/// Bytes from the pc on that [`is_before_reservation`] looks at.
pub(crate) const THAW_REACH: usize = 160;
/// `sub x8, sp, x9`.
const RESERVE: u32 = 0xcb29_63e8;
/// `sub sp, x9, #16`.
const TO_FRAMES: u32 = 0xd100_413f;
/// `mov x9, x0`.
const KEEP_RESULT: u32 = 0xaa00_03e9;
/// `mov sp, x8`.
const SWITCH: u32 = 0x9100_011f;
/// `mov x29, sp`.
const SET_FRAME_POINTER: u32 = 0x9100_03fd;

/// Returns whether the stub has yet to reserve stack space, and so has thawed no frame: `ahead` is the code from the pc
/// on.
pub(crate) fn is_before_reservation(ahead: &[u8]) -> bool {
    instructions(ahead).find(|&instruction| matches!(instruction, RESERVE | TO_FRAMES | RET)) == Some(RESERVE)
}

/// The sp and the rule for the newest frame, if all frames are thawed and the stub is about to return to them.
///
/// At `sub sp, x9, #16` the frame record lies at that sp, where nothing is copied before the instruction runs.
pub(crate) fn thawed_frame(ahead: &[u8], registers: &Registers, sp: u64) -> Option<(u64, Unwind)> {
    let mut code = instructions(ahead);
    match (code.next()?, code.next()) {
        (SET_FRAME_POINTER, Some(LEAVE)) | (LEAVE, Some(POP_RECORD)) | (POP_RECORD, Some(RET)) => {
            return Some((sp, Unwind::Pushed));
        }
        (RET, _) => return Some((sp, Unwind::Return)),
        _ => {}
    }
    let between = instructions(ahead).position(|instruction| instruction == TO_FRAMES)?;
    let newest = match instructions(ahead).next()? {
        KEEP_RESULT => registers.x0,
        // x0 and d0 restored: ldp x8, x0, [sp], #16; fmov d0, x8; mov x0, xzr.
        0xa8c1_03e8 | 0x9e67_0100 | 0xaa1f_03e0 | TO_FRAMES => registers.x9,
        _ => return None,
    };
    (between <= 3).then_some((newest.checked_sub(FRAME_RECORD_BYTES)?, Unwind::Pushed))
}

/// Bytes of the return barrier in which the entry of the continuation is on top of the stack: up to the push of the
/// result.
pub(crate) const BARRIER_START: u64 = 12;

/// The return barrier in the code of the continuation stubs: its position and the offset of `JavaThread::_cont_entry`,
/// the operand of its first instruction.
pub(crate) fn return_barrier(code: &[u8]) -> Option<(usize, u32)> {
    let pairs = instructions(code).zip(instructions(code).skip(1));
    pairs.enumerate().find_map(|(at, (load, switch))| {
        let (register, offset) = thread_load(load)?;
        (register == 8 && switch == SWITCH).then_some((4 * at, offset))
    })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// The return barrier without its calls.
    const BARRIER: [u32; 17] = [
        0xf943_1388,
        SWITCH,
        0x9e66_0008,
        0xa9bf_03e8,
        0xd63f_0100,
        KEEP_RESULT,
        0xa8c1_03e8,
        0x9e67_0100,
        RESERVE,
        0x927c_ed08,
        SWITCH,
        0xd63f_0100,
        KEEP_RESULT,
        TO_FRAMES,
        SET_FRAME_POINTER,
        LEAVE,
        POP_RECORD,
    ];

    fn bytes() -> Vec<u8> {
        BARRIER.iter().chain(&[RET]).flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    #[test]
    fn nothing_is_thawed_before_the_reservation() {
        let code = bytes();
        for at in 0..=BARRIER.len() {
            assert_eq!(is_before_reservation(&code[4 * at..]), at <= 8, "{at}");
        }
    }

    #[test]
    fn frames_are_thawed_once_the_vm_has_returned_their_sp() {
        let code = bytes();
        let registers = Registers { x0: 0x1010, x9: 0x2010, ..Registers::default() };
        for at in 9..=BARRIER.len() {
            let expected = match at {
                12 => Some((0x1000, Unwind::Pushed)),
                13 => Some((0x2000, Unwind::Pushed)),
                14..=16 => Some((0x3000, Unwind::Pushed)),
                17 => Some((0x3000, Unwind::Return)),
                _ => None,
            };
            assert_eq!(thawed_frame(&code[4 * at..], &registers, 0x3000), expected, "{at}");
        }
    }

    #[test]
    fn the_barrier_begins_with_the_entry() {
        let code = [0xd503_201f_u32.to_le_bytes().to_vec(), bytes()].concat();
        assert_eq!(return_barrier(&code), Some((4, 0x620)));
        assert_eq!(return_barrier(&code[8..40]), None);
    }
}
