//! `JavaFrameAnchor`: where the VM left the newest Java frame when it called out of Java.
//!
//! The VM sets fp and pc before sp and clears sp first, so the other words are valid while sp is not 0.
//! The pc may be left 0; the return address of the call that left Java is then just below the anchor's sp.
//! Sources: `cpu/x86/javaFrameAnchor_x86.hpp`, `runtime/javaCalls.hpp`, JDK 11 to 25.

use super::layout::FrameLayout;
use crate::cpu::RETURN_ADDRESS_BYTES;
use crate::memory::StackCopy;

/// A frame as an anchor describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Anchor {
    pub(crate) sp: u64,
    pub(crate) pc: u64,
    pub(crate) fp: u64,
}

impl Anchor {
    /// The anchor saved in the `JavaCallWrapper` at `wrapper`; `None` if it was not copied.
    pub(crate) fn of_wrapper(layout: &FrameLayout, stack: &StackCopy<'_>, wrapper: u64) -> Option<Self> {
        Self::read(layout, stack, wrapper.checked_add(u64::from(layout.wrapper_anchor))?)
    }

    /// The anchor at `anchor` on the stack; `None` if it was not copied.
    pub(crate) fn read(layout: &FrameLayout, stack: &StackCopy<'_>, anchor: u64) -> Option<Self> {
        let word = |offset: u32| stack.word(anchor.checked_add(u64::from(offset))?);
        Some(Self { sp: word(layout.anchor_sp)?, pc: word(layout.anchor_pc)?, fp: word(layout.anchor_fp)? })
    }

    /// The pc, found on the stack where the VM left it out; `None` if that word was not copied.
    pub(crate) fn effective_pc(&self, stack: &StackCopy<'_>) -> Option<u64> {
        match self.pc {
            0 => stack.word(self.sp.checked_sub(RETURN_ADDRESS_BYTES)?),
            pc => Some(pc),
        }
    }
}
