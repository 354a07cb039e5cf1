//! System calls that a signal has ended.
//!
//! The kernel lets an interrupted call either begin again, with the pc back at its instruction, or return EINTR, with
//! the pc behind it.
//! Sources: Linux `arch/x86/kernel/signal.c` (`handle_signal`); Intel SDM volume 2 (SYSCALL).

use super::registers::Registers;

/// Bytes of the instruction.
pub(crate) const SYSTEM_CALL_BYTES: usize = 2;
/// `syscall`.
const SYSTEM_CALL: [u8; SYSTEM_CALL_BYTES] = [0x0f, 0x05];
/// -EINTR.
const INTERRUPTED: u64 = 4_u64.wrapping_neg();

/// True if the bytes after the pc are the instruction, so that the call begins again.
pub(crate) fn is_system_call(code: &[u8]) -> bool {
    code == SYSTEM_CALL
}

/// True if a system call with the result in `registers` was interrupted.
pub(crate) fn is_interrupted(registers: &Registers) -> bool {
    registers.rax == INTERRUPTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_returned_was_not_interrupted() {
        assert!(is_system_call(&[0x0f, 0x05]));
        assert!(!is_system_call(&[0x0f, 0x0b]));
        let result = |rax| Registers { rax, ..Registers::default() };
        assert!(is_interrupted(&result(-4_i64 as u64)));
        assert!(!is_interrupted(&result(4)));
    }
}
