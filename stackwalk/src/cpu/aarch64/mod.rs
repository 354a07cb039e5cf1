//! aarch64, under the procedure call standard of Linux.

mod absent;
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
mod thaw;
mod upcall;

pub(crate) use absent::{
    ALLOCATION_REACH, FRAMELESS_RETURN_BYTES, RESERVATION_REACH, STRING_CODE_REACH, Taken,
    allocates_returned_object, allocating_adapter, forward_exception_place, frameless_return,
    keeps_frame_size, keeps_length, kept_frame_size, leads_to, linker_pops_argument, reserved_words,
    searches_string, sp_without_return_address, taken_at,
};
pub(crate) use calls::{
    ASSEMBLER_ROUTINE_BYTES, CALL_BYTES, DIRECT_CALL_BYTES, TRAMPOLINE_BYTES, call_before, trampoline_target,
};
pub(crate) use deopt::{
    DEOPT_CALL_BYTES, DEOPT_CALL_REACH, DEOPT_HANDLER_BYTES, deopt_handler_pushed_bytes, deopt_place,
    is_deopt_call,
};
pub use dwarf::{DWARF_ROW_RULES, DWARF_SAVED, DWARF_STACK_POINTER};
pub(crate) use dwarf::{dwarf_caller, dwarf_values};
pub(crate) use entry::{
    ADAPTER_SAVE_REACH, CALL_STUB_REACH, entry_barrier_callers, entry_frame, has_saved_sender_sp,
    keeps_entry_sp, patching_adapter,
};
pub use frame::*;
pub(crate) use frame_state::{
    BODY_AHEAD, CODE_AFTER, CODE_BEFORE, OSR_PROLOGUE_BYTES, epilogue, prologue, state_at_call,
    state_in_body, stub_exit, stub_states,
};
pub(crate) use interpreter::{
    INTERPRETER_EXIT_BYTES, METHOD_ENTRY_BYTES, RETURN_ENTRY_BYTES, enters_method, interpreter_exit,
    is_interpreter_return_entry,
};
pub(crate) use jump_entered::*;
pub(crate) use jump_target::{
    FAR_JUMP_BYTES, NEAR_JUMP_AFTER, NEAR_JUMP_BEFORE, far_jumps, has_far_jump, is_given_up,
};
pub(crate) use pushed::pushed_words as words_below;
pub use registers::{PreservedRegisters, Registers};
pub(crate) use signal_frame::{
    SIGNAL_RETURN_BYTES, is_in_signal_return, is_signal_return, registers_at_handler_entry, saved_registers,
};
pub(crate) use static_call_stub::static_call_stub_offset;
pub(crate) use thaw::{BARRIER_START, THAW_REACH, is_before_reservation, return_barrier, thawed_frame};
pub(crate) use upcall::{UPCALL_START, upcall_frame, upcall_state};
