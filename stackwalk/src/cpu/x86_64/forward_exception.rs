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
//! `stackwalk/tests/routines.rs` walks from each instruction.
//!
//! Source: `generate_forward_exception` in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 11 to 25; the machine
//! code of 26 to 28 is the same.

use crate::cpu::rules::{Around, ForwardExceptionPlace};

/// `sub rsp, 8` and `add rsp, 8`.
const ALIGN: [u8; 4] = [0x48, 0x83, 0xec, 0x08];
const RELEASE: [u8; 4] = [0x48, 0x83, 0xc4, 0x08];
/// `mov rbx, rax; pop rdx`.
const POPPED: [u8; 4] = [0x48, 0x8b, 0xd8, 0x5a];

/// Place of the routine's return address; `around` begins with the routine or later.
pub(crate) fn forward_exception_place(around: Around<'_>) -> Option<ForwardExceptionPlace> {
    Some(if around.before.windows(POPPED.len()).any(|code| code == POPPED) {
        ForwardExceptionPlace::Register
    } else if around.before.ends_with(&ALIGN) || around.after.starts_with(&RELEASE) {
        ForwardExceptionPlace::AboveWord
    } else {
        ForwardExceptionPlace::Top
    })
}
