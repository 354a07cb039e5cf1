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
mod system_call;
mod thaw;
mod upcall;

pub(crate) use super::defaults::{
    METHOD_ENTRY_BYTES, METHODS_JUMP_TO_ROUTINES, TRAMPOLINE_BYTES, enters_method, trampoline_target,
    words_below,
};
pub(crate) use calls::*;
pub(crate) use control_flow::*;
pub(crate) use deopt::*;
pub use dwarf::*;
pub(crate) use entry::*;
pub(crate) use entry_code::*;
pub(crate) use forward_exception::*;
pub use frame::*;
pub(crate) use frame_state::*;
pub(crate) use interpreter::*;
pub(crate) use jump_entered::*;
pub(crate) use jump_target::*;
pub use registers::*;
pub(crate) use reserved_space::*;
pub(crate) use signal_frame::*;
pub(crate) use static_call_stub::*;
pub(crate) use string_code::*;
pub(crate) use system_call::*;
pub(crate) use thaw::*;
pub(crate) use upcall::*;
