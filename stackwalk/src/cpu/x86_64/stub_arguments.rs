//! Values that C1 pushes below its complete frame, as arguments of stubs and around copies of arrays.
//!
//! ```text
//! type check:        push class   push super   call slow_subtype_check   pop r   pop r   test ...
//! copy of arrays     push rsi   push rcx   mov esi, [rsi + 8] ...   cmp rsi, rcx   je same   ...
//! of unknown types:  push rsi   push rcx   call slow_subtype_check   pop rcx   pop rsi   ...   jne same
//!                    pop rcx   pop rsi   ...   same: pop rcx   pop rsi
//! ```
//!
//! Invariant: a type check is recognised by its call and the pops after it, which say how many words there are; in a
//! copy the values are on the stack from its two pushes to the next pair of pops that does not follow the call.
//! Sources: `LIR_Assembler::emit_typecheck_helper` and `emit_arraycopy` in `cpu/x86/c1_LIRAssembler_x86.cpp`, JDK 11 to
//! 25.

use super::calls::{DIRECT_CALL_BYTES, popped_after_call};
use crate::cpu::rules::Around;

/// `push rsi; push rcx; mov esi, [rsi + 8]`, with which a copy begins to compare classes.
const COPY: [u8; 5] = [0x56, 0x51, 0x8b, 0x76, 0x08];
/// `push rsi; push rcx; call`.
const CHECK: [u8; 3] = [0x56, 0x51, 0xe8];
/// `pop rcx; pop rsi`.
const POPS: [u8; 2] = [0x59, 0x5e];
/// Bytes of a call with a distance.
const CALL: usize = DIRECT_CALL_BYTES as usize;

/// Words on the stack below the frame at an interrupted pc; `None` for none.
pub(super) fn pushed_arguments(around: Around<'_>) -> Option<u64> {
    let words = call_arguments(around).unwrap_or(0).checked_add(array_copy_words(around.before))?;
    (words > 0).then_some(words)
}

/// Words around a call that takes arguments on the stack: the code pops after the call what it has pushed before.
fn call_arguments(around: Around<'_>) -> Option<u64> {
    let to_push = around.after.iter().take_while(|byte| matches!(byte, 0x50..=0x53 | 0x56 | 0x57)).count();
    if let [0xe8, rest @ ..] = around.after.get(to_push..)? {
        let popped = popped_after_call(rest.get(CALL.checked_sub(1)?..)?);
        return popped.checked_sub(to_push as u64);
    }
    // Between the pops.
    let left = popped_after_call(around.after);
    let behind_call = (0..4_usize).any(|done| {
        let Some(end) = around.before.len().checked_sub(done) else { return false };
        let call = end.checked_sub(CALL).and_then(|at| around.before.get(at));
        call == Some(&0xe8)
            && around.before.get(end..).is_some_and(|pops| popped_after_call(pops) == done as u64)
    });
    (left > 0 && behind_call).then_some(left)
}

/// Words that a copy of arrays keeps at the end of `before`, arguments of its call not counted.
pub(super) fn array_copy_words(before: &[u8]) -> u64 {
    let Some(start) = before.windows(COPY.len()).rposition(|window| window == COPY) else { return 0 };
    let Some(mut rest) = before.get(start.saturating_add(COPY.len())..) else { return 0 };
    // The pops after the call are those of its arguments.
    if let Some(at) = rest.windows(CHECK.len()).position(|window| window == CHECK) {
        let behind = at.saturating_add(CHECK.len()).saturating_add(CALL - 1).saturating_add(POPS.len());
        rest = rest.get(behind..).unwrap_or_default();
    }
    match rest {
        _ if rest.windows(POPS.len()).any(|window| window == POPS) => 0,
        [.., 0x59] => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(code: &[u8], pc: usize) -> Option<u64> {
        pushed_arguments(Around { before: &code[..pc], after: &code[pc..], from_entry: false })
    }

    /// From Temurin 25.0.2, C1 code of `clojure.lang.RT.first`.
    #[test]
    fn type_check() {
        let code = [
            0x48, 0x3b, 0xc2, 0x0f, 0x84, 0x1b, 0, 0, 0, // cmp rax, rdx; je
            0x50, 0x52, 0xe8, 0xe9, 0x39, 0xf1, 0xff, 0x58, 0x58, // push; push; call; pop; pop
            0x85, 0xc0, 0x0f, 0x84, 0x05, 0, 0, 0, // test eax, eax; je
        ];
        for (pc, words) in
            [(3, None), (9, None), (10, Some(1)), (11, Some(2)), (16, Some(2)), (17, Some(1)), (18, None)]
        {
            assert_eq!(at(&code, pc), words, "{pc}");
        }
        assert_eq!(at(&[0xe8, 1, 2, 3, 4, 0x5d, 0xc3], 0), None, "a call before an exit");
        assert_eq!(at(&[0x90, 0x58, 0x58, 0xc3], 1), None, "pops without a call");
    }

    /// From Temurin 21.0.8, C1 code of `ArrayList$SubList.toArray`, up to the comparison.
    #[test]
    fn copy_of_arrays() {
        let mut code = [
            0x4d, 0x63, 0xc0, 0x56, 0x51, 0x8b, 0x76, 0x08, 0x48, 0xc1, 0xe6, 0x03, 0x8b, 0x49, 0x08, 0x48,
            0xc1, 0xe1, 0x03, 0x48, 0x3b, 0xf1, 0x0f, 0x84, 0x9c, 0, 0, 0,
        ]
        .to_vec();
        assert_eq!(at(&code, 3), None);
        assert_eq!([8, 12, 19, 28].map(|pc| at(&code, pc)), [Some(2); 4]);
        let check = code.len();
        code.extend([0x56, 0x51, 0xe8, 1, 2, 3, 4, 0x59, 0x5e, 0x83, 0xfe, 0x00, 0x59, 0x5e, 0x90, 0x90]);
        let expected = [Some(2), Some(3), Some(4), Some(4), Some(3), Some(2), Some(2), Some(1), None];
        assert_eq!([0, 1, 2, 7, 8, 9, 12, 13, 14].map(|pc| at(&code, check + pc)), expected);
    }
}
