//! x86-64: the call stub and the adapters, through which Java methods are entered.
//!
//! ```text
//! call stub:  push rbp   mov rbp, rsp   sub rsp, n   ...   mov [rbp + wrapper], rdi   ...   call rsi
//!             ...   add rsp, n   [vzeroupper]   pop rbp   ret   and blocks that store the result and jump back
//! adapter:    pop rax   mov r13, rsp   sub rsp, n   ...   jmp rcx          JDK 11, 17: compiled to interpreted
//!             lea r13, [rsp + 8]   pop rax   sub rsp, n   ...   jmp rcx    later
//! ```
//!
//! Sources: `generate_call_stub` in `cpu/x86/stubGenerator_x86_64.cpp`, `gen_c2i_adapter` in
//! `cpu/x86/sharedRuntime_x86_64.cpp`, JDK 11 to 25.

use super::Unwind;

/// Bytes of the call stub looked at before and after the address its call returns to.
pub(crate) const CALL_STUB_REACH: u64 = 0x180;

/// Longest tail of the call stub behind its `ret`.
const RESULT_BLOCKS: usize = 24;

/// How much of the call stub's frame is built at `pc`, [`Unwind::Whole`] if the wrapper is `wrapper` words from fp;
/// before that the wrapper is in rdi.
///
/// `pc` and `returns`, where its call returns to, are indices into `code`; `None` for other code, and at the last
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
    let linked = enter.checked_add(4)?;
    if enter > saved || pc < enter {
        return None;
    }
    Some(match pc.checked_sub(enter)? {
        0 => Unwind::Return,
        1..4 => Unwind::Pushed,
        _ if (linked..saved).contains(&pc) => Unwind::FramePointer,
        _ if (saved..=exit).contains(&pc) || storing => Unwind::Whole,
        _ => return None,
    })
}

fn first_of(code: &[u8], wanted: &[u8]) -> Option<usize> {
    code.windows(wanted.len()).position(|window| window == wanted)
}

fn last_of(code: &[u8], wanted: &[u8]) -> Option<usize> {
    code.windows(wanted.len()).rposition(|window| window == wanted)
}

/// Whether an adapter from compiled to interpreted code, of which these are the last instructions, has put the caller's
/// sp into r13.
pub(crate) fn has_raised_sp(before: &[u8]) -> bool {
    let set = last_of(before, &[0x58, 0x4c, 0x8b, 0xec])
        .max(last_of(before, &[0x4c, 0x8d, 0x6c, 0x24, 0x08, 0x58]));
    let jumped = last_of(before, &[0xff, 0xe1]);
    set.is_some() && jumped < set
}

/// Bytes before the pc of an adapter that tell whether it has saved all registers: those that it saves and restores in
/// between, twice.
pub(crate) const SAVING_REACH: u64 = 512;

/// Whether an adapter, of which these are the last instructions, keeps sp as it was at its entry in r13 while it saves all
/// registers, calls the VM and restores them.
///
/// `mov r13, rsp; mov rax, [rsp]; and rsp, -16` begins it, `mov rsp, r13` ends it.
pub(crate) fn keeps_sp_of_entry(before: &[u8]) -> bool {
    const BEGIN: [u8; 11] = [0x4c, 0x8b, 0xec, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x83, 0xe4, 0xf0];
    let begin = last_of(before, &BEGIN);
    begin.is_some() && last_of(before, &[0x49, 0x8b, 0xe5]) < begin
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
        // From Temurin 21.0.8: mov r13, rsp; mov rax, [rsp]; and rsp, -16; pushf; ...; popf; mov rsp, r13; lea r13, [rsp+8].
        let code = [
            0x4c, 0x8b, 0xec, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x83, 0xe4, 0xf0, 0x9c, 0x90, 0x9d, 0x49, 0x8b,
            0xe5, 0x4c, 0x8d, 0x6c, 0x24, 0x08,
        ];
        for end in 0..=code.len() {
            assert_eq!(keeps_sp_of_entry(&code[..end]), (11..17).contains(&end), "{end}");
        }
    }

    #[test]
    fn adapters_raise_sp_once() {
        // From Temurin 11.0.13 and 21.0.8.
        let early = [0x49, 0x8b, 0xe5, 0x58, 0x4c, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x10];
        let late = [0x9d, 0x4c, 0x8d, 0x6c, 0x24, 0x08, 0x58, 0x48, 0x83, 0xec, 0x10, 0x50];
        assert!(has_raised_sp(&early) && has_raised_sp(&late));
        assert!(!has_raised_sp(&early[..6]) && !has_raised_sp(&late[..6]));
        let mut next = early.to_vec();
        next.extend([0xff, 0xe1, 0x90, 0x48]);
        assert!(!has_raised_sp(&next), "the next adapter");
        next.extend(late);
        assert!(has_raised_sp(&next));
    }
}
