//! First and last instructions of the blobs that are entered by a jump.
//!
//! ```text
//! SafepointBlob of a loop poll:    push rbx   push rbp   mov rbp, rsp   ...   store the polled pc above rbp
//! SafepointBlob of a return poll:             push rbp   mov rbp, rsp   ...
//! C1's exception stubs:            ...   leave   pop rcx   jmp rcx
//! ExceptionBlob:                   push rdx   sub rsp, n   ...   add rsp, n   pop rdx   ...   jmp r8
//! ```
//!
//! Sources: `generate_handler_blob`, `RegisterSaver::save_live_registers` in `cpu/x86/sharedRuntime_x86_64.cpp`,
//! `generate_exception_blob` in `cpu/x86/runtime_x86_64.cpp`, `generate_handle_exception` in
//! `cpu/x86/c1_Runtime1_x86.cpp`, JDK 11 to 25.

use crate::cpu::rules::{HandlerPlace, PollFrame};

/// Bytes at the start of a SafepointBlob that [`poll_frame`] looks at.
pub(crate) const POLL_BLOB_START: usize = 8;

/// Bytes from the pc on that [`poll_exit`] looks at.
pub(crate) const POLL_EXIT_BYTES: usize = 2;

/// Returns whether the SafepointBlob that begins with `start` is that of loop polls: it pushes a slot for the return
/// address.
pub(crate) fn is_loop_poll_blob(start: &[u8]) -> bool {
    matches!(start, [0x53, 0x55, ..])
}

/// State of the frame `offset` bytes into a SafepointBlob that begins with `start`.
pub(crate) fn poll_frame(start: &[u8], offset: u64) -> Option<PollFrame> {
    let (places, rest) = match start {
        [0x53, rest @ ..] => (1, rest),
        rest => (0, rest),
    };
    // push rbp; mov rbp, rsp in one of its encodings.
    if !matches!(rest, [0x55, 0x48, 0x8b, 0xec, ..] | [0x55, 0x48, 0x89, 0xe5, ..]) {
        return None;
    }
    Some(match offset {
        0 => PollFrame::Untouched,
        1 if places == 1 => PollFrame::SlotPushed,
        offset if offset < places + 4 => PollFrame::FpPushed,
        _ => PollFrame::Complete,
    })
}

/// State of a SafepointBlob's frame if `after` begins with `pop rbp; ret` or `ret`.
pub(crate) fn poll_exit(after: &[u8]) -> Option<PollFrame> {
    match after {
        [0x5d, 0xc3, ..] => Some(PollFrame::FpPushed),
        [0xc3, ..] => Some(PollFrame::SlotPushed),
        _ => None,
    }
}

/// The place of the exception handler's address, if the code is part of `leave; pop rcx; jmp rcx`, with which a C1
/// stub jumps to the handler.
pub(crate) fn handler_place(before: &[u8], after: &[u8]) -> Option<HandlerPlace> {
    match (before, after) {
        (_, [0xc9, 0x59, 0xff, 0xe1, ..]) => Some(HandlerPlace::AboveFp),
        (_, [0x59, 0xff, 0xe1, ..]) => Some(HandlerPlace::Top),
        ([.., 0xc9, 0x59], [0xff, 0xe1, ..]) => Some(HandlerPlace::Register),
        _ => None,
    }
}

/// Bytes from the pc on that [`has_popped_throwing_pc`] needs: the tail has 31.
pub(crate) const EXCEPTION_TAIL: usize = 40;

/// Returns whether the ExceptionBlob has popped the throwing pc: `jmp r8` is near, and `pop rdx; mov r8, rax` is
/// not ahead.
pub(crate) fn has_popped_throwing_pc(after: &[u8]) -> bool {
    let jump = after.windows(3).position(|code| code == [0x41, 0xff, 0xe0]);
    let pop = after.windows(4).any(|code| code == [0x5a, 0x4c, 0x8b, 0xc0]);
    jump.is_some() && !pop
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_poll_blobs() {
        let in_loop = [0x53, 0x55, 0x48, 0x8b, 0xec, 0x9c, 0x48, 0x83];
        let states = [0, 1, 2, 5].map(|offset| poll_frame(&in_loop, offset));
        let expected =
            [PollFrame::Untouched, PollFrame::SlotPushed, PollFrame::FpPushed, PollFrame::Complete];
        assert_eq!(states, expected.map(Some));
        let at_return = [0x55, 0x48, 0x8b, 0xec, 0x9c, 0x48, 0x83, 0xec];
        let states = [0, 1, 4].map(|offset| poll_frame(&at_return, offset));
        assert_eq!(states, [PollFrame::Untouched, PollFrame::FpPushed, PollFrame::Complete].map(Some));
        assert!(is_loop_poll_blob(&in_loop) && !is_loop_poll_blob(&at_return));
        assert_eq!(poll_frame(&[0x90; 8], 0), None);
        assert_eq!(poll_exit(&[0x5d, 0xc3]), Some(PollFrame::FpPushed));
        assert_eq!(poll_exit(&[0xc3, 0xf4]), Some(PollFrame::SlotPushed));
        assert_eq!(poll_exit(&[0x9d, 0x5d, 0xc3]), None);
    }

    #[test]
    fn places_of_a_handler() {
        let code = [0x48, 0x89, 0x45, 0x08, 0xc9, 0x59, 0xff, 0xe1];
        let place = |at: usize| handler_place(&code[..at], &code[at..]);
        let expected = [HandlerPlace::AboveFp, HandlerPlace::Top, HandlerPlace::Register].map(Some);
        assert_eq!([place(4), place(5), place(6)], expected);
        assert_eq!(place(0), None);
    }

    /// The end of the blob of JDK 25.
    #[test]
    fn end_of_the_exception_blob() {
        let code = [
            0x48, 0x83, 0xc4, 0x08, // add rsp, 8
            0x5a, // pop rdx
            0x4c, 0x8b, 0xc0, // mov r8, rax
            0x49, 0x8b, 0x87, 0xe0, 0x05, 0x00, 0x00, // mov rax, [r15 + 0x5e0]
            0x49, 0x8b, 0x97, 0xe8, 0x05, 0x00, 0x00, // mov rdx, [r15 + 0x5e8]
            0x49, 0xc7, 0x87, 0xe0, 0x05, 0x00, 0x00, 0, 0, 0, 0, // mov qword [r15 + 0x5e0], 0
            0x41, 0xff, 0xe0, // jmp r8
            0xf4, 0xf4,
        ];
        for at in [0, 4] {
            assert!(!has_popped_throwing_pc(&code[at..]));
        }
        for at in [5, 8, 15, 22, 33] {
            assert!(has_popped_throwing_pc(&code[at..]), "{at}");
        }
        assert!(!has_popped_throwing_pc(&[0x90; 40]));
    }
}
