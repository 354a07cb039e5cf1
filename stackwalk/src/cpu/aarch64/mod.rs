//! aarch64, under the procedure call standard of Linux.
//!
//! String code, type checks and entries without a frame work in registers here (`string_indexof`, `string_compare`,
//! `generate_slow_subtype_check` in `cpu/aarch64`, JDK 11 to 25), and routines keep their return address in the link
//! register or a frame record. Code for value classes (JDK 28) has not been looked at on this CPU.

mod calls;
mod deopt;
mod dwarf;
mod entry;
mod frame;
mod frame_state;
mod instruction;
mod interpreter;
mod jump_entered;
mod jump_target;
mod pushed;
mod registers;
mod signal_frame;
mod static_call_stub;
mod system_call;
mod thaw;
mod upcall;

pub(crate) use super::defaults::{
    ADAPTER_SAVE_REACH, ALLOCATION_REACH, FRAMELESS_RETURN_BYTES, RESERVATION_REACH, STRING_CODE_REACH,
    allocates_returned_object, allocating_adapter, entry_barrier_callers, forward_exception_place,
    frameless_return, keeps_entry_sp, keeps_frame_size, keeps_length, kept_frame_size, leads_to,
    linker_pops_argument, reserved_words, return_address_of_call, searches_string, sp_without_return_address,
    taken_at,
};
pub(crate) use calls::*;
pub(crate) use deopt::*;
pub use dwarf::*;
pub(crate) use entry::*;
pub use frame::*;
pub(crate) use frame_state::*;
pub(crate) use interpreter::*;
pub(crate) use jump_entered::*;
pub(crate) use jump_target::*;
pub(crate) use pushed::*;
pub use registers::*;
pub(crate) use signal_frame::*;
pub(crate) use static_call_stub::*;
pub(crate) use system_call::*;
pub(crate) use thaw::*;
pub(crate) use upcall::*;
