//! How much of its frame compiled code or a stub has, by the instructions around the pc.
//!
//! In a CPU profile many samples hit the few instructions during which a compiled frame is built or gone.
//! The compilers write these from fixed templates, so the code around the pc shows the state of the frame:
//!
//! ```text
//! entry:   nop   [sub x9, sp, #n   str xzr, [x9]]   sub sp, sp, #n   stp x29, x30, [sp, #n-16]   C1, C2
//! entry:   ...   stp x29, x30, [sp, #-16]!   [mov x29, sp]   sub sp, sp, #n - 16                large frames, wrappers
//! exit:    ldp x29, x30, [sp, #n - 16]   add sp, sp, #n   [poll]   ret                          C1, C2
//! exit:    add sp, sp, #n - 16   ldp x29, x30, [sp], #16   [poll]   ret                         large frames
//! exit:    mov sp, x29   ldp x29, x30, [sp], #16   [pending exception]   ret                    native wrappers
//! poll:    ldr x8, [x28, #p]   ldr wzr, [x8]                                                    JDK 11
//! poll:    ldr x8, [x28, #p]   cmp sp, x8   b.hi stub                                           JDK 17 and later
//! stub:    adr x8, poll   str x8, [x28, #saved_exception_pc]   b ...                            frame already gone
//! ```
//!
//! Sources: `MachPrologNode`/`MachEpilogNode` in `cpu/aarch64/aarch64.ad`, `build_frame`, `remove_frame`, `enter` and
//! `leave` in `macroAssembler_aarch64.{cpp,hpp}`, `c1_MacroAssembler_aarch64.cpp`, `c1_LIRAssembler_aarch64.cpp`,
//! `c1_CodeStubs_aarch64.cpp`, `c2_safepointPollStubTable_aarch64.cpp`, `sharedRuntime_aarch64.cpp`, JDK 11 to 25.

use super::instruction::{
    LEAVE, POP_RECORD, PUSH_RECORD, RET, allocates_by_register, backwards, first, instructions, last,
    loads_record, sp_change, stores_record, thread_load, thread_store,
};
use super::pushed::words_below;
use crate::cpu::rules::{Around, Unwind};

/// Bytes of [`Around::before`]: the longest prologue, class initialisation and stack checks included, and the pushes of
/// a collector's barrier.
pub(crate) const CODE_BEFORE: u64 = 256;
/// Bytes of [`Around::after`]: the longest exit sequence has 24.
pub(crate) const CODE_AFTER: u64 = 32;
/// Bytes from the pc on that [`state_in_body`] and [`state_at_call`] look at: none, because pushes lie before the pc.
pub(crate) const BODY_AHEAD: usize = 4;
/// Bytes after an on-stack-replacement entry that may be prologue.
pub(crate) const OSR_PROLOGUE_BYTES: u64 = 48;
/// Most instructions of an exit sequence behind the frame.
const EXIT_INSTRUCTIONS: usize = 8;

/// State of the frame at a pc before which the code begins at an entry.
pub(crate) fn prologue(around: Around<'_>) -> Unwind {
    instructions(around.before).fold(Unwind::Return, |state, instruction| match state {
        Unwind::Return if instruction == PUSH_RECORD => Unwind::Pushed,
        Unwind::Return if is_allocation(instruction) => Unwind::WholeFpLive,
        Unwind::WholeFpLive if stores_record(instruction) => Unwind::Whole,
        Unwind::Pushed if is_allocation(instruction) => Unwind::Whole,
        state => state,
    })
}

/// True for `sub sp, sp, #n` and `sub sp, sp, xN`.
fn is_allocation(instruction: u32) -> bool {
    is_immediate(instruction) && sp_change(instruction) < 0 || allocates_by_register(instruction)
}

/// True for `add` and `sub` of an immediate.
fn is_immediate(instruction: u32) -> bool {
    instruction & 0x1f00_0000 == 0x1100_0000
}

/// State of the frame if the pc is in an exit sequence, else `None`.
pub(crate) fn epilogue(around: Around<'_>, native: bool, saved_exception_pc: Option<u32>) -> Option<Unwind> {
    let next = first(around.after)?;
    if next == POP_RECORD {
        return Some(Unwind::Pushed);
    }
    let previous = last(around.before);
    if previous.is_some_and(loads_record) && is_immediate(next) && sp_change(next) > 0 {
        return Some(Unwind::WholeFpLive);
    }
    if is_exit_tail(around.before, next, native) || is_poll_stub(around, saved_exception_pc?) {
        return Some(Unwind::Return);
    }
    None
}

/// True if the frame is gone: the code before `next` has removed it, and only instructions of an exit sequence follow.
fn is_exit_tail(before: &[u8], next: u32, native: bool) -> bool {
    let mut code = backwards(before);
    for _ in 0..EXIT_INSTRUCTIONS {
        let Some(instruction) = code.next() else { return false };
        let is_release = is_immediate(instruction) && sp_change(instruction) > 0;
        if instruction == POP_RECORD || is_release && code.clone().next().is_some_and(loads_record) {
            return is_exit(next, native) || is_jump(next);
        }
        // Behind a return begins other code.
        if instruction == RET || !is_exit(instruction, native) {
            return false;
        }
    }
    false
}

/// True for an instruction behind the frame other than a jump to a stub: polls, checks of the reserved zone and of
/// pending exceptions, hints.
fn is_exit(instruction: u32, native: bool) -> bool {
    match instruction {
        RET => true,
        // cmp sp, xN; b.cond; ldr wzr, [xN]; hints (nop, autiaz).
        i if i & 0xffe0_ffff == 0xeb20_63ff || i & 0xff00_0010 == 0x5400_0000 => true,
        i if i & 0xffff_fc1f == 0xb940_001f || i & 0xffff_f01f == 0xd503_201f => true,
        // adrp, before the global polling page of JDK 11.
        i if i & 0x9f00_0000 == 0x9000_0000 => true,
        // cbz and cbnz, tbz and tbnz; memory barriers of returns from native code.
        i if native && (i & 0x7e00_0000 == 0x3400_0000 || i & 0x7e00_0000 == 0x3600_0000) => true,
        i => thread_load(i).is_some(),
    }
}

/// True for `b` and `br`: an exception that is not caught here goes on in the caller.
fn is_jump(instruction: u32) -> bool {
    instruction & 0xfc00_0000 == 0x1400_0000 || instruction & 0xffff_fc1f == 0xd61f_0000
}

/// True if the pc is in the out-of-line part of a return poll.
fn is_poll_stub(around: Around<'_>, saved_exception_pc: u32) -> bool {
    let stores = |instruction: u32| thread_store(instruction) == Some(saved_exception_pc);
    let mut ahead = instructions(around.after);
    let (next, second) = (ahead.next(), ahead.next());
    let loads_address = next.is_some_and(|next| next & 0x9f00_001f == 0x1000_0008);
    // Behind the store comes a jump, by an address that takes two instructions if it is far.
    next.is_some_and(stores)
        || loads_address && second.is_some_and(stores)
        || backwards(around.before).take(3).any(stores)
}

/// State of an nmethod's frame behind its prologue; `native` is set for wrappers of native methods.
pub(crate) fn state_in_body(
    around: Around<'_>,
    _ahead: &[u8],
    native: bool,
    saved_exception_pc: Option<u32>,
) -> Unwind {
    if let Some(state) = epilogue(around, native, saved_exception_pc) {
        return state;
    }
    // Wrappers keep fp as frame pointer and push registers around calls.
    if native { Unwind::FramePointer } else { below(words_below(around.before)) }
}

/// State of a compiled frame at the return address of a call of VM code.
pub(crate) fn state_at_call(around: Around<'_>, _ahead: &[u8]) -> Unwind {
    below(words_below(around.before))
}

fn below(words: u64) -> Unwind {
    if words == 0 { Unwind::Whole } else { Unwind::Below(words) }
}

/// Rules to try in order for a stub with a frame of `size` bytes, 0 for none of fixed size.
pub(crate) fn stub_states(around: Around<'_>, size: u64) -> [Unwind; 3] {
    if last(around.before) == Some(PUSH_RECORD) {
        return [Unwind::Pushed; 3];
    }
    match first(around.after) {
        Some(POP_RECORD) => [Unwind::Pushed, Unwind::Whole, Unwind::FramePointer],
        Some(PUSH_RECORD) => [Unwind::Return; 3],
        _ if size == 0 => [Unwind::Return, Unwind::FramePointer, Unwind::Pushed],
        _ if around.from_entry => [prologue(around), Unwind::Whole, Unwind::FramePointer],
        _ => [Unwind::FramePointer, Unwind::Whole, Unwind::Return],
    }
}

/// State of a stub's frame if the next instructions leave it.
pub(crate) fn stub_exit(after: &[u8]) -> Option<Unwind> {
    let mut code = instructions(after);
    match (code.next()?, code.next(), code.next()) {
        (RET, ..) => Some(Unwind::Return),
        (POP_RECORD, Some(RET), _) => Some(Unwind::Pushed),
        (LEAVE, Some(POP_RECORD), Some(RET)) => Some(Unwind::FramePointer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    /// The states at each instruction of `code`, by `state`.
    fn states<T>(code: &[u32], state: impl Fn(Around<'_>) -> T) -> Vec<T> {
        let bytes = bytes(code);
        let at = |pc: usize| Around { before: &bytes[..4 * pc], after: &bytes[4 * pc..], from_entry: true };
        (0..code.len()).map(|pc| state(at(pc))).collect()
    }

    #[test]
    fn prologues() {
        use Unwind::{Pushed, Return, Whole, WholeFpLive};
        // nop; sub x9, sp, #0x14, lsl #12; str xzr, [x9]; sub sp, sp, #0x30; stp x29, x30, [sp, #0x20]; nop
        let small = [0xd503_201f, 0xd140_53e9, 0xf900_013f, 0xd100_c3ff, 0xa902_7bfd, 0xd503_201f];
        let found = states(&small, prologue);
        assert_eq!(found, [Return, Return, Return, Return, WholeFpLive, Whole]);
        // nop; stp x29, x30, [sp, #-16]!; mov x29, sp; sub sp, sp, #0x400; nop
        let large = [0xd503_201f, PUSH_RECORD, 0x9100_03fd, 0xd110_03ff, 0xd503_201f];
        let found = states(&large, prologue);
        assert_eq!(found, [Return, Return, Pushed, Pushed, Whole]);
    }

    #[test]
    fn exits() {
        use Unwind::{Pushed, Return, WholeFpLive};
        let exit = |code: &[u32]| states(code, |around| epilogue(around, false, Some(0x4a0)));
        // nop; ldp x29, x30, [sp, #0x20]; add sp, sp, #0x30; ldr x8, [x28, #0x458]; cmp sp, x8; b.hi; ret
        let small =
            [0xd503_201f, 0xa942_7bfd, 0x9100_c3ff, 0xf942_2f88, 0xeb28_63ff, 0x5400_0068, RET, 0xd503_201f];
        let gone = Some(Return);
        assert_eq!(exit(&small), [None, None, Some(WholeFpLive), gone, gone, gone, gone, None]);
        // add sp, sp, #0x400; ldp x29, x30, [sp], #16; ldr x8, [x28, #0x458]; ldr wzr, [x8]; ret
        let large = [0x9110_03ff, POP_RECORD, 0xf942_2f88, 0xb940_011f, RET];
        assert_eq!(exit(&large), [None, Some(Pushed), gone, gone, gone]);
        // ldp; add; b: an exception goes on in the caller.
        assert_eq!(exit(&[0xa942_7bfd, 0x9100_c3ff, 0x1400_1234]), [None, Some(WholeFpLive), gone]);
        // b; adr x8, .-0x40; str x8, [x28, #0x4a0]; adrp x8; add x8, x8, #0; br x8
        let poll = [0x1400_0001, 0x10ff_fe08, 0xf902_5388, 0x9000_0008, 0x9100_0108, 0xd61f_0100];
        assert_eq!(exit(&poll), [None, gone, gone, gone, gone, gone]);
    }

    #[test]
    fn exit_of_a_native_wrapper() {
        use Unwind::{Pushed, Return};
        // mov sp, x29; ldp x29, x30, [sp], #16; ldr x8, [x28, #8]; cbnz x8; ret
        let code = [LEAVE, POP_RECORD, 0xf940_0788, 0xb500_0048, RET];
        let at = |native| states(&code, |around| epilogue(around, native, None));
        assert_eq!(at(true), [None, Some(Pushed), Some(Return), Some(Return), Some(Return)]);
        assert_eq!(at(false)[4], None, "compiled code tests and branches all the time");
    }

    #[test]
    fn bodies() {
        let code = [0xd100_83ff, 0xa901_7bfd, 0xd503_201f, 0xa9bf_27ff, 0xd63f_0100, 0x9100_43ff];
        let found = states(&code, |around| state_in_body(around, &[], false, None));
        assert_eq!(found[2..], [Unwind::Whole, Unwind::Whole, Unwind::Below(2), Unwind::Below(2)]);
        let around = Around { before: &[], after: &[], from_entry: false };
        assert_eq!(state_in_body(around, &[], true, None), Unwind::FramePointer);
    }

    #[test]
    fn calls_of_vm_code() {
        // sub sp, sp, #0x20; stp x29, x30, [sp, #0x10]; stp x1, x0, [sp, #-16]!; bl; ldp x1, x0, [sp], #16; bl; nop
        let code =
            [0xd100_83ff, 0xa901_7bfd, 0xa9bf_03e1, 0x9400_0010, 0xa8c1_03e1, 0x9400_0020, 0xd503_201f];
        let found = states(&code, |around| state_at_call(around, &[]));
        assert_eq!(found[4], Unwind::Below(2), "the call of a stub that takes its arguments from the stack");
        assert_eq!(found[6], Unwind::Whole);
    }

    #[test]
    fn rules_for_stubs() {
        use Unwind::{FramePointer, Pushed, Return, Whole, WholeFpLive};
        // nop; stp x29, x30, [sp, #-16]!; mov x29, sp; blr x8; mov sp, x29; ldp x29, x30, [sp], #16; ret
        let code = [0xd503_201f, PUSH_RECORD, 0x9100_03fd, 0xd63f_0100, LEAVE, POP_RECORD, RET];
        let without_size = states(&code, |around| stub_states(around, 0)[0]);
        assert_eq!(without_size, [Return, Return, Pushed, Return, Return, Pushed, Return]);
        assert_eq!(states(&code, |around| stub_states(around, 0))[3], [Return, FramePointer, Pushed]);
        // sub sp, sp, #0x20; stp x29, x30, [sp, #0x10]; bl
        let sized = [0xd100_83ff, 0xa901_7bfd, 0x9400_0010];
        let at = |from_entry| states(&sized, |around| stub_states(Around { from_entry, ..around }, 32)[0]);
        assert_eq!(at(true), [Return, WholeFpLive, Whole]);
        assert_eq!(at(false), [FramePointer; 3]);
    }

    #[test]
    fn exits_of_stubs() {
        assert_eq!(stub_exit(&bytes(&[RET])), Some(Unwind::Return));
        assert_eq!(stub_exit(&bytes(&[POP_RECORD, RET])), Some(Unwind::Pushed));
        assert_eq!(stub_exit(&bytes(&[LEAVE, POP_RECORD, RET])), Some(Unwind::FramePointer));
        assert_eq!(stub_exit(&bytes(&[POP_RECORD, 0xd503_201f])), None);
    }
}
