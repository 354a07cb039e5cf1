//! First and last instructions of the blobs that are entered by a jump.
//!
//! ```text
//! SafepointBlob:           stp x29, x30, [sp, #-16]!   mov x29, sp   ...   mov sp, x29   ldp x29, x30, [sp], #16   ret
//! of a loop poll:          ...   ldr x20, [x28, #saved_exception_pc]   str x20, [x29, #8]   ...
//! C1's exception stubs:    ...   str x0, [x29, #8]   mov sp, x29   ldp x29, x30, [sp], #16   ret
//! ExceptionBlob:           stp x29, x30, [sp, #-16]!   ...   ldp x29, x3, [sp], #16   mov x8, x0   ...   br x8
//! ```
//!
//! Sources: `generate_handler_blob`, `RegisterSaver::save_live_registers` and `generate_exception_blob` in
//! `cpu/aarch64/sharedRuntime_aarch64.cpp` (and `runtime_aarch64.cpp`, 25), `generate_handle_exception` in
//! `cpu/aarch64/c1_Runtime1_aarch64.cpp`, JDK 11 to 25.

use super::instruction::{LEAVE, POP_RECORD, PUSH_RECORD, RET, first, instructions, last};
use crate::cpu::rules::{HandlerPlace, PollFrame};

/// Bytes at the start of a SafepointBlob that [`poll_frame`] looks at: all registers are saved before the polled pc is
/// stored.
pub(crate) const POLL_BLOB_START: usize = 512;
/// Bytes from the pc on that [`poll_exit`] looks at.
pub(crate) const POLL_EXIT_BYTES: usize = 8;

/// Returns whether the SafepointBlob that begins with `start` is that of loop polls: it stores the polled pc as return
/// address.
pub(crate) fn is_loop_poll_blob(start: &[u8]) -> bool {
    // str xN, [x29, #8].
    instructions(start).any(|instruction| instruction & 0xffff_ffe0 == 0xf900_07a0)
}

/// State of the frame `offset` bytes into a SafepointBlob that begins with `start`.
pub(crate) fn poll_frame(start: &[u8], offset: u64) -> Option<PollFrame> {
    let begins = first(start) == Some(PUSH_RECORD);
    begins.then_some(match offset {
        0..4 => PollFrame::Untouched,
        4..8 => PollFrame::FpPushed,
        _ => PollFrame::Complete,
    })
}

/// State of a SafepointBlob's frame if `after` begins with its last instructions.
pub(crate) fn poll_exit(after: &[u8]) -> Option<PollFrame> {
    let mut code = instructions(after);
    match (code.next()?, code.next()) {
        (POP_RECORD, Some(RET)) => Some(PollFrame::FpPushed),
        (RET, _) => Some(PollFrame::Untouched),
        _ => None,
    }
}

/// The place of the exception handler's address, if the code is part of the return with which a C1 stub goes to the
/// handler.
pub(crate) fn handler_place(before: &[u8], after: &[u8]) -> Option<HandlerPlace> {
    let mut code = instructions(after);
    match (code.next()?, code.next()?, code.next()) {
        (LEAVE, POP_RECORD, Some(RET)) => Some(HandlerPlace::AboveFp),
        // fp is still that of the stub.
        (POP_RECORD, RET, _) if last(before) == Some(LEAVE) => Some(HandlerPlace::AboveFp),
        (RET, ..) if last(before) == Some(POP_RECORD) => Some(HandlerPlace::Register),
        _ => None,
    }
}

/// Bytes from the pc on that [`has_popped_throwing_pc`] needs.
pub(crate) const EXCEPTION_TAIL: usize = 48;

/// Returns whether the ExceptionBlob has popped the throwing pc: `br x8` is near, and `ldp x29, x3, [sp], #16` is not
/// ahead.
pub(crate) fn has_popped_throwing_pc(after: &[u8]) -> bool {
    let found = instructions(after).find(|instruction| matches!(instruction, 0xa8c1_0ffd | 0xd61f_0100));
    found == Some(0xd61f_0100)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    #[test]
    fn frames_of_poll_blobs() {
        let at_return = bytes(&[PUSH_RECORD, 0x9100_03fd, 0xd503_201f]);
        let in_loop = bytes(&[PUSH_RECORD, 0x9100_03fd, 0xf942_5394, 0xf900_07b4]);
        let found = [0, 4, 8].map(|offset| poll_frame(&at_return, offset));
        assert_eq!(found, [PollFrame::Untouched, PollFrame::FpPushed, PollFrame::Complete].map(Some));
        assert!(is_loop_poll_blob(&in_loop) && !is_loop_poll_blob(&at_return));
        assert_eq!(poll_frame(&bytes(&[0xd503_201f]), 0), None);
        assert_eq!(poll_exit(&bytes(&[POP_RECORD, RET])), Some(PollFrame::FpPushed));
        assert_eq!(poll_exit(&bytes(&[RET])), Some(PollFrame::Untouched));
        assert_eq!(poll_exit(&bytes(&[LEAVE, POP_RECORD])), None);
    }

    #[test]
    fn places_of_a_handler() {
        let code = bytes(&[0xf900_07a0, LEAVE, POP_RECORD, RET]);
        let found: Vec<_> = (0..4).map(|at| handler_place(&code[..4 * at], &code[4 * at..])).collect();
        let expected = [HandlerPlace::AboveFp, HandlerPlace::AboveFp, HandlerPlace::Register].map(Some);
        assert_eq!(found[..1], [None]);
        assert_eq!(found[1..3], expected[..2]);
    }

    #[test]
    fn end_of_the_exception_blob() {
        let code = bytes(&[0xa8c1_0ffd, 0xaa00_03e8, 0xf942_4780, 0xd61f_0100]);
        let found: Vec<_> = (0..4).map(|at| has_popped_throwing_pc(&code[4 * at..])).collect();
        assert_eq!(found, [false, true, true, true]);
        assert!(!has_popped_throwing_pc(&bytes(&[0xd503_201f; 8])));
    }
}
