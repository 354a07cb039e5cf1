//! The call stub and the adapters, through which Java methods are entered.
//!
//! ```text
//! call stub:  stp x29, x30, [sp, #-16]!   mov x29, sp   sub sp, x29, #n   ...   stp x0, x1, [x29, #wrapper]
//!             ...   blr x4   ...   mov sp, x29   ldp x29, x30, [sp], #16   ret
//!             and blocks that store the result and jump back
//! adapter:    mov x13 or x19, sp   sub sp, sp, #n   ...   br x8
//! ```
//!
//! Sources: `generate_call_stub` in `cpu/aarch64/stubGenerator_aarch64.cpp`, `gen_c2i_adapter`,
//! `patch_callers_callsite` in `cpu/aarch64/sharedRuntime_aarch64.cpp`, JDK 11 to 25.

use super::instruction::{POP_RECORD, PUSH_RECORD, RET, backwards, instructions};
use super::registers::PreservedRegisters;
use crate::cpu::rules::Unwind;

/// Bytes of the call stub before and after the return address of its call that [`entry_frame`] looks at.
pub(crate) const CALL_STUB_REACH: u64 = 0x180;

/// Longest code of the call stub after its `ret`, in instructions: three results, each stored by two.
const RESULT_BLOCKS: usize = 6;

/// State of the call stub's frame at `pc`: [`Unwind::Whole`] once the wrapper is stored `wrapper` words from fp; until
/// then it is in x0.
///
/// `pc` and `returns`, the return address of its call, are indices into `code`. `None` for other code, and once the
/// frame pointer is gone, where nothing leads to the wrapper.
pub(crate) fn entry_frame(code: &[u8], returns: usize, pc: usize, wrapper: i64) -> Option<Unwind> {
    let (before, after) = code.split_at_checked(returns)?;
    // stp x0, x1, [x29, #8 * wrapper].
    let store = 0xa900_07a0 | (wrapper as u32 & 0x7f) << 15;
    let distance_back = |wanted: u32| {
        let place = backwards(before).position(|instruction| instruction == wanted)?;
        returns.checked_sub(4 * place.checked_add(1)?)
    };
    let (enter, saved) = (distance_back(PUSH_RECORD)?, distance_back(store)?.checked_add(4)?);
    let leaves = instructions(after).zip(instructions(after).skip(1));
    let exit = 4 * leaves.clone().position(|pair| pair == (POP_RECORD, RET))?;
    let exit = exit.checked_add(returns)?;
    let ended = exit.checked_add(8)?;
    if enter > saved || pc < enter {
        return None;
    }
    Some(match pc - enter {
        0 => Unwind::Return,
        1..8 => Unwind::Pushed,
        _ if pc < saved => Unwind::FramePointer,
        _ if pc <= exit => Unwind::Whole,
        _ if pc >= ended && pc < ended.saturating_add(4 * RESULT_BLOCKS) => Unwind::Whole,
        _ => return None,
    })
}

/// Returns whether an adapter from compiled to interpreted code has copied the caller's sp into a register; `before` is
/// its code up to the pc.
pub(crate) fn has_saved_sender_sp(before: &[u8]) -> bool {
    // mov x13, sp; mov x19, sp; and br, with which the adapter before ends.
    let found = backwards(before).find(|instruction| {
        matches!(instruction, 0x9100_03ed | 0x9100_03f3) || instruction & 0xffff_fc1f == 0xd61f_0000
    });
    matches!(found, Some(0x9100_03ed | 0x9100_03f3))
}

/// The sp and the rule that lead to the caller of an adapter, which has this sp and a frame while it calls the VM.
pub(crate) fn patching_adapter(sp: u64, _preserved: &PreservedRegisters) -> (u64, Unwind) {
    (sp, Unwind::FramePointer)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    #[test]
    fn entry_frame_from_the_first_push_to_the_last_pop() {
        // br x19; enter; sub sp, x29, #0xd0; str x7, [x29, #-8]; stp x0, x1, [x29, #-64]; blr x4
        let before =
            [0xd61f_0260, PUSH_RECORD, 0x9100_03fd, 0xd103_43bf, 0xf81f_83a7, 0xa93c_07a0, 0xd63f_0080];
        // str w0, [x3]; sub x20, x29, #0xd0; leave; ret; str x0, [x3]; b
        let after = [0xb900_0060, 0xd103_43b4, 0x9100_03bf, POP_RECORD, RET, 0xf900_0060, 0x17ff_fffb];
        let code = [bytes(&before), bytes(&after)].concat();
        let at = |pc: usize| entry_frame(&code, 4 * before.len(), 4 * pc, -8);
        let found: Vec<_> = (0..before.len() + after.len()).map(at).collect();
        use Unwind::{FramePointer, Pushed, Return, Whole};
        let mut expected =
            [None, Some(Return), Some(Pushed), Some(FramePointer), Some(FramePointer)].to_vec();
        expected.extend([
            Some(FramePointer),
            Some(Whole),
            Some(Whole),
            Some(Whole),
            Some(Whole),
            Some(Whole),
        ]);
        expected.extend([None, Some(Whole), Some(Whole)]);
        assert_eq!(found, expected);
        assert!(entry_frame(&code, 4 * before.len(), 24, -7).is_none(), "another slot");
        assert!(entry_frame(&bytes(&[0xd503_201f; 20]), 40, 40, -8).is_none());
    }

    #[test]
    fn adapters_copy_sp_once() {
        let code = bytes(&[0xd503_201f, 0x9100_03f3, 0xd100_43ff, 0xd61f_0100, 0xd503_201f]);
        let found: Vec<_> = (0..=5).map(|pc| has_saved_sender_sp(&code[..4 * pc])).collect();
        assert_eq!(found, [false, false, true, true, false, false]);
        assert!(has_saved_sender_sp(&bytes(&[0x9100_03ed])));
    }
}
