//! x86-64, under the System V ABI.

mod calls;
mod control_flow;
mod deopt;
mod dwarf;
mod entry;
mod entry_code;
mod forward_exception;
mod frame;
mod frame_state;
mod instruction;
mod interpreter;
mod jump_entered;
mod jump_target;
mod registers;
mod reserved_space;
mod saved_registers;
mod signal_frame;
mod slot_move;
mod static_call_stub;
mod string_code;
mod stub_arguments;
mod subtype_check;
mod thaw;
mod upcall;

pub(crate) use calls::{
    ASSEMBLER_ROUTINE_BYTES, CALL_BYTES, DIRECT_CALL_BYTES, TRAMPOLINE_BYTES, call_before, trampoline_target,
};
pub(crate) use control_flow::leads_to;
pub(crate) use deopt::{
    DEOPT_CALL_BYTES, DEOPT_CALL_REACH, DEOPT_HANDLER_BYTES, deopt_handler_pushed_bytes, deopt_place,
    is_deopt_call,
};
pub use dwarf::{DWARF_ROW_RULES, DWARF_SAVED, DWARF_STACK_POINTER};
pub(crate) use dwarf::{dwarf_caller, dwarf_values};
pub(crate) use entry::{
    ADAPTER_SAVE_REACH, CALL_STUB_REACH, allocating_adapter, entry_barrier_callers, entry_frame,
    has_saved_sender_sp, keeps_entry_sp, linker_pops_argument, patching_adapter, sp_without_return_address,
};
pub(crate) use entry_code::{Taken, keeps_frame_size, kept_frame_size, taken_at};
pub(crate) use forward_exception::forward_exception_place;
pub use frame::*;
pub(crate) use frame_state::{
    BODY_AHEAD, CODE_AFTER, CODE_BEFORE, OSR_PROLOGUE_BYTES, epilogue, prologue, state_at_call,
    state_in_body, stub_exit, stub_states,
};
pub(crate) use interpreter::{
    ALLOCATION_REACH, FRAMELESS_RETURN_BYTES, INTERPRETER_EXIT_BYTES, METHOD_ENTRY_BYTES, RETURN_ENTRY_BYTES,
    allocates_returned_object, enters_method, frameless_return, interpreter_exit,
    is_interpreter_return_entry,
};
pub(crate) use jump_entered::*;
pub(crate) use jump_target::{
    FAR_JUMP_BYTES, NEAR_JUMP_AFTER, NEAR_JUMP_BEFORE, far_jumps, has_far_jump, is_given_up,
};
pub use registers::{PreservedRegisters, Registers};
pub(crate) use reserved_space::{RESERVATION_REACH, reserved_words};
pub(crate) use signal_frame::{
    SIGNAL_RETURN_BYTES, is_in_signal_return, is_signal_return, registers_at_handler_entry, saved_registers,
};
pub(crate) use static_call_stub::static_call_stub_offset;
pub(crate) use string_code::{STRING_CODE_REACH, keeps_length, searches_string};
pub(crate) use thaw::{BARRIER_START, THAW_REACH, is_before_reservation, return_barrier, thawed_frame};
pub(crate) use upcall::{UPCALL_START, upcall_frame, upcall_state};
