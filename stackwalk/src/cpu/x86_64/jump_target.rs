//! Jumps that lead to an instruction.
//!
//! A jump within 128 bytes has a distance of one byte, so its bytes prove little: they may be part of another
//! instruction. Code that close is decoded. A distance of four bytes that leads to the very pc is no coincidence, so
//! farther code is only searched for the opcodes.
//! Source: `Assembler::jcc`, `jccb`, `jmp` and `jmpb` in `cpu/x86/assembler_x86.cpp`, JDK 11 to 25.

use super::instruction::{Flow, Instruction, MAX_INSTRUCTION_BYTES, Wait, decode};

/// Bytes before a pc that are decoded: the reach of a short jump, and enough instructions before it for decoding that
/// began in the middle of one to fall into step. x86 code does so within a few instructions.
pub(crate) const NEAR_JUMP_BEFORE: u64 = 512;
/// Bytes behind a pc that are decoded: the reach of a short jump and its own length.
pub(crate) const NEAR_JUMP_AFTER: u64 = 130;
/// Longest jump with a distance: `jcc rel32`.
pub(crate) const FAR_JUMP_BYTES: usize = 6;

/// Returns whether the interrupt has given the instruction at `pc` up; `None` if an instruction in `code` jumps there,
/// if the one before does not lead on to it, or if decoding does not find the instruction at `pc`.
///
/// An interrupt comes when the oldest instruction has ended, but an access to memory whose address is still being
/// translated is given up, and begun again after the interrupt, if the instruction before it waits for nothing
/// (`design/frames.md`).
pub(crate) fn is_given_up(code: &[u8], pc: usize) -> Option<bool> {
    let (before, at) = code.split_at_checked(pc)?;
    let target = i64::try_from(pc).ok()?;
    let jumps = |&(end, Instruction { flow, .. }): &(usize, Instruction)| match flow {
        Flow::Branch(distance) | Flow::Jump(distance) => {
            i64::try_from(end).is_ok_and(|end| end.saturating_add(distance.into()) == target)
        }
        Flow::Next | Flow::Indirect | Flow::Away => false,
    };
    // The first instruction of the bytes may begin at any of the first ones.
    let (last, is_target) = (0..MAX_INSTRUCTION_BYTES.min(pc)).find_map(|start| {
        let (mut last, mut is_target) = (None, false);
        for found in ends(before, start) {
            is_target |= jumps(&found);
            last = Some(found);
        }
        last.filter(|(end, _)| *end == pc).map(|(_, instruction)| (instruction, is_target))
    })?;
    let leads_on = matches!(last.flow, Flow::Next | Flow::Branch(_));
    let may_have_jumped = is_target || !leads_on || ends(code, pc).any(|found| jumps(&found));
    let is_access = || decode(at).is_some_and(|found| found.wait == Wait::Memory);
    (!may_have_jumped).then(|| last.wait == Wait::Nothing && is_access())
}

/// Returns the instructions of `code` from `start` on, with the place where each ends.
fn ends(code: &[u8], start: usize) -> impl Iterator<Item = (usize, Instruction)> {
    let mut at = start;
    core::iter::from_fn(move || {
        let instruction = decode(code.get(at..)?)?;
        at = at.saturating_add(instruction.length);
        Some((at, instruction))
    })
}

/// True if `code`, which begins at `start`, has a jump to `target` whose distance has four bytes.
pub(crate) fn has_far_jump(code: &[u8], start: u64, target: u64) -> bool {
    // A distance is counted from its own end. Hardly any code has this number anywhere.
    let from_start = target.wrapping_sub(start).wrapping_sub(size_of::<u32>() as u64) as u32;
    has_distance(code, from_start) && far_jumps(code, start).any(|found| found == target)
}

/// True if four bytes of `code` and the place where they are add up to `sum`.
///
/// The compiler makes vector instructions of these loops, but not of a search for the opcodes.
fn has_distance(code: &[u8], sum: u32) -> bool {
    (0..size_of::<u32>()).any(|first| {
        let words = code.get(first..).unwrap_or_default().as_chunks().0;
        let places = (first as u32..).step_by(size_of::<u32>());
        let is_there = |(word, place): (&[u8; 4], u32)| u32::from_le_bytes(*word).wrapping_add(place) == sum;
        words.iter().zip(places).fold(false, |found, word| found | is_there(word))
    })
}

/// The targets of all jumps in `code`, which begins at `start`, whose distance has four bytes; bytes that only look
/// like a jump are among them.
pub(crate) fn far_jumps(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    (0..code.len()).filter_map(move |at| {
        let (length, distance) = match code.get(at..) {
            Some([0xe9, a, b, c, d, ..]) => (5, [*a, *b, *c, *d]),
            Some([0x0f, 0x80..=0x8f, a, b, c, d, ..]) => (6, [*a, *b, *c, *d]),
            _ => return None,
        };
        let end = start.wrapping_add(at as u64).wrapping_add(length);
        Some(end.wrapping_add_signed(i32::from_le_bytes(distance).into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mov r11d, [..]`, `xor r11d, imm32`, `inc ecx`, `cmp ecx, edx`, `jl` to the first: a loop in 19 bytes.
    const LOOP: [u8; 18] = [
        0x45, 0x8b, 0x5c, 0x92, 0x10, 0x41, 0x81, 0xf3, 0x74, 0xf3, 0x74, 0xf3, 0xff, 0xc1, 0x3b, 0xca, 0x7c,
        0xee,
    ];

    #[test]
    fn only_the_header_of_a_loop_is_a_target() {
        let code = [&[0x90, 0x90, 0x90][..], &LOOP, &[0xc3; 8]].concat();
        let is_target = |at: usize| is_given_up(&code, 3 + at).is_none();
        assert!(is_target(0));
        // The constant of `xor` looks like jumps to the instructions around it.
        for at in [5, 12, 14, 16] {
            assert!(!is_target(at), "{at}");
        }
        assert!(!is_target(18), "the loop's end falls through");
        assert!(is_target(19), "behind a return");
    }

    #[test]
    fn jumps_from_behind_and_places_that_nothing_leads_on_to() {
        // test eax, eax; je +1; nop; nop; jmp -3
        let code = [0x85, 0xc0, 0x74, 0x01, 0x90, 0x90, 0xeb, 0xfd, 0x90];
        assert!(is_given_up(&code, 2).is_some());
        assert!(is_given_up(&code, 4).is_some());
        assert!(is_given_up(&code, 5).is_none(), "both jumps");
        assert!(is_given_up(&code, 8).is_none(), "behind a jump");
        assert!(is_given_up(&code, 0).is_none(), "nothing is known of what is before");
        assert!(is_given_up(&code, 99).is_none(), "outside");
        assert!(is_given_up(&[0x06; 40], 20).is_none(), "no code");
    }

    #[test]
    fn an_access_to_memory_behind_a_quick_instruction_is_given_up() {
        let code = [&LOOP.repeat(2)[..], &[0x41, 0x85, 0x02]].concat();
        let given_up = |at: usize| is_given_up(&code, at) == Some(true);
        // Behind `jl`, in the loop (`xor` after `mov` of memory, `inc`, `cmp`, `jl`), and the read of a poll.
        for at in [18, 23, 30, 32, 34, 36] {
            assert!(!given_up(at), "{at}");
        }
        // mov eax, ecx; mov eax, [rax]; mov eax, [rax]
        let chase = [0x8b, 0xc1, 0x8b, 0, 0x8b, 0];
        assert_eq!(is_given_up(&chase, 2), Some(true), "behind a move of registers");
        assert_eq!(is_given_up(&chase, 4), Some(false), "behind another access");
        assert!(is_given_up(&chase, 0).is_none() && is_given_up(&chase, 6) == Some(false), "at the ends");
    }

    #[test]
    fn decoding_may_begin_in_the_middle_of_an_instruction() {
        let many = LOOP.repeat(20);
        for skipped in 0..LOOP.len() {
            let code = &many[skipped..];
            assert!(is_given_up(code, 10 * LOOP.len() - skipped).is_none(), "{skipped}");
            assert!(is_given_up(code, 10 * LOOP.len() + 5 - skipped).is_some(), "{skipped}");
        }
    }

    #[test]
    fn far_jumps_at_any_place() {
        let mut code = [0x90; 300];
        code[200..206].copy_from_slice(&[0x0f, 0x8c, 0x42, 0xff, 0xff, 0xff]);
        code[280..285].copy_from_slice(&[0xe9, 0xf9, 0xfe, 0xff, 0xff]);
        for target in 0..300 {
            let expected = target == 206 - 190 || target == 285 - 263;
            assert_eq!(has_far_jump(&code, 0x1000, 0x1000 + target), expected, "{target}");
        }
    }
}
