//! System calls that a signal has ended.
//!
//! The kernel lets an interrupted call either begin again, with the pc back at its instruction, or return EINTR, with
//! the pc behind it.
//! Sources: Linux `arch/arm64/kernel/signal.c` (`do_signal`); Arm Architecture Reference Manual for A-profile (SVC).

use super::registers::Registers;

/// Bytes of the instruction.
pub(crate) const SYSTEM_CALL_BYTES: usize = 4;
/// `svc #0`.
const SYSTEM_CALL: [u8; SYSTEM_CALL_BYTES] = 0xd400_0001_u32.to_le_bytes();
/// -EINTR.
const INTERRUPTED: u64 = 4_u64.wrapping_neg();

/// True if the bytes after the pc are the instruction, so that the call begins again.
pub(crate) fn is_system_call(code: &[u8]) -> bool {
    code == SYSTEM_CALL
}

/// True if a system call with the result in `registers` was interrupted.
pub(crate) fn is_interrupted(registers: &Registers) -> bool {
    registers.x0 == INTERRUPTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_returned_was_not_interrupted() {
        assert!(is_system_call(&[0x01, 0, 0, 0xd4]));
        assert!(!is_system_call(&[0x1f, 0x20, 0x03, 0xd5]), "nop");
        let result = |x0| Registers { x0, ..Registers::default() };
        assert!(is_interrupted(&result(-4_i64 as u64)));
        assert!(!is_interrupted(&result(4)));
    }
}
