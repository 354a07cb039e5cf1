//! Interpreter code that enters and leaves methods.
//!
//! ```text
//! entry:         ...   stp x29, x30, [sp, #80]   add x29, sp, #80   ...   with the return address in x30
//! exit:          mov x20, x9   mov sp, x29   ldp x29, x30, [sp], #16   and sp, x20, #-16   ret
//! return entry:  ldr x20, [x29, #-16]   str xzr, [x29, #-16]   ldp x22, x24, [x29, #-72]   ...
//! ```
//!
//! Sources: `generate_fixed_frame` and `generate_return_entry_for` in
//! `cpu/aarch64/templateInterpreterGenerator_aarch64.cpp`, `remove_activation` in `interp_masm_aarch64.cpp`, JDK 11 to
//! 25.

use super::instruction::{POP_RECORD, RET, instructions};
use crate::cpu::rules::Unwind;

/// Longest code with which the interpreter restores a caller's frame, in bytes.
pub(crate) const RETURN_ENTRY_BYTES: usize = 32;
/// Bytes from the pc on that [`interpreter_exit`] looks at.
pub(crate) const INTERPRETER_EXIT_BYTES: usize = 8;
/// Bytes from the pc on that [`enters_method`] looks at: an entry checks the stack and clears the locals first.
pub(crate) const METHOD_ENTRY_BYTES: usize = 640;

/// `and sp, x20, #-16`.
const RESTORE_SP: u32 = 0x927c_ee9f;
/// `add x29, sp, #80`.
const SET_FRAME_POINTER: u32 = 0x9101_43fd;

/// The rule for the return address if `after` begins with the last instructions of a method's exit: the frame is gone
/// or about to be, and a register holds the caller's sp.
pub(crate) fn interpreter_exit(after: &[u8]) -> Option<Unwind> {
    let mut code = instructions(after);
    match (code.next()?, code.next()?) {
        (POP_RECORD, RESTORE_SP) => Some(Unwind::Pushed),
        (RESTORE_SP, _) | (RET, _) => Some(Unwind::Return),
        _ => None,
    }
}

/// Returns whether the interpreter is entering a method whose frame record is not complete; `ahead` is the code from
/// the pc on.
pub(crate) fn enters_method(ahead: &[u8]) -> bool {
    // Between two pieces of interpreter code lies a header, whose first words are no instructions.
    instructions(ahead)
        .take_while(|&instruction| instruction != RET && instruction >> 16 != 0)
        .any(|instruction| instruction == SET_FRAME_POINTER)
}

/// Returns whether `after` restores a caller's frame after its call; the frame is whole there.
pub(crate) fn is_interpreter_return_entry(after: &[u8]) -> bool {
    // A few instructions lead to the load of the bytecode pointer, which the assembler joins with that of the locals.
    let loads_bcp = |instruction: u32| matches!(instruction, 0xf85b_83b6 | 0xa97b_e3b6);
    let is_restoring = |instruction: u32| match instruction {
        // ldr of a slot of the frame; str xzr, [x29, #-16]; mov sp, x8.
        i if i & 0xfff0_0fe0 == 0xf850_03a0 || i & 0xfff0_0fff == 0xf810_03bf => true,
        // add xN, x29, xM, uxtx #3: a slot that is a distance.
        i => i == 0x9100_011f || i & 0xffe0_ffe0 == 0x8b20_6fa0,
    };
    instructions(after).find(|&i| loads_bcp(i) || !is_restoring(i)).is_some_and(loads_bcp)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    #[test]
    fn exits_of_methods() {
        let code = bytes(&[0x9100_03bf, POP_RECORD, RESTORE_SP, RET, 0]);
        let found: Vec<_> = (0..4).map(|at| interpreter_exit(&code[4 * at..])).collect();
        assert_eq!(found, [None, Some(Unwind::Pushed), Some(Unwind::Return), Some(Unwind::Return)]);
    }

    #[test]
    fn entries_up_to_the_frame_pointer() {
        // ldr x3, [x12, #8]; stp x29, x30, [sp, #80]; add x29, sp, #80; stp xzr, x19, [sp, #64]; ret
        let code = bytes(&[0xf940_0583, 0xa905_7bfd, SET_FRAME_POINTER, 0xa904_4fff, RET, SET_FRAME_POINTER]);
        let found: Vec<_> = (0..5).map(|at| enters_method(&code[4 * at..])).collect();
        assert_eq!(found, [true, true, true, false, false]);
        assert!(!enters_method(&bytes(&[0xf940_0583, 0x40, SET_FRAME_POINTER])), "a header lies between");
    }

    #[test]
    fn return_entries() {
        // From Temurin 21.0.8: ldur x20, [x29, #-16]; stur xzr, [x29, #-16]; ldp x22, x24, [x29, #-72]; add x24, x29,
        // x24, lsl #3
        let code = bytes(&[0xf85f_03b4, 0xf81f_03bf, 0xa97b_e3b6, 0x8b38_6fb8]);
        let found: Vec<_> = (0..4).map(|at| is_interpreter_return_entry(&code[4 * at..])).collect();
        assert_eq!(found, [true, true, true, false]);
        // From Temurin 25.0.2: ldur x8, [x29, #-16]; add x20, x29, x8, lsl #3; stur xzr, [x29, #-16]; ldp x22, x24,
        // [x29, #-72]
        let code = bytes(&[0xf85f_03a8, 0x8b28_6fb4, 0xf81f_03bf, 0xa97b_e3b6]);
        assert!((0..4).all(|at| is_interpreter_return_entry(&code[4 * at..])));
    }
}
