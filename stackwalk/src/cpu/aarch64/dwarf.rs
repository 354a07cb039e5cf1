//! Registers by their DWARF numbers, as unwind tables name them.
//!
//! Source: DWARF for the Arm 64-bit Architecture (AADWARF64), section 4.1.

use super::frame::return_address;
use super::registers::PreservedRegisters;
use crate::cpu::rules::FrameRegisters;

/// Numbers of the registers that a row restores; the last is that of the return address.
pub const DWARF_SAVED: [u16; 12] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30];
/// Number of the stack pointer.
pub const DWARF_STACK_POINTER: u16 = 31;
/// Most registers with a rule in one row: those above, d8 to d15, the state of the return address's signature, and some
/// of functions with conventions of their own.
pub const DWARF_ROW_RULES: usize = 32;

/// The values of [`DWARF_SAVED`].
pub(crate) fn dwarf_values(
    frame: FrameRegisters,
    preserved: &PreservedRegisters,
) -> [u64; DWARF_SAVED.len()] {
    let PreservedRegisters { x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, lr } = *preserved;
    [x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, frame.fp, lr]
}

/// The registers of a caller with this sp from the values of [`DWARF_SAVED`]. Its own return address is unknown.
pub(crate) fn dwarf_caller(
    sp: u64,
    values: [u64; DWARF_SAVED.len()],
) -> (FrameRegisters, PreservedRegisters) {
    let [x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, fp, pc] = values;
    let preserved = PreservedRegisters { x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, lr: 0 };
    (FrameRegisters { pc: return_address(pc, sp), sp, fp }, preserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_return_address_loses_its_signature() {
        let mut values = [7; 12];
        values[11] = 0x0012_0000_1234_5678;
        let (frame, preserved) = dwarf_caller(0xffff_0000_0000, values);
        assert_eq!(frame, FrameRegisters { pc: 0x1234_5678, sp: 0xffff_0000_0000, fp: 7 });
        assert_eq!((preserved.x19, preserved.lr), (7, 0));
        assert_eq!(dwarf_values(frame, &preserved)[10..], [7, 0]);
    }
}
