//! The general-purpose registers, and what HotSpot's code keeps in them.
//!
//! Sources: `cpu/x86/interp_masm_x86.hpp`, `templateInterpreterGenerator_x86.cpp`, `sharedRuntime_x86_64.cpp`,
//! `stubGenerator_x86_64.cpp`, JDK 11 to 25; System V ABI for AMD64, section 3.2.1.

use crate::cpu::words::registers;

registers! {
    /// The registers of the interrupted thread beside pc (`rip`), sp (`rsp`) and fp (`rbp`). While Java code runs, r15
    /// is the `JavaThread*`.
    pub struct Registers { rax rbx rcx rdx rsi rdi r8 r9 r10 r11 r12 r13 r14 r15 }
}

impl Registers {
    /// The registers that a C function restores before it returns.
    pub(crate) fn preserved(&self) -> PreservedRegisters {
        let Self { rbx, r12, r13, r14, r15, .. } = *self;
        PreservedRegisters { rbx, r12, r13, r14, r15 }
    }

    /// The `Method*` while the interpreter enters a method.
    pub(crate) fn entered_method(&self) -> u64 {
        self.rbx
    }

    /// The bytecode pointer of a running interpreter frame.
    pub(crate) fn bytecode_pointer(&self) -> u64 {
        self.r13
    }

    /// The caller's sp while an adapter moves arguments or the interpreter enters a method.
    pub(crate) fn sender_sp(&self, _jdk_major: u32) -> u64 {
        self.r13
    }

    /// The return address while an adapter moves arguments or the interpreter enters a method.
    #[must_use]
    pub fn popped_return_address(&self) -> u64 {
        self.rax
    }

    /// Return address and caller's sp once the interpreter has removed a method's frame (`remove_activation`).
    pub(crate) fn interpreter_return(&self) -> (u64, u64) {
        (self.r13, self.rbx)
    }

    /// The `JavaCallWrapper*` until the call stub has stored it.
    pub(crate) fn call_wrapper(&self) -> u64 {
        self.rdi
    }

    /// The throwing pc at the entry and at the exit of the ExceptionBlob, and where an exception is forwarded to its
    /// handler.
    pub(crate) fn throwing_pc(&self) -> u64 {
        self.rdx
    }

    /// The exception handler that a C1 stub is about to jump to.
    pub(crate) fn exception_handler(&self) -> u64 {
        self.rcx
    }

    /// The sp of the complete frame while inlined `String.indexOf` uses the stack below it (`string_indexof`).
    pub(crate) fn string_search_sp(&self) -> u64 {
        self.rcx
    }
}

registers! {
    /// Registers that a C function restores before it returns, beside sp and fp.
    ///
    /// A register whose value was not recovered is 0, which no rule can use to find a stack address.
    pub struct PreservedRegisters { rbx r12 r13 r14 r15 }
}

impl PreservedRegisters {
    /// The sp at the entry of an adapter that calls the VM, which keeps it there.
    pub(crate) fn adapter_entry_sp(&self) -> u64 {
        self.r13
    }
}
