//! The static call stub at the end of an nmethod, which runs on top of a return address.
//!
//! ```text
//! mov rbx, method   jmp entry
//! ```
//!
//! A call from compiled to interpreted code leads to the stub. The stub takes no part in its method's frame: the return
//! address is on top of the stack.
//! Sources: `CompiledStaticCall::emit_to_interp_stub` in `cpu/x86/compiledIC_x86.cpp`,
//! `LIR_Assembler::emit_static_call_stub` in `cpu/x86/c1_LIRAssembler_x86.cpp`, JDK 11 to 25.

use crate::cpu::rules::Around;

/// Bytes of `mov rbx, imm64`.
const LOAD_METHOD: usize = 10;

/// Bytes from the start of a static call stub to the pc, if the pc may be in one.
pub(crate) fn static_call_stub_offset(around: Around<'_>) -> Option<u64> {
    let jumps = |code: &[u8]| code.first() == Some(&0xe9);
    let loads = |code: &[u8]| matches!(code, [0x48, 0xbb, ..]);
    if loads(around.after) && around.after.get(LOAD_METHOD..).is_some_and(jumps) {
        return Some(0);
    }
    let start = around.before.len().checked_sub(LOAD_METHOD)?;
    let loaded = around.before.get(start..).is_some_and(loads) && jumps(around.after);
    loaded.then_some(LOAD_METHOD as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Temurin 11.0.13, C1 code of a class writer: the end of a method and its static call stub.
    const STUB: [u8; 27] = [
        0x48, 0x83, 0xc4, 0x40, 0x5d, 0xe9, 0x24, 0xa6, 0xab, 0xff, 0xf4, 0xf4, // exit and padding
        0x48, 0xbb, 0x98, 0xf1, 0xf2, 0xe8, 0x0a, 0x7f, 0x00, 0x00, // mov rbx, method
        0xe9, 0x6c, 0x68, 0xa9, 0xff, // jmp
    ];

    #[test]
    fn both_instructions_of_a_static_call_stub() {
        let at = |pc: usize| {
            static_call_stub_offset(Around { before: &STUB[..pc], after: &STUB[pc..], from_entry: false })
        };
        for pc in 0..STUB.len() {
            let expected = match pc {
                12 => Some(0),
                22 => Some(10),
                _ => None,
            };
            assert_eq!(at(pc), expected, "{pc}");
        }
    }
}
