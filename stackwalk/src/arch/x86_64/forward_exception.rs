//! The return address of the routine that forwards a pending exception.
//!
//! ```text
//! mov rdi, [rsp]                    the return address
//! sub rsp, 8                        only if sp is not aligned
//! call exception_handler_for_return_address
//! add rsp, 8                        only if sp was not aligned
//! mov rbx, rax   pop rdx            the handler; the return address
//! mov rax, [r15 + pending]   mov [r15 + pending], 0   jmp rbx
//! ```
//!
//! Source: `generate_forward_exception` in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 11 to 25; the machine
//! code of 26 to 28 is the same.

use crate::arch::rules::{Around, ForwardExceptionPlace};

/// `sub rsp, 8` and `add rsp, 8`.
const ALIGN: [u8; 4] = [0x48, 0x83, 0xec, 0x08];
const RELEASE: [u8; 4] = [0x48, 0x83, 0xc4, 0x08];
/// `mov rbx, rax; pop rdx`.
const POPPED: [u8; 4] = [0x48, 0x8b, 0xd8, 0x5a];

/// Where the routine keeps its return address; `around` begins with the routine or later.
pub(crate) fn forward_exception_place(around: Around<'_>) -> Option<ForwardExceptionPlace> {
    Some(if around.before.windows(POPPED.len()).any(|code| code == POPPED) {
        ForwardExceptionPlace::Register
    } else if around.before.ends_with(&ALIGN) || around.after.starts_with(&RELEASE) {
        ForwardExceptionPlace::AboveWord
    } else {
        ForwardExceptionPlace::Top
    })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Instructions of JDK 21.
    const CODE: [&[u8]; 15] = [
        &[0x48, 0x8b, 0x3c, 0x24],
        &[0x48, 0x8b, 0xf7],
        &[0x49, 0x8b, 0xff],
        &[0x40, 0xf6, 0xc4, 0x0f],
        &[0x0f, 0x84, 0x12, 0x00, 0x00, 0x00],
        &[0x48, 0x83, 0xec, 0x08],
        &[0xe8, 0x03, 0xee, 0x48, 0x13],
        &[0x48, 0x83, 0xc4, 0x08],
        &[0xe9, 0x05, 0x00, 0x00, 0x00],
        &[0xe8, 0xf5, 0xed, 0x48, 0x13],
        &[0x48, 0x8b, 0xd8],
        &[0x5a],
        &[0x49, 0x8b, 0x47, 0x08],
        &[0x49, 0xc7, 0x47, 0x08, 0x00, 0x00, 0x00, 0x00],
        &[0xff, 0xe3],
    ];

    #[test]
    fn every_instruction() {
        use ForwardExceptionPlace::{AboveWord, Register, Top};
        let code: Vec<u8> = CODE.concat();
        let mut pc = 0;
        let places: Vec<ForwardExceptionPlace> = CODE
            .iter()
            .map(|instruction| {
                let around = Around { before: &code[..pc], after: &code[pc..], from_entry: true };
                pc += instruction.len();
                forward_exception_place(around).unwrap()
            })
            .collect();
        let expected = [
            Top, Top, Top, Top, Top, Top, AboveWord, AboveWord, Top, Top, Top, Top, Register, Register,
            Register,
        ];
        assert_eq!(places, expected);
    }
}
