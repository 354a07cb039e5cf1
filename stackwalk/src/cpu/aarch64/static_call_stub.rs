//! The static call stub at the end of an nmethod, which takes no part in its method's frame.
//!
//! ```text
//! [isb]   mov x12, method (three instructions)   mov x8, entry (three)   br x8        before JDK 22: with isb
//! ```
//!
//! A call from compiled to interpreted code leads to the stub; the return address is in x30.
//! Sources: `MacroAssembler::emit_static_call_stub` in `cpu/aarch64/macroAssembler_aarch64.cpp`,
//! `CompiledStaticCall::emit_to_interp_stub` in `compiledIC_aarch64.cpp`, JDK 11 to 25.

use super::instruction::{backwards, instructions};
use crate::cpu::rules::Around;

/// `isb`.
const ISB: u32 = 0xd503_3fdf;
/// `br x8`.
const JUMP: u32 = 0xd61f_0100;
/// Most instructions of a stub.
const LENGTH: usize = 8;

/// Bytes from the start of a static call stub to the pc, if the pc may be in one.
pub(crate) fn static_call_stub_offset(around: Around<'_>) -> Option<u64> {
    let is_part = |instruction: u32| instruction == ISB || loads(instruction, 12) || loads(instruction, 8);
    let ahead = instructions(around.after).take(LENGTH).position(|instruction| instruction == JUMP)?;
    let parts_ahead = instructions(around.after).take(ahead);
    let behind =
        backwards(around.before).take(LENGTH).take_while(|&instruction| is_part(instruction)).count();
    // It begins with the barrier or with the method, and both addresses are there.
    let mut whole = backwards(around.before).take(behind).chain(parts_ahead.clone());
    let is_stub = parts_ahead.clone().all(is_part)
        && (6..LENGTH).contains(&behind.saturating_add(ahead))
        && whole.clone().any(|instruction| loads(instruction, 12))
        && whole.any(|instruction| loads(instruction, 8));
    is_stub.then_some(4 * behind as u64)
}

/// True for `mov xN, #imm` and `movk xN, #imm`.
fn loads(instruction: u32, register: u32) -> bool {
    instruction & 31 == register && matches!(instruction & 0xff80_0000, 0xd280_0000 | 0xf280_0000)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn all_instructions_of_a_static_call_stub() {
        let code: Vec<u8> = [
            0xd503_201f,
            0x1400_0001, // nop; b
            ISB,
            0xd282_460c,
            0xf2aa_cf0c,
            0xf2c0_0fec, // mov x12
            0xd282_4608,
            0xf2aa_cf08,
            0xf2c0_0fe8,
            JUMP, // mov x8; br x8
            0xd503_201f,
        ]
        .iter()
        .flat_map(|instruction: &u32| instruction.to_le_bytes())
        .collect();
        let at = |pc: usize| {
            static_call_stub_offset(Around {
                before: &code[..4 * pc],
                after: &code[4 * pc..],
                from_entry: false,
            })
        };
        let found: Vec<_> = (0..11).map(at).collect();
        let inside = [0, 4, 8, 12, 16, 20, 24, 28].map(Some);
        assert_eq!(found[2..10], inside);
        assert_eq!((found[0], found[1], found[10]), (None, None, None));
    }
}
