//! Code outside the code cache: the interface through which the walker gets the caller of a native frame.
//!
//! Problem: only the unwind tables of a library (`.eh_frame`) describe its frames, and the addresses of libraries are known
//! to the operating system, which this crate does not use.
//! Approach: the walker hands registers and the copied stack to a [`NativeCode`] and gets the caller's registers, or
//! the reason why there are none.
//! Invariant: an implementation uses unwind tables only. Where they have no entry it returns an error; the walker then
//! continues with the Java frames that it can prove, behind a [`Frame::Gap`](crate::Frame::Gap).
//! The choice of tables, caches and libraries is described in `design/native-unwinding.md`.

use crate::arch::PreservedRegisters;
use crate::capture::Capture;
use crate::memory::StackCopy;

/// Registers of one native frame, as its caller expects them restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NativeRegisters {
    /// Program counter: the interrupted instruction or a return address.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register.
    pub fp: u64,
    /// The other registers that functions restore.
    pub preserved: PreservedRegisters,
}

impl NativeRegisters {
    /// The interrupted registers.
    #[must_use]
    pub fn of(capture: &Capture) -> Self {
        let Capture { pc, sp, fp, registers, .. } = capture;
        Self { pc: *pc, sp: *sp, fp: *fp, preserved: registers.preserved() }
    }
}

/// Reason why there is no caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NativeStop {
    /// The outermost frame: its tables mark it as such, or its return address is 0.
    Root,
    /// No known library holds this pc.
    UnknownCode(u64),
    /// The library has no unwind table for this pc, or one that cannot be followed.
    NoRule(u64),
    /// The tables refer to this address, which is no copied stack memory.
    Unreadable(u64),
}

/// Tables of the native code of one process.
pub trait NativeCode: core::fmt::Debug {
    /// Registers of the caller of the frame with these `registers`.
    ///
    /// `interrupted` is set if the pc is an interrupted instruction rather than a return address.
    /// Implementations must not allocate, and must return an sp above the frame's own.
    ///
    /// # Errors
    /// [`NativeStop`].
    fn caller(
        &mut self,
        registers: &NativeRegisters,
        interrupted: bool,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop>;
}
