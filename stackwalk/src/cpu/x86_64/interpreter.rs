//! Interpreter code before and after a call.
//!
//! Sources: `generate_return_entry_for` in `cpu/x86/templateInterpreterGenerator_x86.cpp`, `remove_activation` in
//! `interp_masm_x86.cpp`, JDK 11 to 25.

use super::entry::last_of;
use crate::cpu::rules::Unwind;

/// Longest code with which the interpreter restores a caller's frame, in bytes.
pub(crate) const RETURN_ENTRY_BYTES: usize = 24;

/// Bytes from the pc on that [`interpreter_exit`] looks at.
pub(crate) const INTERPRETER_EXIT_BYTES: usize = 2;
/// Bytes from the pc on that [`frameless_return`] looks at.
pub(crate) const FRAMELESS_RETURN_BYTES: usize = 20;

/// Bytes that lie above sp on the return address, if `after` is the code behind a call in an entry that builds no
/// frame: `pop rax; mov rsp, r13; jmp rax`, or with rdi. Such entries call routines for `Math` and checksums, the
/// latter with an aligned sp: `add rsp, 8` and a jump over the other call come first then.
///
/// Sources: `generate_math_entry` and `generate_CRC32_updateBytes_entry` in
/// `cpu/x86/templateInterpreterGenerator_x86_64.cpp`; machine code of 17, 21, 25 and 28 by -XX:+PrintInterpreter.
pub(crate) fn frameless_return(after: &[u8]) -> Option<u64> {
    let returns = |code: &[u8]| {
        matches!(code, [0x58, 0x49, 0x8b, 0xe5, 0xff, 0xe0, ..] | [0x5f, 0x49, 0x8b, 0xe5, 0xff, 0xe7, ..])
    };
    match after {
        code if returns(code) => Some(0),
        [0x48, 0x83, 0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8, _, _, _, _, rest @ ..] if returns(rest) => Some(8),
        _ => None,
    }
}

/// The rule for the return address if `after` begins with `pop r13`, with which the interpreter pops the return address
/// of a method whose frame it has just removed.
pub(crate) fn interpreter_exit(after: &[u8]) -> Option<Unwind> {
    matches!(after, [0x41, 0x5d, ..]).then_some(Unwind::Return)
}

/// Returns whether `after` restores a caller's frame after its call: `mov rsp, [rbp - 16]`, or from JDK 21 on `mov
/// rcx, [rbp - 16]; lea rsp, [rbp + rcx * 8]`, in JDK 28 with r10, then `mov qword [rbp - 16], 0; mov r13, [rbp -
/// 64]`. With value classes, the entry for objects first allocates one whose fields were returned: `test al, 1; je`
/// comes before r13 is loaded.
///
/// The frame is whole there, while r13 and rbx may still be the callee's.
pub(crate) fn is_interpreter_return_entry(after: &[u8]) -> bool {
    let mut rest = after;
    loop {
        rest = match rest {
            [0x4c, 0x8b, 0x6d, 0xc0, ..] => return true,
            [0x48, 0x8b, 0x65 | 0x4d, 0xf0, rest @ ..] => rest,
            [0x48, 0x8d, 0x64, 0xcd, 0x00, rest @ ..] => rest,
            [0x4c, 0x8b, 0x55, 0xf0, rest @ ..] => rest,
            [0x4a, 0x8d, 0x64, 0xd5, 0x00, rest @ ..] => rest,
            [0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, 0xa8, 0x01, ..] => return true,
            [0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, rest @ ..] => rest,
            _ => return false,
        };
    }
}

/// Bytes before the pc that [`allocates_returned_object`] looks at: all of that code.
pub(crate) const ALLOCATION_REACH: u64 = 160;

/// Returns whether the interpreter, after a call, is allocating an object whose fields were returned; `before` is its
/// code up to the pc.
///
/// As in [`is_interpreter_return_entry`], the frame is whole and registers are not the caller's.
/// Source: machine code of 28-ea+18 by -XX:+PrintInterpreter with --enable-preview.
pub(crate) fn allocates_returned_object(before: &[u8]) -> bool {
    let begin = last_of(before, &[0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, 0xa8, 0x01]);
    // mov r13, [rbp - 64].
    begin.is_some() && last_of(before, &[0x4c, 0x8b, 0x6d, 0xc0]) < begin
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn entries_without_a_frame_return() {
        let found = |code: &[u8]| -> Vec<(usize, u64)> {
            (0..code.len()).filter_map(|pc| Some((pc, frameless_return(&code[pc..])?))).collect()
        };
        // `Math.sin` of Temurin 21.0.8: the call, then the return.
        assert_eq!(found(&[0xe8, 0x31, 0x5b, 0xff, 0xff, 0x58, 0x49, 0x8b, 0xe5, 0xff, 0xe0]), [(5, 0)]);
        // `CRC32.updateBytes`: two calls, the first with a word of alignment.
        let code = [
            0xe8, 0xc6, 0x2f, 0xff, 0xff, 0x48, 0x83, 0xc4, 0x08, 0xe9, 0x05, 0x00, 0x00, 0x00, 0xe8, 0xb8,
            0x2f, 0xff, 0xff, 0x5f, 0x49, 0x8b, 0xe5, 0xff, 0xe7,
        ];
        assert_eq!(found(&code), [(5, 8), (19, 0)]);
        assert_eq!(found(&[0x58, 0x49, 0x8b, 0xe5, 0xff, 0xe7]), [], "another register");
    }

    #[test]
    fn return_entries_of_the_interpreter() {
        // From Temurin 11.0.13.
        let code = [0x48, 0x8b, 0x65, 0xf0, 0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, 0x4c, 0x8b, 0x6d, 0xc0, 0x4c];
        let found: Vec<usize> =
            (0..code.len()).filter(|&pc| is_interpreter_return_entry(&code[pc..])).collect();
        assert_eq!(found, [0, 4, 12]);
        let later = [0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd, 0x00, 0x4c, 0x8b, 0x6d, 0xc0];
        assert!(is_interpreter_return_entry(&later) && is_interpreter_return_entry(&later[4..]));
        // From Debian's 28.
        let latest = [
            0x4c, 0x8b, 0x55, 0xf0, 0x4a, 0x8d, 0x64, 0xd5, 0x00, 0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, 0x4c,
            0x8b, 0x6d, 0xc0,
        ];
        assert!([0, 4, 9, 17].iter().all(|&pc| is_interpreter_return_entry(&latest[pc..])));
        // The entry for objects, with --enable-preview.
        let object = [&latest[..17], &[0xa8, 0x01, 0x0f, 0x84, 0x7a, 0, 0, 0, 0x4c, 0x8b, 0xd0]].concat();
        assert!([0, 4, 9].iter().all(|&pc| is_interpreter_return_entry(&object[pc..])));
        assert!(!allocates_returned_object(&object[..17]) && allocates_returned_object(&object));
        assert!(allocates_returned_object(&object[..19]));
        assert!(!allocates_returned_object(&[&object[..], &latest[17..]].concat()), "r13 is loaded");
        assert!(!is_interpreter_return_entry(&later[..9]) && !is_interpreter_return_entry(&[0x41, 0x5d]));
    }
}
