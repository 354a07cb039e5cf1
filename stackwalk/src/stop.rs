//! Reasons for the end of a walk.
//!
//! A cut stack is a result: the frames before the stop are valid, and the reason is counted and shown.

use crate::memory::Unreadable;

macro_rules! stops {
    ($($(#[$doc:meta])* $variant:ident $(($($payload:ty),*))?: $pattern:pat => $name:literal,)*) => {
        /// Reason a walk ended; exactly one per walk.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Stop { $($(#[$doc])* $variant $(($($payload),*))?,)* }

        impl Stop {
            /// Names of all reasons, in the order of [`Stop::index`].
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Stable name for counters and the wire.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $($pattern => $name,)* }
            }
        }
    };
}

stops! {
    /// The thread's first Java entry frame was reached: the stack is whole.
    EndOfStack: Self::EndOfStack => "end_of_stack",
    /// The entry frame of a mounted virtual thread was reached: its stack is whole.
    EndOfContinuation: Self::EndOfContinuation => "end_of_continuation",
    /// The same, while the newest frames were being thawed: a gap stands for them.
    EndPastThaw: Self::EndPastThaw => "end_past_thaw",
    /// The next frames of a virtual thread are frozen in the heap.
    ContinuationBarrier: Self::ContinuationBarrier => "continuation_barrier",
    /// The walk produced as many frames as the caller allows.
    DepthLimit: Self::DepthLimit => "depth_limit",
    /// The stack continues above the copied bytes.
    CopyEnd: Self::CopyEnd => "copy_end",
    /// Memory at this address was needed and could not be read.
    Unreadable(u64): Self::Unreadable(_) => "unreadable",
    /// This pc lies in the code cache but in no known piece of code.
    UnknownCode(u64): Self::UnknownCode(_) => "unknown_code",
    /// This pc lies outside the code cache and no Java frame could be proven from it.
    NativeCode(u64): Self::NativeCode(_) => "native_code",
    /// The thread runs no Java code: no anchor and not in Java.
    NoJavaFrame: Self::NoJavaFrame => "no_java_frame",
    /// The VM is replacing the newest compiled frame by interpreter frames.
    Deoptimizing: Self::Deoptimizing => "deoptimizing",
    /// The frame of the code at this pc contradicts the stack.
    BadFrame(u64): Self::BadFrame(_) => "bad_frame",
    /// The caller's sp is not above the frame's own sp (the payload), not aligned or outside the stack.
    NotProgressing(u64): Self::NotProgressing(_) => "not_progressing",
    /// The `Method*` at this address, found in a frame, is not a method.
    InvalidMethod(u64): Self::InvalidMethod(_) => "invalid_method",
    /// The code at this pc may have been replaced since the sample was taken.
    CodeReplaced(u64): Self::CodeReplaced(_) => "code_replaced",
    /// The VM tables were read but the VM was not yet started when the walker was made.
    NotStarted: Self::NotStarted => "not_started",
}

impl Stop {
    /// Position of this reason in [`Stop::NAMES`].
    #[must_use]
    pub fn index(&self) -> usize {
        let name = self.name();
        Self::NAMES.iter().position(|candidate| *candidate == name).unwrap_or(0)
    }

    /// Returns whether the thread's (or virtual thread's) root was reached. Gaps stand for missing frames above it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::EndOfStack | Self::EndOfContinuation | Self::EndPastThaw)
    }
}

impl From<Unreadable> for Stop {
    fn from(Unreadable(address): Unreadable) -> Self {
        Self::Unreadable(address)
    }
}
