//! x86-64: room that a stub without a frame has just made on the stack.
//!
//! The search of the hashed table of secondary supers saves registers that are no temporaries below those the stub has
//! pushed:
//!
//! ```text
//! push rdi   push rsi   push rcx   push rax   mov rsi, [rsp + 0x30]   mov rax, [rsp + 0x28]
//! sub rsp, 0x20   mov [rsp], rdx   mov [rsp + 8], r8   mov [rsp + 0x10], r9 ...   add rsp, 0x20 ...
//! ```
//!
//! Until all of them are stored, the room holds what an earlier call has left there: that call's return address too, which
//! leads into the same stub.
//! Source: `MacroAssembler::check_klass_subtype_slow_path_table`, `cpu/x86/macroAssembler_x86.cpp`, and
//! `Runtime1::generate_code_for` (`slow_subtype_check`), `cpu/x86/c1_Runtime1_x86.cpp`, JDK 25.

/// Bytes of code behind the subtraction that are looked at: seven stores.
const REACH: usize = 36;
/// `sub rsp, imm8`, and `add rsp, imm8`.
const SUB: [u8; 3] = [0x48, 0x83, 0xec];
const ADD: [u8; 3] = [0x48, 0x83, 0xc4];

/// Words from sp on that are room made by the code at the end of `before`; 0 for none.
pub(crate) fn room(before: &[u8]) -> u64 {
    let near = before.get(before.len().saturating_sub(REACH)..).unwrap_or_default();
    let Some(at) = near.windows(SUB.len()).rposition(|window| window == SUB) else { return 0 };
    match near.get(at.saturating_add(SUB.len())..) {
        Some([bytes @ 8..=0x78, behind @ ..])
            if bytes % 8 == 0 && !behind.windows(ADD.len()).any(|window| window == ADD) =>
        {
            u64::from(bytes / 8)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Temurin 25.0.2, `slow_subtype_check` from its first push on.
    const CHECK: [u8; 32] = [
        0x57, 0x56, 0x51, 0x50, 0x48, 0x8b, 0x74, 0x24, 0x30, 0x48, 0x8b, 0x44, 0x24, 0x28, 0x48, 0x83, 0xec,
        0x20, 0x48, 0x89, 0x14, 0x24, 0x4c, 0x89, 0x44, 0x24, 0x08, 0x4c, 0x89, 0x4c, 0x24, 0x10,
    ];

    #[test]
    fn from_the_subtraction_to_the_addition() {
        for pc in [0, 4, 14] {
            assert_eq!(room(&CHECK[..pc]), 0, "{pc}");
        }
        for pc in [18, 22, 27, 32] {
            assert_eq!(room(&CHECK[..pc]), 4, "{pc}");
        }
        let mut left = CHECK.to_vec();
        left.extend([0x48, 0x83, 0xc4, 0x20]);
        assert_eq!(room(&left), 0);
        assert_eq!(room(&[0x48, 0x83, 0xec, 0x1c, 0x90]), 0, "not whole words");
    }
}
