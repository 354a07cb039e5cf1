//! Lengths, jumps and waits of the instructions that HotSpot's compilers emit.
//!
//! Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 (format) and appendix A
//! (opcode maps).

/// Longest instruction.
pub(super) const MAX_INSTRUCTION_BYTES: usize = 15;

/// Control flow after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// To the next instruction, or back to it after a call.
    Next,
    /// To the next instruction, or by this distance from it.
    Branch(i32),
    /// By this distance from the next instruction.
    Jump(i32),
    /// To the place that a register or memory holds.
    Indirect,
    /// Back to a caller, or nowhere: return, trap.
    Away,
}

/// Cause of a delay at the end of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Nothing: it works on general registers, for a few cycles.
    Nothing,
    /// Memory outside of the frame.
    Memory,
    /// Unknown, among them division, floating-point numbers, vectors, the stack, calls, jumps, and the read of a
    /// safepoint poll.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    pub(super) length: usize,
    pub(super) flow: Flow,
    pub(super) wait: Wait,
}

/// Opcode maps: one byte, and behind `0f`, `0f 38` and `0f 3a`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Map {
    Primary,
    Secondary,
    ThirtyEight,
    ThirtyA,
}

/// Prefixes that change the length of what follows, and the opcode.
struct Opcode {
    map: Map,
    byte: u8,
    /// The prefix `66`: immediates of four bytes have two.
    short: bool,
    /// The prefix `f3`, which makes `pause` of `nop`.
    repeats: bool,
    /// REX.W: `mov reg, imm` has eight.
    wide: bool,
    /// REX.B and its like: the base register of an operand is one of r8 to r15.
    extends_base: bool,
    /// Bytes up to the opcode and with it.
    length: usize,
}

/// Decodes the first instruction of `code`; `None` if it is incomplete, or no instruction in 64-bit mode.
pub(super) fn decode(code: &[u8]) -> Option<Instruction> {
    let opcode = opcode(code)?;
    let behind = code.get(opcode.length..)?;
    let has_modrm = has_modrm(&opcode)?;
    let operand = if has_modrm { modrm_bytes(behind)? } else { 0 };
    let modrm = behind.first().copied().unwrap_or(0);
    let immediate = immediate_bytes(&opcode, modrm);
    let length = opcode.length.checked_add(operand)?.checked_add(immediate)?;
    let instruction = code.get(..length).filter(|code| code.len() <= MAX_INSTRUCTION_BYTES)?;
    let wait =
        if has_modrm { wait_of_operand(&opcode, modrm, behind) } else { wait_without_operand(&opcode) };
    Some(Instruction { length, flow: flow(&opcode, modrm, instruction), wait })
}

fn opcode(code: &[u8]) -> Option<Opcode> {
    let is_prefix =
        |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    let (before, rest) = code.split_at_checked(prefixes)?;
    let (short, repeats) = (before.contains(&0x66), before.contains(&0xf3));
    let made = |map, byte, wide, extends_base, bytes: usize| {
        let length = prefixes.checked_add(bytes)?;
        Some(Opcode { map, byte, short, repeats, wide, extends_base, length })
    };
    // VEX and EVEX keep REX.B inverted, beside the map.
    let extends = |map: u8| map & 0x20 == 0;
    let by_number = |number| match number {
        1 => Some(Map::Secondary),
        2 => Some(Map::ThirtyEight),
        3 => Some(Map::ThirtyA),
        _ => None,
    };
    // VEX with two and three bytes, EVEX.
    match *rest {
        [0xc5, _, byte, ..] => return made(Map::Secondary, byte, false, false, 3),
        [0xc4, map, _, byte, ..] => return made(by_number(map & 0x1f)?, byte, false, extends(map), 4),
        [0x62, map, _, _, byte, ..] => return made(by_number(map & 7)?, byte, false, extends(map), 5),
        _ => {}
    }
    let (rex, rest) = match *rest {
        [rex @ 0x40..=0x4f, ref rest @ ..] => (Some(rex), rest),
        _ => (None, rest),
    };
    let wide = rex.is_some_and(|rex| rex & 8 != 0);
    let extends_base = rex.is_some_and(|rex| rex & 1 != 0);
    let (map, byte, bytes) = match *rest {
        [0x0f, 0x38, byte, ..] => (Map::ThirtyEight, byte, 3),
        [0x0f, 0x3a, byte, ..] => (Map::ThirtyA, byte, 3),
        [0x0f, byte, ..] => (Map::Secondary, byte, 2),
        [byte, ..] => (Map::Primary, byte, 1),
        [] => return None,
    };
    made(map, byte, wide, extends_base, usize::from(rex.is_some()).checked_add(bytes)?)
}

/// True if a ModRM byte follows the opcode; `None` for opcodes that do not exist in 64-bit mode.
fn has_modrm(opcode: &Opcode) -> Option<bool> {
    Some(match (opcode.map, opcode.byte) {
        (Map::ThirtyEight | Map::ThirtyA, _) => true,
        (Map::Secondary, 0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0x80..=0x8f) => false,
        (Map::Secondary, 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf) => false,
        (Map::Secondary, 0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x38..=0x3f | 0xa6 | 0xa7) => return None,
        (Map::Secondary, _) => true,
        (Map::Primary, 0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f) => {
            return None;
        }
        (Map::Primary, 0x60..=0x62 | 0x67 | 0x82 | 0x9a | 0xc4 | 0xc5 | 0xce | 0xd4..=0xd6 | 0xea) => {
            return None;
        }
        // Incomplete, or a prefix behind the last one.
        (Map::Primary, 0x0f | 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x66 | 0xf0 | 0xf2 | 0xf3) => {
            return None;
        }
        (Map::Primary, byte @ 0x00..=0x3f) => byte & 7 <= 3,
        (Map::Primary, 0x63 | 0x69 | 0x6b | 0x80..=0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7) => true,
        (Map::Primary, 0xd0..=0xd3 | 0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff) => true,
        (Map::Primary, _) => false,
    })
}

/// Bytes of ModRM, SIB and displacement.
fn modrm_bytes(code: &[u8]) -> Option<usize> {
    let (&modrm, rest) = code.split_first()?;
    let (mode, register) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(1);
    }
    let sib = if register == 4 { Some(*rest.first()?) } else { None };
    let base = sib.map_or(register, |sib| sib & 7);
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(if sib.is_some() { displacement + 2 } else { displacement + 1 })
}

fn immediate_bytes(opcode: &Opcode, modrm: u8) -> usize {
    let usual = if opcode.short { 2 } else { 4 };
    // `test` shares its opcode with unary operations without immediate.
    let is_test = modrm >> 3 & 7 <= 1;
    match (opcode.map, opcode.byte) {
        (Map::ThirtyA, _) => 1,
        (Map::ThirtyEight, _) => 0,
        (Map::Secondary, 0x80..=0x8f) => 4,
        (Map::Secondary, 0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6) => 1,
        (Map::Secondary, _) => 0,
        (Map::Primary, byte @ 0x00..=0x3f) if byte & 7 == 4 => 1,
        (Map::Primary, byte @ 0x00..=0x3f) if byte & 7 == 5 => usual,
        (Map::Primary, 0x68 | 0x69 | 0x81 | 0xa9 | 0xc7) => usual,
        (Map::Primary, 0x6a | 0x6b | 0x70..=0x80 | 0x83 | 0xa8 | 0xb0..=0xb7 | 0xc0 | 0xc1 | 0xc6 | 0xcd) => {
            1
        }
        (Map::Primary, 0xe0..=0xe7 | 0xeb) => 1,
        (Map::Primary, 0xa0..=0xa3) => 8,
        (Map::Primary, 0xb8..=0xbf) if opcode.wide => 8,
        (Map::Primary, 0xb8..=0xbf) => usual,
        (Map::Primary, 0xc2 | 0xca) => 2,
        (Map::Primary, 0xc8) => 3,
        (Map::Primary, 0xe8 | 0xe9) => 4,
        (Map::Primary, 0xf6) if is_test => 1,
        (Map::Primary, 0xf7) if is_test => usual,
        (Map::Primary, _) => 0,
    }
}

fn flow(opcode: &Opcode, modrm: u8, instruction: &[u8]) -> Flow {
    let near = || match *instruction {
        [.., a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
        _ => 0,
    };
    let short = || instruction.last().map_or(0, |&distance| i32::from(distance.cast_signed()));
    match (opcode.map, opcode.byte) {
        (Map::Secondary, 0x80..=0x8f) => Flow::Branch(near()),
        (Map::Primary, 0x70..=0x7f | 0xe0..=0xe3) => Flow::Branch(short()),
        (Map::Primary, 0xe9) => Flow::Jump(near()),
        (Map::Primary, 0xeb) => Flow::Jump(short()),
        // ret, int3, hlt, ud2.
        (Map::Primary, 0xc2 | 0xc3 | 0xcc | 0xf4) | (Map::Secondary, 0x0b) => Flow::Away,
        // jmp through a register or memory.
        (Map::Primary, 0xff) if modrm >> 3 & 7 == 4 => Flow::Indirect,
        _ => Flow::Next,
    }
}

fn wait_without_operand(opcode: &Opcode) -> Wait {
    match (opcode.map, opcode.byte) {
        (Map::Primary, byte @ 0x00..=0x3f) if matches!(byte & 7, 4 | 5) => Wait::Nothing,
        (Map::Primary, 0x90) if opcode.repeats => Wait::Other,
        // nop and xchg, sign extensions, test, mov of a constant.
        (Map::Primary, 0x90..=0x99 | 0xa8 | 0xa9 | 0xb0..=0xbf) => Wait::Nothing,
        // bswap.
        (Map::Secondary, 0xc8..=0xcf) => Wait::Nothing,
        _ => Wait::Other,
    }
}

fn wait_of_operand(opcode: &Opcode, modrm: u8, operand: &[u8]) -> Wait {
    let (mode, extension, register) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    if mode == 3 {
        return if has_short_latency(opcode, extension) { Wait::Nothing } else { Wait::Other };
    }
    let is_on_stack = register == 4 && operand.get(1).is_some_and(|sib| sib & 7 == 4 && !opcode.extends_base);
    match (opcode.map, opcode.byte) {
        // lea, nop.
        (Map::Primary, 0x8d) | (Map::Secondary, 0x1f) => Wait::Nothing,
        // `test` of memory, which polls; pop; calls, jumps and push.
        (Map::Primary, 0x85 | 0x8f) => Wait::Other,
        (Map::Primary, 0xff) if extension >= 2 => Wait::Other,
        // Prefetches, fences and the like.
        (Map::Secondary, 0x0d | 0x18 | 0xae | 0xc7) => Wait::Other,
        _ if is_on_stack => Wait::Other,
        _ => Wait::Memory,
    }
}

/// True for instructions of a few cycles whose operands are general registers.
fn has_short_latency(opcode: &Opcode, extension: u8) -> bool {
    match (opcode.map, opcode.byte) {
        (Map::Primary, 0x00..=0x3f | 0x63 | 0x69 | 0x6b | 0x80..=0x8b) => true,
        (Map::Primary, 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3) => true,
        // test, not, neg, but neither multiplication nor division.
        (Map::Primary, 0xf6 | 0xf7) => extension <= 3,
        // inc, dec.
        (Map::Primary, 0xfe | 0xff) => extension <= 1,
        // cmov, setcc, bit tests, double shifts, imul, extensions, bit scans, popcnt.
        (Map::Secondary, 0x40..=0x4f | 0x90..=0x9f | 0xa3..=0xa5 | 0xab..=0xad | 0xaf) => true,
        (Map::Secondary, 0xb3 | 0xb6..=0xbf) => true,
        // andn, bzhi and shifts of BMI; rorx.
        (Map::ThirtyEight, 0xf2..=0xf7) | (Map::ThirtyA, 0xf0) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[track_caller]
    fn check(code: &[u8], flow: Flow) {
        let padded: Vec<u8> = code.iter().copied().chain([0x90; 16]).collect();
        let found = decode(&padded).map(|found| (found.length, found.flow));
        assert_eq!(found, Some((code.len(), flow)), "{code:x?}");
        for length in 0..code.len() {
            assert_eq!(decode(&code[..length]), None, "{length} bytes of {code:x?}");
        }
    }

    #[test]
    fn lengths_of_every_operand_form() {
        for code in [
            &[0x90][..],                                             // nop
            &[0x55],                                                 // push rbp
            &[0x45, 0x8b, 0x5c, 0x92, 0x10],                         // mov r11d, [r10 + rdx * 4 + 0x10]
            &[0x41, 0x81, 0xf3, 1, 2, 3, 4],                         // xor r11d, imm32
            &[0x48, 0x83, 0xec, 0x20],                               // sub rsp, 0x20
            &[0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff],                // mov [rsp - 0x14000], eax
            &[0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8],                   // mov r10, imm64
            &[0x41, 0xb8, 1, 2, 3, 4],                               // mov r8d, imm32
            &[0x48, 0x8b, 0x05, 1, 2, 3, 4],                         // mov rax, [rip + ..]
            &[0x8b, 0x04, 0x25, 1, 2, 3, 4],                         // mov eax, [disp32]
            &[0x66, 0xc7, 0x43, 0x10, 1, 2],                         // mov word [rbx + 0x10], imm16
            &[0x66, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],          // nop of ten bytes
            &[0xf6, 0x43, 0x10, 1],                                  // test byte [rbx + 0x10], 1
            &[0xf7, 0xc1, 1, 2, 3, 4],                               // test ecx, imm32
            &[0xf7, 0xd9],                                           // neg ecx
            &[0x41, 0x85, 0x02],                                     // test [r10], eax
            &[0xf0, 0x4c, 0x0f, 0xb1, 0x11],                         // lock cmpxchg [rcx], r10
            &[0xf2, 0x0f, 0x10, 0x05, 1, 2, 3, 4],                   // movsd xmm0, [rip + ..]
            &[0x66, 0x0f, 0x3a, 0x61, 0x06, 0x0d],                   // pcmpestri xmm0, [rsi], 13
            &[0x0f, 0x38, 0xf1, 0x02],                               // movbe [rdx], eax
            &[0xc5, 0xf8, 0x77],                                     // vzeroupper
            &[0xc5, 0xfe, 0x6f, 0x44, 0x82, 0x10],                   // vmovdqu ymm0, [rdx + rax * 4 + 0x10]
            &[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1],                      // vextracti128 xmm1, ymm0, 1
            &[0xc4, 0xe2, 0xfb, 0xf6, 0xd0],                         // mulx
            &[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x04, 0x25, 1, 2, 3, 4], // vmovdqu64 zmm0, [disp32]
            &[0xe8, 1, 2, 3, 4],                                     // call
            &[0xff, 0x14, 0xc1],                                     // call [rcx + rax * 8]
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0],             // mov rax, fs:[0]
        ] {
            check(code, Flow::Next);
        }
    }

    #[test]
    fn each_instruction_has_its_delay() {
        let check = |expected, codes: &[&[u8]]| {
            for code in codes {
                assert_eq!(decode(code).map(|found| found.wait), Some(expected), "{code:x?}");
            }
        };
        check(
            Wait::Nothing,
            &[
                &[0x90],                         // nop
                &[0x0f, 0x1f, 0x40, 0],          // nop [rax]
                &[0x44, 0x8b, 0xd8],             // mov r11d, eax
                &[0x41, 0xc1, 0xeb, 8],          // shr r11d, 8
                &[0x33, 0xc8],                   // xor ecx, eax
                &[0x48, 0x8d, 0x44, 0x82, 0x10], // lea rax, [rdx + rax * 4 + 0x10]
                &[0x41, 0xb8, 1, 2, 3, 4],       // mov r8d, imm32
                &[0x0f, 0xaf, 0xc1],             // imul eax, ecx
                &[0x0f, 0x4c, 0xc1],             // cmovl eax, ecx
                &[0xf7, 0xd9],                   // neg ecx
                &[0x85, 0xc0],                   // test eax, eax
                &[0xff, 0xc1],                   // inc ecx
                &[0x3d, 1, 2, 3, 4],             // cmp eax, imm32
                &[0xc4, 0xe2, 0x70, 0xf2, 0xc2], // andn eax, ecx, edx
            ],
        );
        check(
            Wait::Memory,
            &[
                &[0x45, 0x8b, 0x5c, 0x92, 0x10],       // mov r11d, [r10 + rdx * 4 + 0x10]
                &[0x44, 0x89, 0x5c, 0x92, 0x10],       // mov [rdx + rdx * 4 + 0x10], r11d
                &[0x3b, 0x48, 0x08],                   // cmp ecx, [rax + 8]
                &[0x41, 0x8b, 0x04, 0x24],             // mov eax, [r12]
                &[0xc4, 0xc1, 0x7e, 0x6f, 0x04, 0x24], // vmovdqu ymm0, [r12]
                &[0xf2, 0x0f, 0x10, 0x40, 0x10],       // movsd xmm0, [rax + 0x10]
                &[0xff, 0x40, 0x10],                   // inc dword [rax + 0x10]
                &[0xf0, 0x4c, 0x0f, 0xb1, 0x11],       // lock cmpxchg [rcx], r10
            ],
        );
        check(
            Wait::Other,
            &[
                &[0x41, 0x85, 0x02],             // test [r10], eax: a poll
                &[0x8b, 0x44, 0x24, 0x10],       // mov eax, [rsp + 0x10]
                &[0xc5, 0xfe, 0x6f, 0x04, 0x24], // vmovdqu ymm0, [rsp]
                &[0xf3, 0x90],                   // pause
                &[0xf7, 0xf9],                   // idiv ecx
                &[0xf2, 0x0f, 0x5e, 0xc1],       // divsd xmm0, xmm1
                &[0x55],                         // push rbp
                &[0xe8, 1, 2, 3, 4],             // call
                &[0xff, 0x14, 0xc1],             // call [rcx + rax * 8]
                &[0x7c, 0xf0],                   // jl
                &[0x0f, 0x0d, 0x08],             // prefetchw [rax]
                &[0x0f, 0xae, 0xf0],             // mfence
            ],
        );
    }

    #[test]
    fn jumps() {
        check(&[0x7c, 0xf0], Flow::Branch(-16));
        check(&[0x0f, 0x8c, 0, 1, 0, 0], Flow::Branch(256));
        check(&[0xeb, 0x10], Flow::Jump(16));
        check(&[0xe9, 0xfc, 0xff, 0xff, 0xff], Flow::Jump(-4));
        check(&[0xff, 0xe0], Flow::Indirect);
        check(&[0x41, 0xff, 0x24, 0xc2], Flow::Indirect);
        check(&[0xc3], Flow::Away);
        check(&[0x0f, 0x0b], Flow::Away);
    }

    #[test]
    fn bytes_that_are_no_instruction() {
        for code in [[0x06; 16], [0x60; 16], [0x66; 16], [0xea; 16], [0xd4; 16]] {
            assert_eq!(decode(&code), None);
        }
    }
}
