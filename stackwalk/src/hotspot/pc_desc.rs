//! From a pc in compiled code to the offset of its debug information.
//!
//! `PcDesc`s are sorted by their offset from the first instruction; a call's entry carries its return address.
//! The first and the last entry are sentinels without information (scope offset 0).
//! With `DebugNonSafepoints` entries also mark the end of instruction ranges, so the instruction at a pc belongs to the
//! first entry behind the pc, and the instruction before it to the first entry at the pc or behind it.
//! A return address has an entry of its own or is no return address of Java code.
//! Sources: `code/pcDesc.hpp`, `code/compiledMethod.cpp` (JDK 11 to 21), `code/nmethod.cpp` (JDK 25).

use super::debug_bytes::{DebugBytes, Part};
use super::layout::NmethodLayout;
use crate::limits::MAX_SEARCH_STEPS;
use crate::memory::{Unreadable, field};

/// Rule by which an entry applies to a pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PcMatch {
    /// The pc is the return address of a call to Java.
    Exact,
    /// The pc is the return address of a call to VM code, which may carry no entry.
    ExactOrNext,
    /// The pc is the interrupted instruction: the entry behind it applies, or that of the range which ends at it
    /// (`walker::compiled`).
    Interrupted,
}

/// An entry that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoundScope {
    /// Offset of its scope.
    pub(crate) offset: u32,
    /// True if the entry has the very address of the pc, false if it lies behind.
    pub(crate) is_at_pc: bool,
}

/// Finds the entry for `pc` in code that begins at `code_begin`; `None` if the code has none for it. For an interrupted
/// pc that is the entry of the instruction at the pc.
pub(crate) fn find_scope(
    layout: &NmethodLayout,
    debug: &mut impl DebugBytes,
    code_begin: u64,
    pc: u64,
    matching: PcMatch,
) -> Result<Option<FoundScope>, Unreadable> {
    let Some(offset) = pc.checked_sub(code_begin).and_then(|offset| i32::try_from(offset).ok()) else {
        return Ok(None);
    };
    let target = if matching == PcMatch::Interrupted { offset.saturating_add(1) } else { offset };
    let count = debug.size(Part::Pcs) / layout.pc_desc_size;
    let (mut low, mut high) = (0, count);
    for _ in 0..MAX_SEARCH_STEPS {
        if high - low <= debug.entries_at_once() {
            break;
        }
        let middle = low + (high - low) / 2;
        let at = middle * layout.pc_desc_size + u64::from(layout.pc_desc_pc_offset);
        if debug.number(Part::Pcs, at)? < target {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // The entry looked for may be the one at `high`.
    for index in low..(high + 1).min(count) {
        let size = usize::try_from(layout.pc_desc_size).unwrap_or(0);
        let entry = debug.get(Part::Pcs, index * layout.pc_desc_size, size)?;
        let (Some(pc_offset), Some(scope)) =
            (field(entry, layout.pc_desc_pc_offset), field(entry, layout.pc_desc_scope_offset))
        else {
            return Ok(None);
        };
        let (pc_offset, scope) = (i32::from_ne_bytes(pc_offset), u32::from_ne_bytes(scope));
        if pc_offset >= target {
            let fits = matching != PcMatch::Exact || pc_offset == target;
            let found = FoundScope { offset: scope, is_at_pc: pc_offset == offset };
            return Ok(Some(found).filter(|found| fits && found.offset != 0));
        }
    }
    Ok(None)
}
