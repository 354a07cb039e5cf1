//! Entries of exported functions that keep the registers of their caller.
//!
//! Problem: without a context, a walk begins at the caller, whose registers a compiled function has changed by its first
//! instruction.
//! Approach: the entry stores them as a [`Caller`](super::subject::Caller) on the stack and calls the function proper with the
//! record's address as one more argument. The record also marks where frames of this library begin.
//! Source: System V ABI for AMD64, sections 3.2.1 (registers) and 3.2.3 (arguments, stack alignment).

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

/// Declares an exported function that passes its arguments, and the caller's registers in the register `$last`, to
/// `$inner`.
macro_rules! with_caller {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $inner:path, $last:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the proposal's name")]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 72",
                ".cfi_def_cfa_offset 80",
                "lea rax, [rsp + 80]",
                "mov [rsp], rax",
                "mov rax, [rsp + 72]",
                "mov [rsp + 8], rax",
                "mov [rsp + 16], rbp",
                "mov [rsp + 24], rbx",
                "mov [rsp + 32], r12",
                "mov [rsp + 40], r13",
                "mov [rsp + 48], r14",
                "mov [rsp + 56], r15",
                concat!("mov ", $last, ", rsp"),
                "call {inner}",
                "add rsp, 72",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}
pub(super) use with_caller;
