//! State of the stub that thaws frames of a virtual thread, and the return barrier.
//!
//! ```text
//! mov rsp, [r15 + cont_entry]       the return barrier alone
//! call prepare_thaw                 mov rbx, rax: bytes of the frames to thaw
//! sub rsp, rbx   and rsp, -16       space for them
//! call thaw                         mov rbx, rax: sp of the newest frame
//! mov rsp, rbx   sub rsp, 16   pop rbp   ret
//! ```
//!
//! The return barrier saves rax and xmm0 around both calls.
//! Source: `generate_cont_thaw` in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 21 to 28.

use super::frame::FRAME_RECORD_BYTES;
use super::registers::Registers;
use crate::cpu::rules::Unwind;

/// Bytes from the pc on that [`is_before_reservation`] looks at: at most 83 lead to the reservation.
pub(crate) const THAW_REACH: usize = 96;
/// `sub rsp, rbx` and `mov rsp, rbx`.
const RESERVE: [u8; 3] = [0x48, 0x2b, 0xe3];
const TO_FRAMES: [u8; 3] = [0x48, 0x8b, 0xe3];
/// `pop rbp; ret` and `jmp rbx`: ends of the stubs, behind which the next begins.
const ENDS: [[u8; 2]; 2] = [[0x5d, 0xc3], [0xff, 0xe3]];
/// Code between `mov rbx, rax` and `mov rsp, rbx`: `xor rax, rax`, or xmm0 and rax restored, piece by piece.
const RESTORING: [&[u8]; 6] = [
    &[0x48, 0x33, 0xc0],
    &[0xc5, 0xfb, 0x10, 0x04, 0x24, 0x48, 0x83, 0xc4, 0x10, 0x58],
    &[0xf2, 0x0f, 0x10, 0x04, 0x24, 0x48, 0x83, 0xc4, 0x10, 0x58],
    &[0x48, 0x83, 0xc4, 0x10, 0x58],
    &[0x58],
    &[],
];

/// Returns whether the stub has yet to reserve stack space, and so has thawed no frame: `ahead` is the code from the pc
/// on.
pub(crate) fn is_before_reservation(ahead: &[u8]) -> bool {
    let ends = |window: &[u8]| window == TO_FRAMES || ENDS.iter().any(|end| window.starts_with(end));
    ahead.windows(3).find(|window| *window == RESERVE || ends(window)) == Some(&RESERVE[..])
}

/// The sp and the rule for the newest frame, if all frames are thawed and the stub is about to return to them.
///
/// At `sub rsp, 16` the frame record lies below sp, where nothing is copied: the result is `None`.
pub(crate) fn thawed_frame(ahead: &[u8], registers: &Registers, sp: u64) -> Option<(u64, Unwind)> {
    match ahead {
        [0x5d, 0xc3, ..] => return Some((sp, Unwind::Pushed)),
        [0xc3, ..] => return Some((sp, Unwind::Return)),
        _ => {}
    }
    let (newest, rest) = match ahead.strip_prefix(&[0x48, 0x8b, 0xd8]) {
        Some(rest) => (registers.rax, rest),
        None => (registers.rbx, ahead),
    };
    let leads_there =
        |between: &&&[u8]| rest.strip_prefix(**between).is_some_and(|rest| rest.starts_with(&TO_FRAMES));
    RESTORING.iter().find(leads_there)?;
    Some((newest.checked_sub(FRAME_RECORD_BYTES)?, Unwind::Pushed))
}

/// Bytes of the return barrier's first instruction, `mov rsp, [r15 + cont_entry]`.
const BARRIER_SWITCH: usize = 7;

/// Bytes of the return barrier in which the entry of the continuation is on top of the stack: its first instruction, up
/// to `push rax`.
pub(crate) const BARRIER_START: u64 = BARRIER_SWITCH as u64;

/// The return barrier in the code of the continuation stubs: its position and the offset of `JavaThread::_cont_entry`,
/// the operand of its first instruction.
pub(crate) fn return_barrier(code: &[u8]) -> Option<(usize, u32)> {
    code.windows(BARRIER_SWITCH).enumerate().find_map(|(at, window)| match window {
        [0x49, 0x8b, 0xa7, offset @ ..] => Some((at, u32::from_le_bytes(offset.try_into().ok()?))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// From Temurin 21.0.9: the stub that resumes a thread, from its second instruction.
    const RESUME: [u8; 121] = [
        0x49, 0x8b, 0xff, 0x48, 0xc7, 0xc6, 0, 0, 0, 0, 0x40, 0xf6, 0xc4, 0x0f, 0x0f, 0x84, 0x12, 0, 0, 0,
        0x48, 0x83, 0xec, 8, 0xe8, 0xf2, 0x7f, 0xf6, 0x13, 0x48, 0x83, 0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8, 0xe4,
        0x7f, 0xf6, 0x13, 0x48, 0x8b, 0xd8, 0x48, 0x85, 0xdb, 0x75, 5, 0xe9, 0xc7, 0xf9, 0xff, 0xff, 0x48,
        0x2b, 0xe3, 0x48, 0x83, 0xe4, 0xf0, 0x49, 0x8b, 0xff, 0x48, 0xc7, 0xc6, 0, 0, 0, 0, 0x40, 0xf6, 0xc4,
        0x0f, 0x0f, 0x84, 0x12, 0, 0, 0, 0x48, 0x83, 0xec, 8, 0xe8, 0x43, 0xcf, 0xf6, 0x13, 0x48, 0x83, 0xc4,
        8, 0xe9, 5, 0, 0, 0, 0xe8, 0x35, 0xcf, 0xf6, 0x13, 0x48, 0x8b, 0xd8, 0x48, 0x33, 0xc0, 0x48, 0x8b,
        0xe3, 0x48, 0x83, 0xec, 0x10, 0x5d, 0xc3,
    ];
    /// The return barrier of the same, and of 25.0.2.
    const BARRIER_21: [u8; 165] = [
        0x49, 0x8b, 0xa7, 0x30, 5, 0, 0, 0x50, 0x48, 0x83, 0xec, 0x10, 0xc5, 0xfb, 0x11, 4, 0x24, 0x49, 0x8b,
        0xff, 0x48, 0xc7, 0xc6, 1, 0, 0, 0, 0x40, 0xf6, 0xc4, 0x0f, 0x0f, 0x84, 0x12, 0, 0, 0, 0x48, 0x83,
        0xec, 8, 0xe8, 0x68, 0x7f, 0xf6, 0x13, 0x48, 0x83, 0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8, 0x5a, 0x7f, 0xf6,
        0x13, 0x48, 0x8b, 0xd8, 0xc5, 0xfb, 0x10, 4, 0x24, 0x48, 0x83, 0xc4, 0x10, 0x58, 0x48, 0x85, 0xdb,
        0x75, 5, 0xe9, 0x33, 0xf9, 0xff, 0xff, 0x48, 0x2b, 0xe3, 0x48, 0x83, 0xe4, 0xf0, 0x50, 0x48, 0x83,
        0xec, 0x10, 0xc5, 0xfb, 0x11, 4, 0x24, 0x49, 0x8b, 0xff, 0x48, 0xc7, 0xc6, 1, 0, 0, 0, 0x40, 0xf6,
        0xc4, 0x0f, 0x0f, 0x84, 0x12, 0, 0, 0, 0x48, 0x83, 0xec, 8, 0xe8, 0xa5, 0xce, 0xf6, 0x13, 0x48, 0x83,
        0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8, 0x97, 0xce, 0xf6, 0x13, 0x48, 0x8b, 0xd8, 0xc5, 0xfb, 0x10, 4, 0x24,
        0x48, 0x83, 0xc4, 0x10, 0x58, 0x48, 0x8b, 0xe3, 0x48, 0x83, 0xec, 0x10, 0x5d, 0xc3,
    ];
    const BARRIER_25: [u8; 161] = [
        0x49, 0x8b, 0xa7, 0x18, 6, 0, 0, 0x50, 0x48, 0x83, 0xec, 0x10, 0xc5, 0xfb, 0x11, 4, 0x24, 0x49, 0x8b,
        0xff, 0xbe, 1, 0, 0, 0, 0x40, 0xf6, 0xc4, 0x0f, 0x0f, 0x84, 0x12, 0, 0, 0, 0x48, 0x83, 0xec, 8, 0xe8,
        0xae, 0xf6, 0x42, 0x13, 0x48, 0x83, 0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8, 0xa0, 0xf6, 0x42, 0x13, 0x48,
        0x8b, 0xd8, 0xc5, 0xfb, 0x10, 4, 0x24, 0x48, 0x83, 0xc4, 0x10, 0x58, 0x48, 0x85, 0xdb, 0x75, 5, 0xe9,
        0x39, 0xfc, 0xff, 0xff, 0x48, 0x2b, 0xe3, 0x48, 0x83, 0xe4, 0xf0, 0x50, 0x48, 0x83, 0xec, 0x10, 0xc5,
        0xfb, 0x11, 4, 0x24, 0x49, 0x8b, 0xff, 0xbe, 1, 0, 0, 0, 0x40, 0xf6, 0xc4, 0x0f, 0x0f, 0x84, 0x12, 0,
        0, 0, 0x48, 0x83, 0xec, 8, 0xe8, 0x5d, 0x6e, 0x43, 0x13, 0x48, 0x83, 0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8,
        0x4f, 0x6e, 0x43, 0x13, 0x48, 0x8b, 0xd8, 0xc5, 0xfb, 0x10, 4, 0x24, 0x48, 0x83, 0xc4, 0x10, 0x58,
        0x48, 0x8b, 0xe3, 0x48, 0x83, 0xec, 0x10, 0x5d, 0xc3,
    ];

    fn offset_of(code: &[u8], bytes: &[u8]) -> usize {
        code.windows(bytes.len()).position(|window| window == bytes).expect("there")
    }

    #[test]
    fn nothing_is_thawed_before_the_reservation() {
        // The barrier lies behind the other.
        for (code, behind) in [(&RESUME[..], &BARRIER_21[..]), (&BARRIER_21, &BARRIER_21), (&BARRIER_25, &[])]
        {
            let reservation = offset_of(code, &RESERVE);
            let all: Vec<u8> = code.iter().chain(behind).copied().collect();
            // At `ret`, the last byte, the stub is over.
            for pc in 0..code.len() - 1 {
                let ahead = &all[pc..all.len().min(pc + THAW_REACH)];
                assert_eq!(is_before_reservation(ahead), pc <= reservation, "{pc}");
            }
        }
    }

    #[test]
    fn frames_are_thawed_once_the_vm_has_returned_their_sp() {
        const RAX: u64 = 0x1010;
        const RBX: u64 = 0x2010;
        const SP: u64 = 0x3000;
        for code in [&RESUME[..], &BARRIER_21, &BARRIER_25] {
            let switch = offset_of(code, &TO_FRAMES);
            let returned =
                code[..switch].windows(3).rposition(|window| window == [0x48, 0x8b, 0xd8]).expect("there");
            let starts = |pc: usize| code.get(pc..switch).is_some_and(|between| RESTORING.contains(&between));
            for pc in 0..code.len() {
                let expected = match pc {
                    _ if pc == returned => Some((0x1000, Unwind::Pushed)),
                    _ if pc > returned && starts(pc) => Some((0x2000, Unwind::Pushed)),
                    _ if pc == switch + 7 => Some((SP, Unwind::Pushed)),
                    _ if code[pc] == 0xc3 && pc + 1 == code.len() => Some((SP, Unwind::Return)),
                    _ => None,
                };
                let registers = Registers { rax: RAX, rbx: RBX, ..Registers::default() };
                assert_eq!(thawed_frame(&code[pc..], &registers, SP), expected, "{pc}");
            }
        }
    }
}
