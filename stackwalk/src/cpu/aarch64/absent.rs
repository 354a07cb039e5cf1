//! Cases that code for this CPU does not have: string code and stubs that keep words below a frame without pushing
//! them. Ways of control are not followed: routines keep the link register or a frame record, so nothing hides a return
//! address. That interrupts give accesses to memory up has not been measured on this CPU.
//!
//! Sources: `string_indexof`, `string_compare` and `generate_slow_subtype_check` in `cpu/aarch64`, JDK 11 to 25: all
//! work in registers.

use crate::cpu::rules::{Around, ForwardExceptionPlace, Unwind};

/// Bytes on each side of the pc that [`keeps_length`] looks at.
pub(crate) const STRING_CODE_REACH: u64 = 4;
/// Longest instruction.
pub(crate) const MAX_INSTRUCTION_BYTES: usize = 4;
/// Bytes before the pc that [`reserved_words`] looks at.
pub(crate) const RESERVATION_REACH: u64 = 4;

/// Returns whether a string is searched near the pc by code that uses the stack.
pub(crate) fn searches_string(_around: Around<'_>) -> bool {
    false
}

/// Returns `None`: the routine keeps its return address in the link register or as one that calls C code.
pub(crate) fn forward_exception_place(_around: Around<'_>) -> Option<ForwardExceptionPlace> {
    None
}

/// Bytes from the pc on that [`frameless_return`] looks at.
pub(crate) const FRAMELESS_RETURN_BYTES: usize = 4;

/// Returns `None`: entries without a frame keep their return address in registers, or jump to the routine.
pub(crate) fn frameless_return(_after: &[u8]) -> Option<u64> {
    None
}

/// Returns whether the instruction at `pc` runs with a length below the frame.
pub(crate) fn keeps_length(_code: &[u8], _pc: usize) -> bool {
    false
}

/// Returns whether a method handle linker has taken the return address off the stack: it is in a register all the time.
pub(crate) fn linker_pops_argument(_before: &[u8], _after: &[u8]) -> bool {
    false
}

/// The caller's sp while an adapter has its return address in a register only: it is there all the time.
pub(crate) fn sp_without_return_address(
    _before: &[u8],
    _after: &[u8],
    _sp: u64,
    _sender_sp: u64,
) -> Option<u64> {
    None
}

/// Words from sp on that the code of `before` has reserved and not released.
pub(crate) fn reserved_words(_before: &[u8]) -> u64 {
    0
}

/// Returns `None`: whether control can get from one instruction to another is not looked up on this CPU.
pub(crate) fn leads_to(
    _from: u32,
    _to: u32,
    _code: impl FnMut(u32, &mut [u8; MAX_INSTRUCTION_BYTES]) -> Option<usize>,
) -> Option<bool> {
    None
}

/// What entry code has put on the stack; not known on this CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Bytes between sp and the return address.
    pub(crate) bytes: u64,
    /// True if the word below the return address is the caller's fp.
    pub(crate) is_fp_saved: bool,
}

/// Returns `None`: entries of code that takes value objects as fields have not been looked at on this CPU.
pub(crate) fn taken_at(_code: &[u8], _pc: usize) -> Option<Taken> {
    None
}

/// Returns `None`, as above.
pub(crate) fn allocating_adapter(_before: &[u8]) -> Option<Unwind> {
    None
}

/// Bytes before the pc that [`allocates_returned_object`] looks at.
pub(crate) const ALLOCATION_REACH: u64 = 4;

/// Returns `false`, as above.
pub(crate) fn allocates_returned_object(_before: &[u8]) -> bool {
    false
}

/// Returns `false`, as above.
pub(crate) fn keeps_frame_size(_before: &[u8], _size: u64) -> bool {
    false
}

/// Returns `None`, as above.
pub(crate) fn kept_frame_size(_size: u64, _word: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    None
}
