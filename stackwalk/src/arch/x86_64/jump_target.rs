//! Jumps that lead to an instruction.
//!
//! A jump within 128 bytes has a distance of one byte, so its bytes prove little: they may be part of another instruction.
//! Code that close is decoded. A distance of four bytes that leads to the very pc is no coincidence, so farther code is only
//! searched for the opcodes.
//! Source: `Assembler::jcc`, `jccb`, `jmp` and `jmpb` in `cpu/x86/assembler_x86.cpp`, JDK 11 to 25.

use super::instruction::{Flow, Instruction, MAX_INSTRUCTION_BYTES, decode};

/// Bytes before a pc that are decoded: the reach of a short jump, and enough instructions before it for decoding that began
/// in the middle of one to fall into step. x86 code does so within a few instructions.
pub(crate) const NEAR_JUMP_BEFORE: u64 = 512;
/// Bytes behind a pc that are decoded: the reach of a short jump and its own length.
pub(crate) const NEAR_JUMP_AFTER: u64 = 130;
/// Longest jump with a distance: `jcc rel32`.
pub(crate) const FAR_JUMP_BYTES: usize = 6;

/// True if an instruction in `code` jumps to the one at `pc`, if the one before does not lead on to it, or if decoding does
/// not find the instruction at `pc`.
pub(crate) fn is_near_jump_target(code: &[u8], pc: usize) -> bool {
    let (Some(before), Ok(target)) = (code.get(..pc), i64::try_from(pc)) else { return true };
    let jumps = |(end, flow): (usize, Flow)| match flow {
        Flow::Branch(distance) | Flow::Jump(distance) => {
            i64::try_from(end).is_ok_and(|end| end.saturating_add(distance.into()) == target)
        }
        Flow::Next | Flow::Away => false,
    };
    // Decodes from `start` on: `None` if no instruction ends at the pc, else whether one of them jumps to the pc or the last
    // one does not continue there.
    let looked_at = |start: usize| {
        let (mut is_target, mut last) = (false, (start, Flow::Away));
        for found in ends(before, start) {
            is_target |= jumps(found);
            last = found;
        }
        let leads_on = matches!(last.1, Flow::Next | Flow::Branch(_));
        (last.0 == pc).then_some(is_target || !leads_on)
    };
    let starts = 0..MAX_INSTRUCTION_BYTES.min(pc.saturating_add(1));
    starts.filter_map(looked_at).next().is_none_or(|is_target| is_target || ends(code, pc).any(jumps))
}

/// Returns the instructions of `code` from `start` on: where each ends, and how it passes control on.
fn ends(code: &[u8], start: usize) -> impl Iterator<Item = (usize, Flow)> {
    let mut at = start;
    core::iter::from_fn(move || {
        let Instruction { length, flow } = decode(code.get(at..)?)?;
        at = at.saturating_add(length);
        Some((at, flow))
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

/// The targets of all jumps in `code`, which begins at `start`, whose distance has four bytes; bytes that only look like
/// a jump are among them.
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
        let is_target = |at: usize| is_near_jump_target(&code, 3 + at);
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
        assert!(!is_near_jump_target(&code, 2));
        assert!(!is_near_jump_target(&code, 4));
        assert!(is_near_jump_target(&code, 5), "both jumps");
        assert!(is_near_jump_target(&code, 8), "behind a jump");
        assert!(is_near_jump_target(&code, 0), "nothing is known of what is before");
        assert!(is_near_jump_target(&code, 99), "outside");
        assert!(is_near_jump_target(&[0x06; 40], 20), "no code");
    }

    #[test]
    fn decoding_may_begin_in_the_middle_of_an_instruction() {
        let many = LOOP.repeat(20);
        for skipped in 0..LOOP.len() {
            let code = &many[skipped..];
            assert!(is_near_jump_target(code, 10 * LOOP.len() - skipped), "{skipped}");
            assert!(!is_near_jump_target(code, 10 * LOOP.len() + 5 - skipped), "{skipped}");
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
