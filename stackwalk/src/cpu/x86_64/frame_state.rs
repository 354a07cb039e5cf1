//! How much of its frame compiled code or a stub has, by the instructions around the pc.
//!
//! In a CPU profile many samples hit the few instructions during which a compiled frame is built or gone.
//! The compilers write these from fixed templates, so the bytes around the pc show the state of the frame:
//!
//! ```text
//! entry:   [mov [rsp-N], eax]  push rbp  [mov rbp, rsp]  sub rsp, n     C1, C2, native wrappers
//! entry:   sub rsp, n   mov [rsp+n-8], rbp                              C2 without stack bang
//! entry:   jmp stub   ...                                               not entrant since, JDK 11 to 25
//! exit:    add rsp, n   pop rbp   [poll]   ret                          C1, C2
//! exit:    leave  [poll]  [cmp pending exception, jcc]  ret             native wrappers
//! poll:    mov r10, [r15+p]  test [r10], eax                            JDK 11
//! poll:    mov reg, [r15+p]  test [reg], eax                            JDK 11, compilers of JVMCI
//! poll:    cmp rsp, [r15+p]  ja stub                                    JDK 17 and later
//! exit:    add rsp, n   pop rbp   jmp stub                              C2, exceptions not caught
//! stub:    lea r10, [rip+d]  mov [r15+saved_exception_pc], r10  jmp     frame already gone; C1: mov r10, imm64
//! ```
//!
//! Sources: `MachPrologNode`/`MachEpilogNode` in `cpu/x86/x86_64.ad`, `c1_MacroAssembler_x86.cpp`,
//! `c1_LIRAssembler_x86.cpp`, `c2_safepointPollStubTable_x86.cpp`, `sharedRuntime_x86_64.cpp`,
//! `templateInterpreterGenerator_x86.cpp`, `frame_x86.hpp`, JDK 11 to 25.

use super::calls::popped_after_call;
use super::saved_registers::saved_registers;
use super::slot_move::is_slot_move;
use super::stub_arguments::{array_copy_words, pushed_arguments};
use super::subtype_check::pushed_words;
use crate::cpu::rules::{Around, Unwind};

/// Bytes of [`Around::before`]: the longest prologue, class initialisation barriers included.
pub(crate) const CODE_BEFORE: u64 = 96;
/// Bytes of [`Around::after`]: the longest exit sequence has 24.
pub(crate) const CODE_AFTER: u64 = 32;

/// Effect of a prologue instruction on the frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Nothing,
    PushFp,
    Allocate,
    SaveFp,
}

/// Length and effect of the prologue instruction at the start of `code`.
fn prologue_instruction(code: &[u8]) -> Option<(usize, Effect)> {
    Some(match code {
        [0x55, ..] => (1, Effect::PushFp),
        // mov rbp, rsp in both encodings.
        [0x48, 0x8b, 0xec, ..] | [0x48, 0x89, 0xe5, ..] => (3, Effect::Nothing),
        // Stack bang: mov [rsp + disp32], eax.
        [0x89, 0x84, 0x24, ..] => (7, Effect::Nothing),
        [0x48, 0x83, 0xec, ..] => (4, Effect::Allocate),
        [0x48, 0x81, 0xec, ..] => (7, Effect::Allocate),
        // mov [rsp + disp], rbp.
        [0x48, 0x89, 0x6c, 0x24, ..] => (5, Effect::SaveFp),
        [0x48, 0x89, 0xac, 0x24, ..] => (8, Effect::SaveFp),
        // The nops the assembler pads with.
        [0x90, ..] => (1, Effect::Nothing),
        [0x66, 0x90, ..] => (2, Effect::Nothing),
        [0x66, 0x66, 0x90, ..] | [0x0f, 0x1f, 0x00, ..] => (3, Effect::Nothing),
        [0x0f, 0x1f, 0x40, ..] => (4, Effect::Nothing),
        [0x0f, 0x1f, 0x44, ..] => (5, Effect::Nothing),
        [0x66, 0x0f, 0x1f, 0x44, ..] => (6, Effect::Nothing),
        [0x0f, 0x1f, 0x80, ..] => (7, Effect::Nothing),
        [0x0f, 0x1f, 0x84, ..] => (8, Effect::Nothing),
        [0x66, 0x0f, 0x1f, 0x84, ..] => (9, Effect::Nothing),
        _ => return None,
    })
}

fn apply(state: Unwind, effect: Effect) -> Unwind {
    match (state, effect) {
        (Unwind::Return, Effect::PushFp) => Unwind::Pushed,
        (Unwind::Return, Effect::Allocate) => Unwind::WholeFpLive,
        (Unwind::Pushed, Effect::Allocate) | (Unwind::WholeFpLive, Effect::SaveFp) => Unwind::Whole,
        (state, _) => state,
    }
}

/// State of the frame at a pc before which the code begins at an entry.
pub(crate) fn prologue(around: Around<'_>) -> Unwind {
    let (mut state, mut rest) = behind_entry_jump(around).unwrap_or((Unwind::Return, around.before));
    while !rest.is_empty() {
        let Some((length, effect)) = prologue_instruction(rest) else {
            return after_unknown(state, rest);
        };
        let Some(next) = rest.get(length..) else {
            return state;
        };
        state = apply(state, effect);
        rest = next;
    }
    state
}

/// The state behind the first instruction of a prologue, of which five bytes are now a jump, and the code from there
/// on.
///
/// The VM makes code not entrant by a jump at its verified entry; a sample may have been taken there before
/// (`NativeJump::patch_verified_entry` in `nativeInst_x86.cpp`, JDK 11 to 25; later it arms the entry barrier). Both
/// instructions of seven bytes that begin a prologue are recognised by the one behind them.
fn behind_entry_jump(around: Around<'_>) -> Option<(Unwind, &[u8])> {
    let rest = around.before.strip_prefix(&[0xe9])?.get(6..)?;
    let next = if rest.is_empty() { around.after } else { rest };
    match prologue_instruction(next)?.1 {
        Effect::PushFp => Some((Unwind::Return, rest)),
        Effect::SaveFp => Some((Unwind::WholeFpLive, rest)),
        Effect::Nothing | Effect::Allocate => None,
    }
}

/// State after instructions that are not all of the template (barriers before or after the frame is built):
/// an allocation among them means a complete frame.
fn after_unknown(state: Unwind, rest: &[u8]) -> Unwind {
    if matches!(state, Unwind::Whole | Unwind::WholeFpLive) {
        return Unwind::Whole;
    }
    for start in 0..rest.len() {
        let Some(code) = rest.get(start..) else { break };
        if let Some((length, Effect::Allocate)) = prologue_instruction(code)
            && length <= code.len()
        {
            let pushed = start.checked_sub(1).and_then(|at| rest.get(at)) == Some(&0x55);
            let allocated = apply(if pushed { Unwind::Pushed } else { state }, Effect::Allocate);
            return code.get(length..).map_or(allocated, |left| finish(allocated, left));
        }
    }
    match rest.last() {
        Some(0x55) => Unwind::Pushed,
        _ => state,
    }
}

/// State after an allocation: rbp is saved by the next instruction or was before.
fn finish(allocated: Unwind, left: &[u8]) -> Unwind {
    if left.is_empty() { allocated } else { Unwind::Whole }
}

/// Returns whether `code` is the rest of an exit sequence after the frame is gone.
fn is_exit_tail(code: &[u8], native: bool) -> bool {
    let mut rest = code;
    // A poll is two instructions, a pending-exception check two more, and vzeroupper one.
    for _ in 0..5 {
        let length = match rest {
            [0xc3, ..] => return true,
            // cmp rsp, [r15 + disp]: only polls and reserved-stack checks compare rsp.
            [0x49, 0x3b, 0x67, ..] | [0x49, 0x3b, 0xa7, ..] => return true,
            // ja stub.
            [0x0f, 0x87, ..] => 6,
            // vzeroupper, which Graal puts behind its poll.
            [0xc5, 0xf8, 0x77, ..] => 3,
            // test [rip + disp32], eax: the global polling page of JDK 11.
            [0x85, 0x05, ..] => 6,
            // cmp qword [r15 + disp], 0 and jne: exception check of native wrappers.
            [0x49, 0x83, 0x7f, _, 0x00, ..] if native => 5,
            [0x49, 0x83, 0xbf, _, _, _, _, 0x00, ..] if native => 8,
            // The same with a long zero, up to JDK 17.
            [0x49, 0x81, 0x7f, _, 0x00, 0x00, 0x00, 0x00, ..] if native => 8,
            [0x49, 0x81, 0xbf, _, _, _, _, 0x00, 0x00, 0x00, 0x00, ..] if native => 11,
            [0x0f, 0x85, ..] if native => 6,
            [0x75, ..] if native => 2,
            code => match thread_poll_instruction(code) {
                Some(length) => length,
                None => return false,
            },
        };
        rest = match rest.get(length..) {
            Some(rest) => rest,
            None => return false,
        };
    }
    false
}

/// Length of an instruction of a poll of the thread's own page, `mov reg, [r15 + disp]` or `test [reg], eax`.
///
/// C1 and C2 use r10, compilers of JVMCI any register: `AMD64HotSpotSafepointOp::emitThreadLocalPoll` and
/// `AMD64HotSpotReturnOp` in `org.graalvm.compiler.hotspot.amd64`, JDK 11.
fn thread_poll_instruction(code: &[u8]) -> Option<usize> {
    // Neither rsp (with r12: an index byte follows) nor rbp (with r13: a displacement).
    let tests_eax = |operands: u8| operands & 0b1111_1000 == 0 && !matches!(operands & 7, 4 | 5);
    match *code {
        [0x49 | 0x4d, 0x8b, operands, ..] if operands & 0b1100_0111 == 0b0100_0111 => Some(4),
        [0x49 | 0x4d, 0x8b, operands, ..] if operands & 0b1100_0111 == 0b1000_0111 => Some(7),
        [0x85, operands, ..] if tests_eax(operands) => Some(2),
        [0x41, 0x85, operands, ..] if tests_eax(operands) => Some(3),
        _ => None,
    }
}

/// State of the frame if the pc is in an exit sequence, else `None`.
pub(crate) fn epilogue(around: Around<'_>, native: bool, saved_exception_pc: Option<u32>) -> Option<Unwind> {
    match around.after {
        [0x5d, rest @ ..] if is_exit_tail(rest, native) => Some(Unwind::Pushed),
        // An exception that is not caught here goes on in the caller: C2 jumps to a stub.
        [0x5d, 0xe9, ..] => Some(Unwind::Pushed),
        [0xe9, ..] if has_left_frame(around.before) => Some(Unwind::Return),
        // leave: fp still describes the frame.
        [0xc9, ..] if native => Some(Unwind::FramePointer),
        after if is_exit_tail(after, native) => Some(Unwind::Return),
        after if is_poll_stub(around.before, after, saved_exception_pc?) => Some(Unwind::Return),
        after if native && is_poll_stub(&[], behind_poll(after)?, saved_exception_pc?) => {
            Some(Unwind::Return)
        }
        _ => None,
    }
}

/// The code after the return poll of a native wrapper, which has no out-of-line part: from JDK 25 on
/// (`generate_native_wrapper` in `sharedRuntime_x86_64.cpp`, `safepoint_poll` in `macroAssembler_x86.cpp`).
fn behind_poll(after: &[u8]) -> Option<&[u8]> {
    match after {
        // test byte [r15 + disp], 1; je.
        [0x41, 0xf6, 0x47, _, 0x01, 0x74, _, rest @ ..]
        | [0x41, 0xf6, 0x87, _, _, _, _, 0x01, 0x74, _, rest @ ..]
        | [0x74, _, rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Returns whether a stub has removed its frame and is about to pop the return address, as the stubs do that look up an
/// exception handler: `[add rsp, n; pop rbp]` or `[mov rbp, [rsp]; add rsp, 8]`, then `pop rdx`.
///
/// Source: `generate_exception_blob` in `sharedRuntime_x86_64.cpp`, `RethrowExceptionNode` in `x86_64.ad`.
fn is_popping_return_address(around: Around<'_>) -> bool {
    let left = has_left_frame(around.before)
        || around.before.ends_with(&[0x48, 0x8b, 0x2c, 0x24, 0x48, 0x83, 0xc4, 0x08]);
    left && matches!(around.after, [0x5a, ..])
}

/// Returns whether the last instructions were `add rsp, n; pop rbp`, or the same with the size that the frame keeps.
fn has_left_frame(before: &[u8]) -> bool {
    let by_constant =
        matches!(before, [.., 0x48, 0x83, 0xc4, _, 0x5d] | [.., 0x48, 0x81, 0xc4, _, _, _, _, 0x5d]);
    let by_kept_size = matches!(
        before,
        [.., 0x48, 0x03, 0x64, 0x24, _, 0x5d] | [.., 0x48, 0x03, 0xa4, 0x24, _, _, _, _, 0x5d]
    );
    by_constant || by_kept_size
}

/// Returns whether the pc is in the out-of-line part of a return poll.
fn is_poll_stub(before: &[u8], after: &[u8], saved_exception_pc: u32) -> bool {
    let store = |code: &[u8]| match code {
        [0x4d, 0x89, 0x97, a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]) == saved_exception_pc,
        _ => false,
    };
    match after {
        [0x4c, 0x8d, 0x15, _, _, _, _, rest @ ..] => store(rest),
        [0x49, 0xba, _, _, _, _, _, _, _, _, rest @ ..] => store(rest),
        [0x4d, 0x89, 0x97, ..] => store(after),
        [0xe9, ..] => before.len().checked_sub(7).and_then(|at| before.get(at..)).is_some_and(store),
        _ => false,
    }
}

/// Bytes from the pc on that [`state_in_body`] and [`state_at_call`] look at: a dozen general registers with their
/// call, or vector registers restored.
pub(crate) const BODY_AHEAD: usize = 192;

/// Bytes after an on-stack-replacement entry that may be prologue.
pub(crate) const OSR_PROLOGUE_BYTES: u64 = 48;

/// State of an nmethod's frame behind its prologue; `ahead` is the code from the pc on, `native` is set for wrappers of
/// native methods.
pub(crate) fn state_in_body(
    around: Around<'_>,
    ahead: &[u8],
    native: bool,
    saved_exception_pc: Option<u32>,
) -> Unwind {
    let in_exit = epilogue(around, native, saved_exception_pc);
    if let (None, Some(words)) = (in_exit, pushed_words(around)) {
        return Unwind::Below(words);
    }
    if is_slot_move(around) {
        return Unwind::Below(1);
    }
    if let (None, false, Some(words)) = (in_exit, native, pushed_arguments(around)) {
        return Unwind::Below(words);
    }
    if let (None, Some(words)) = (in_exit, saved_registers(ahead)) {
        return Unwind::Below(words);
    }
    // Wrappers keep fp as frame pointer and push registers around calls.
    in_exit.unwrap_or(if native { Unwind::FramePointer } else { Unwind::Whole })
}

/// State of a compiled frame at the return address of a call of VM code.
///
/// C1 pushes the arguments of some stubs (slow subtype check) below its complete frame and pops them after the call; C2
/// saves registers there around calls of barriers.
pub(crate) fn state_at_call(around: Around<'_>, ahead: &[u8]) -> Unwind {
    let pushed = || popped_after_call(around.after).saturating_add(array_copy_words(around.before));
    match saved_registers(ahead).unwrap_or_else(pushed) {
        0 => Unwind::Whole,
        words => Unwind::Below(words),
    }
}

/// Rules to try in order for a stub with a frame of `size` bytes, 0 for none of fixed size.
pub(crate) fn stub_states(around: Around<'_>, size: u64) -> [Unwind; 3] {
    match (around.before.last(), around.after.first()) {
        _ if is_popping_return_address(around) => [Unwind::Return; 3],
        // push rbp was the last instruction or pop rbp is the next.
        (Some(0x55), _) | (_, Some(0x5d)) => [Unwind::Pushed, Unwind::Whole, Unwind::FramePointer],
        _ if size == 0 => [Unwind::Return, Unwind::FramePointer, Unwind::Pushed],
        _ if is_slot_move(around) => [Unwind::Below(1), Unwind::FramePointer, Unwind::Return],
        _ if around.from_entry => [prologue(around), Unwind::Whole, Unwind::FramePointer],
        _ => [Unwind::Whole, Unwind::FramePointer, Unwind::Return],
    }
}

/// State of a stub's frame if the next instructions are `ret` or `leave; ret`.
pub(crate) fn stub_exit(after: &[u8]) -> Option<Unwind> {
    match after {
        [0xc3, ..] => Some(Unwind::Return),
        [0xc9, 0xc3, ..] => Some(Unwind::FramePointer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const ENTRY: [u8; 15] = [
        0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, // mov [rsp - 0x14000], eax
        0x55, // push rbp
        0x48, 0x83, 0xec, 0x30, // sub rsp, 0x30
        0x90, 0x90, 0x90,
    ];

    fn prologue(before: &[u8]) -> Unwind {
        super::prologue(Around { before, after: &[], from_entry: true })
    }

    #[test]
    fn prologue_with_stack_bang() {
        assert_eq!(prologue(&ENTRY[..0]), Unwind::Return);
        assert_eq!(prologue(&ENTRY[..7]), Unwind::Return);
        assert_eq!(prologue(&ENTRY[..8]), Unwind::Pushed);
        assert_eq!(prologue(&ENTRY[..12]), Unwind::Whole);
        assert_eq!(prologue(&ENTRY), Unwind::Whole);
    }

    #[test]
    fn prologue_without_stack_bang() {
        let code = [0x48, 0x81, 0xec, 0x18, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x10];
        assert_eq!(prologue(&code[..7]), Unwind::WholeFpLive);
        assert_eq!(prologue(&code), Unwind::Whole);
    }

    /// The VM replaces the first five bytes by a jump when it makes code not entrant.
    #[test]
    fn prologues_that_begin_with_a_jump() {
        let check = |code: &[u8], states: &[(usize, Unwind)]| {
            let jump = [&[0xe9, 0x31, 0x48, 0x5a, 0xff], &code[5..]].concat();
            for &(pc, state) in states {
                for (code, what) in [(code, "entrant"), (&jump, "not entrant")] {
                    let (before, after) = code.split_at(pc);
                    let found = super::prologue(Around { before, after, from_entry: true });
                    assert_eq!(found, state, "{what} {pc}");
                }
            }
        };
        check(&ENTRY, &[(7, Unwind::Return), (8, Unwind::Pushed), (12, Unwind::Whole)]);
        // C2: sub rsp, 0x18; mov [rsp + 0x10], rbp.
        let plain = [0x48, 0x81, 0xec, 0x18, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x90];
        check(&plain, &[(7, Unwind::WholeFpLive), (12, Unwind::Whole), (13, Unwind::Whole)]);
        // The wrapper of Thread.holdsLock, Temurin 11.0.13: with mov rbp, rsp.
        let wrapper =
            [0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x40, 0x48];
        let states = [(7, Unwind::Return), (8, Unwind::Pushed), (11, Unwind::Pushed), (15, Unwind::Whole)];
        check(&wrapper, &states);
    }

    #[test]
    fn prologue_after_barrier() {
        let barrier = [0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(prologue(&barrier), Unwind::Return);
        let mut code = barrier.to_vec();
        code.push(0x55);
        assert_eq!(prologue(&code), Unwind::Pushed);
        code.extend([0x48, 0x83, 0xec, 0x20]);
        assert_eq!(prologue(&code), Unwind::Whole);
    }

    #[test]
    fn exits() {
        let exit =
            |after: &[u8]| epilogue(Around { before: &[], after, from_entry: false }, false, Some(0x548));
        assert_eq!(exit(&[0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3]), None, "add rsp");
        assert_eq!(exit(&[0x5d, 0x49, 0x3b, 0xa7, 0, 4, 0, 0]), Some(Unwind::Pushed));
        assert_eq!(exit(&[0x49, 0x3b, 0xa7, 0, 4, 0, 0]), Some(Unwind::Return));
        assert_eq!(exit(&[0x0f, 0x87, 0, 1, 0, 0, 0xc3]), Some(Unwind::Return));
        assert_eq!(exit(&[0x4d, 0x8b, 0x97, 8, 1, 0, 0, 0x41, 0x85, 0x02, 0xc3]), Some(Unwind::Return));
        assert_eq!(exit(&[0x41, 0x85, 0x02, 0x90]), None, "loop poll");
        // mov rcx, [r15 + 0x108]; test [rcx], eax: code of Graal.
        let graal = [0x49, 0x8b, 0x8f, 8, 1, 0, 0, 0x85, 0x01, 0xc3];
        assert_eq!(exit(&graal), Some(Unwind::Return));
        assert_eq!(exit(&graal[7..]), Some(Unwind::Return));
        let vectors = [&graal[..9], &[0xc5, 0xf8, 0x77, 0xc3]].concat();
        assert!([0, 7, 9].iter().all(|&pc| exit(&vectors[pc..]) == Some(Unwind::Return)), "vzeroupper");
        assert_eq!(
            exit(&[0xc5, 0xf8, 0x77, 0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3]),
            None,
            "before the frame is gone"
        );
        assert_eq!(exit(&[&graal[..9], &[0x90]].concat()), None, "its loop poll");
        assert_eq!(exit(&[0x49, 0x8b, 0x7f, 0x40, 0x85, 0x07, 0xc3]), Some(Unwind::Return), "rdi");
        assert_eq!(exit(&[0x85, 0xc0, 0xc3]), None, "test eax, eax");
        let of_c1 = [0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8, 0x4d, 0x89, 0x97, 0x48, 5, 0, 0, 0xe9];
        assert_eq!(exit(&of_c1), Some(Unwind::Return));
        assert_eq!(exit(&[0x5d, 0xe9, 0x6f, 0x42, 0xb8, 0xff]), Some(Unwind::Pushed), "rethrow");
        let left = Around {
            before: &[0x48, 0x83, 0xc4, 0x10, 0x5d],
            after: &[0xe9, 0x6f, 0x42, 0xb8, 0xff],
            from_entry: false,
        };
        assert_eq!(epilogue(left, false, None), Some(Unwind::Return), "rethrow, frame gone");
        assert_eq!(
            exit(&[0x4c, 0x8d, 0x15, 1, 2, 3, 4, 0x4d, 0x89, 0x97, 0x48, 5, 0, 0]),
            Some(Unwind::Return)
        );
    }

    #[test]
    fn exit_of_a_native_wrapper() {
        // From Temurin 17.0.9: leave; cmp qword [r15+8], 0; jne; ret.
        let code = [0xc9, 0x49, 0x81, 0x7f, 8, 0, 0, 0, 0, 0x0f, 0x85, 1, 0, 0, 0, 0xc3, 0xe9];
        let at = |pc: usize, native| {
            epilogue(Around { before: &code[..pc], after: &code[pc..], from_entry: false }, native, None)
        };
        assert_eq!(at(0, true), Some(Unwind::FramePointer));
        assert_eq!([1, 9, 15].map(|pc| at(pc, true)), [Some(Unwind::Return); 3]);
        assert_eq!(at(1, false), None);
    }

    #[test]
    fn return_addresses_popped_by_stubs() {
        // From Temurin 21.0.8: _rethrow_Java and the ExceptionBlob.
        let rethrow = [0x48, 0x83, 0xc4, 0x10, 0x5d, 0x5a, 0x41, 0xff, 0xe2];
        let handler = [0x48, 0x8b, 0x2c, 0x24, 0x48, 0x83, 0xc4, 0x08, 0x5a, 0x4c, 0x8b, 0xc0];
        let at = |code: &[u8], pc: usize| {
            is_popping_return_address(Around { before: &code[..pc], after: &code[pc..], from_entry: false })
        };
        assert_eq!((0..=rethrow.len()).filter(|&pc| at(&rethrow, pc)).collect::<Vec<_>>(), [5]);
        assert_eq!((0..=handler.len()).filter(|&pc| at(&handler, pc)).collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn exit_of_a_native_wrapper_that_polls() {
        // From Temurin 25.0.2, from `leave` on.
        let code = [
            0xc9, 0x41, 0xf6, 0x47, 0x28, 0x01, 0x74, 0x16, 0x49, 0xba, 0x9e, 0x7f, 0x8c, 0x60, 0x30, 0x7f,
            0, 0, 0x4d, 0x89, 0x97, 0x38, 5, 0, 0, 0xe9, 0xa5, 0x1b, 0xac, 0xff, 0x49, 0x83, 0x7f, 8, 0,
            0x0f, 0x85, 1, 0, 0, 0, 0xc3,
        ];
        let at = |pc: usize, native| {
            let around = Around { before: &code[..pc], after: &code[pc..], from_entry: false };
            epilogue(around, native, Some(0x538))
        };
        assert_eq!(at(0, true), Some(Unwind::FramePointer));
        for pc in [1, 6, 8, 18, 25, 30, 35, 41] {
            assert_eq!(at(pc, true), Some(Unwind::Return), "{pc}");
        }
        assert_eq!([at(1, false), at(6, false)], [None; 2], "compiled code tests and branches all the time");
    }
}
