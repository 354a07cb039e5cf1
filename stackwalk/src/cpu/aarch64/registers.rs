//! The general-purpose registers, and what HotSpot's code keeps in them.
//!
//! Sources: `cpu/aarch64/register_aarch64.hpp`, `assembler_aarch64.hpp` (names of registers),
//! `templateInterpreterGenerator_aarch64.cpp`, `sharedRuntime_aarch64.cpp`, `stubGenerator_aarch64.cpp`, JDK 11 to 25;
//! Procedure Call Standard for the Arm 64-bit Architecture, section 6.1.1.

use crate::cpu::words::registers;

registers! {
    /// The registers of the interrupted thread beside pc, sp and fp (`x29`). While Java code runs, x28 is the
    /// `JavaThread*`; `lr` is x30, the return address until code saves it.
    pub struct Registers {
        x0 x1 x2 x3 x4 x5 x6 x7 x8 x9 x10 x11 x12 x13 x14 x15 x16 x17 x18 x19 x20 x21 x22 x23 x24 x25 x26 x27 x28 lr
    }
}

/// First release that keeps the caller's sp in x19 instead of x13 (`r19_sender_sp` in `register_aarch64.hpp`).
const SENDER_SP_IN_X19: u32 = 20;

impl Registers {
    /// The registers that a C function restores before it returns.
    pub(crate) fn preserved(&self) -> PreservedRegisters {
        let Self { x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, lr, .. } = *self;
        PreservedRegisters { x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, lr }
    }

    /// The `Method*` while the interpreter enters a method.
    pub(crate) fn entered_method(&self) -> u64 {
        self.x12
    }

    /// The bytecode pointer of a running interpreter frame.
    pub(crate) fn bytecode_pointer(&self) -> u64 {
        self.x22
    }

    /// The caller's sp while an adapter moves arguments or the interpreter enters a method.
    pub(crate) fn sender_sp(&self, jdk_major: u32) -> u64 {
        if jdk_major >= SENDER_SP_IN_X19 { self.x19 } else { self.x13 }
    }

    /// The return address while an adapter moves arguments or the interpreter enters a method.
    #[must_use]
    pub fn popped_return_address(&self) -> u64 {
        self.lr
    }

    /// Return address and caller's sp once the interpreter has removed a method's frame (`remove_activation`).
    pub(crate) fn interpreter_return(&self) -> (u64, u64) {
        (self.lr, self.x20)
    }

    /// The `JavaCallWrapper*` until the call stub has stored it.
    pub(crate) fn call_wrapper(&self) -> u64 {
        self.x0
    }

    /// The throwing pc at the entry and at the exit of the ExceptionBlob.
    pub(crate) fn throwing_pc(&self) -> u64 {
        self.x3
    }

    /// The exception handler that a C1 stub is about to jump to.
    pub(crate) fn exception_handler(&self) -> u64 {
        self.lr
    }

    /// The sp of the complete frame while inlined string code uses the stack below it: none does.
    pub(crate) fn string_search_sp(&self) -> u64 {
        0
    }
}

registers! {
    /// Registers that a C function restores before it returns, beside sp and fp, and the link register.
    ///
    /// A register whose value was not recovered is 0, which no rule can use to find a stack address.
    pub struct PreservedRegisters { x19 x20 x21 x22 x23 x24 x25 x26 x27 x28 lr }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_registers() {
        #[rustfmt::skip]
        let registers = Registers {
            x3: 3, x12: 12, x13: 13, x19: 19, x20: 20, x22: 22, x28: 28, lr: 30, ..Registers::default()
        };
        assert_eq!([17, 19, 20, 25].map(|jdk| registers.sender_sp(jdk)), [13, 13, 19, 19]);
        assert_eq!((registers.entered_method(), registers.bytecode_pointer()), (12, 22));
        assert_eq!((registers.popped_return_address(), registers.interpreter_return()), (30, (30, 20)));
        assert_eq!((registers.throwing_pc(), registers.exception_handler()), (3, 30));
        let preserved = registers.preserved();
        assert_eq!((preserved.x19, preserved.x22, preserved.x28, preserved.lr), (19, 22, 28, 30));
    }
}
