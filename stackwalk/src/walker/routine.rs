//! The caller of an interrupted routine of `StubRoutines`.
//!
//! Problem: a routine may use the frame pointer for data, and reserve or align stack space in which return addresses of
//! older calls remain (`sha512_AVX2`, `sha256_AVX2` in `cpu/x86/macroAssembler_x86_sha.cpp`, JDK 11 to 25).
//! Approach: compiled code and interpreter call routines directly, so control must get from the entry that is called to
//! the interrupted instruction; where no place that the code suggests has such a return address, it is searched for on
//! the stack within a bound.
//! Where the interpreter's entry of an intrinsic method jumps to a routine, the call may also lead to that method.
//! Invariant: two possible callers are none.

use super::walk::{Cursor, Doing, Walk};
use crate::cache::CODE_BUFFER;
use crate::cpu::{CallTarget, METHODS_JUMP_TO_ROUTINES, RETURN_ADDRESS_BYTES, leads_to};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;

/// Words of the stack that are searched: `sha256_AVX2` keeps 75 with what it saves, aligned to 32 bytes.
const SEARCHED_WORDS: u64 = 128;

/// Longest routine that is entered at its start and keeps words that hide the return address, in bytes: `sha512_AVX2`
/// has some 6,000.
const LONGEST_ROUTINE: u64 = 16 << 10;

impl<M: Memory> Walk<'_, M> {
    /// Returns whether code whose call returns to `pc` can have led to the instruction at `interrupted` of `blob`:
    /// routines are called directly, or entered by a jump from a VM stub or a native method's wrapper that has an
    /// exception to forward (`generate_forward_exception` in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 11 to 25).
    pub(super) fn may_have_called(&self, pc: u64, interrupted: u64, blob: &CodeBlob) -> bool {
        if blob.kind != BlobKind::StubRoutines || self.calls_routine(pc, interrupted, blob) {
            return true;
        }
        // The return entry of a caller in the interpreter is proven by `is_caller`.
        if METHODS_JUMP_TO_ROUTINES && self.in_interpreter(pc) {
            return true;
        }
        let Some(CallTarget::Known(target)) = self.target_of_call(pc) else { return false };
        let forwards =
            |kind| matches!(kind, BlobKind::RuntimeStub | BlobKind::Exception | BlobKind::NativeWrapper);
        !self.hotspot.is_code(target)
            || self.blob_at(target).is_ok_and(|blob| forwards(blob.kind))
            || METHODS_JUMP_TO_ROUTINES && self.enters_interpreter(pc, target)
    }

    /// Returns whether the call before `pc` leads to the routine of `blob` that was interrupted there.
    ///
    /// Routines jump to each other (`generate_unsafe_copy` in `cpu/x86/stubGenerator_x86_64_arraycopy.cpp`), so what
    /// counts is where control can get from the called entry.
    pub(super) fn calls_routine(&self, pc: u64, interrupted: u64, blob: &CodeBlob) -> bool {
        match self.target_of_call(pc) {
            Some(CallTarget::Known(entry)) => self.leads_to(entry, interrupted, blob),
            Some(CallTarget::Indirect) | None => false,
        }
    }

    /// Returns whether control may get from `entry` to `interrupted`, both in `blob`, without returning; remembered.
    fn leads_to(&self, entry: u64, interrupted: u64, blob: &CodeBlob) -> bool {
        self.cache.way(entry, interrupted, || self.follow(entry, interrupted, blob)) != Some(false)
    }

    /// Follows the code from `entry`; see [`Self::leads_to`].
    fn follow(&self, entry: u64, interrupted: u64, blob: &CodeBlob) -> Option<bool> {
        let code = blob.code_begin..blob.code_end;
        let place = |pc: u64| u32::try_from(pc.wrapping_sub(code.start)).ok();
        let (Some(from), Some(to)) = (place(entry), place(interrupted)) else { return Some(false) };
        let mut buffer = self.cache.code.try_borrow_mut().ok()?;
        // The code in the buffer: where it begins, and its length.
        let (mut first, mut filled) = (0_u64, 0_usize);
        leads_to(from, to, |at, instruction| {
            let at = code.start.checked_add(at.into())?;
            if !code.contains(&at) {
                return Some(0);
            }
            let wanted =
                usize::try_from(code.end - at).map_or(instruction.len(), |rest| rest.min(instruction.len()));
            let is_there = at >= first && at - first + wanted as u64 <= filled as u64;
            if !is_there {
                first = at.saturating_sub(CODE_BUFFER as u64 / 4).max(code.start);
                filled = usize::try_from(code.end - first).map_or(CODE_BUFFER, |rest| rest.min(CODE_BUFFER));
                let read = self.memory.read(first, buffer.get_mut(..filled)?);
                filled = if read.is_ok() { filled } else { 0 };
            }
            let start = usize::try_from(at - first).ok()?;
            let there = buffer.get(..filled)?.get(start..start.checked_add(wanted)?)?;
            instruction.get_mut(..wanted)?.copy_from_slice(there);
            Some(wanted)
        })
    }

    /// Returns whether a call of compiled code, which returns to `pc`, leads to the interpreter: by an adapter, or by a
    /// static call stub in the caller's own code.
    fn enters_interpreter(&self, pc: u64, target: u64) -> bool {
        let Ok(called) = self.blob_at(target) else { return false };
        called.kind == BlobKind::Adapter
            || self.blob_at(pc).is_ok_and(|caller| caller.address == called.address)
    }

    /// The caller whose return address lies above words that a routine keeps.
    ///
    /// Older calls of other routines may have left theirs there, so the entry nearest before the interrupted
    /// instruction decides.
    pub(super) fn caller_above_routine(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        if blob.kind != BlobKind::StubRoutines || blob.frame_bytes != 0 {
            return None;
        }
        let mut nearest: Option<(u64, Option<Cursor>)> = None;
        for word in 0..SEARCHED_WORDS {
            let slot = cursor.sp.checked_add(word * 8)?;
            let Some(pc) = self.stack.word(slot) else { break };
            let Some(CallTarget::Known(entry)) = self.target_of_call(pc) else { continue };
            let Some(distance) = cursor.pc.checked_sub(entry).filter(|&distance| distance <= LONGEST_ROUTINE)
            else {
                continue;
            };
            if entry < blob.code_begin || nearest.is_some_and(|(known, _)| known < distance) {
                continue;
            }
            if !self.leads_to(entry, cursor.pc, blob) {
                continue;
            }
            let sp = slot.checked_add(RETURN_ADDRESS_BYTES)?;
            // The frame pointer is the register's, or saved next to the return address.
            let saved = slot.checked_sub(8).and_then(|below| self.stack.word(below));
            let found = [Some(cursor.fp), saved].into_iter().flatten().find_map(|fp| {
                let caller = Cursor { pc, sp, fp, doing: Doing::CallingVm };
                self.is_caller(&caller).then_some(caller)
            });
            let is_second = nearest.is_some_and(|(known, _)| known == distance);
            nearest = Some((distance, found.filter(|_| !is_second)));
        }
        nearest.and_then(|(_, caller)| caller)
    }

    fn target_of_call(&self, pc: u64) -> Option<CallTarget> {
        if self.in_interpreter(pc) {
            return self.preceding_call(pc);
        }
        if !self.hotspot.is_code(pc) {
            return None;
        }
        self.call_target(pc, &self.blob_at(pc).ok()?)
    }
}
