//! Registers that C2 saves below its complete frame around a call of a collector's barrier.
//!
//! The slow path of such a barrier lies behind the method's code and keeps the registers in use on the stack:
//!
//! ```text
//! sub rsp, n   mov [rsp + d], r ...   mov rdi, r   lea rsi, [object + f]   call barrier   mov r, [rsp + d] ...
//! [vzeroupper]   add rsp, n   jmp back
//! ```
//!
//! Stale return addresses remain there, so the frame is found by n and not by a preceding call.
//! An epilogue reloads and adds to rsp as well, but goes on with `pop rbp` and not with a jump.
//! Sources: `SaveLiveRegisters` and `SetupArguments` in `cpu/x86/gc/z/zBarrierSetAssembler_x86.cpp` (JDK 17) and
//! `cpu/x86/gc/x/xBarrierSetAssembler_x86.cpp` (21); `gc/shared/barrierSetAssembler_x86.cpp` (21, 25), used by ZGC, and
//! by G1 from JDK 24 on.

/// Words between sp and the complete frame if `code`, from the pc on, runs in such a slow path.
pub(super) fn saved_registers(code: &[u8]) -> Option<u64> {
    let mut rest = code;
    loop {
        match rest {
            [0x48, 0x83, 0xc4, bytes, 0xe9 | 0xeb, ..] if *bytes < 0x80 => {
                return whole_words(u64::from(*bytes));
            }
            [0x48, 0x81, 0xc4, a, b, c, d, 0xe9 | 0xeb, ..] => {
                return whole_words(u64::from(u32::from_le_bytes([*a, *b, *c, *d])));
            }
            _ => rest = rest.get(instruction(rest)?..)?,
        }
    }
}

/// rsp is kept aligned for the call, so whole pairs of words are saved.
fn whole_words(bytes: u64) -> Option<u64> {
    (bytes != 0 && bytes.is_multiple_of(16)).then_some(bytes / 8)
}

/// Length of the instruction at the start of `code` if it is one of a slow path.
fn instruction(code: &[u8]) -> Option<usize> {
    let body: usize = match code {
        // mov between registers, or between a register and a slot; vmovsd, vmovdqu, kmov of a slot.
        [0x48..=0x4f, 0x8b | 0x89, ..] => 2,
        [0xc5, _, 0x10 | 0x11 | 0x6f | 0x7f, ..] => 3,
        [0xc4, 0xe1, _, 0x90 | 0x91, ..] => 4,
        [0x62, _, _, _, 0x6f | 0x7f, ..] => 5,
        // lea, for the address of a field.
        [0x48..=0x4f, 0x8d, ..] => return 2_usize.checked_add(address(code.get(2..)?)?),
        // xor and xchg of two registers.
        [0x48..=0x4f, 0x31 | 0x33 | 0x87, 0xc0..=0xff, ..] => return Some(3),
        // vzeroupper.
        [0xc5, 0xf8, 0x77, ..] => return Some(3),
        [0xe8, ..] => return Some(5),
        // mov r10, imm64; call r10.
        [0x49, 0xba, ..] => return Some(10),
        [0x41, 0xff, 0xd2, ..] => return Some(3),
        _ => return None,
    };
    body.checked_add(operand(code.get(body..)?)?)
}

/// Length of the operand bytes: a register, or a slot counted from rsp.
fn operand(code: &[u8]) -> Option<usize> {
    match code {
        [0xc0..=0xff, ..] => Some(1),
        [modrm, 0x24, ..] if modrm & 7 == 4 => Some(match modrm >> 6 {
            0 => 2,
            1 => 3,
            _ => 6,
        }),
        _ => None,
    }
}

/// Length of the operand bytes of an address in memory.
fn address(code: &[u8]) -> Option<usize> {
    let (modrm, index) = (*code.first()?, *code.get(1)?);
    let (form, base) = (modrm >> 6, modrm & 7);
    let has_index = base == 4;
    let base = if has_index { index & 7 } else { base };
    let displacement = match form {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        2 => 4,
        _ => return None,
    };
    Some(1 + usize::from(has_index) + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Temurin 25.0.2 with G1: the slow path of a write barrier.
    const BARRIER: [u8; 47] = [
        0x48, 0x83, 0xec, 0x20, // sub rsp, 0x20
        0x4c, 0x89, 0x5c, 0x24, 0x18, // mov [rsp + 0x18], r11
        0x4c, 0x89, 0x44, 0x24, 0x10, // mov [rsp + 0x10], r8
        0x48, 0x89, 0x0c, 0x24, // mov [rsp], rcx
        0x49, 0x8b, 0xf7, // mov rsi, r15
        0xe8, 0xa6, 0xa9, 0x99, 0x11, // call
        0x48, 0x8b, 0x0c, 0x24, // mov rcx, [rsp]
        0x4c, 0x8b, 0x5c, 0x24, 0x18, // mov r11, [rsp + 0x18]
        0xc5, 0xf8, 0x77, // vzeroupper
        0x48, 0x83, 0xc4, 0x20, // add rsp, 0x20
        0xe9, 0, 0, 0, 0, // jmp
    ];

    #[test]
    fn four_words_from_sub_to_add() {
        for pc in [4, 9, 14, 18, 21, 26, 30, 35, 38] {
            assert_eq!(saved_registers(&BARRIER[pc..]), Some(4), "{pc}");
        }
        assert_eq!(saved_registers(&BARRIER), None, "before the sub");
        assert_eq!(saved_registers(&BARRIER[42..]), None, "after the add");
        assert_eq!(saved_registers(&BARRIER[4..40]), None, "cut");
    }

    /// From Temurin 21.0.8 with ZGC: the slow path of a load barrier.
    const LOAD: [u8; 40] = [
        0x48, 0x83, 0xec, 0x10, // sub rsp, 0x10
        0x4c, 0x89, 0x54, 0x24, 0x08, // mov [rsp + 8], r10
        0x49, 0x8d, 0x72, 0x18, // lea rsi, [r10 + 0x18]
        0x49, 0x8b, 0xfb, // mov rdi, r11
        0xe8, 0x51, 0xe3, 0x74, 0x12, // call
        0x4c, 0x8b, 0xd8, // mov r11, rax
        0x4c, 0x8b, 0x54, 0x24, 0x08, // mov r10, [rsp + 8]
        0xc5, 0xf8, 0x77, // vzeroupper
        0x48, 0x83, 0xc4, 0x10, // add rsp, 0x10
        0xe9, 0, 0, 0, // jmp, of which the last byte is left out
    ];

    #[test]
    fn the_address_of_a_field_is_an_argument() {
        for pc in [4, 9, 13, 16, 21, 24, 29, 32] {
            assert_eq!(saved_registers(&LOAD[pc..]), Some(2), "{pc}");
        }
        // lea rsi, [r8 + r9 * 8 + 0x10]; xor rsi, rsi; xchg rdi, rsi; a near jump back.
        let code = [
            0x4b, 0x8d, 0x74, 0xc8, 0x10, 0x48, 0x33, 0xf6, 0x48, 0x87, 0xf7, 0x48, 0x83, 0xc4, 0x20, 0xeb,
            0xc0,
        ];
        assert_eq!(saved_registers(&code), Some(4));
        let addresses = [
            (&[0x30, 0][..], Some(1)),
            (&[0x70, 8], Some(2)),
            (&[0xb0, 8], Some(5)),
            (&[0x35, 8], Some(5)),
            (&[0x34, 0xc8], Some(2)),
            (&[0x34, 0xcd], Some(6)),
            (&[0xb4, 0xc8], Some(6)),
            (&[0xf0, 0], None),
        ];
        for (code, length) in addresses {
            assert_eq!(address(code), length, "{code:x?}");
        }
    }

    #[test]
    fn vector_registers_and_large_areas() {
        let code = [
            0xc5, 0xfe, 0x6f, 0x44, 0x24, 0x40, // vmovdqu ymm0, [rsp + 0x40]
            0x62, 0xf1, 0x7f, 0x48, 0x6f, 0x84, 0x24, 0x80, 0, 0, 0, // vmovdqu8 zmm0, [rsp + 0x80]
            0x48, 0x81, 0xc4, 0x90, 0x01, 0, 0, 0xe9, 0, 0, 0, 0,
        ];
        assert_eq!(saved_registers(&code), Some(50));
    }

    #[test]
    fn an_epilogue_is_none() {
        assert_eq!(saved_registers(&[0x48, 0x8b, 0x0c, 0x24, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3]), None);
        // add rsp, 8 after a call that only needed alignment.
        assert_eq!(saved_registers(&[0x48, 0x83, 0xc4, 0x08, 0xe9, 0, 0, 0, 0]), None);
        assert_eq!(saved_registers(&[0x90; 64]), None);
    }
}
