//! Registers by their DWARF numbers, as unwind tables name them.
//!
//! Source: System V ABI for AMD64, figure 3.36.

use super::registers::PreservedRegisters;
use crate::cpu::rules::FrameRegisters;

/// Numbers of the registers that a row restores; the last is that of the return address.
pub const DWARF_SAVED: [u16; 7] = [3, 6, 12, 13, 14, 15, 16];
/// Number of the stack pointer.
pub const DWARF_STACK_POINTER: u16 = 7;
/// Most registers with a rule in one row: 17 that rows name.
pub const DWARF_ROW_RULES: usize = 20;

/// The values of [`DWARF_SAVED`].
pub(crate) fn dwarf_values(
    frame: FrameRegisters,
    preserved: &PreservedRegisters,
) -> [u64; DWARF_SAVED.len()] {
    let PreservedRegisters { rbx, r12, r13, r14, r15 } = *preserved;
    [rbx, frame.fp, r12, r13, r14, r15, frame.pc]
}

/// The registers of a caller with this sp from the values of [`DWARF_SAVED`].
pub(crate) fn dwarf_caller(
    sp: u64,
    values: [u64; DWARF_SAVED.len()],
) -> (FrameRegisters, PreservedRegisters) {
    let [rbx, fp, r12, r13, r14, r15, pc] = values;
    (FrameRegisters { pc, sp, fp }, PreservedRegisters { rbx, r12, r13, r14, r15 })
}
