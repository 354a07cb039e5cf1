//! Compiled code of VMs with value classes: several entries, and frames that keep their size.
//!
//! The rules of the CPU are in `arch`; here they are applied to a method's code and to the copied stack.
//! Sources: `PhaseOutput`, which notes where the last entry has built the frame, and `frame::repair_sender_sp`, JDK 28.

use super::walk::{Cursor, Doing, Walk};
use crate::cpu::{
    ADAPTER_SAVE_REACH, ALLOCATION_REACH, CODE_BEFORE, FRAME_RECORD_BYTES, Taken, Unwind,
    allocates_returned_object, allocating_adapter, keeps_frame_size, kept_frame_size, taken_at,
};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;

impl<M: Memory> Walk<'_, M> {
    /// Returns whether frames of this code keep their size, because some are extended.
    pub(super) fn keeps_frame_size(&self, blob: &CodeBlob) -> bool {
        if !self.hotspot.layout.nmethod.has_value_classes || blob.kind != BlobKind::Nmethod {
            return false;
        }
        let Some(complete) = blob.frame_complete else { return false };
        let mut bytes = [0; CODE_BEFORE as usize];
        let before = self.code_behind(complete, blob, &mut bytes);
        before.is_some_and(|before| keeps_frame_size(before, blob.frame_bytes))
    }

    /// Bytes of a frame at `sp` that keeps its size, `size` unless it is extended; `None` if there is no such frame.
    pub(super) fn kept_frame_size(&self, size: u64, sp: u64) -> Option<u64> {
        kept_frame_size(size, |at| self.stack.word(sp.checked_add(at)?))
    }

    /// Bytes of the complete frame of `blob` at `sp`; `None` if there is no such frame.
    pub(super) fn frame_bytes(&self, blob: &CodeBlob, sp: u64) -> Option<u64> {
        match self.keeps_frame_size(blob) {
            true => self.kept_frame_size(blob.frame_bytes, sp),
            false => Some(blob.frame_bytes),
        }
    }

    /// The caller of compiled code by `rule`, unchecked.
    pub(super) fn unwind_code(&self, cursor: Cursor, blob: &CodeBlob, rule: Unwind) -> Option<Cursor> {
        let below = match rule {
            Unwind::Whole => 0,
            Unwind::Below(words) => words.checked_mul(8)?,
            // The size is kept once the frame is complete.
            _ => return self.unwind(cursor, blob.frame_bytes, rule),
        };
        let size = self.frame_bytes(blob, cursor.sp.checked_add(below)?)?;
        self.unwind(cursor, size, rule)
    }

    /// Returns how much the entry code at `pc` has put on the stack; `None` if there is only one entry, or in other
    /// code.
    pub(super) fn taken_by_entry(&self, pc: u64, blob: &CodeBlob) -> Option<Taken> {
        let layout = &self.hotspot.layout.nmethod;
        if !layout.has_value_classes || blob.kind != BlobKind::Nmethod || blob.frame_complete? <= pc {
            return None;
        }
        let at = usize::try_from(pc.checked_sub(blob.code_begin)?).ok()?;
        self.look_at_code(blob.code_begin, blob.frame_complete?, |code| taken_at(code, at))?
    }

    /// The caller of a method whose entry code has taken stack.
    pub(super) fn caller_of_entry_code(&self, cursor: Cursor, taken: Taken) -> Option<Cursor> {
        let (below, rule) = match taken.is_fp_saved {
            true => (taken.bytes.checked_sub(8)?, Unwind::Pushed),
            false => (taken.bytes, Unwind::Return),
        };
        let at = Cursor { sp: cursor.sp.checked_add(below)?, ..cursor };
        self.unwind(at, 0, rule).filter(|caller| self.is_caller(caller))
    }

    /// The caller of a stub whose frame is found by following its code from its first instruction on: one that moves
    /// the fields of a value object, and a stub with a frame of fixed size, which may call the former when its frame
    /// is gone.
    ///
    /// Source: `generate_buffered_value_type_adapter` in `cpu/x86/sharedRuntime_x86_64.cpp`, and the blob that
    /// `SharedRuntime::_store_value_type_fields_to_buf_blob` refers to, in libjvm of 28-ea+18.
    pub(super) fn caller_of_followed_stub(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let is_followed = match blob.kind {
            BlobKind::ValueFields => true,
            BlobKind::RuntimeStub => {
                self.hotspot.layout.nmethod.has_value_classes && blob.frame_complete.is_some()
            }
            _ => false,
        };
        if !is_followed {
            return None;
        }
        let at = usize::try_from(cursor.pc.checked_sub(blob.code_begin)?).ok()?;
        let taken = self.look_at_code(blob.code_begin, blob.code_end, |code| taken_at(code, at))??;
        let caller = self.caller_of_entry_code(cursor, taken)?;
        Some(Cursor { doing: Doing::CallingVm, ..caller })
    }

    /// The caller of an adapter that calls the VM to allocate objects for the fields that its caller passes, while it
    /// has a frame.
    pub(super) fn caller_of_allocating_adapter(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        if blob.kind != BlobKind::Adapter || blob.frame_bytes < FRAME_RECORD_BYTES {
            return None;
        }
        let start = blob.code_begin.max(cursor.pc.saturating_sub(ADAPTER_SAVE_REACH));
        let rule = self.look_at_code(start, cursor.pc, allocating_adapter)??;
        self.unwind(cursor, 0, rule).filter(|caller| self.is_caller(caller))
    }

    /// Returns whether the interpreter at `pc` is allocating an object whose fields were returned.
    pub(super) fn allocates_returned_object(&self, pc: u64) -> bool {
        self.hotspot.layout.nmethod.has_value_classes
            && self.look_at_code(pc.saturating_sub(ALLOCATION_REACH), pc, allocates_returned_object)
                == Some(true)
    }
}
