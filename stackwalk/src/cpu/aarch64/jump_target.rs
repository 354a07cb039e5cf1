//! Jumps that lead to an instruction.
//!
//! All instructions have four bytes, so code is decoded from any place on, in both directions.
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1 (branches).

use super::instruction::{Flow, INSTRUCTION_BYTES, flow, instructions, last};

/// Bytes before a pc that are searched first.
pub(crate) const NEAR_JUMP_BEFORE: u64 = 512;
/// Bytes behind a pc that are searched first.
pub(crate) const NEAR_JUMP_AFTER: u64 = 128;
pub(crate) const FAR_JUMP_BYTES: usize = INSTRUCTION_BYTES;

/// `None` if an instruction in `code` jumps to the one at `pc`, or if the one before does not lead on to it. No
/// instruction is known to be given up at an interrupt.
pub(crate) fn is_given_up(code: &[u8], pc: usize) -> Option<bool> {
    let before = code.get(..pc)?;
    let leads_on = last(before).is_some_and(|last| matches!(flow(last), Flow::Next | Flow::Branch(_)));
    // An address that is a multiple of four makes the indices of instructions multiples of four as well.
    let start = code.get(pc % INSTRUCTION_BYTES..).unwrap_or_default();
    let may_have_jumped = !leads_on || has_far_jump(start, 0, (pc - pc % INSTRUCTION_BYTES) as u64);
    (!may_have_jumped).then_some(false)
}

/// True if `code`, which begins at `start`, has a jump to `target`.
pub(crate) fn has_far_jump(code: &[u8], start: u64, target: u64) -> bool {
    far_jumps(code, start).any(|found| found == target)
}

/// The targets of all jumps in `code`, which begins at `start`.
pub(crate) fn far_jumps(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    let places = (start..).step_by(INSTRUCTION_BYTES);
    places.zip(instructions(code)).filter_map(|(place, instruction)| match flow(instruction) {
        Flow::Branch(distance) | Flow::Jump(distance) => Some(place.wrapping_add_signed(distance)),
        Flow::Next | Flow::Away => None,
    })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn only_the_header_of_a_loop_is_a_target() {
        // nop; nop; add; cmp; b.lt -2; ret; nop
        let code: Vec<u8> =
            [0xd503_201f, 0xd503_201f, 0x1100_0400, 0x6b01_001f, 0x54ff_ffcb, 0xd65f_03c0, 0xd503_201f]
                .iter()
                .flat_map(|instruction: &u32| instruction.to_le_bytes())
                .collect();
        let found: Vec<bool> = (1..7).map(|at| is_given_up(&code, 4 * at).is_none()).collect();
        assert_eq!(found, [false, true, false, false, false, true]);
        assert!(has_far_jump(&code, 0x1000, 0x1008) && !has_far_jump(&code, 0x1000, 0x1004));
        assert!(is_given_up(&code, 100).is_none(), "outside");
    }
}
