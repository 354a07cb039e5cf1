//! The verdicts of the CPU folders: frame states, and the rules that lead to a caller.

/// Instructions around an interrupted pc or a return address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    /// Bytes up to the pc, beginning at an instruction when `from_entry` is set.
    pub(crate) before: &'a [u8],
    /// Bytes from the pc on.
    pub(crate) after: &'a [u8],
    /// True if `before` begins at an entry of the code.
    pub(crate) from_entry: bool,
}

/// pc, sp and fp of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameRegisters {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
}

/// State of a frame, and with it the rule that leads to its caller; `size` is the complete frame's size.
///
/// The equations of x86-64, whose calls push the return address, stand first; where a call leaves it in the link
/// register lr, the equation behind the semicolon applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unwind {
    /// The frame is complete: (pc, sp, fp) = ([sp + size - 8], sp + size, [sp + size - 16]).
    Whole,
    /// The frame is complete and this many words were pushed below it.
    Below(u64),
    /// The frame is allocated but fp is not saved yet, or restored already: (pc, sp, fp) = ([sp + size - 8], sp + size,
    /// fp); (lr, sp + size, fp).
    WholeFpLive,
    /// Nothing but the return address is there: (pc, sp, fp) = ([sp], sp + 8, fp); (lr, sp, fp).
    Return,
    /// Code that does not return by it has left the return address on top: (pc, sp, fp) = ([sp], sp + 8, fp).
    OnTop,
    /// The frame record is on top: (pc, sp, fp) = ([sp + 8], sp + 16, [sp]).
    Pushed,
    /// fp is the frame pointer: (pc, sp, fp) = ([fp + 8], fp + 16, [fp]).
    FramePointer,
}

impl Unwind {
    /// Returns whether the rule applies to code with a frame of known size only.
    pub(crate) fn needs_size(self) -> bool {
        matches!(self, Self::Whole | Self::Below(_) | Self::WholeFpLive)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallTarget {
    /// This address.
    Known(u64),
    /// An address in a register or in memory.
    Indirect,
}

/// How much of its frame a SafepointBlob has built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "a CPU has some of these")]
pub(crate) enum PollFrame {
    /// Nothing has been pushed.
    Untouched,
    /// The slot of the return address, in the blob of loop polls.
    SlotPushed,
    /// The slot and the frame pointer of the code that polled.
    FpPushed,
    /// fp is the frame pointer.
    Complete,
}

/// Place of the address of an exception handler that a stub has looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "a CPU has some of these")]
pub(crate) enum HandlerPlace {
    /// In the slot of the return address, above the saved fp.
    AboveFp,
    /// On top of the stack.
    Top,
    /// In a register: `Registers::exception_handler`.
    Register,
}

/// Place of the return address of the routine that forwards a pending exception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "a CPU has some of these")]
pub(crate) enum ForwardExceptionPlace {
    /// On top of the stack.
    Top,
    /// Above a word that aligns the stack.
    AboveWord,
    /// In a register: `Registers::throwing_pc`.
    Register,
}

/// State of a deoptimisation stub's frame, as far as it concerns the return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeoptPlace {
    /// The return address is on top.
    Returning,
    /// The frame record is on top.
    Pushed,
    /// There is no return address; the throwing pc is kept elsewhere.
    NoReturnAddress,
    /// The stub's frame is complete.
    Complete,
}

/// The frame of an upcall stub, as its code shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UpcallFrame {
    /// Bytes from sp to fp.
    pub(crate) bytes: u64,
    /// Bytes from sp to the `UpcallStub::FrameData`.
    pub(crate) data: u64,
    /// Bytes from the first instruction to the return address of the call that fills the data.
    pub(crate) entered: u64,
}

/// Stack that entry code has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Bytes between sp and the return address.
    pub(crate) bytes: u64,
    /// True if the word below the return address is the caller's fp.
    pub(crate) is_fp_saved: bool,
}
