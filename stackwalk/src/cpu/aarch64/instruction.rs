//! Instructions of 32 bits, as far as frames and jumps depend on them.
//!
//! Source: Arm Architecture Reference Manual for A-profile, chapter C4 (encodings).

/// Bytes of every instruction.
pub(super) const INSTRUCTION_BYTES: usize = 4;

/// `stp x29, x30, [sp, #-16]!`.
pub(super) const PUSH_RECORD: u32 = 0xa9bf_7bfd;
/// `ldp x29, x30, [sp], #16`.
pub(super) const POP_RECORD: u32 = 0xa8c1_7bfd;
/// `mov sp, x29`.
pub(super) const LEAVE: u32 = 0x9100_03bf;
/// `ret`.
pub(super) const RET: u32 = 0xd65f_03c0;

/// The instructions of `code`, which begins at one.
pub(super) fn instructions(code: &[u8]) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + Clone {
    code.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The instructions of `code` from its end on backwards; the last ends where `code` ends.
pub(super) fn backwards(code: &[u8]) -> impl ExactSizeIterator<Item = u32> + Clone {
    code.as_rchunks().1.iter().rev().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The instruction at the start of `code`.
pub(super) fn first(code: &[u8]) -> Option<u32> {
    instructions(code).next()
}

/// The instruction at the end of `code`.
pub(super) fn last(code: &[u8]) -> Option<u32> {
    backwards(code).next()
}

/// True for `stp x29, x30, [sp, #n]`.
pub(super) fn stores_record(instruction: u32) -> bool {
    instruction & 0xffc0_7fff == 0xa900_7bfd
}

/// True for `ldp x29, x30, [sp, #n]`.
pub(super) fn loads_record(instruction: u32) -> bool {
    instruction & 0xffc0_7fff == 0xa940_7bfd
}

/// True for `sub sp, sp, xN`, which allocates a frame beyond the reach of an immediate.
pub(super) fn allocates_by_register(instruction: u32) -> bool {
    instruction & 0xffe0_ffff == 0xcb20_63ff
}

/// Bytes by which an instruction with an immediate raises sp; negative if it lowers sp, 0 if it leaves sp alone.
pub(super) fn sp_change(instruction: u32) -> i64 {
    let is_sp_based = (instruction >> 5) & 31 == 31;
    if instruction & 0x3f80_03ff == 0x1100_03ff && instruction >> 31 == 1 {
        // add and sub, with an immediate that may be shifted by 12.
        let shift = if instruction & (1 << 22) == 0 { 0 } else { 12 };
        let bytes = i64::from((instruction >> 10) & 0xfff) << shift;
        return if instruction & (1 << 30) == 0 { bytes } else { -bytes };
    }
    if !is_sp_based {
        return 0;
    }
    if instruction & 0x3a80_0000 == 0x2880_0000 {
        // ldp and stp with write-back, of general or vector registers.
        let is_vector = instruction & (1 << 26) != 0;
        let scale = match (is_vector, instruction >> 30) {
            (false, 0 | 1) | (true, 0) => 4,
            (true, 2) => 16,
            _ => 8,
        };
        return signed(instruction >> 15, 7).wrapping_mul(scale);
    }
    if instruction & 0x3b20_0400 == 0x3800_0400 {
        // ldr and str with write-back.
        return signed(instruction >> 12, 9);
    }
    if instruction & 0xbfbf_0000 == 0x0c9f_0000 {
        // ld1 and st1 of several registers, which step over what they access.
        let registers = match (instruction >> 12) & 15 {
            0b0010 => 4,
            0b0110 => 3,
            0b1010 => 2,
            _ => 1,
        };
        return registers * if instruction & (1 << 30) == 0 { 8 } else { 16 };
    }
    0
}

/// The low `bits` of a field, as a signed number.
fn signed(field: u32, bits: u32) -> i64 {
    let unused = 32_u32.saturating_sub(bits);
    i64::from((field << unused).cast_signed() >> unused)
}

/// Control flow after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// To the next instruction, or back to it after a call.
    Next,
    /// To the next instruction, or by this distance from this one.
    Branch(i64),
    /// By this distance from this instruction.
    Jump(i64),
    /// To no place that the instruction names: return, jump through a register, trap.
    Away,
}

/// Control flow after an instruction.
pub(super) fn flow(instruction: u32) -> Flow {
    let distance = |shift: u32, bits: u32| signed(instruction >> shift, bits).wrapping_mul(4);
    match instruction {
        i if i & 0xfc00_0000 == 0x1400_0000 => Flow::Jump(distance(0, 26)),
        i if i & 0xff00_0000 == 0x5400_0000 => Flow::Branch(distance(5, 19)),
        i if i & 0x7e00_0000 == 0x3400_0000 => Flow::Branch(distance(5, 19)),
        i if i & 0x7e00_0000 == 0x3600_0000 => Flow::Branch(distance(5, 14)),
        // br, ret, and their forms that authenticate; blr returns.
        i if i & 0xfe00_0000 == 0xd600_0000 && i & 0x0060_0000 != 0x0020_0000 => Flow::Away,
        // brk, hlt, and what is no instruction: the first bits of data and of `udf`.
        i if i & 0xffe0_0000 == 0xd420_0000 || i & 0xffe0_0000 == 0xd440_0000 => Flow::Away,
        i if i & 0x1e00_0000 == 0 => Flow::Away,
        _ => Flow::Next,
    }
}

/// The distance of `bl`.
pub(super) fn call_distance(instruction: u32) -> Option<i64> {
    (instruction & 0xfc00_0000 == 0x9400_0000).then(|| signed(instruction, 26).wrapping_mul(4))
}

/// The register of `blr`.
pub(super) fn called_register(instruction: u32) -> Option<u32> {
    (instruction & 0xffff_fc1f == 0xd63f_0000).then_some((instruction >> 5) & 31)
}

/// The page of `adrp`, or the address of `adr`, at `at`.
pub(super) fn pc_relative(instruction: u32, at: u64) -> Option<u64> {
    let distance = signed((instruction >> 5) << 2 | (instruction >> 29) & 3, 21);
    match instruction & 0x9f00_0000 {
        0x9000_0000 => Some((at & !0xfff).wrapping_add_signed(distance << 12)),
        0x1000_0000 => Some(at.wrapping_add_signed(distance)),
        _ => None,
    }
}

/// The offset of `str xN, [x28, #offset]`: a field of the `JavaThread`.
pub(super) fn thread_store(instruction: u32) -> Option<u32> {
    (instruction & 0xffc0_03e0 == 0xf900_0380).then_some(((instruction >> 10) & 0xfff) << 3)
}

/// The register and the offset of `ldr xN, [x28, #offset]`.
pub(super) fn thread_load(instruction: u32) -> Option<(u32, u32)> {
    (instruction & 0xffc0_03e0 == 0xf940_0380)
        .then_some((instruction & 31, ((instruction >> 10) & 0xfff) << 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_sp() {
        for (instruction, bytes) in [
            (0xd100_83ff, -32),   // sub sp, sp, #0x20
            (0x9100_83ff, 32),    // add sp, sp, #0x20
            (0xd140_07ff, -4096), // sub sp, sp, #0x1, lsl #12
            (0xa9bf_7bfd, -16),   // stp x29, x30, [sp, #-16]!
            (0xa8c1_7bfd, 16),    // ldp x29, x30, [sp], #16
            (0xa9bf_27ff, -16),   // stp xzr, x9, [sp, #-16]!
            (0xf81f_0fe8, -16),   // str x8, [sp, #-16]!
            (0xf841_07e8, 16),    // ldr x8, [sp], #16
            (0x6dbf_07e0, -16),   // stp d0, d1, [sp, #-16]!
            (0x0cdf_2fe0, 32),    // ld1 {v0.1d-v3.1d}, [sp], #32
            (0xa900_7bfd, 0),     // stp x29, x30, [sp]
            (0xa981_0421, 0),     // stp x1, x1, [x1, #16]!
            (0x9100_03fd, 0),     // mov x29, sp
            (0xd503_201f, 0),     // nop
        ] {
            assert_eq!(sp_change(instruction), bytes, "{instruction:x}");
        }
    }

    #[test]
    fn frame_records_and_allocations() {
        // stp and ldp x29, x30, [sp, #0x20]; sub sp, sp, x8; nop
        let code = [0xa902_7bfd_u32, 0xa942_7bfd, 0xcb28_63ff, 0xd503_201f];
        assert_eq!(code.map(stores_record), [true, false, false, false]);
        assert_eq!(code.map(loads_record), [false, true, false, false]);
        assert_eq!(code.map(allocates_by_register), [false, false, true, false]);
        assert!(!stores_record(0xa902_7bfc) && !stores_record(0xa902_77fd) && !stores_record(0xa902_7b9d));
    }

    #[test]
    fn fields_of_the_thread() {
        // str x8, [x28, #0x4a0]; ldr x8, [x28, #0x458]; the same of x27
        let code = [0xf902_5388, 0xf942_2f88, 0xf902_5368, 0xf942_2f68];
        assert_eq!(code.map(thread_store), [Some(0x4a0), None, None, None]);
        assert_eq!(code.map(thread_load), [None, Some((8, 0x458)), None, None]);
    }

    #[test]
    fn code_is_read_from_either_end() {
        // Three instructions, and a part of one at the end or at the start.
        let bytes: std::vec::Vec<u8> = [1_u32, 2, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(instructions(&bytes[..10]).eq([1, 2]) && backwards(&bytes[2..]).eq([3, 2]));
        assert_eq!((first(&bytes), last(&bytes)), (Some(1), Some(3)));
        assert_eq!((first(&bytes[..3]), last(&bytes[..3])), (None, None));
    }

    #[test]
    fn flows() {
        for (instruction, expected) in [
            (0x1400_0002, Flow::Jump(8)),
            (0x17ff_ffff, Flow::Jump(-4)),
            (0x5400_0048, Flow::Branch(8)),
            (0xb400_0040, Flow::Branch(8)),
            (0x3600_0040, Flow::Branch(8)),
            (RET, Flow::Away),
            (0xd61f_0100, Flow::Away),
            (0xd63f_0100, Flow::Next),
            (0x9400_0001, Flow::Next),
            (0xd420_0000, Flow::Away),
            (0, Flow::Away),
            (0xd503_201f, Flow::Next),
        ] {
            assert_eq!(flow(instruction), expected, "{instruction:x}");
        }
        assert_eq!(call_distance(0x97ff_ffff), Some(-4));
        assert_eq!(called_register(0xd63f_0100), Some(8));
        assert_eq!(pc_relative(0x1000_0068, 0x1000), Some(0x100c));
        assert_eq!(pc_relative(0xb000_0008, 0x1234), Some(0x2000));
    }
}
