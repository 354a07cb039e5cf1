//! What depends on the CPU: frame shapes at arbitrary instructions and fixed slots of interpreter frames.
//!
//! Each supported CPU has a twin file with the same names inside.

#[cfg(target_arch = "x86_64")]
mod deopt;
#[cfg(target_arch = "x86_64")]
mod entry;
#[cfg(target_arch = "x86_64")]
mod jumped;
#[cfg(target_arch = "x86_64")]
mod operands;
#[cfg(target_arch = "x86_64")]
mod room;
#[cfg(target_arch = "x86_64")]
mod saved_registers;
#[cfg(target_arch = "x86_64")]
mod side_entries;
#[cfg(target_arch = "x86_64")]
mod slot_move;
#[cfg(target_arch = "x86_64")]
mod string_code;
#[cfg(target_arch = "x86_64")]
mod subtype_check;
#[cfg(target_arch = "x86_64")]
mod thaw;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use deopt::{DeoptPlace, deopt_place, is_on_handlers_stack};
#[cfg(target_arch = "x86_64")]
pub(crate) use entry::{CALL_STUB_REACH, SAVING_REACH, entry_frame, has_raised_sp, keeps_sp_of_entry};
#[cfg(target_arch = "x86_64")]
pub(crate) use jumped::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use operands::{copied, operands};
#[cfg(target_arch = "x86_64")]
pub(crate) use room::{ROOM_REACH, room};
#[cfg(target_arch = "x86_64")]
pub(crate) use saved_registers::{SAVED_REGISTERS_REACH, saved_registers};
#[cfg(target_arch = "x86_64")]
pub(crate) use side_entries::in_static_call_stub;
#[cfg(target_arch = "x86_64")]
pub(crate) use slot_move::is_slot_move;
#[cfg(target_arch = "x86_64")]
pub(crate) use string_code::{STRING_CODE_REACH, keeps_length, searches_string};
#[cfg(target_arch = "x86_64")]
pub(crate) use subtype_check::pushed_words;
#[cfg(target_arch = "x86_64")]
pub(crate) use thaw::{ROOM_AHEAD, brought_back, has_to_make_room};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("stackwalk knows HotSpot's frames on x86-64 only");

/// How to get from an interrupted piece of code to its caller; `size` is the complete frame's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unwind {
    /// The frame is complete: (pc, sp, fp) = ([sp + size - 8], sp + size, [sp + size - 16]).
    Whole,
    /// The frame is complete and this many words were pushed below it.
    Below(u64),
    /// The frame is allocated but fp is not saved yet: (pc, sp, fp) = ([sp + size - 8], sp + size, fp).
    WholeFpLive,
    /// Only the return address is on the stack: (pc, sp, fp) = ([sp], sp + 8, fp).
    Return,
    /// The caller's fp lies on top of it: (pc, sp, fp) = ([sp + 8], sp + 16, [sp]).
    Pushed,
    /// fp is the frame pointer: (pc, sp, fp) = ([fp + 8], fp + 16, [fp]).
    FramePointer,
}

impl Unwind {
    /// Whether the rule says something about code with a frame of known size only.
    pub(crate) fn needs_size(self) -> bool {
        matches!(self, Self::Whole | Self::Below(_) | Self::WholeFpLive)
    }
}

/// What the instruction before a return address calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallTarget {
    /// This address.
    Known(u64),
    /// An address in a register or in memory.
    Indirect,
}
