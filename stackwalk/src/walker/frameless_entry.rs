//! Entries of the interpreter that build no frame.
//!
//! Problem: the interpreter's entries of `Math` and checksum methods call a routine and return to their caller without
//! a frame of their own. fp is then the caller's: that of its frame if it is interpreted, but of any older frame if it
//! is compiled.
//! Approach: the code behind the call shows such an entry and the place of its return address. r13 is the caller's sp,
//! which the routine leaves alone; that of a compiled caller must lie just above, where an adapter has put the
//! arguments. The entry's method is not shown: nothing proves which one it is.
//! Source: `gen_c2i_adapter` in `cpu/x86/sharedRuntime_x86_64.cpp`; the rest is at [`frameless_return`].

use super::walk::{Cursor, Doing, Walk};
use crate::cpu::{FRAMELESS_RETURN_BYTES, RETURN_ADDRESS_BYTES, frameless_return};
use crate::memory::Memory;

/// Most bytes that an adapter adds for the arguments: three of two slots each (`Math.fma`), aligned to 16.
const MOST_ARGUMENTS: u64 = 64;

impl<M: Memory> Walk<'_, M> {
    /// The caller of the entry without a frame that has called something at `cursor`. `None` if there is no such entry,
    /// and `Some(None)` if its caller is not found.
    pub(super) fn caller_of_frameless_entry(&self, cursor: Cursor) -> Option<Option<Cursor>> {
        let pad = self.frameless_return_at(cursor.pc)?;
        Some(cursor.sp.checked_add(pad).and_then(|slot| self.caller_of_entry_above(slot, cursor.fp)))
    }

    /// The caller whose return address is in `slot`.
    fn caller_of_entry_above(&self, slot: u64, fp: u64) -> Option<Cursor> {
        let pc = self.stack.word(slot)?;
        let above = slot.checked_add(RETURN_ADDRESS_BYTES)?;
        // Such an entry calls no other one.
        if self.in_interpreter(pc) && self.frameless_return_at(pc).is_some() {
            return None;
        }
        let sp = if self.in_interpreter(pc) || pc == self.started.call_stub_return {
            above
        } else {
            let sender = self.capture.registers.sender_sp(self.hotspot.jdk_major());
            let is_near = sender.checked_sub(above)? <= MOST_ARGUMENTS;
            (is_near && self.on_stack(sender, above)).then_some(sender)?
        };
        let caller = Cursor { pc, sp, fp, doing: Doing::CallingJava };
        self.is_caller(&caller).then_some(caller)
    }

    fn frameless_return_at(&self, pc: u64) -> Option<u64> {
        let mut code = [0; FRAMELESS_RETURN_BYTES];
        self.memory.read(pc, &mut code).ok()?;
        frameless_return(&code)
    }
}
