//! Call instructions, and what the code after a call takes from the stack.
//!
//! Sources: `cpu/x86/assembler_x86.cpp` (`Assembler::call`), `macroAssembler_x86.cpp`, JDK 11 to 25.

use crate::cpu::rules::CallTarget;

/// Words that the code after a call pops first: arguments and results of a stub that C1 or C2 has called
/// (`slow_subtype_check` in `c1_LIRAssembler_x86.cpp`, conversion fix-ups in `x86_64.ad`), pushed below the frame.
///
/// `pop rbp` does not count: it may be the exit of a frame without locals.
pub(super) fn popped_after_call(after: &[u8]) -> u64 {
    let (mut words, mut rest) = (0, after);
    loop {
        rest = match rest {
            [0x58..=0x5b | 0x5e | 0x5f, rest @ ..] | [0x41, 0x58..=0x5f, rest @ ..] => rest,
            _ => return words,
        };
        words += 1;
    }
}

/// Length of `call` with a distance, the only call between functions of one library.
pub(crate) const DIRECT_CALL_BYTES: u64 = 5;
/// Longest routine of libjvm without unwind tables, generously: `_Copy_arrayof_conjoint_bytes` has 352 bytes.
pub(crate) const ASSEMBLER_ROUTINE_BYTES: u64 = 1024;
/// Length of the longest call instruction recognised, including the load of its target.
pub(crate) const CALL_BYTES: u64 = 13;

/// The target of the call that ends `before`, the bytes up to a return address `at`; `None` if it is no call.
pub(crate) fn call_before(before: &[u8], at: u64) -> Option<CallTarget> {
    if let [.., 0xe8, a, b, c, d] = before {
        let distance = i32::from_le_bytes([*a, *b, *c, *d]);
        return Some(CallTarget::Known(at.wrapping_add_signed(i64::from(distance))));
    }
    if let Some(target) = loaded_target(before) {
        return Some(CallTarget::Known(target));
    }
    let is_call = match before {
        // call reg; also call r8..r15, whose prefix does not matter here.
        [.., 0xff, 0xd0..=0xd7] => true,
        // call [reg], call [reg + reg], call [reg + disp8], call [reg + reg + disp8], and disp32.
        [.., 0xff, 0x10..=0x13 | 0x16 | 0x17] => true,
        [.., 0xff, 0x14, _] | [.., 0xff, 0x50..=0x53 | 0x55..=0x57, _] => true,
        [.., 0xff, 0x54, _, _] => true,
        [.., 0xff, 0x15 | 0x90..=0x93 | 0x95..=0x97, _, _, _, _] => true,
        [.., 0xff, 0x94, _, _, _, _, _] => true,
        _ => false,
    };
    is_call.then_some(CallTarget::Indirect)
}

/// Target of `mov r10, imm64; call r10` or `mov rax, imm64; call rax`.
fn loaded_target(before: &[u8]) -> Option<u64> {
    let bytes = match before {
        [.., 0x49, 0xba, a, b, c, d, e, f, g, h, 0x41, 0xff, 0xd2] => [a, b, c, d, e, f, g, h],
        [.., 0x48, 0xb8, a, b, c, d, e, f, g, h, 0xff, 0xd0] => [a, b, c, d, e, f, g, h],
        _ => return None,
    };
    Some(u64::from_le_bytes(bytes.map(|byte| *byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_popped_after_a_call() {
        assert_eq!(popped_after_call(&[0x5f, 0x5f, 0x83, 0xff, 0x00]), 2, "pop rdi, pop rdi, cmp edi, 0");
        assert_eq!(popped_after_call(&[0x41, 0x5d, 0x5e, 0x90]), 2, "pop r13, pop rsi");
        assert_eq!(popped_after_call(&[0x5d, 0xc3]), 0, "exit");
        assert_eq!(popped_after_call(&[]), 0);
    }

    #[test]
    fn calls() {
        assert_eq!(call_before(&[0xe8, 0x10, 0, 0, 0], 0x1000), Some(CallTarget::Known(0x1010)));
        assert_eq!(call_before(&[0x41, 0xff, 0xd2], 0x1000), Some(CallTarget::Indirect));
        let far = [0x49, 0xba, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xd2];
        assert_eq!(call_before(&far, 0x1000), Some(CallTarget::Known(0x10)));
        assert_eq!(call_before(&[0x90; 13], 0x1000), None);
    }
}
