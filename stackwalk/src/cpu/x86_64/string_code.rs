//! The word that C2's inlined string comparison and compression keep below the complete frame.
//!
//! Both save a length on the stack at their start and pop it at their end, several hundred bytes of code later,
//! beyond the instructions next to the pc.
//!
//! ```text
//! String.compareTo                              StringUTF16.compress (JDK 11 to 21)
//!   mov eax, ecx   sub ecx, edx                   push rdx   mov eax, edx   mov ecx, 0xff00ff00
//!   push rcx   cmovle edx, eax                    ...
//!   test edx, edx   je equal                      pop rax   jmp done
//!   ...                                           xor eax, eax   add rsp, 8
//! equal: pop rax   [sar eax, 1]   jmp done      done:
//!   ...
//!   pop rcx
//! done:
//! ```
//!
//! The other order of the registers (rdx pushed) compares a UTF-16 string with a Latin-1 string.
//! Invariant: a word is reported only between a start and an end that refer to each other; other code may look like one
//! of them, not like both.
//! Sources: `string_compare` and `char_array_compress` in `cpu/x86/macroAssembler_x86.cpp` (JDK 11) and
//! `c2_MacroAssembler_x86.cpp` and `macroAssembler_x86.cpp` (17, 21, 25).

use crate::cpu::rules::Around;

/// Bytes on each side of the pc that [`keeps_length`] looks at; the longest comparison of JDK 25 has about 600.
pub(crate) const STRING_CODE_REACH: u64 = 1024;

/// `test edx, edx` and `test ecx, ecx`, each before a `je` with four bytes of distance.
const TESTS: [[u8; 4]; 2] = [[0x85, 0xd2, 0x0f, 0x84], [0x85, 0xc9, 0x0f, 0x84]];

/// First bytes of a compression; the push is the first.
const COMPRESSION: [u8; 8] = [0x52, 0x8b, 0xc2, 0xb9, 0x00, 0xff, 0x00, 0xff];
/// Its last bytes: `pop rax; jmp +6; xor eax, eax; add rsp, 8`.
const COMPRESSED: [u8; 9] = [0x58, 0xeb, 0x06, 0x33, 0xc0, 0x48, 0x83, 0xc4, 0x08];

/// Returns whether a string is searched near the pc: `pcmpestri`, with and without VEX prefix.
///
/// Its only use is `string_indexof` and `string_indexofC8` (`cpu/x86/macroAssembler_x86.cpp`, JDK 11;
/// `c2_MacroAssembler_x86.cpp`, 17 to 25).
pub(crate) fn searches_string(around: Around<'_>) -> bool {
    let compares = |window: &[u8]| matches!(window, [0xc4, 0xe3, 0x79, 0x61] | [0x66, 0x0f, 0x3a, 0x61]);
    [around.before, around.after].into_iter().any(|code| code.windows(4).any(compares))
}

/// Returns whether the instruction at `pc`, an index into `code`, runs with the word below the frame.
pub(crate) fn keeps_length(code: &[u8], pc: usize) -> bool {
    let starts = code.get(..pc).unwrap_or_default();
    // The nearest start with an end after it decides; comparisons do not nest.
    let compares = (0..starts.len()).rev().find_map(|at| comparison(code, at));
    let compresses = (0..starts.len()).rev().find_map(|at| compression(code, at));
    [compares, compresses].into_iter().flatten().any(|region| region.contains(pc))
}

/// Code that runs with the word on the stack: in `from..=until` and in `again..=last`.
struct Region {
    from: usize,
    until: usize,
    again: usize,
    last: usize,
}

impl Region {
    fn contains(&self, pc: usize) -> bool {
        (self.from..=self.until).contains(&pc) || (self.again..=self.last).contains(&pc)
    }
}

/// The comparison whose `sub` is at `at`.
fn comparison(code: &[u8], at: usize) -> Option<Region> {
    let pop = match code.get(at..at.checked_add(6)?)? {
        [0x2b, 0xca, 0x51, 0x0f, 0x4e, 0xd0] => 0x59,
        [0x2b, 0xd1, 0x52, 0x0f, 0x4e, 0xc8] => 0x5a,
        _ => return None,
    };
    let test = at.checked_add(6)?;
    let jump = test.checked_add(4)?;
    if !TESTS.iter().any(|known| code.get(test..jump) == Some(known)) {
        return None;
    }
    let after = jump.checked_add(4)?;
    let distance = i32::from_le_bytes(*code.get(jump..after)?.first_chunk()?);
    let equal = after.checked_add(usize::try_from(distance).ok()?)?;
    let end = match code.get(equal..equal.checked_add(5)?)? {
        [0x58, 0xeb, ..] => equal.checked_add(3)?,
        [0x58, 0xd1, 0xf8, 0xeb, _] => equal.checked_add(5)?,
        _ => return None,
    };
    let short = usize::from(*code.get(end.checked_sub(1)?)?);
    let last = end.checked_add(short)?.checked_sub(1)?;
    let matches = short < 0x80 && code.get(last) == Some(&pop);
    matches.then_some(Region { from: at.checked_add(3)?, until: equal, again: end, last })
}

/// The compression whose `push` is at `at`.
fn compression(code: &[u8], at: usize) -> Option<Region> {
    if code.get(at..at.checked_add(COMPRESSION.len())?)? != COMPRESSION {
        return None;
    }
    let from = at.checked_add(1)?;
    let end = code.get(from..)?.windows(COMPRESSED.len()).position(|window| window == COMPRESSED)?;
    let until = from.checked_add(end)?;
    Some(Region { from, until, again: until.checked_add(3)?, last: until.checked_add(5)? })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Start and end of a comparison as C2 of Temurin 25.0.2 writes it, with `middle` in place of the loops.
    fn compare(middle: usize, halved: bool) -> Vec<u8> {
        let mut code: Vec<u8> =
            [0x8b, 0xc1, 0x2b, 0xca, 0x51, 0x0f, 0x4e, 0xd0, 0x85, 0xd2, 0x0f, 0x84].into();
        code.extend(i32::try_from(middle).expect("small").to_le_bytes());
        code.extend(std::iter::repeat_n(0x90, middle));
        code.push(0x58);
        if halved {
            code.extend([0xd1, 0xf8]);
        }
        code.extend([0xeb, 0x03, 0xf7, 0xd8, 0x59, 0x90]);
        code
    }

    fn pcs_with_word(code: &[u8]) -> Vec<usize> {
        (0..=code.len()).filter(|&pc| keeps_length(code, pc)).collect()
    }

    #[test]
    fn comparison_keeps_its_word_until_either_pop() {
        for halved in [false, true] {
            let code = compare(400, halved);
            let pop = 16 + 400;
            let behind = pop + if halved { 5 } else { 3 };
            let expected: Vec<usize> = (5..=pop).chain(behind..=behind + 2).collect();
            assert_eq!(pcs_with_word(&code), expected, "halved {halved}");
        }
    }

    #[test]
    fn comparison_of_the_other_kind() {
        let mut code: Vec<u8> =
            [0x8b, 0xc2, 0x2b, 0xd1, 0x52, 0x0f, 0x4e, 0xc8, 0x85, 0xc9, 0x0f, 0x84].into();
        code.extend([2, 0, 0, 0, 0x90, 0x90, 0x58, 0xeb, 0x01, 0x5a, 0xf7, 0xd8]);
        assert_eq!(pcs_with_word(&code), (5..=18).chain(21..=21).collect::<Vec<_>>());
    }

    #[test]
    fn a_start_without_its_end_is_none() {
        let whole = compare(40, false);
        for damage in [2, 4, 8, 10, 56, 57, 61] {
            let mut code = whole.clone();
            code[damage] ^= 0x10;
            assert_eq!(pcs_with_word(&code), [], "byte {damage}");
        }
        assert_eq!(pcs_with_word(&whole[..57]), []);
        assert_eq!(pcs_with_word(&[0x90; 64]), []);
    }

    #[test]
    fn code_behind_a_comparison_has_no_word_until_the_next() {
        let mut code = compare(10, false);
        let between = code.len();
        code.extend([0x90; 20]);
        let second = code.len();
        code.extend(compare(10, true));
        assert!((between..second + 5).all(|pc| !keeps_length(&code, pc)));
        assert!(keeps_length(&code, second + 5));
    }

    #[test]
    fn a_search_is_seen_from_its_loop() {
        // From Temurin 17.0.9: vpcmpestri xmm0, [rbx], 0xc; jb; sub edx, 0x10; jle.
        let code = [0xc4, 0xe3, 0x79, 0x61, 0x03, 0x0c, 0x72, 0x1e, 0x83, 0xea, 0x10, 0x7e, 0x1f];
        let near = |pc: usize, code: &[u8]| {
            searches_string(Around { before: &code[..pc], after: &code[pc..], from_entry: false })
        };
        assert!(near(0, &code) && near(8, &code) && near(13, &code));
        assert!(!near(4, &code[4..]));
    }

    #[test]
    fn compression_keeps_its_word() {
        let mut code: Vec<u8> = [0x41, 0x8b, 0xd2].into();
        code.extend(COMPRESSION);
        code.extend([0x90; 150]);
        code.extend(COMPRESSED);
        code.push(0x90);
        let pop = 3 + 8 + 150;
        assert_eq!(pcs_with_word(&code), (4..=pop).chain(pop + 3..=pop + 5).collect::<Vec<_>>());
    }
}
