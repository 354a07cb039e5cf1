//! Call instructions, and the trampolines through which compiled code calls code that is far away.
//!
//! Sources: `cpu/aarch64/nativeInst_aarch64.hpp`, `macroAssembler_aarch64.cpp` (`trampoline_call`,
//! `emit_trampoline_stub`, `far_call`, `movptr`), `MachCallRuntime` in `aarch64.ad`, JDK 11 to 25.

use super::instruction::{
    INSTRUCTION_BYTES, backwards, call_distance, called_register, instructions, pc_relative,
};
use crate::cpu::rules::CallTarget;

/// Length of `bl`, the only call between functions of one library.
pub(crate) const DIRECT_CALL_BYTES: u64 = 4;
/// Longest routine of libjvm without unwind tables, generously.
pub(crate) const ASSEMBLER_ROUTINE_BYTES: u64 = 1024;
/// Length of the longest call recognised: three instructions that make the address, two that store a frame anchor or a
/// record for it, and the call.
pub(crate) const CALL_BYTES: u64 = 40;

/// The target of the call that ends `before`, the bytes up to a return address `at`; `None` if it is no call.
pub(crate) fn call_before(before: &[u8], at: u64) -> Option<CallTarget> {
    let mut code = backwards(before);
    let call = code.next()?;
    if let Some(distance) = call_distance(call) {
        let from = at.wrapping_sub(INSTRUCTION_BYTES as u64);
        return Some(CallTarget::Known(from.wrapping_add_signed(distance)));
    }
    let register = called_register(call)?;
    let mut parts: [Option<u64>; 4] = [None; 4];
    let mut added = 0;
    for (distance, instruction) in (2..).zip(code) {
        if instruction & 31 != register {
            continue;
        }
        let place = at.wrapping_sub(INSTRUCTION_BYTES as u64 * distance);
        let shift = (instruction >> 21) & 3;
        let value = u64::from((instruction >> 5) & 0xffff) << (16 * shift);
        let part = parts.get_mut(shift as usize);
        match instruction {
            // movk.
            i if i & 0xff80_0000 == 0xf280_0000 => {
                part.map(|part| part.get_or_insert(value));
            }
            // movz, the first of the three.
            i if i & 0xff80_0000 == 0xd280_0000 => {
                part.map(|part| part.get_or_insert(value));
                return Some(CallTarget::Known(parts.into_iter().flatten().fold(0, |all, part| all | part)));
            }
            // add xN, xN, #imm.
            i if i & 0xffc0_0000 == 0x9100_0000 && (i >> 5) & 31 == register => {
                added = u64::from((i >> 10) & 0xfff);
            }
            i => {
                let page = pc_relative(i, place);
                return Some(
                    page.map_or(CallTarget::Indirect, |page| CallTarget::Known(page.wrapping_add(added))),
                );
            }
        }
    }
    Some(CallTarget::Indirect)
}

/// Bytes of a trampoline.
pub(crate) const TRAMPOLINE_BYTES: usize = 16;

/// The target of a trampoline, `ldr x8, #8; br x8` and the address behind them; `None` for other code.
pub(crate) fn trampoline_target(code: &[u8; TRAMPOLINE_BYTES]) -> Option<u64> {
    let (jump, target) = code.split_last_chunk::<8>()?;
    instructions(jump).eq([0x5800_0048, 0xd61f_0100]).then_some(u64::from_le_bytes(*target))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    #[test]
    fn calls() {
        assert_eq!(call_before(&bytes(&[0x9400_0004]), 0x1004), Some(CallTarget::Known(0x1010)));
        assert_eq!(call_before(&bytes(&[0xd63f_0100]), 0x1004), Some(CallTarget::Indirect));
        // mov x8, #0x5678; movk x8, #0x1234, lsl #16; movk x8, #0x7f, lsl #32; stp xzr, x9, [sp, #-16]!; blr x8
        let runtime = [0xd28a_cf08, 0xf2a2_4688, 0xf2c0_0fe8, 0xa9bf_27ff, 0xd63f_0100];
        assert_eq!(call_before(&bytes(&runtime), 0x1000), Some(CallTarget::Known(0x7f_1234_5678)));
        // adrp x8, +1 page; add x8, x8, #0x10; blr x8
        let far = [0xb000_0008, 0x9100_4108, 0xd63f_0100];
        assert_eq!(call_before(&bytes(&far), 0x100c), Some(CallTarget::Known(0x2010)));
        // ldr x8, [x12, #64]; blr x8
        assert_eq!(call_before(&bytes(&[0xf940_2188, 0xd63f_0100]), 0x1000), Some(CallTarget::Indirect));
        assert_eq!(call_before(&bytes(&[0xd503_201f; 10]), 0x1000), None);
        assert_eq!(call_before(&[0x94], 0x1000), None);
    }

    #[test]
    fn trampolines() {
        let mut code = [0; TRAMPOLINE_BYTES];
        code[..8].copy_from_slice(&bytes(&[0x5800_0048, 0xd61f_0100]));
        code[8..].copy_from_slice(&0x1234_u64.to_le_bytes());
        assert_eq!(trampoline_target(&code), Some(0x1234));
        assert_eq!(trampoline_target(&[0; TRAMPOLINE_BYTES]), None);
    }
}
