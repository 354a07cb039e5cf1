//! Registers and VM fields of the interrupted thread, recorded by the signal handler with the copy of its stack.
//!
//! Problem: registers, thread state and anchor belong to one moment. Read from the thread later, they describe a
//! different stack.
//! Approach: one flat record of 64-bit words, filled in the handler by plain stores, at the start of a snapshot.
//! Invariant: writing and reading the record needs no `unsafe` and no allocation.

use crate::cpu::Registers;
use crate::cpu::words::{Words, words};
use crate::cpu::{SYSTEM_CALL_BYTES, is_interrupted, is_system_call};
use crate::memory::Memory;

words! {
    /// Registers, VM thread fields and stack bounds at the moment of the sample; zero where there is nothing.
    pub struct Capture {
        /// Program counter.
        pub pc: u64,
        /// Stack pointer.
        pub sp: u64,
        /// Frame pointer register.
        pub fp: u64,
        pub registers: Registers,
        /// Address of the `JavaThread`, zero for a thread the VM does not know.
        pub thread: u64,
        /// `JavaThread::_thread_state` as read, zero-extended.
        pub thread_state: u64,
        /// `JavaFrameAnchor::_last_Java_sp`.
        pub anchor_sp: u64,
        /// `JavaFrameAnchor::_last_Java_pc`.
        pub anchor_pc: u64,
        /// `JavaFrameAnchor::_last_Java_fp`.
        pub anchor_fp: u64,
        /// sp of the compiled frame that the thread is replacing by interpreter frames, from the record that
        /// `JavaThread::_vframe_array_head` points at; means something if `deoptimized_pc` is not zero.
        pub deoptimized_sp: u64,
        /// `JavaThread::_cont_entry`, zero where the JDK does not publish it.
        pub cont_entry: u64,
        /// Address of the first copied stack byte.
        pub stack_low: u64,
        /// Stack base: address after the thread's highest stack byte.
        pub stack_high: u64,
        /// `JavaThread::_saved_exception_pc`: the instruction at which the thread last entered a safepoint poll or
        /// an implicit exception; zero where the JDK does not publish it.
        pub saved_exception_pc: u64,
        /// pc of the compiled frame being replaced, zero if `_vframe_array_head` is null.
        pub deoptimized_pc: u64,
    }
}

/// Size of an encoded [`Capture`] in bytes.
pub const CAPTURE_BYTES: usize = <Capture as Words>::COUNT * 8;

/// # Signal Safe Methods
///
/// None of these allocates, locks or panics.
impl Capture {
    pub const ZERO: Self = <Self as Words>::ZERO;

    /// The record as bytes in this machine's order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CAPTURE_BYTES] {
        let mut bytes = [0; CAPTURE_BYTES];
        self.put(&mut bytes.as_chunks_mut::<8>().0.iter_mut());
        bytes
    }

    /// The record encoded at the start of `bytes`, or `None` if they are too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::take(&mut bytes.get(..CAPTURE_BYTES)?.as_chunks::<8>().0.iter())
    }

    /// True if the signal ended a system call that waited in the kernel. Unlike the other functions, it reads code.
    pub fn is_in_system_call<M: Memory>(&self, memory: &M) -> bool {
        let is_call = |at: u64| {
            let mut code = [0; SYSTEM_CALL_BYTES];
            memory.read(at, &mut code).is_ok() && is_system_call(&code)
        };
        let before = self.pc.wrapping_sub(SYSTEM_CALL_BYTES as u64);
        is_call(self.pc) || is_interrupted(&self.registers) && is_call(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_encoding() {
        let capture = Capture { pc: 1, sp: 2, thread: 3, stack_high: u64::MAX, ..Capture::ZERO };
        let bytes = capture.to_bytes();
        assert_eq!(bytes.len(), 14 * 8 + size_of::<Registers>());
        assert_eq!(Capture::from_bytes(&bytes), Some(capture));
        assert_eq!(Capture::from_bytes(&bytes[1..]), None);
    }
}
