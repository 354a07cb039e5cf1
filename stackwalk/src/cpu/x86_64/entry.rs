//! The call stub and the adapters, through which Java methods are entered.
//!
//! ```text
//! call stub:  push rbp   mov rbp, rsp   sub rsp, n   ...   mov [rbp + wrapper], rdi   ...   call rsi
//!             ...   add rsp, n   [vzeroupper]   pop rbp   ret   and blocks that store the result and jump back
//! adapter:    pop rax   mov r13, rsp   sub rsp, n   ...   jmp rcx          JDK 11, 17: compiled to interpreted
//!             lea r13, [rsp + 8]   pop rax   sub rsp, n   ...   jmp rcx    later
//!             mov rax, [rsp]   mov r11, rsp   and rsp, -16   push rax ...  interpreted to compiled
//! linker:     pop rax   pop rbx   push rax   ...   jmp [rbx + n]           of method handles, from the interpreter
//! ```
//!
//! Sources: `generate_call_stub` in `cpu/x86/stubGenerator_x86_64.cpp`, `gen_c2i_adapter` in
//! `cpu/x86/sharedRuntime_x86_64.cpp`, `generate_method_handle_interpreter_entry` in `cpu/x86/methodHandles_x86.cpp`,
//! JDK 11 to 25.

use super::registers::PreservedRegisters;
use crate::cpu::rules::Unwind;

/// Bytes of the call stub before and after the return address of its call that [`entry_frame`] looks at.
pub(crate) const CALL_STUB_REACH: u64 = 0x180;

/// Longest code of the call stub after its `ret`, in bytes.
const RESULT_BLOCKS: usize = 24;

/// State of the call stub's frame at `pc`: [`Unwind::Whole`] once the wrapper is stored `wrapper` words from fp; until
/// then it is in rdi.
///
/// `pc` and `returns`, the return address of its call, are indices into `code`. `None` for other code, and at the last
/// instruction, where nothing leads to the wrapper.
pub(crate) fn entry_frame(code: &[u8], returns: usize, pc: usize, wrapper: i64) -> Option<Unwind> {
    let (before, after) = code.split_at_checked(returns)?;
    let slot = i8::try_from(wrapper.checked_mul(8)?).ok()?.to_ne_bytes()[0];
    let enter = last_of(before, &[0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec])?;
    let saved = last_of(before, &[0x48, 0x89, 0x7d, slot])?.checked_add(4)?;
    let exit = first_of(after, &[0x5d, 0xc3])?.checked_add(returns)?;
    let ended = exit.checked_add(2)?;
    let stores = code.get(ended..)?.starts_with(&[0x48, 0x89, 0x07]);
    let storing = stores && (ended..ended.saturating_add(RESULT_BLOCKS)).contains(&pc);
    let fp_set = enter.checked_add(4)?;
    if enter > saved || pc < enter {
        return None;
    }
    Some(match pc.checked_sub(enter)? {
        0 => Unwind::Return,
        1..4 => Unwind::Pushed,
        _ if (fp_set..saved).contains(&pc) => Unwind::FramePointer,
        _ if (saved..=exit).contains(&pc) || storing => Unwind::Whole,
        _ => return None,
    })
}

fn first_of(code: &[u8], pattern: &[u8]) -> Option<usize> {
    code.windows(pattern.len()).position(|window| window == pattern)
}

pub(super) fn last_of(code: &[u8], pattern: &[u8]) -> Option<usize> {
    code.windows(pattern.len()).rposition(|window| window == pattern)
}

/// Returns whether an adapter from compiled to interpreted code has put the caller's sp into r13; `before` is its code
/// up to the pc.
pub(crate) fn has_saved_sender_sp(before: &[u8]) -> bool {
    let set = last_of(before, &[0x58, 0x4c, 0x8b, 0xec])
        .max(last_of(before, &[0x4c, 0x8d, 0x6c, 0x24, 0x08, 0x58]));
    let jump = last_of(before, &[0xff, 0xe1]);
    set.is_some() && jump < set
}

/// The caller's sp where an adapter has its return address in rax, and sp is not at its slot; `None` elsewhere.
///
/// On the way to the interpreter (JDK 11, 17) between `pop rax` and `mov r13, rsp`. On the way to compiled code, which
/// comes from the interpreter with its sp in r13, between `mov r11, rsp; [sub rsp, n;] and rsp, -16` and `push rax`.
pub(crate) fn sp_without_return_address(before: &[u8], after: &[u8], sp: u64, r13: u64) -> Option<u64> {
    match (before, after) {
        ([.., 0x58], [0x4c, 0x8b, 0xec, 0x48, 0x81 | 0x83, 0xec, ..]) => Some(sp),
        ([.., 0x48, 0x83, 0xe4, 0xf0], [0x50, ..]) | (_, [0x48, 0x83, 0xe4, 0xf0, 0x50, ..]) => Some(r13),
        _ => None,
    }
}

/// Returns whether a method handle linker holds the return address in rax while it takes its last argument off the
/// stack.
pub(crate) fn linker_pops_argument(before: &[u8], after: &[u8]) -> bool {
    matches!((before, after), ([.., 0x58], [0x5b, 0x50, ..]) | ([.., 0x58, 0x5b], [0x50, ..]))
}

/// Bytes before the pc of an adapter that [`keeps_entry_sp`] looks at: twice the code that saves and restores
/// registers.
pub(crate) const ADAPTER_SAVE_REACH: u64 = 512;

/// Returns whether an adapter keeps the sp of its entry in r13, while it saves all registers, calls the VM and restores
/// them; `before` is its code up to the pc.
///
/// `mov r13, rsp; mov rax, [rsp]; and rsp, -16` begins this code, `mov rsp, r13` ends it.
/// Source: `patch_callers_callsite` in `sharedRuntime_x86_64.cpp`.
pub(crate) fn keeps_entry_sp(before: &[u8]) -> bool {
    const BEGIN: [u8; 11] = [0x4c, 0x8b, 0xec, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x83, 0xe4, 0xf0];
    let begin = last_of(before, &BEGIN);
    begin.is_some() && last_of(before, &[0x49, 0x8b, 0xe5]) < begin
}

/// State of the frame of an adapter that calls the VM to allocate objects for the fields that its caller passes, from
/// `push rbp` to `pop rbp`; `before` is its code up to the pc. `None` where it has no frame.
///
/// `push rbp; mov rbp, rsp; pushf` begins this code, `popf; pop rbp` ends it.
/// Source: machine code of an adapter, 28-ea+18; `RegisterSaver::save_live_registers` in `sharedRuntime_x86_64.cpp`.
pub(crate) fn allocating_adapter(before: &[u8]) -> Option<Unwind> {
    let begin = last_of(before, &[0x55, 0x48, 0x8b, 0xec]);
    if before.last() == Some(&0x55) {
        return Some(Unwind::Pushed);
    }
    (begin.is_some() && last_of(before, &[0x9d, 0x5d]) < begin).then_some(Unwind::FramePointer)
}

/// The sp and the rule that lead to the caller of an adapter that calls the VM and has these registers: one keeps the
/// sp of its entry, where the return address lies.
pub(crate) fn patching_adapter(_sp: u64, preserved: &PreservedRegisters) -> (u64, Unwind) {
    (preserved.adapter_entry_sp(), Unwind::OnTop)
}

/// Frames that the stub of the nmethod entry barrier may have, as (sp, fp) of the code below the marker word: before
/// `push rbp`, after it, and with fp as frame pointer.
///
/// The stub pushes a marker word of ones above its own frame, where the return address would lie.
/// Source: `generate_method_entry_barrier` in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 17 to 25.
pub(crate) fn entry_barrier_callers(
    sp: u64,
    fp: u64,
    word: impl Fn(u64) -> Option<u64>,
) -> [Option<(u64, u64)>; 3] {
    let below = |marker: Option<u64>, fp: Option<u64>| {
        let marker = marker.filter(|&at| word(at) == Some(u64::MAX))?;
        Some((marker.checked_add(8)?, fp?))
    };
    let frame = Some(fp).filter(|&fp| fp >= sp && fp.is_multiple_of(8));
    [
        below(Some(sp), Some(fp)),
        below(sp.checked_add(8), word(sp)),
        below(frame.and_then(|fp| fp.checked_add(8)), word(fp)),
    ]
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Parts of the call stub of Temurin 11.0.13 with their places.
    fn call_stub() -> (Vec<u8>, usize) {
        let mut code: Vec<u8> = [0xff, 0xe3, 0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x60].into();
        code.extend([0x48, 0x89, 0x75, 0xd8, 0x48, 0x89, 0x7d, 0xd0, 0x48, 0x89, 0x5d, 0xc8]);
        code.extend([0x4c, 0x8b, 0xec, 0xff, 0xd6]);
        let returns = code.len();
        code.extend([0x89, 0x07, 0x48, 0x8d, 0x65, 0xa0, 0x48, 0x83, 0xc4, 0x60, 0x5d, 0xc3]);
        code.extend([0x48, 0x89, 0x07, 0xeb, 0xd5]);
        (code, returns)
    }

    #[test]
    fn entry_frame_from_the_first_push_to_the_last_pop() {
        let (code, returns) = call_stub();
        let ret = returns + 11;
        for pc in 0..code.len() {
            let expected = match pc {
                0 | 1 => None,
                2 => Some(Unwind::Return),
                3..=5 => Some(Unwind::Pushed),
                6..=17 => Some(Unwind::FramePointer),
                _ => (pc != ret).then_some(Unwind::Whole),
            };
            assert_eq!(entry_frame(&code, returns, pc, -6), expected, "{pc}");
        }
        assert!((0..code.len()).all(|pc| entry_frame(&code, returns, pc, -5).is_none()), "another slot");
        assert!((0..40).all(|pc| entry_frame(&[0x90; 40], 20, pc, -6).is_none()));
    }

    #[test]
    fn adapters_keep_sp_while_registers_are_saved() {
        // From Temurin 21.0.8: mov r13, rsp; mov rax, [rsp]; and rsp, -16; pushf; ...; popf; mov rsp, r13; lea r13,
        // [rsp+8].
        let code = [
            0x4c, 0x8b, 0xec, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x83, 0xe4, 0xf0, 0x9c, 0x90, 0x9d, 0x49, 0x8b,
            0xe5, 0x4c, 0x8d, 0x6c, 0x24, 0x08,
        ];
        for end in 0..=code.len() {
            assert_eq!(keeps_entry_sp(&code[..end]), (11..17).contains(&end), "{end}");
        }
    }

    #[test]
    fn adapters_that_allocate_keep_a_frame_pointer() {
        // From 28-ea+18, shortened: push rbp; mov rbp, rsp; pushf; sub rsp, 8; ...; add rsp, 8; popf; pop rbp; cmp.
        let code = [
            0x90, 0x55, 0x48, 0x8b, 0xec, 0x9c, 0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08, 0x9d, 0x5d,
            0x49, 0x83, 0x7f, 0x08, 0x00,
        ];
        for (pc, expected) in [
            (1, None),
            (2, Some(Unwind::Pushed)),
            (5, Some(Unwind::FramePointer)),
            (10, Some(Unwind::FramePointer)),
            (15, Some(Unwind::FramePointer)),
            (16, None),
            (21, None),
        ] {
            assert_eq!(allocating_adapter(&code[..pc]), expected, "{pc}");
        }
        // patch_callers_callsite: mov r13, rsp.
        assert_eq!(allocating_adapter(&[0x4c, 0x8b, 0xec, 0x90]), None);
    }

    #[test]
    fn adapters_raise_sp_once() {
        // From Temurin 11.0.13 and 21.0.8.
        let early = [0x49, 0x8b, 0xe5, 0x58, 0x4c, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x10];
        let late = [0x9d, 0x4c, 0x8d, 0x6c, 0x24, 0x08, 0x58, 0x48, 0x83, 0xec, 0x10, 0x50];
        assert!(has_saved_sender_sp(&early) && has_saved_sender_sp(&late));
        assert!(!has_saved_sender_sp(&early[..6]) && !has_saved_sender_sp(&late[..6]));
        let mut next = early.to_vec();
        next.extend([0xff, 0xe1, 0x90, 0x48]);
        assert!(!has_saved_sender_sp(&next), "the next adapter");
        next.extend(late);
        assert!(has_saved_sender_sp(&next));
    }
}
