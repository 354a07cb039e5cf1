//! Entries and exits of the code that replaces a compiled frame by interpreter frames.
//!
//! ```text
//! handler in the nmethod:   adr x30, handler   b stub                        the frame is untouched
//! stub, by a handler:       stp x29, x30, [sp, #-16]!   mov x29, sp   ...    fp is the frame pointer from here
//! stub, with an exception:  str x3, [x28, #a]   str x0, [x28, #b]   stp ...  the record gets the throwing pc later
//! stub, end:                ...   mov sp, x29   ldp x29, x30, [sp], #16   ret
//! uncommon trap stub:       stp x29, x30, [sp, #-16]!   ...
//! ```
//!
//! Sources: `emit_deopt_handler` in `cpu/aarch64/aarch64.ad` and `c1_LIRAssembler_aarch64.cpp`, `generate_deopt_blob`
//! and `generate_uncommon_trap_blob` in `cpu/aarch64/sharedRuntime_aarch64.cpp`, JDK 11 to 25.

use super::instruction::{POP_RECORD, PUSH_RECORD, RET, first, last, thread_store};
use crate::cpu::rules::{Around, DeoptPlace};

/// State of a deoptimisation stub's frame at these instructions.
pub(crate) fn deopt_place(around: Around<'_>) -> DeoptPlace {
    let stores_exception =
        |instruction: u32| matches!(instruction & 31, 0 | 3) && thread_store(instruction).is_some();
    match (last(around.before), first(around.after)) {
        // x30 is stale: the throwing pc is in x3, or in the JavaThread.
        (_, Some(next)) if stores_exception(next) && next & 31 == 3 => DeoptPlace::NoReturnAddress,
        (Some(previous), Some(next))
            if stores_exception(previous) && (stores_exception(next) || next == PUSH_RECORD) =>
        {
            DeoptPlace::NoReturnAddress
        }
        (_, Some(PUSH_RECORD | RET)) => DeoptPlace::Returning,
        (None, _) if around.from_entry => DeoptPlace::Returning,
        (Some(PUSH_RECORD), _) | (_, Some(POP_RECORD)) => DeoptPlace::Pushed,
        _ => DeoptPlace::Complete,
    }
}

/// Bytes of a deoptimisation handler: its own address and a jump by up to three instructions.
pub(crate) const DEOPT_HANDLER_BYTES: u64 = 16;

/// Bytes from the start of a handler of JDK 26 and later to its entry: a near call of the stub, whose return address is
/// the entry.
pub(crate) const DEOPT_CALL_BYTES: u64 = 4;
/// Bytes of the whole handler: the call and the jump back.
pub(crate) const DEOPT_CALL_REACH: usize = 8;

/// Returns whether this is the code of such a handler from its start on: `bl stub`, `b start`.
///
/// By the code of x86-64; no build of this CPU was examined.
pub(crate) fn is_deopt_call(code: &[u8; DEOPT_CALL_REACH]) -> bool {
    let calls = first(code).is_some_and(|first| first & 0xfc00_0000 == 0x9400_0000);
    calls && last(code) == Some(0x17ff_ffff)
}

/// Bytes that a deoptimisation handler has pushed once it has executed `before`: none; `None` for other code.
pub(crate) fn deopt_handler_pushed_bytes(before: &[u8]) -> Option<u64> {
    let begins = before.is_empty() || first(before).is_some_and(|first| first & 0x9f00_001f == 0x1000_001e);
    begins.then_some(0)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn places(code: &[u32]) -> Vec<DeoptPlace> {
        let bytes: Vec<u8> = code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect();
        let at = |pc: usize| Around { before: &bytes[..4 * pc], after: &bytes[4 * pc..], from_entry: false };
        (0..code.len()).map(|pc| deopt_place(at(pc))).collect()
    }

    #[test]
    fn entries_of_the_stub() {
        use DeoptPlace::{Complete, NoReturnAddress, Pushed, Returning};
        assert_eq!(
            places(&[0xd503_201f, PUSH_RECORD, 0x9100_03fd, 0xd503_201f]),
            [Complete, Returning, Pushed, Complete]
        );
        assert_eq!(places(&[0x9100_03bf, POP_RECORD, RET]), [Complete, Pushed, Returning]);
        // str x3, [x28, #0x548]; str x0, [x28, #0x540]; stp x29, x30, [sp, #-16]!
        let exception = places(&[0xf902_a783, 0xf902_a380, PUSH_RECORD]);
        assert_eq!(exception, [NoReturnAddress; 3]);
    }

    #[test]
    fn handlers_push_nothing() {
        assert_eq!(deopt_handler_pushed_bytes(&[]), Some(0));
        assert_eq!(deopt_handler_pushed_bytes(&0x1000_001e_u32.to_le_bytes()), Some(0));
        assert_eq!(deopt_handler_pushed_bytes(&0xd503_201f_u32.to_le_bytes()), None);
        let code = |second: u32| {
            let mut bytes = [0; DEOPT_CALL_REACH];
            bytes[..4].copy_from_slice(&0x9400_0010_u32.to_le_bytes());
            bytes[4..].copy_from_slice(&second.to_le_bytes());
            bytes
        };
        assert!(is_deopt_call(&code(0x17ff_ffff)));
        assert!(!is_deopt_call(&code(0x1400_0001)));
    }
}
