//! The frame that the kernel builds when it calls a signal handler.
//!
//! ```text
//! sp        return address: code that calls rt_sigreturn
//! sp + 8    ucontext, 304 bytes: flags, link, alternate stack, registers, mask of signals
//! sp + 312  siginfo
//! ```
//!
//! The handler is entered with the signal's number in rdi, the addresses of siginfo and ucontext in rsi and rdx, 0 in
//! rax, and all other registers as interrupted.
//! Sources: Linux `arch/x86/include/asm/sigframe.h` (`rt_sigframe`), `arch/x86/include/uapi/asm/sigcontext.h`,
//! `arch/x86/kernel/signal_64.c` (`x64_setup_rt_frame`).

use super::frame::RETURN_ADDRESS_BYTES;
use super::registers::Registers;
use crate::cpu::rules::FrameRegisters;

/// Bytes of the ucontext.
const CONTEXT_BYTES: u64 = 304;
/// Bytes of the siginfo.
const INFO_BYTES: u64 = 128;
/// Offset of the registers in the ucontext.
const REGISTERS_OFFSET: u64 = 40;
/// Words of registers that are read: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags, segments.
const REGISTER_WORDS: usize = 19;
/// Segment of 64-bit user code.
const USER_CODE_SEGMENT: u64 = 0x33;
/// All flags of a ucontext: extended state, stack segment, strict stack segment.
const CONTEXT_FLAGS: u64 = 7;

/// `mov $15, %rax; syscall`, with a 64-bit and with a 32-bit destination: 15 is the number of rt_sigreturn.
const RETURNS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];
/// Bytes of the longest of these.
pub(crate) const SIGNAL_RETURN_BYTES: usize = 9;
/// Bytes of its last instruction.
const SYSCALL_BYTES: usize = 2;

/// True if the instructions after a pc call rt_sigreturn.
pub(crate) fn is_signal_return(after: &[u8]) -> bool {
    RETURNS.iter().any(|code| after.starts_with(code))
}

/// True if the pc between `before` and `after` is at the last instruction of such a call.
pub(crate) fn is_in_signal_return(before: &[u8], after: &[u8]) -> bool {
    RETURNS.iter().any(|code| {
        let (first, last) = code.split_at(code.len() - SYSCALL_BYTES);
        before.ends_with(first) && after.starts_with(last)
    })
}

/// The registers in the ucontext at `context`; `None` if there is none.
pub(crate) fn saved_registers(
    context: u64,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<(FrameRegisters, Registers)> {
    if word(context)? > CONTEXT_FLAGS {
        return None;
    }
    let mut words = [0; REGISTER_WORDS];
    for (address, value) in (context.checked_add(REGISTERS_OFFSET)?..).step_by(8).zip(&mut words) {
        *value = word(address)?;
    }
    let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, _, segments] =
        words;
    // The interrupted code uses the same stack, above the frame.
    let end = context.checked_add(CONTEXT_BYTES + INFO_BYTES)?;
    if segments & 0xffff != USER_CODE_SEGMENT || rsp < end {
        return None;
    }
    let registers = Registers { rax, rbx, rcx, rdx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 };
    Some((FrameRegisters { pc: rip, sp: rsp, fp: rbp }, registers))
}

/// The registers that a signal has interrupted, if its handler has run no instruction yet that changes a register.
pub(crate) fn registers_at_handler_entry(
    frame: FrameRegisters,
    registers: &Registers,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<(FrameRegisters, Registers)> {
    let context = frame.sp.checked_add(RETURN_ADDRESS_BYTES)?;
    let info = context.checked_add(CONTEXT_BYTES)?;
    if registers.rdx != context || registers.rsi != info {
        return None;
    }
    let (interrupted, saved) = saved_registers(context, &word)?;
    // The number fills the first half of the first word of siginfo.
    let number = word(info)? & u64::from(u32::MAX);
    let at_entry = Registers { rax: 0, rdi: number, rsi: info, rdx: context, ..saved };
    (*registers == at_entry && frame.fp == interrupted.fp).then_some((interrupted, saved))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 0x1000;

    /// Words of a stack with a signal frame, from `CONTEXT` on; the interrupted registers are 1, 2, 3, ...
    fn frame() -> [u64; 128] {
        let mut words = [0; 128];
        let registers = (REGISTERS_OFFSET / 8) as usize;
        for (number, word) in words[registers..].iter_mut().take(REGISTER_WORDS).enumerate() {
            *word = number as u64 + 1;
        }
        words[registers + 15] = 0x2000;
        words[registers + 18] = 0x002b_0000_0000_0033;
        words[(CONTEXT_BYTES / 8) as usize] = 0x7_0000_001b;
        words
    }

    fn read(words: &[u64; 128]) -> impl Fn(u64) -> Option<u64> {
        |address| words.get(usize::try_from(address.checked_sub(CONTEXT)?).ok()? / 8).copied()
    }

    #[test]
    fn only_a_context_of_64_bit_code_above_it_is_read() {
        let words = frame();
        let (interrupted, saved) = saved_registers(CONTEXT, read(&words)).expect("a context");
        assert_eq!(interrupted, FrameRegisters { pc: 17, sp: 0x2000, fp: 11 });
        assert_eq!((saved.r8, saved.r15, saved.rdi, saved.rcx), (1, 8, 9, 15));
        for (index, wrong) in [(0, 8), (20, 0x1100), (23, 0x23)] {
            let mut words = frame();
            words[index] = wrong;
            assert_eq!(saved_registers(CONTEXT, read(&words)), None, "word {index}");
        }
        assert_eq!(saved_registers(CONTEXT + 900, read(&words)), None, "not copied");
    }

    #[test]
    fn a_handler_has_not_begun_while_it_has_the_registers_that_the_kernel_sets() {
        let words = frame();
        let (interrupted, saved) = saved_registers(CONTEXT, read(&words)).expect("a context");
        let entry = FrameRegisters { pc: 0x77, sp: CONTEXT - 8, fp: interrupted.fp };
        let registers = Registers { rax: 0, rdi: 27, rsi: CONTEXT + CONTEXT_BYTES, rdx: CONTEXT, ..saved };
        let found = registers_at_handler_entry(entry, &registers, read(&words));
        assert_eq!(found, Some((interrupted, saved)));
        for changed in [
            Registers { rax: 1, ..registers },
            Registers { rdi: 28, ..registers },
            Registers { rcx: 0, ..registers },
        ] {
            assert_eq!(registers_at_handler_entry(entry, &changed, read(&words)), None);
        }
        let pushed = FrameRegisters { sp: CONTEXT - 16, ..entry };
        assert_eq!(registers_at_handler_entry(pushed, &registers, read(&words)), None);
    }

    #[test]
    fn code_that_ends_a_handler() {
        for code in RETURNS {
            assert!(is_signal_return(code) && code.len() <= SIGNAL_RETURN_BYTES);
            let (before, after) = code.split_at(code.len() - 2);
            assert!(is_in_signal_return(before, after));
            assert!(!is_signal_return(after) && !is_in_signal_return(code, after));
        }
        assert!(!is_signal_return(&[0xb8, 0x0e, 0, 0, 0, 0x0f, 0x05]), "another system call");
    }
}
