//! Entries and exits of the code that replaces a compiled frame by interpreter frames.
//!
//! ```text
//! handler, up to JDK 25:    entry: call next   next: sub [rsp], n   jmp stub   the frame is untouched
//! handler, from 26 on:      start: call stub   entry: jmp start
//! stub, by a handler:       push rbp   mov rbp, rsp   save registers ...     fp is the frame pointer from here
//! stub, with an exception:  mov [r15 + a], rdx   mov [r15 + b], rax   push 0   push rbp   ...
//! stub, end:                ...   leave   ret
//! uncommon trap stub:       sub rsp, n   mov [rsp + n - 16], rbp   ...   leave   ret
//! ```
//!
//! Sources: `emit_deopt_handler` in `cpu/x86/x86_64.ad` and `c1_LIRAssembler_x86.cpp`, `generate_deopt_blob` in
//! `cpu/x86/sharedRuntime_x86_64.cpp`, JDK 11 to 25; the code of Debian's builds of 26.0.2 and 28-ea.

use crate::cpu::rules::{Around, DeoptPlace};

/// State of a deoptimisation stub's frame at these instructions.
pub(crate) fn deopt_place(around: Around<'_>) -> DeoptPlace {
    let mut rest = around.after;
    // mov [r15 + disp32], rdx or rax.
    while let [0x49, 0x89, 0x97 | 0x87, _, _, _, _, after @ ..] = rest {
        rest = after;
    }
    match (around.before, around.after) {
        // push 0: the slot of the throwing pc.
        _ if matches!(rest, [0x6a, 0x00, 0x55, ..] | [0x68, 0, 0, 0, 0, 0x55, ..]) => {
            DeoptPlace::NoReturnAddress
        }
        ([.., 0x6a, 0x00] | [.., 0x68, 0, 0, 0, 0], [0x55, ..]) => DeoptPlace::NoReturnAddress,
        ([.., 0x6a, 0x00, 0x55] | [.., 0x68, 0, 0, 0, 0, 0x55], _) => DeoptPlace::NoReturnAddress,
        // push rbp, ret, and sub rsp before anything else.
        (_, [0x55 | 0xc3, ..]) => DeoptPlace::Returning,
        ([], _) if around.from_entry => DeoptPlace::Returning,
        ([.., 0x55], [0x48, 0x8b, 0xec, ..] | [0x48, 0x89, 0xe5, ..]) => DeoptPlace::Pushed,
        _ => DeoptPlace::Complete,
    }
}

/// Bytes of a deoptimisation handler: a push or call of its own address and a jump.
pub(crate) const DEOPT_HANDLER_BYTES: u64 = 32;

/// Bytes from the start of a handler of JDK 26 and later to its entry: a call of the stub, which takes the entry for
/// the return address.
pub(crate) const DEOPT_CALL_BYTES: u64 = 5;
/// Bytes of the whole handler: the call and the jump back.
pub(crate) const DEOPT_CALL_REACH: usize = 7;

/// Returns whether this is the code of such a handler from its start on.
pub(crate) fn is_deopt_call(code: &[u8; DEOPT_CALL_REACH]) -> bool {
    matches!(code, [0xe8, _, _, _, _, 0xeb, 0xf9])
}

/// Bytes that a deoptimisation handler has pushed once it has executed `before`; `None` for other code.
///
/// C2's is `call next; sub [rsp], n`, C1's `mov r10, address; push r10`.
pub(crate) fn deopt_handler_pushed_bytes(before: &[u8]) -> Option<u64> {
    match before {
        [] | [0x49, 0xba, _, _, _, _, _, _, _, _] => Some(0),
        [0xe8, 0, 0, 0, 0] | [0xe8, 0, 0, 0, 0, 0x48, 0x83, 0x2c, 0x24, _] => Some(8),
        [0x49, 0xba, _, _, _, _, _, _, _, _, 0x41, 0x52] => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(code: &[u8], pc: usize) -> DeoptPlace {
        deopt_place(Around { before: &code[..pc], after: &code[pc..], from_entry: false })
    }

    #[test]
    fn entries_of_the_stub() {
        let normal = [0x90, 0x55, 0x48, 0x8b, 0xec, 0x9c, 0x48, 0x83, 0xec, 0x08];
        let places = [1, 2, 5, 6].map(|pc| place(&normal, pc));
        use DeoptPlace::*;
        assert_eq!(places, [Returning, Pushed, Complete, Complete]);
        assert_eq!(place(&[0xc9, 0xc3, 0xf4], 0), Complete, "leave");
        assert_eq!(place(&[0xc9, 0xc3, 0xf4], 1), Returning);
    }

    #[test]
    fn an_exception_has_no_return_address_at_first() {
        let code = [
            0x49, 0x89, 0x97, 0xd8, 5, 0, 0, 0x49, 0x89, 0x87, 0xd0, 5, 0, 0, 0x6a, 0x00, 0x55, 0x48, 0x8b,
            0xec, 0x9c,
        ];
        for pc in [0, 7, 14, 16, 17] {
            assert_eq!(place(&code, pc), DeoptPlace::NoReturnAddress, "{pc}");
        }
        assert_eq!(place(&code, 20), DeoptPlace::Complete);
    }

    #[test]
    fn handlers_push_their_address() {
        // From Temurin 21.0.8: call next; sub qword [rsp], 5; jmp.
        let code = [0xe8, 0, 0, 0, 0, 0x48, 0x83, 0x2c, 0x24, 0x05, 0xe9, 1, 2, 3, 4];
        assert_eq!(deopt_handler_pushed_bytes(&code[..0]), Some(0));
        assert_eq!(deopt_handler_pushed_bytes(&code[..5]), Some(8));
        assert_eq!(deopt_handler_pushed_bytes(&code[..10]), Some(8));
        // Of C1, from Temurin 17.0.9.
        let code = [0x49, 0xba, 0x9d, 0x70, 0x7d, 0xdb, 0xcc, 0x7f, 0, 0, 0x41, 0x52, 0xe9];
        let pushed = [0, 2, 10, 12, 13].map(|end| deopt_handler_pushed_bytes(&code[..end]));
        assert_eq!(pushed, [Some(0), None, Some(0), Some(8), None]);
        assert_eq!(deopt_handler_pushed_bytes(&code), None);
    }

    #[test]
    fn handlers_of_26_call_the_stub_in_front_of_their_entry() {
        // From Debian's 26.0.2: call; jmp -7.
        assert!(is_deopt_call(&[0xe8, 1, 2, 3, 4, 0xeb, 0xf9]));
        assert!(!is_deopt_call(&[0xe8, 0, 0, 0, 0, 0x48, 0x83]), "of 25");
        assert_eq!(deopt_handler_pushed_bytes(&[]), Some(0), "at the entry");
    }
}
