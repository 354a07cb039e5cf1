//! x86-64: prologues, epilogues and call instructions as HotSpot's assemblers write them.
//!
//! In a CPU profile many samples hit the few instructions during which a compiled frame is built or gone.
//! The compilers write these from fixed templates, so the bytes around the pc say which state the frame is in:
//!
//! ```text
//! entry:   [mov [rsp-N], eax]  push rbp  [mov rbp, rsp]  sub rsp, n     C1, C2, native wrappers
//! entry:   sub rsp, n   mov [rsp+n-8], rbp                              C2 without stack bang
//! exit:    add rsp, n   pop rbp   [poll]   ret                          C1, C2
//! exit:    leave  [poll]  [cmp pending exception, jcc]  ret             native wrappers
//! poll:    mov r10, [r15+p]  test [r10], eax                            JDK 11
//! poll:    cmp rsp, [r15+p]  ja stub                                    JDK 17 and later
//! exit:    add rsp, n   pop rbp   jmp stub                              C2, exceptions not caught
//! stub:    lea r10, [rip+d]  mov [r15+saved_exception_pc], r10  jmp     frame already gone; C1: mov r10, imm64
//! ```
//!
//! Sources: `MachPrologNode`/`MachEpilogNode` in `cpu/x86/x86_64.ad`, `c1_MacroAssembler_x86.cpp`,
//! `c1_LIRAssembler_x86.cpp`, `c2_safepointPollStubTable_x86.cpp`, `sharedRuntime_x86_64.cpp`,
//! `templateInterpreterGenerator_x86.cpp`, `frame_x86.hpp`, JDK 11 to 25.

use super::{CallTarget, Unwind};

/// Words from fp to the caller's sp, before an adapter has moved it.
pub(crate) const INTERPRETER_SENDER_SP: i64 = -1;
/// Words from fp to the `Method*` of an interpreter frame; the same from JDK 11 to 25, in no table.
pub(crate) const INTERPRETER_METHOD: i64 = -3;
/// Words from fp to the place of the last local, from JDK 21 on a distance from fp in words.
pub(crate) const INTERPRETER_LOCALS: i64 = -7;
/// Words from fp to the saved bytecode pointer.
pub(crate) const INTERPRETER_BCP: i64 = -8;
/// Words from fp to the lowest fixed slot: a complete interpreter frame reaches at least there.
pub(crate) const INTERPRETER_LOWEST: i64 = -9;

/// Longest prologue looked at, from the entry to the pc; class initialisation barriers come first.
pub(crate) const CODE_BEFORE: u64 = 96;
/// Bytes looked at from the pc on: the longest exit sequence has 24.
pub(crate) const CODE_AFTER: u64 = 32;

/// Instructions around an interrupted pc.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    /// Bytes up to the pc, beginning at an instruction when `from_entry` is set.
    pub(crate) before: &'a [u8],
    /// Bytes from the pc on.
    pub(crate) after: &'a [u8],
    /// Whether `before` begins at an entry of the code.
    pub(crate) from_entry: bool,
}

/// What a prologue instruction does to the frame.
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

/// State of the frame after the instructions of `before`, which begin at an entry.
pub(crate) fn prologue(before: &[u8]) -> Unwind {
    let mut state = Unwind::Return;
    let mut rest = before;
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

/// Whether `code` is the rest of an exit sequence after the frame is gone.
fn is_exit_tail(code: &[u8], native: bool) -> bool {
    let mut rest = code;
    // A poll is two instructions, a pending-exception check two more.
    for _ in 0..5 {
        let length = match rest {
            [0xc3, ..] => return true,
            // cmp rsp, [r15 + disp]: only polls and reserved-stack checks compare rsp.
            [0x49, 0x3b, 0x67, ..] | [0x49, 0x3b, 0xa7, ..] => return true,
            // ja stub.
            [0x0f, 0x87, ..] => 6,
            // mov r10, [r15 + disp].
            [0x4d, 0x8b, 0x57, ..] => 4,
            [0x4d, 0x8b, 0x97, ..] => 7,
            // test [r10], eax.
            [0x41, 0x85, 0x02, ..] => 3,
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
            _ => return false,
        };
        rest = match rest.get(length..) {
            Some(rest) => rest,
            None => return false,
        };
    }
    false
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

/// What follows the return poll of a native wrapper, which has no separate part: from JDK 25 on (`generate_native_wrapper`
/// in `sharedRuntime_x86_64.cpp`, `safepoint_poll` in `macroAssembler_x86.cpp`).
fn behind_poll(after: &[u8]) -> Option<&[u8]> {
    match after {
        // test byte [r15 + disp], 1; je.
        [0x41, 0xf6, 0x47, _, 0x01, 0x74, _, rest @ ..]
        | [0x41, 0xf6, 0x87, _, _, _, _, 0x01, 0x74, _, rest @ ..]
        | [0x74, _, rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Whether a stub has taken its frame off the stack and is about to take the return address as well, as those do that look
/// for the handler of an exception: `[add rsp, n; pop rbp]` or `[mov rbp, [rsp]; add rsp, 8]`, then `pop rdx`.
///
/// Source: `generate_exception_blob` in `sharedRuntime_x86_64.cpp`, `RethrowExceptionNode` in `x86_64.ad`.
pub(crate) fn takes_return_address(around: Around<'_>) -> bool {
    let left = has_left_frame(around.before)
        || around.before.ends_with(&[0x48, 0x8b, 0x2c, 0x24, 0x48, 0x83, 0xc4, 0x08]);
    left && matches!(around.after, [0x5a, ..])
}

/// Whether the last instructions were `add rsp, n; pop rbp`.
fn has_left_frame(before: &[u8]) -> bool {
    matches!(before, [.., 0x48, 0x83, 0xc4, _, 0x5d] | [.., 0x48, 0x81, 0xc4, _, _, _, _, 0x5d])
}

/// Whether the pc is in the out-of-line part of a return poll.
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

/// Words that the code after a call takes from the stack first: arguments and results of a stub called by C1 or C2
/// (`slow_subtype_check` in `c1_LIRAssembler_x86.cpp`, conversion fix-ups in `x86_64.ad`), pushed below the frame.
///
/// `pop rbp` does not count: it may be the exit of a frame without locals.
pub(crate) fn popped_after_call(after: &[u8]) -> u64 {
    let (mut words, mut rest) = (0, after);
    loop {
        rest = match rest {
            [0x58..=0x5b | 0x5e | 0x5f, rest @ ..] | [0x41, 0x58..=0x5f, rest @ ..] => rest,
            _ => return words,
        };
        words += 1;
    }
}

/// Length of the longest call instruction recognised, including the load of its target.
pub(crate) const CALL_BYTES: u64 = 13;

/// What the call that ends `before` (the bytes up to a return address `at`) calls; `None` if it is no call.
pub(crate) fn call_before(before: &[u8], at: u64) -> Option<CallTarget> {
    if let [.., 0xe8, a, b, c, d] = before {
        let distance = i32::from_le_bytes([*a, *b, *c, *d]);
        return Some(CallTarget::Known(at.wrapping_add_signed(i64::from(distance))));
    }
    if let Some(target) = loaded_target(before) {
        return Some(CallTarget::Known(target));
    }
    let is_call = match before {
        // call reg; also call r8..r15, whose prefix does not matter here.
        [.., 0xff, 0xd0..=0xd7] => true,
        // call [reg], call [reg + reg], call [reg + disp8], call [reg + reg + disp8], and disp32.
        [.., 0xff, 0x10..=0x13 | 0x16 | 0x17] => true,
        [.., 0xff, 0x14, _] | [.., 0xff, 0x50..=0x53 | 0x55..=0x57, _] => true,
        [.., 0xff, 0x54, _, _] => true,
        [.., 0xff, 0x15 | 0x90..=0x93 | 0x95..=0x97, _, _, _, _] => true,
        [.., 0xff, 0x94, _, _, _, _, _] => true,
        _ => false,
    };
    is_call.then_some(CallTarget::Indirect)
}

/// Target of `mov r10, imm64; call r10` or `mov rax, imm64; call rax`.
fn loaded_target(before: &[u8]) -> Option<u64> {
    let bytes = match before {
        [.., 0x49, 0xba, a, b, c, d, e, f, g, h, 0x41, 0xff, 0xd2] => [a, b, c, d, e, f, g, h],
        [.., 0x48, 0xb8, a, b, c, d, e, f, g, h, 0xff, 0xd0] => [a, b, c, d, e, f, g, h],
        _ => return None,
    };
    Some(u64::from_le_bytes(bytes.map(|byte| *byte)))
}

/// Whether `after` begins with `pop r13`, with which the interpreter takes the return address of a method
/// whose frame it has just left.
pub(crate) fn is_interpreter_return(after: &[u8]) -> bool {
    matches!(after, [0x41, 0x5d, ..])
}

/// Whether `after` takes a caller's frame up again behind its call: `mov rsp, [rbp - 16]`, or from JDK 21 on
/// `mov rcx, [rbp - 16]; lea rsp, [rbp + rcx * 8]`, then `mov qword [rbp - 16], 0; mov r13, [rbp - 64]`.
///
/// The frame is whole there, while r13 and rbx may still be the callee's (`generate_return_entry_for` in
/// `templateInterpreterGenerator_x86.cpp`, JDK 11 to 25).
pub(crate) fn is_interpreter_return_entry(after: &[u8]) -> bool {
    let mut rest = after;
    loop {
        rest = match rest {
            [0x4c, 0x8b, 0x6d, 0xc0, ..] => return true,
            [0x48, 0x8b, 0x65 | 0x4d, 0xf0, rest @ ..] => rest,
            [0x48, 0x8d, 0x64, 0xcd, 0x00, rest @ ..] => rest,
            [0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, rest @ ..] => rest,
            _ => return false,
        };
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
    fn return_addresses_taken_by_stubs() {
        // From Temurin 21.0.8: _rethrow_Java and the ExceptionBlob.
        let rethrow = [0x48, 0x83, 0xc4, 0x10, 0x5d, 0x5a, 0x41, 0xff, 0xe2];
        let handler = [0x48, 0x8b, 0x2c, 0x24, 0x48, 0x83, 0xc4, 0x08, 0x5a, 0x4c, 0x8b, 0xc0];
        let at = |code: &[u8], pc: usize| {
            takes_return_address(Around { before: &code[..pc], after: &code[pc..], from_entry: false })
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

    #[test]
    fn arguments_popped_after_a_call() {
        assert_eq!(popped_after_call(&[0x5f, 0x5f, 0x83, 0xff, 0x00]), 2, "pop rdi, pop rdi, cmp edi, 0");
        assert_eq!(popped_after_call(&[0x41, 0x5d, 0x5e, 0x90]), 2, "pop r13, pop rsi");
        assert_eq!(popped_after_call(&[0x5d, 0xc3]), 0, "exit");
        assert_eq!(popped_after_call(&[]), 0);
    }

    #[test]
    fn return_entries_of_the_interpreter() {
        // From Temurin 11.0.13.
        let code = [0x48, 0x8b, 0x65, 0xf0, 0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, 0x4c, 0x8b, 0x6d, 0xc0, 0x4c];
        let found: Vec<usize> =
            (0..code.len()).filter(|&pc| is_interpreter_return_entry(&code[pc..])).collect();
        assert_eq!(found, [0, 4, 12]);
        let later = [0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd, 0x00, 0x4c, 0x8b, 0x6d, 0xc0];
        assert!(is_interpreter_return_entry(&later) && is_interpreter_return_entry(&later[4..]));
        assert!(!is_interpreter_return_entry(&later[..9]) && !is_interpreter_return_entry(&[0x41, 0x5d]));
    }

    #[test]
    fn calls() {
        assert_eq!(call_before(&[0xe8, 0x10, 0, 0, 0], 0x1000), Some(CallTarget::Known(0x1010)));
        assert_eq!(call_before(&[0x41, 0xff, 0xd2], 0x1000), Some(CallTarget::Indirect));
        let far = [0x49, 0xba, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xd2];
        assert_eq!(call_before(&far, 0x1000), Some(CallTarget::Known(0x10)));
        assert_eq!(call_before(&[0x90; 13], 0x1000), None);
    }
}
