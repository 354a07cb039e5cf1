//! x86-64: code that runs on top of a return address, in blobs whose other code has a frame.
//!
//! ```text
//! static call stub, at the end of an nmethod:  mov rbx, method   jmp entry       what a call of it goes on with
//! load barrier of JDK 11's ZGC:                push rax ... push r11   mov rsi, r   mov rdi, [r]   call barrier
//!                                              [add rsp, 8   jmp]   [mov r, rax]   pop r11 ... pop rax   ret
//! ```
//!
//! A call from compiled to interpreted code leads to the stub, which takes no part in its method's frame: the return
//! address lies on top. The barrier pushes all registers but the one it is for, so the words up to its return address
//! are counted by its pops.
//! Sources: `CompiledStaticCall::emit_to_interp_stub` in `cpu/x86/compiledIC_x86.cpp`, `LIR_Assembler::emit_static_call_stub`
//! in `cpu/x86/c1_LIRAssembler_x86.cpp`, JDK 11 to 25; `generate_load_barrier_stub` in
//! `cpu/x86/gc/z/zBarrierSetAssembler_x86.cpp`, JDK 11.

use super::Around;

/// Bytes of `mov rbx, imm64`.
const LOAD_METHOD: usize = 10;

/// Bytes of a static call stub before the pc, if the pc may be in one.
pub(crate) fn in_static_call_stub(around: Around<'_>) -> Option<u64> {
    let jumps = |code: &[u8]| code.first() == Some(&0xe9);
    let loads = |code: &[u8]| matches!(code, [0x48, 0xbb, ..]);
    if loads(around.after) && around.after.get(LOAD_METHOD..).is_some_and(jumps) {
        return Some(0);
    }
    let start = around.before.len().checked_sub(LOAD_METHOD)?;
    let loaded = around.before.get(start..).is_some_and(loads) && jumps(around.after);
    loaded.then_some(LOAD_METHOD as u64)
}

/// Words between sp and the return address if `after` are the last instructions of a load barrier's stub.
pub(crate) fn pushed_by_load_barrier(after: &[u8]) -> Option<u64> {
    let (mut words, mut rest) = match after {
        // add rsp, 8; jmp over the call that needs no alignment.
        [0x48, 0x83, 0xc4, 0x08, 0xeb, distance, rest @ ..] if *distance < 0x80 => {
            (1, rest.get(usize::from(*distance)..)?)
        }
        [0x48, 0x83, 0xc4, 0x08, 0xe9, distance, 0, 0, 0, rest @ ..] => {
            (1, rest.get(usize::from(*distance)..)?)
        }
        rest => (0, rest),
    };
    // mov r, rax in both encodings.
    rest = match rest {
        [0x48 | 0x49, 0x8b | 0x89, 0xc0..=0xff, rest @ ..] | [0x4c, 0x8b, 0xc0..=0xff, rest @ ..] => rest,
        rest => rest,
    };
    let pops = words;
    loop {
        rest = match rest {
            [0x58..=0x5a | 0x5e | 0x5f, rest @ ..] | [0x41, 0x58..=0x5b, rest @ ..] => rest,
            [0xc3, ..] if words > pops => return Some(words),
            _ => return None,
        };
        words += 1;
    }
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
            in_static_call_stub(Around { before: &STUB[..pc], after: &STUB[pc..], from_entry: false })
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

    #[test]
    fn load_barrier_counts_its_pops() {
        // pop r11 ... pop r8, pop rdi, rsi, rdx, rcx, ret: the barrier of rax.
        let rax = [0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, 0x5f, 0x5e, 0x5a, 0x59, 0xc3];
        assert_eq!(pushed_by_load_barrier(&rax), Some(8));
        assert_eq!(pushed_by_load_barrier(&rax[8..]), Some(4));
        let mut padded = [0x48, 0x83, 0xc4, 0x08, 0xeb, 0x05, 0xe8, 1, 2, 3, 4].to_vec();
        padded.extend([0x48, 0x8b, 0xc8]);
        padded.extend(rax);
        assert_eq!(pushed_by_load_barrier(&padded), Some(9));
        assert_eq!(pushed_by_load_barrier(&padded[11..]), Some(8));
        padded.splice(4..6, [0xe9, 5, 0, 0, 0]);
        assert_eq!(pushed_by_load_barrier(&padded), Some(9));
    }

    #[test]
    fn other_exits_are_no_barrier() {
        assert_eq!(pushed_by_load_barrier(&[0xc3]), None);
        assert_eq!(pushed_by_load_barrier(&[0x48, 0x83, 0xc4, 0x08, 0xc3]), None);
        assert_eq!(pushed_by_load_barrier(&[0x5d, 0xc3]), None);
    }
}
