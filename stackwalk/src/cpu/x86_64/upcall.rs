//! The frame of an upcall stub, through which native code calls Java (JDK 21 and later).
//!
//! ```text
//! push rbp   mov rbp, rsp   sub rsp, n   ...   [vzeroupper]
//! lea rdi, [rsp + data]   [mov rsi, receiver]   call on_entry   ...   call [rbx + entry]
//! ...   lea rdi, [rsp + data]   call on_exit   ...   leave   ret
//! ```
//!
//! From `mov rbp, rsp` to `leave` rbp is the frame pointer, also where the stub pushes registers around a barrier.
//! Source: `UpcallLinker::make_upcall_stub` in `cpu/x86/upcallLinker_x86_64.cpp`, JDK 21 and 25.

use crate::cpu::rules::{Unwind, UpcallFrame};

/// Bytes of an upcall stub that [`upcall_frame`] looks at: up to the return address of its first call, with 16 vector
/// registers saved and six arguments spilled 350 bytes.
pub(crate) const UPCALL_START: usize = 512;

/// Most bytes between the address of the frame's data and the call that takes it.
const RECEIVER_BYTES: usize = 10;

/// The frame of the upcall stub with this code, of which [`UPCALL_START`] bytes are enough; `None` for other code.
pub(crate) fn upcall_frame(code: &[u8]) -> Option<UpcallFrame> {
    let allocation = code.strip_prefix(&[0x55, 0x48, 0x8b, 0xec])?;
    let bytes = match allocation {
        [0x48, 0x83, 0xec, bytes, ..] => u64::from(*bytes),
        [0x48, 0x81, 0xec, a, b, c, d, ..] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => return None,
    };
    let is_address =
        |window: &[u8]| window.starts_with(&[0x48, 0x8d]) && matches!(window[2..], [0x7c | 0xbc, 0x24]);
    let at = code.windows(4).position(is_address)?;
    let (data, length) = match code.get(at..)? {
        [_, _, 0x7c, _, data, ..] => (u64::from(*data), 5_usize),
        [_, _, _, _, a, b, c, d, ..] => (u64::from(u32::from_le_bytes([*a, *b, *c, *d])), 8),
        _ => return None,
    };
    let behind = at.checked_add(length)?;
    let calls = |skipped: &usize| {
        let rest = behind.checked_add(*skipped).and_then(|at| code.get(at..)).unwrap_or_default();
        match rest {
            [0xe8, _, _, _, _, ..] => true,
            [0x49, 0xba, ..] => rest.get(10..13) == Some(&[0x41, 0xff, 0xd2]),
            _ => false,
        }
    };
    // mov rsi, imm64; mov esi, imm32; mov rsi, imm32; or none.
    let skipped = [0, 5, 7, RECEIVER_BYTES].into_iter().find(calls)?;
    let call = behind.checked_add(skipped)?;
    let call_bytes = if code.get(call) == Some(&0xe8) { 5 } else { 13 };
    let entered = u64::try_from(call.checked_add(call_bytes)?).ok()?;
    (data < bytes).then_some(UpcallFrame { bytes, data, entered })
}

/// State of an upcall stub's frame this many bytes behind its first instruction; `after` is the code from there on.
pub(crate) fn upcall_state(offset: u64, after: &[u8]) -> Unwind {
    match (offset, after) {
        (0, _) | (_, [0xc3, ..]) => Unwind::Return,
        (1..4, _) => Unwind::Pushed,
        _ => Unwind::FramePointer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Temurin 25.0.2, a stub for `long (long)`.
    const JDK25: [u8; 89] = [
        0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x70, // push rbp; mov rbp, rsp; sub rsp, 0x70
        0x48, 0x89, 0x7c, 0x24, 0x08, 0x48, 0x89, 0x5c, 0x24, 0x10, 0x4c, 0x89, 0x64, 0x24, 0x18, // mov
        0x4c, 0x89, 0x6c, 0x24, 0x20, 0x4c, 0x89, 0x74, 0x24, 0x28, 0x4c, 0x89, 0x7c, 0x24, 0x30, // mov
        0xc5, 0xf8, 0xae, 0x5c, 0x24, 0x38, 0x8b, 0x44, 0x24, 0x38, // vstmxcsr; mov eax
        0x25, 0xc0, 0xff, 0, 0, 0x3b, 0x05, 0xe1, 0xa9, 0xae, 0x12, // and eax; cmp eax
        0x0f, 0x84, 8, 0, 0, 0, 0xc5, 0xf8, 0xae, 0x15, 0xd3, 0xa9, 0xae, 0x12, // je; vldmxcsr
        0xc5, 0xf8, 0x77, 0x48, 0x8d, 0x7c, 0x24, 0x40, // vzeroupper; lea rdi, [rsp + 0x40]
        0xe8, 0x9a, 0xc0, 0x53, 0x12, 0x4c, 0x8b, 0xf8, // call on_entry; mov r15, rax
    ];

    #[test]
    fn frame_of_a_stub() {
        let frame = upcall_frame(&JDK25).expect("an upcall stub");
        assert_eq!(frame, UpcallFrame { bytes: 0x70, data: 0x40, entered: 86 });
        for length in 0..86 {
            assert_eq!(upcall_frame(&JDK25[..length]), None, "{length}");
        }
    }

    #[test]
    fn frame_with_a_receiver_and_vector_registers() {
        let mut code = [0x55, 0x48, 0x8b, 0xec, 0x48, 0x81, 0xec, 0x70, 4, 0, 0].to_vec();
        code.extend([0x48, 0x8d, 0xbc, 0x24, 0x40, 4, 0, 0, 0x48, 0xbe, 1, 2, 3, 4, 5, 6, 7, 8]);
        code.extend([0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8, 0x41, 0xff, 0xd2]);
        assert_eq!(upcall_frame(&code), Some(UpcallFrame { bytes: 0x470, data: 0x440, entered: 42 }));
        code[7] = 0x40;
        code[8] = 0;
        assert_eq!(upcall_frame(&code), None, "data outside of the frame");
    }

    #[test]
    fn states() {
        let states = [0, 1, 4, 8, 80].map(|offset| upcall_state(offset, &JDK25[offset as usize..]));
        use Unwind::{FramePointer, Pushed, Return};
        assert_eq!(states, [Return, Pushed, FramePointer, FramePointer, FramePointer]);
        assert_eq!(upcall_state(200, &[0xc3]), Return);
    }
}
