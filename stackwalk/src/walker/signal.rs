//! Code that a signal has interrupted: the frames below those of its handler.
//!
//! Problem: the timers of two profilers expire at the same tick of the scheduler. The kernel then builds a frame for
//! each of the two signals, and ours interrupts the other's handler at its first instruction, or later while it runs.
//! Approach: the kernel saves all registers in the signal's frame, which lies in the copied stack. They take the place
//! of those in the capture, and the walk goes on as if the capture had been made there.
//! Invariant: the VM's fields of the capture belong to the same moment: a handler runs no Java code and sets no anchor.

use super::native::NativeCaller;
use super::walk::{Cursor, Walk};
use crate::capture::Capture;
use crate::cpu::{FrameRegisters, Registers, registers_at_handler_entry, saved_registers};
use crate::memory::Memory;
use crate::walker::native_code::NativeRegisters;

impl<M: Memory> Walk<'_, M> {
    /// Makes the capture that of the code that was interrupted first, if the handlers of other signals have not begun.
    pub(super) fn skip_handlers_at_entry(&mut self) {
        let Capture { pc, sp, fp, registers, .. } = self.capture;
        let (mut frame, mut others) = (FrameRegisters { pc, sp, fp }, registers);
        // The interrupted sp lies above the frame, so this ends.
        while let Some(interrupted) =
            registers_at_handler_entry(frame, &others, |address| self.stack.word(address))
        {
            (frame, others) = interrupted;
            self.resume_capture(frame, others);
        }
    }

    /// The code that the signal has interrupted whose handler ends at `cursor`, with its registers as the tables say.
    pub(super) fn below_signal(&mut self, cursor: Cursor, interrupted: &NativeRegisters) -> NativeCaller {
        let NativeRegisters { pc, sp, .. } = *interrupted;
        if sp <= cursor.sp || sp > self.high {
            return NativeCaller::BehindGap(self.after_gap(cursor));
        }
        let is_code = self.hotspot.is_code(pc);
        // Below an entry frame, the VM's fields in its wrapper decide.
        if self.has_met_entry {
            return match is_code {
                true => self.java_below(cursor, interrupted),
                false => NativeCaller::Found(self.begin_native(*interrupted, self.origin)),
            };
        }
        match saved_registers(cursor.sp, |address| self.stack.word(address)) {
            Some((frame, others)) if (frame.pc, frame.sp) == (pc, sp) => {
                self.resume_capture(frame, others);
                NativeCaller::Found(self.first())
            }
            // Java code needs the other registers as well.
            _ if is_code => NativeCaller::BehindGap(self.after_gap(cursor)),
            _ => NativeCaller::Found(self.begin_native(*interrupted, self.origin)),
        }
    }

    fn resume_capture(&mut self, frame: FrameRegisters, registers: Registers) {
        let FrameRegisters { pc, sp, fp } = frame;
        self.capture = Capture { pc, sp, fp, registers, ..self.capture };
    }
}
