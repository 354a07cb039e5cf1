//! Moves of a word from one stack slot to another.
//!
//! C2 moves a spilled value between two slots without a register: `push [rsp + from]; pop [rsp + to]`.
//! Between the two instructions sp is a word below the complete frame, in compiled methods and in stubs made by C2.
//! Source: `MachSpillCopyNode::implementation` in `cpu/x86/x86_64.ad`, JDK 11 to 25.

use crate::cpu::rules::Around;

/// Returns whether the last instruction pushed a slot and the next pops into one.
pub(super) fn is_slot_move(around: Around<'_>) -> bool {
    let pushed = matches!(
        around.before,
        [.., 0xff, 0x34, 0x24] | [.., 0xff, 0x74, 0x24, _] | [.., 0xff, 0xb4, 0x24, _, _, _, _]
    );
    let pop = match around.after {
        // The assembler writes a REX prefix that is not needed; later ones may leave it out.
        [0x48, rest @ ..] => rest,
        after => after,
    };
    pushed && matches!(pop, [0x8f, 0x04 | 0x44 | 0x84, 0x24, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Temurin 17.0.9, `_rethrow_Java`: sub rsp, 0x18; mov [rsp + 0x10], rbp; push [rsp + 0x18]; pop [rsp].
    const RETHROW: [u8; 21] = [
        0x48, 0x81, 0xec, 0x18, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x48, 0xff, 0x74, 0x24, 0x18, 0x48,
        0x8f, 0x04, 0x24,
    ];

    fn moving(code: &[u8]) -> impl Iterator<Item = usize> {
        (0..=code.len())
            .filter(|&pc| is_slot_move(Around { before: &code[..pc], after: &code[pc..], from_entry: false }))
    }

    #[test]
    fn only_between_push_and_pop() {
        assert!(moving(&RETHROW).eq([17]));
        // From Temurin 25.0.2, C2 code of H2: push [rsp + 0x50]; pop [rsp + 0x28].
        assert!(moving(&[0x85, 2, 0x48, 0xff, 0x74, 0x24, 0x50, 0x48, 0x8f, 0x44, 0x24, 0x28]).eq([7]));
        let far = [0xff, 0xb4, 0x24, 0x90, 0, 0, 0, 0x8f, 0x84, 0x24, 0x80, 0, 0, 0];
        assert!(moving(&far).eq([7]));
    }

    #[test]
    fn other_pushes_and_pops_are_none() {
        assert!(moving(&[0xff, 0x75, 0x10, 0x48, 0x8f, 0x44, 0x24, 0x28]).eq([]));
        assert!(moving(&[0x48, 0xff, 0x74, 0x24, 0x18, 0x5d, 0xc3]).eq([]));
    }
}
