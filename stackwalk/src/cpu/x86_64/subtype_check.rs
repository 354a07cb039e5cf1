//! Words pushed by the inlined slow subtype check.
//!
//! `instanceof` and casts to interfaces search the secondary supers of a class with `repne scas`, which needs
//! rax, rcx and rdi. Those that are no temporaries are saved on the stack around it, below the complete frame:
//!
//! ```text
//! [push rax]  [mov rax, super]  [push rcx]  [push rdi]
//! mov rdi, [sub + secondary_supers]   mov ecx, [rdi]   add rdi, 8   test rax, rax   repne scas
//! [pop rdi]   [pop rcx]   [pop rax]
//! ```
//!
//! The search is a loop inside one instruction, so samples land on it often (a tenth of a Clojure program on JDK 11).
//! Source: `MacroAssembler::check_klass_subtype_slow_path`, `cpu/x86/macroAssembler_x86.cpp`, JDK 11 to 25.

use crate::cpu::rules::Around;

/// `add rdi, 8; test rax, rax; repne scas`, the part without variants.
const SEARCH: [u8; 10] = [0x48, 0x83, 0xc7, 0x08, 0x48, 0x85, 0xc0, 0xf2, 0x48, 0xaf];

/// Bytes on each side of the pc that are compared: the whole sequence has at most 30.
const REACH: usize = 32;

/// Words on the stack below the frame if the pc is inside such a check, with at least one pushed.
pub(super) fn pushed_words(around: Around<'_>) -> Option<u64> {
    let before = around.before.get(around.before.len().saturating_sub(REACH)..)?;
    let after = around.after.get(..REACH.min(around.after.len()))?;
    let pc = before.len();
    let mut code = [0; 2 * REACH];
    code.get_mut(..pc)?.copy_from_slice(before);
    code.get_mut(pc..pc.checked_add(after.len())?)?.copy_from_slice(after);
    let byte = |at: usize| code.get(at).copied();

    // Two checks may follow each other closely: the one that counts is the first that ends behind the pc.
    let searches = code.windows(SEARCH.len()).enumerate().filter(|(_, window)| *window == SEARCH);
    let (found, pops_at, at, popped) = searches
        .filter_map(|(found, _)| {
            let pops_at = found.checked_add(SEARCH.len())?;
            // What is popped afterwards, in this order, was pushed before in the opposite one.
            let mut at = pops_at;
            let mut popped = [false; 3];
            for (register, pop) in popped.iter_mut().zip([0x5f, 0x59, 0x58]) {
                if byte(at) == Some(pop) {
                    *register = true;
                    at = at.checked_add(1)?;
                }
            }
            Some((found, pops_at, at, popped))
        })
        .find(|(_, _, end, _)| pc < *end)?;
    let [rdi, rcx, rax] = popped;
    let count = at.checked_sub(pops_at)?;
    if count == 0 {
        return None;
    }
    if pc >= pops_at {
        return positive(count.checked_sub(pc.checked_sub(pops_at)?)?);
    }
    // Backwards from the search: mov ecx, [rdi]; mov rdi, [sub + disp8], with a fifth byte for r12.
    let length_at = found.checked_sub(2)?;
    let load_at = [4, 5].into_iter().find_map(|length| {
        let at = length_at.checked_sub(length)?;
        let is_load = matches!(byte(at)?, 0x48 | 0x49) && byte(at.checked_add(1)?)? == 0x8b;
        let names_rdi = byte(at.checked_add(2)?)? & 0xf8 == 0x78;
        (is_load && names_rdi).then_some(at)
    })?;
    let mut done = 0_usize;
    let mut at = load_at;
    for (pushed, push) in [(rdi, 0x57), (rcx, 0x51)] {
        if pushed {
            at = at.checked_sub(1)?;
            if byte(at)? != push {
                return None;
            }
            done = done.checked_add(usize::from(at < pc))?;
        }
    }
    if rax {
        let direct = at.checked_sub(1)?;
        let before_move = at.checked_sub(4);
        let push_at =
            if byte(direct)? == 0x50 { direct } else { before_move.filter(|at| byte(*at) == Some(0x50))? };
        done = done.checked_add(usize::from(push_at < pc))?;
    }
    positive(done)
}

fn positive(words: usize) -> Option<u64> {
    u64::try_from(words).ok().filter(|words| *words != 0)
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    /// From Temurin 11.0.13, C2 code of a Clojure function: push rax; mov rax, rax; mov rdi, [rsi + 0x28];
    /// mov ecx, [rdi]; add rdi, 8; test rax, rax; repne scas; pop rax; jne.
    const JDK11: [u8; 30] = [
        0x90, 0x90, 0x50, 0x48, 0x8b, 0xc0, 0x48, 0x8b, 0x7e, 0x28, 0x8b, 0x0f, 0x48, 0x83, 0xc7, 0x08, 0x48,
        0x85, 0xc0, 0xf2, 0x48, 0xaf, 0x58, 0x0f, 0x85, 0x04, 0x00, 0x00, 0x00, 0x90,
    ];

    fn at(code: &[u8], pc: usize) -> Option<u64> {
        pushed_words(Around { before: &code[..pc], after: &code[pc..], from_entry: false })
    }

    #[test]
    fn one_word_between_push_and_pop() {
        for pc in 0..=2 {
            assert_eq!(at(&JDK11, pc), None, "before the push, at {pc}");
        }
        for pc in [3, 6, 10, 12, 16, 19, 22] {
            assert_eq!(at(&JDK11, pc), Some(1), "at {pc}");
        }
        for pc in [23, 29] {
            assert_eq!(at(&JDK11, pc), None, "after the pop, at {pc}");
        }
    }

    /// From Temurin 11.0.13, C2 code of a Clojure program: a cast whose first check is followed by the next.
    const JDK11_TWICE: [u8; 72] = [
        0x50, 0x48, 0x8b, 0xc0, 0x48, 0x8b, 0x7e, 0x28, 0x8b, 0x0f, 0x48, 0x83, 0xc7, 0x08, 0x48, 0x85, 0xc0,
        0xf2, 0x48, 0xaf, 0x58, 0x0f, 0x85, 0x04, 0x00, 0x00, 0x00, 0x48, 0x89, 0x46, 0x20, 0x75, 0x30, 0x50,
        0x48, 0x8b, 0xc0, 0x48, 0x8b, 0x7e, 0x28, 0x8b, 0x0f, 0x48, 0x83, 0xc7, 0x08, 0x48, 0x85, 0xc0, 0xf2,
        0x48, 0xaf, 0x58, 0x0f, 0x85, 0x04, 0x00, 0x00, 0x00, 0x48, 0x89, 0x46, 0x20, 0x0f, 0x84, 0x08, 0xff,
        0xff, 0xff, 0xbe, 0xde,
    ];

    #[test]
    fn a_check_just_before_does_not_hide_the_next() {
        for pc in [1, 4, 8, 10, 14, 17, 20, 34, 37, 41, 43, 47, 50, 53] {
            assert_eq!(at(&JDK11_TWICE, pc), Some(1), "inside, at {pc}");
        }
        for pc in [0, 21, 27, 31, 33, 54, 60, 64] {
            assert_eq!(at(&JDK11_TWICE, pc), None, "outside, at {pc}");
        }
    }

    #[test]
    fn three_words_come_and_go_one_by_one() {
        let mut code = vec![0x50, 0x48, 0x8b, 0xc3, 0x51, 0x57, 0x49, 0x8b, 0x7c, 0x24, 0x28, 0x8b, 0x0f];
        code.extend(SEARCH);
        code.extend([0x5f, 0x59, 0x58, 0xc3]);
        let words: Vec<Option<u64>> = [0, 1, 4, 5, 6, 11, 20, 23, 24, 25, 26].map(|pc| at(&code, pc)).into();
        let expected =
            vec![None, Some(1), Some(1), Some(2), Some(3), Some(3), Some(3), Some(3), Some(2), Some(1), None];
        assert_eq!(words, expected);
    }

    #[test]
    fn other_code_pushes_nothing() {
        assert_eq!(at(&[0x90; 60], 30), None);
        let mut unsaved = vec![0x48, 0x8b, 0x7e, 0x28, 0x8b, 0x0f];
        unsaved.extend(SEARCH);
        unsaved.extend([0x75, 0x10, 0x90]);
        for pc in 0..unsaved.len() {
            assert_eq!(at(&unsaved, pc), None);
        }
    }
}
