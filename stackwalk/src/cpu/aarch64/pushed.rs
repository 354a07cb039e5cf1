//! Words below the fixed frame of compiled code and stubs: arguments and registers that they keep around calls.
//!
//! ```text
//! call of C code:    adr x9, next   mov x8, ...   stp xzr, x9, [sp, #-16]!   blr x8   next: add sp, sp, #16
//! call of a stub:    stp x1, x0, [sp, #-16]!   bl slow_subtype_check   ldp x1, x0, [sp], #16
//! barrier of a GC:   stp ..., [sp, #-n]!   stp ..., [sp, #16] ...   blr x8   ...   ldp ..., [sp], #n   b back
//! ```
//!
//! Compilers write push, call and pop one after the other, so the pushes without a pop between them and the pc are
//! those in force. The search ends where a frame was built, and at the end of other code.
//! Sources: `MachCallRuntime` in `cpu/aarch64/aarch64.ad`, `MacroAssembler::push`, `call_VM_leaf_base` in
//! `macroAssembler_aarch64.cpp`, `emit_typecheck_helper` in `c1_LIRAssembler_aarch64.cpp`, `SaveLiveRegisters` in
//! `gc/z/zBarrierSetAssembler_aarch64.cpp` and `gc/shared/barrierSetAssembler_aarch64.cpp`, JDK 11 to 25.

use super::instruction::{
    Flow, PUSH_RECORD, allocates_by_register, backwards, flow, loads_record, sp_change, stores_record,
};

/// Instructions between the frame record and the allocation of a large frame.
const FRAME_SETUP: usize = 3;

/// Bytes that the code of `before` has pushed and not popped.
pub(super) fn pushed_bytes(before: &[u8]) -> u64 {
    let (mut popped, mut pushed) = (0_u64, 0_u64);
    let mut code = backwards(before);
    while let Some(instruction) = code.next() {
        let ends = matches!(flow(instruction), Flow::Away | Flow::Jump(_));
        if ends || stores_record(instruction) || loads_record(instruction) || instruction == PUSH_RECORD {
            break;
        }
        let change = sp_change(instruction);
        if change < 0 {
            // The allocation of a frame follows its record.
            if instruction & 0x7f80_0000 == 0x5100_0000
                && code.clone().take(FRAME_SETUP).any(|earlier| earlier == PUSH_RECORD)
            {
                break;
            }
            let bytes = change.unsigned_abs();
            let left = bytes.saturating_sub(popped);
            popped = popped.saturating_sub(bytes);
            pushed = pushed.saturating_add(left);
        } else if allocates_by_register(instruction) {
            break;
        } else {
            popped = popped.saturating_add(change.unsigned_abs());
        }
    }
    pushed
}

/// The same in words.
pub(crate) fn words_below(before: &[u8]) -> u64 {
    pushed_bytes(before) / 8
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn pushed(code: &[u32]) -> Vec<u64> {
        let bytes: Vec<u8> = code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect();
        (0..=code.len()).map(|end| pushed_bytes(&bytes[..4 * end])).collect()
    }

    #[test]
    fn from_the_push_to_the_pop() {
        // sub sp, sp, #0x20; stp x29, x30, [sp, #0x10]; stp xzr, x9, [sp, #-16]!; blr x8; add sp, sp, #16; nop
        let code = [0xd100_83ff, 0xa901_7bfd, 0xa9bf_27ff, 0xd63f_0100, 0x9100_43ff, 0xd503_201f];
        assert_eq!(pushed(&code), [0, 32, 0, 16, 16, 0, 0]);
    }

    #[test]
    fn a_large_frame_counts_for_nothing() {
        // stp x29, x30, [sp, #-16]!; sub sp, sp, #0x400; nop, and with mov x8, #0x5000; sub sp, sp, x8.
        assert_eq!(pushed(&[PUSH_RECORD, 0xd110_03ff, 0xd503_201f]), [0, 0, 0, 0]);
        assert_eq!(pushed(&[PUSH_RECORD, 0xd28a_0008, 0xcb28_63ff, 0xd503_201f]), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn pops_of_an_earlier_call_count_for_nothing() {
        // str x1, [sp, #-16]!; bl; ldr x1, [sp], #16; stp x0, x1, [sp, #-32]!; nop; b
        let code =
            [0xf81f_0fe1, 0x9400_0001, 0xf841_07e1, 0xa9be_07e0, 0xd503_201f, 0x1400_0001, 0xd503_201f];
        assert_eq!(pushed(&code), [0, 16, 16, 0, 32, 32, 0, 0]);
    }
}
