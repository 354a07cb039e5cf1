//! The answers of a CPU whose code has no such case. Each folder lists in its `mod.rs` which of these it takes.

#![allow(dead_code, reason = "a CPU that has a case gives its own answer")]

use super::rules::{Around, ForwardExceptionPlace, Taken, Unwind};

/// Bytes of the code through which a call leads to code that is far away: calls reach all code.
pub(crate) const TRAMPOLINE_BYTES: usize = 0;

pub(crate) fn trampoline_target(_code: &[u8; TRAMPOLINE_BYTES]) -> Option<u64> {
    None
}

/// True if the interpreter's entry of an intrinsic method jumps to a routine of `StubRoutines`, which then returns to
/// the method's caller; false if it calls the routine.
pub(crate) const METHODS_JUMP_TO_ROUTINES: bool = false;

/// Bytes from the pc on that [`enters_method`] looks at.
pub(crate) const METHOD_ENTRY_BYTES: usize = 0;

/// Returns whether the interpreter may be entering a method: its code does not show that.
pub(crate) fn enters_method(_ahead: &[u8]) -> bool {
    true
}

/// Words that code without fixed frame has pushed, by the code before the pc; at 0 the walker searches for them.
pub(crate) fn words_below(_before: &[u8]) -> u64 {
    0
}

/// Address of the return address of a call out of a frame with this sp; `None` if the callee chooses it.
pub(crate) fn return_address_of_call(_sp: u64) -> Option<u64> {
    None
}

/// Bytes on each side of the pc that [`keeps_length`] looks at.
pub(crate) const STRING_CODE_REACH: u64 = 4;

/// Returns whether the instruction at `pc` runs with the length of a string below the frame.
pub(crate) fn keeps_length(_code: &[u8], _pc: usize) -> bool {
    false
}

/// Returns whether a string is searched near the pc by code that uses the stack.
pub(crate) fn searches_string(_around: Around<'_>) -> bool {
    false
}

/// Bytes before the pc that [`reserved_words`] looks at.
pub(crate) const RESERVATION_REACH: u64 = 4;

/// Words from sp on that the code of `before` has reserved and not released.
pub(crate) fn reserved_words(_before: &[u8]) -> u64 {
    0
}

/// Place of the return address of the routine that forwards a pending exception; `None` if the rules of other stubs
/// apply.
pub(crate) fn forward_exception_place(_around: Around<'_>) -> Option<ForwardExceptionPlace> {
    None
}

/// Bytes from the pc on that [`frameless_return`] looks at.
pub(crate) const FRAMELESS_RETURN_BYTES: usize = 4;

/// Bytes above sp on the return address, behind a call in an interpreter's entry that builds no frame.
pub(crate) fn frameless_return(_after: &[u8]) -> Option<u64> {
    None
}

/// Returns whether a method handle linker has popped the return address into a register.
pub(crate) fn linker_pops_argument(_before: &[u8], _after: &[u8]) -> bool {
    false
}

/// The caller's sp where an adapter has its return address in a register only, and sp is not at its slot.
pub(crate) fn sp_without_return_address(
    _before: &[u8],
    _after: &[u8],
    _sp: u64,
    _sender_sp: u64,
) -> Option<u64> {
    None
}

/// Bytes before the pc of an adapter that [`keeps_entry_sp`] looks at.
pub(crate) const ADAPTER_SAVE_REACH: u64 = 4;

/// Returns whether an adapter keeps the sp of its entry in a register while it calls the VM, and builds no frame.
pub(crate) fn keeps_entry_sp(_before: &[u8]) -> bool {
    false
}

/// Frames, as (sp, fp), that the stub of the nmethod entry barrier may have below a marker word.
pub(crate) fn entry_barrier_callers(
    _sp: u64,
    _fp: u64,
    _word: impl Fn(u64) -> Option<u64>,
) -> [Option<(u64, u64)>; 3] {
    [None; 3]
}

/// Returns whether control can get from one instruction to another without returning; `None` if that is unknown.
pub(crate) fn leads_to(
    _from: u32,
    _to: u32,
    _code: impl FnMut(u32, &mut [u8; 16]) -> Option<usize>,
) -> Option<bool> {
    None
}

/// Stack that entry code has taken, where a method has several entries.
pub(crate) fn taken_at(_code: &[u8], _pc: usize) -> Option<Taken> {
    None
}

/// Returns whether code keeps the size of its frame in the frame, because some of its frames are extended.
pub(crate) fn keeps_frame_size(_before: &[u8], _size: u64) -> bool {
    false
}

/// Bytes of a frame that keeps its size.
pub(crate) fn kept_frame_size(_size: u64, _word: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    None
}

/// State of the frame of an adapter that calls the VM to allocate objects for the fields that its caller passes.
pub(crate) fn allocating_adapter(_before: &[u8]) -> Option<Unwind> {
    None
}

/// Bytes before the pc that [`allocates_returned_object`] looks at.
pub(crate) const ALLOCATION_REACH: u64 = 4;

/// Returns whether the interpreter, after a call, is allocating an object whose fields were returned.
pub(crate) fn allocates_returned_object(_before: &[u8]) -> bool {
    false
}
