//! What the signal handler records of the interrupted thread, beside the copy of its stack.
//!
//! Problem: registers, thread state and anchor belong to one moment; read later from the thread they belong to
//! another one and describe a different stack.
//! Approach: one flat record of 64-bit words, filled in the handler by plain stores, at the head of a snapshot.
//! Invariant: writing and reading the record needs no `unsafe` and no allocation.

macro_rules! words {
    ($(#[$outer:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident,)* }) => {
        $(#[$outer])*
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        /// Size of an encoded [`Capture`] in bytes.
        pub const CAPTURE_BYTES: usize = [$(stringify!($field)),*].len() * 8;

        /// # Signal Safe Methods
        ///
        /// None of these allocates, locks or panics.
        impl $name {
            /// A record of nothing: every word is zero.
            pub const ZERO: Self = Self { $($field: 0,)* };

            /// The record as bytes in this machine's order.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; CAPTURE_BYTES] {
                let mut bytes = [0; CAPTURE_BYTES];
                let words = [$(self.$field),*];
                for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                    *to = word.to_ne_bytes();
                }
                bytes
            }

            /// The record encoded at the head of `bytes`, or `None` if they are too few.
            #[must_use]
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let mut words = bytes.get(..CAPTURE_BYTES)?.as_chunks::<8>().0.iter();
                Some(Self { $($field: u64::from_ne_bytes(*words.next()?),)* })
            }
        }
    };
}

words! {
    /// Registers, VM thread fields and stack bounds at the moment of the sample; zero where there is nothing.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[repr(C)]
    pub struct Capture {
        /// Program counter.
        pub pc,
        /// Stack pointer.
        pub sp,
        /// Frame pointer register (`rbp`).
        pub fp,
        /// Register `rax`.
        pub rax,
        /// Register `rbx`: the `Method*` while the interpreter enters a method.
        pub rbx,
        /// Register `rcx`.
        pub rcx,
        /// Register `rdx`.
        pub rdx,
        /// Register `rsi`.
        pub rsi,
        /// Register `rdi`.
        pub rdi,
        /// Register `r8`.
        pub r8,
        /// Register `r9`.
        pub r9,
        /// Register `r10`.
        pub r10,
        /// Register `r11`.
        pub r11,
        /// Register `r12`.
        pub r12,
        /// Register `r13`: the bytecode pointer of a running interpreter frame.
        pub r13,
        /// Register `r14`.
        pub r14,
        /// Register `r15`: the `JavaThread*` while Java code runs.
        pub r15,
        /// Address of the `JavaThread`, zero for a thread the VM does not know.
        pub thread,
        /// `JavaThread::_thread_state` as read, zero-extended.
        pub thread_state,
        /// `JavaFrameAnchor::_last_Java_sp`.
        pub anchor_sp,
        /// `JavaFrameAnchor::_last_Java_pc`.
        pub anchor_pc,
        /// `JavaFrameAnchor::_last_Java_fp`.
        pub anchor_fp,
        /// sp of the compiled frame that the thread is replacing by interpreter frames, from the record that
        /// `JavaThread::_vframe_array_head` points at; means something if `deoptimized_pc` is not zero.
        pub deoptimized_sp,
        /// `JavaThread::_cont_entry`, zero where the JDK does not publish it.
        pub cont_entry,
        /// Address of the first copied stack byte.
        pub stack_low,
        /// Stack base: address after the thread's highest stack byte.
        pub stack_high,
        /// `JavaThread::_saved_exception_pc`: the instruction at which the thread last entered a safepoint poll or
        /// an implicit exception; zero where the JDK does not publish it.
        pub saved_exception_pc,
        /// pc of the compiled frame being replaced, zero if `_vframe_array_head` is null.
        pub deoptimized_pc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_encoding() {
        let capture = Capture { pc: 1, sp: 2, r15: 3, stack_high: u64::MAX, ..Capture::ZERO };
        let bytes = capture.to_bytes();
        assert_eq!(bytes.len(), 224);
        assert_eq!(Capture::from_bytes(&bytes), Some(capture));
        assert_eq!(Capture::from_bytes(&bytes[1..]), None);
    }
}
