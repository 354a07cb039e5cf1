//! The frame that the kernel builds when it calls a signal handler.
//!
//! ```text
//! sp        siginfo, 128 bytes
//! sp + 128  ucontext: flags, link, alternate stack, mask of signals (128 bytes with its reserve);
//!           at 176: fault address, x0 to x30, sp, pc, pstate; vector registers
//! ```
//!
//! The handler is entered with the signal's number in x0, the addresses of siginfo and ucontext in x1 and x2, the
//! address of code that calls rt_sigreturn in x30, a frame record behind the frame in x29, and all other registers as
//! interrupted.
//! Sources: Linux `arch/arm64/kernel/signal.c` (`rt_sigframe`, `setup_return`),
//! `arch/arm64/include/uapi/asm/sigcontext.h`, `ucontext.h`.

use super::instruction::instructions;
use super::registers::Registers;
use crate::cpu::rules::FrameRegisters;
use crate::cpu::words::Words;

/// Bytes of the siginfo, behind which the ucontext lies.
const INFO_BYTES: u64 = 128;
/// Offset of the fault address in the ucontext; x0 follows.
const CONTEXT_OFFSET: u64 = 176;
/// Words that are read: fault address, x0 to x30, sp, pc, pstate.
const CONTEXT_WORDS: usize = 35;
/// Position of fp among the general registers.
const FP_WORD: usize = 29;
/// Bits of pstate that are 0 in 64-bit user code: mode and interrupt masks; the others are conditions and modes of
/// speculation.
const NOT_USER_CODE: u64 = 0x1f | 0x3c0;

/// `mov x8, #139; svc #0`: 139 is the number of rt_sigreturn.
const RETURN: [u32; 2] = [0xd280_1168, 0xd400_0001];
/// Bytes of these.
pub(crate) const SIGNAL_RETURN_BYTES: usize = 8;

/// True if the instructions after a pc call rt_sigreturn.
pub(crate) fn is_signal_return(after: &[u8]) -> bool {
    instructions(after).take(RETURN.len()).eq(RETURN)
}

/// True if the pc between `before` and `after` is at the last instruction of such a call.
pub(crate) fn is_in_signal_return(before: &[u8], after: &[u8]) -> bool {
    let [number, call] = RETURN.map(u32::to_le_bytes);
    before.ends_with(&number) && after.starts_with(&call)
}

/// The registers in the signal frame at `frame`, the sp of the code that calls rt_sigreturn; `None` if there is none.
pub(crate) fn saved_registers(
    frame: u64,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<(FrameRegisters, Registers)> {
    let context = frame.checked_add(INFO_BYTES)?;
    // Flags and link of a ucontext are 0.
    if word(context)? != 0 || word(context.checked_add(8)?)? != 0 {
        return None;
    }
    let mut words = [0; CONTEXT_WORDS];
    for (address, value) in (context.checked_add(CONTEXT_OFFSET)?..).step_by(8).zip(&mut words) {
        *value = word(address)?;
    }
    let [_, general @ .., sp, pc, pstate] = words;
    // The interrupted code uses the same stack, above the frame.
    if pstate & NOT_USER_CODE != 0 || sp < context.checked_add(CONTEXT_OFFSET)? {
        return None;
    }
    let [.., fp, lr] = general;
    let mut words = general.map(u64::to_ne_bytes);
    // The record has lr where the kernel has fp.
    words[FP_WORD] = lr.to_ne_bytes();
    let registers = Registers::take(&mut words.iter())?;
    Some((FrameRegisters { pc, sp, fp }, registers))
}

/// The registers that a signal has interrupted, if its handler has run no instruction yet that changes a register.
pub(crate) fn registers_at_handler_entry(
    frame: FrameRegisters,
    registers: &Registers,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<(FrameRegisters, Registers)> {
    if registers.x1 != frame.sp || registers.x2 != frame.sp.checked_add(INFO_BYTES)? {
        return None;
    }
    let (interrupted, saved) = saved_registers(frame.sp, &word)?;
    // The number fills the first half of the first word of siginfo.
    let x0 = word(frame.sp)? & u64::from(u32::MAX);
    let at_entry = Registers { x0, x1: registers.x1, x2: registers.x2, lr: registers.lr, ..saved };
    // The record that x29 points at has the interrupted fp and return address.
    let has_record = word(frame.fp)? == interrupted.fp && word(frame.fp.checked_add(8)?)? == saved.lr;
    (*registers == at_entry && has_record).then_some((interrupted, saved))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = 0x1000;
    const RECORD: u64 = FRAME + 8 * 100;

    /// Words of a stack with a signal frame, from `FRAME` on; the interrupted registers are 1, 2, 3, ...
    fn frame() -> [u64; 128] {
        let mut words = [0; 128];
        words[0] = 0x7_0000_001b;
        let first = ((INFO_BYTES + CONTEXT_OFFSET) / 8) as usize + 1;
        for (number, word) in words[first..].iter_mut().take(31).enumerate() {
            *word = number as u64 + 1;
        }
        (words[first + 31], words[first + 32], words[first + 33]) = (0x2000, 0x4444, 0x6000_0000);
        (words[100], words[101]) = (30, 31);
        words
    }

    fn read(words: &[u64; 128]) -> impl Fn(u64) -> Option<u64> {
        |address| words.get(usize::try_from(address.checked_sub(FRAME)?).ok()? / 8).copied()
    }

    #[test]
    fn only_a_context_of_64_bit_code_above_it_is_read() {
        let words = frame();
        let (interrupted, saved) = saved_registers(FRAME, read(&words)).expect("a context");
        assert_eq!(interrupted, FrameRegisters { pc: 0x4444, sp: 0x2000, fp: 30 });
        assert_eq!((saved.x0, saved.x28, saved.lr), (1, 29, 31));
        let first = ((INFO_BYTES + CONTEXT_OFFSET) / 8) as usize + 1;
        for (index, wrong) in [(16, 8), (first + 31, 0x1010), (first + 33, 0x10)] {
            let mut words = frame();
            words[index] = wrong;
            assert_eq!(saved_registers(FRAME, read(&words)), None, "word {index}");
        }
        assert_eq!(saved_registers(FRAME + 900, read(&words)), None, "not copied");
    }

    #[test]
    fn a_handler_has_not_begun_while_it_has_the_registers_that_the_kernel_sets() {
        let words = frame();
        let (interrupted, saved) = saved_registers(FRAME, read(&words)).expect("a context");
        let entry = FrameRegisters { pc: 0x77, sp: FRAME, fp: RECORD };
        let registers = Registers { x0: 27, x1: FRAME, x2: FRAME + INFO_BYTES, lr: 0x99, ..saved };
        let found = registers_at_handler_entry(entry, &registers, read(&words));
        assert_eq!(found, Some((interrupted, saved)));
        for changed in [Registers { x0: 28, ..registers }, Registers { x3: 0, ..registers }] {
            assert_eq!(registers_at_handler_entry(entry, &changed, read(&words)), None);
        }
        let pushed = FrameRegisters { sp: FRAME - 16, ..entry };
        assert_eq!(registers_at_handler_entry(pushed, &registers, read(&words)), None);
    }

    #[test]
    fn code_that_ends_a_handler() {
        let code = RETURN.map(u32::to_le_bytes).concat();
        assert!(is_signal_return(&code));
        let (before, after) = code.split_at(4);
        assert!(is_in_signal_return(before, after));
        assert!(!is_signal_return(after) && !is_in_signal_return(&code, after));
    }
}
