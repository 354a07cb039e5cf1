//! Entries of exported functions that keep the registers of their caller.
//!
//! Problem: without a context a walk begins at the caller, but compiled code changes the registers at once.
//! Approach: the entry stores them on the stack as a [`Caller`] and passes its address to the actual function as one
//! more argument. The record also marks where this library's frames begin.
//! Sources: System V ABI for AMD64, sections 3.2.1 (registers) and 3.2.3 (arguments, stack alignment); Procedure Call
//! Standard for the Arm 64-bit Architecture, section 6.

use stackwalk::{Capture, Registers};

/// The caller's registers after the return from an exported function.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
pub struct Caller {
    sp: u64,
    pc: u64,
    fp: u64,
    rbx: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
}

/// The caller's registers after the return from an exported function.
#[cfg(target_arch = "aarch64")]
#[repr(C)]
pub struct Caller {
    sp: u64,
    pc: u64,
    fp: u64,
    /// x19 to x28.
    saved: [u64; 10],
}

impl Caller {
    /// Returns the registers as if the thread had been interrupted there.
    pub(super) fn capture(&self) -> Capture {
        Capture { pc: self.pc, sp: self.sp, fp: self.fp, registers: self.registers(), ..Capture::default() }
    }

    #[cfg(target_arch = "x86_64")]
    fn registers(&self) -> Registers {
        let Self { rbx, r12, r13, r14, r15, .. } = *self;
        Registers { rbx, r12, r13, r14, r15, ..Registers::default() }
    }

    #[cfg(target_arch = "aarch64")]
    fn registers(&self) -> Registers {
        let [x19, x20, x21, x22, x23, x24, x25, x26, x27, x28] = self.saved;
        Registers { x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, ..Registers::default() }
    }
}

/// The register of an argument by its number, from 2 on.
#[cfg(target_arch = "x86_64")]
macro_rules! argument {
    (2) => {
        "rdx"
    };
    (3) => {
        "rcx"
    };
    (4) => {
        "r8"
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use argument;

/// Declares an exported function that passes its arguments to `$inner`, and the caller's registers as argument `$last`.
#[cfg(target_arch = "x86_64")]
macro_rules! with_caller {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $inner:path, $last:tt) => {
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
                concat!("mov ", $crate::stack_api::entry::argument!($last), ", rsp"),
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

/// The same for aarch64: the frame record lies below the caller's registers.
#[cfg(target_arch = "aarch64")]
macro_rules! with_caller {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $inner:path, $last:tt) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the proposal's name")]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-128]!",
                ".cfi_def_cfa_offset 128",
                ".cfi_offset x29, -128",
                ".cfi_offset x30, -120",
                "add x9, sp, #128",
                "stp x9, x30, [sp, #16]",
                "str x29, [sp, #32]",
                "stp x19, x20, [sp, #40]",
                "stp x21, x22, [sp, #56]",
                "stp x23, x24, [sp, #72]",
                "stp x25, x26, [sp, #88]",
                "stp x27, x28, [sp, #104]",
                "mov x29, sp",
                concat!("add x", stringify!($last), ", sp, #16"),
                "bl {inner}",
                "ldp x29, x30, [sp], #128",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}
pub(super) use with_caller;
