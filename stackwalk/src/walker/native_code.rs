//! Code outside the code cache: the interface through which the walker gets the caller of a native frame.
//!
//! Problem: only the unwind tables of a library (`.eh_frame`) describe its frames, and the addresses of libraries are
//! known to the operating system, which this crate does not use.
//! Approach: the walker hands registers and the copied stack to a [`NativeCode`] and gets the caller's registers, or
//! the reason why there are none.
//! Invariant: an implementation uses unwind tables only. Where they have no entry it returns an error; the walker then
//! continues with the Java frames that it can prove, behind a [`Frame::Gap`](crate::Frame::Gap). Code that a signal has
//! interrupted was not calling: its registers are marked as interrupted, and its pc is looked up as it is. The choice
//! of tables, caches and libraries is described in `design/frames.md`.

use crate::capture::Capture;
use crate::cpu::{
    DWARF_SAVED, DWARF_STACK_POINTER, FrameRegisters, PreservedRegisters, RETURNS_BY_REGISTER,
    SIGNAL_RETURN_BYTES, dwarf_caller, dwarf_values, is_in_signal_return, is_signal_return, saved_registers,
};
use crate::memory::{Memory, StackCopy};

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
    /// True if the pc is an interrupted instruction rather than a return address.
    pub interrupted: bool,
}

impl NativeRegisters {
    /// The interrupted registers.
    #[must_use]
    pub fn of(capture: &Capture) -> Self {
        let Capture { pc, sp, fp, registers, .. } = capture;
        Self { pc: *pc, sp: *sp, fp: *fp, preserved: registers.preserved(), interrupted: true }
    }

    /// The registers in the `ucontext` at `context`, which the kernel saved when a signal interrupted them; `None` if
    /// there is none.
    #[must_use]
    pub fn of_signal(context: u64, stack: &StackCopy<'_>) -> Option<Self> {
        let (FrameRegisters { pc, sp, fp }, registers) =
            saved_registers(context, |address| stack.word(address))?;
        Some(Self { pc, sp, fp, preserved: registers.preserved(), interrupted: true })
    }
}

/// Registers by their DWARF numbers.
impl NativeRegisters {
    /// The value of a register; `None` if it is not known.
    #[must_use]
    pub fn dwarf_value(&self, number: u16) -> Option<u64> {
        let Self { pc, sp, fp, preserved, interrupted } = self;
        if number == DWARF_STACK_POINTER {
            return Some(*sp);
        }
        let index = DWARF_SAVED.iter().position(|&saved| saved == number)?;
        // A register has the return address only until the function calls another one.
        let is_return_address = index + 1 == DWARF_SAVED.len();
        if RETURNS_BY_REGISTER && is_return_address && !interrupted {
            return None;
        }
        let values = dwarf_values(FrameRegisters { pc: *pc, sp: *sp, fp: *fp }, preserved);
        values.get(index).copied().filter(|&value| value != 0)
    }

    /// The registers of a caller with this sp, from the values of the registers that it finds restored, in the order of
    /// [`DWARF_SAVED`].
    #[must_use]
    pub fn restored(sp: u64, values: [u64; DWARF_SAVED.len()]) -> Self {
        let (FrameRegisters { pc, sp, fp }, preserved) = dwarf_caller(sp, values);
        Self { pc, sp, fp, preserved, interrupted: false }
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

/// True if the code at `pc` ends a signal handler, whichever library it belongs to; the `ucontext` of the signal is
/// then on top of the stack.
pub fn ends_signal_handler<M: Memory + ?Sized>(memory: &M, pc: u64) -> bool {
    let mut after = [0; SIGNAL_RETURN_BYTES];
    if memory.read(pc, &mut after).is_err() {
        return false;
    }
    if is_signal_return(&after) {
        return true;
    }
    let mut before = [0; SIGNAL_RETURN_BYTES];
    let start = pc.wrapping_sub(SIGNAL_RETURN_BYTES as u64);
    memory.read(start, &mut before).is_ok() && is_in_signal_return(&before, &after)
}

/// Tables of the native code of one process.
pub trait NativeCode: core::fmt::Debug {
    /// Registers of the caller of the frame with these `registers`.
    ///
    /// The caller is marked as interrupted if the frame is that of the code that ends a signal handler.
    /// Implementations must not allocate, and must return an sp above the frame's own.
    ///
    /// # Errors
    /// [`NativeStop`].
    fn caller(
        &mut self,
        registers: &NativeRegisters,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop>;
}
