//! Native frames: above, between and below the Java frames of one physical stack.
//!
//! A run of native frames begins at the interrupted instruction or below an entry frame. Unwind tables lead through it
//! to the code cache or to the thread's root. Its origin is known beforehand: the anchor that the VM has set, the root
//! (the first native frames of a thread), or the Java code that made a leaf call.
//! Invariant: the anchor decides where Java frames continue, the tables only fill in the native frames above. Where
//! both disagree or the tables end, a [`Frame::Gap`] stands for the missing frames and no Java frame is lost.

use super::walk::{Code, Cursor, Doing, Emit, NativeOrigin, Step, Walk};
use crate::cpu::{
    ANCHOR_SLACK, ASSEMBLER_ROUTINE_BYTES, CallTarget, DIRECT_CALL_BYTES, RETURNS_BY_REGISTER, Unwind,
    call_before, far_jumps, patching_adapter,
};
use crate::frame::{Blob, Frame, Missing};
use crate::hotspot::anchor::Anchor;
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::stop::Stop;
use crate::walker::native_code::{NativeRegisters, NativeStop};

/// Most functions between a call and an assembler routine, each of which ends with a jump to the next.
const MAX_TAIL_CALLS: usize = 2;
/// Bytes of such a function that are searched; `Copy::conjoint_memory_atomic` has 96.
const TAIL_CALL_REACH: usize = 128;

impl<M: Memory> Walk<'_, M> {
    /// Returns whether a run of native frames can begin at the interrupted instruction.
    pub(super) fn starts_native(&self) -> bool {
        self.native.is_some() && !self.hotspot.is_code(self.capture.pc)
    }

    /// Follows no more native frames behind a Java frame, if they were wanted only as far as that.
    pub(super) fn leave_native(&mut self, emit: &Emit) {
        let is_java = match emit {
            Emit::Nothing => false,
            Emit::Scopes(_) => true,
            Emit::One(frame) | Emit::Two(_, frame) => frame.method().is_some(),
        };
        if is_java && self.native_until_java {
            self.native = None;
        }
    }

    /// Begins a run of native frames at the interrupted instruction.
    pub(super) fn first_native(&mut self, origin: NativeOrigin) -> Result<Cursor, Stop> {
        self.begin_native(NativeRegisters::of(&self.capture), origin)
    }

    /// Begins a run of native frames at `registers`.
    pub(super) fn begin_native(
        &mut self,
        registers: NativeRegisters,
        origin: NativeOrigin,
    ) -> Result<Cursor, Stop> {
        self.registers = registers;
        self.origin = origin;
        let NativeRegisters { pc, sp, fp, .. } = registers;
        self.aligned(Cursor { pc, sp, fp, doing: Doing::Native })
    }

    pub(super) fn step_native(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        let NativeRegisters { interrupted, .. } = self.registers;
        let Some(native) = self.native.as_deref_mut() else {
            return Err(Stop::NativeCode(cursor.pc));
        };
        let found = match native.caller(&self.registers, &self.stack) {
            Err(stop @ NativeStop::NoRule(_)) if interrupted => self.caller_of_assembler().ok_or(stop),
            found => found,
        };
        // The code that ends a signal handler is no caller of it, so its pc is looked up as it is.
        let ends_handler = found.is_ok_and(|caller| caller.interrupted);
        let frame = Frame::Native { place: cursor.place(), interrupted: interrupted || ends_handler };
        let next = match found {
            Ok(caller) if caller.interrupted => self.below_signal(cursor, &caller),
            Ok(caller) if self.hotspot.is_code(caller.pc) => self.java_below(cursor, &caller),
            Ok(caller) if self.is_implausible_sp(cursor, caller.sp) => {
                NativeCaller::BehindGap(self.after_gap(cursor))
            }
            Ok(caller) => NativeCaller::Found(self.begin_native(caller, self.origin)),
            Err(NativeStop::Root) => match self.origin {
                NativeOrigin::Anchor(_) => NativeCaller::BehindGap(self.after_gap(cursor)),
                NativeOrigin::NoAnchor | NativeOrigin::ThreadRoot => {
                    NativeCaller::Found(Err(Stop::EndOfStack))
                }
            },
            Err(stop) => {
                NativeCaller::BehindGap(self.after_gap(cursor).map_err(|reason| match (reason, stop) {
                    (Stop::NativeCode(_), NativeStop::Unreadable(address)) => self.unreadable(address),
                    (reason, _) => reason,
                }))
            }
        };
        Ok(match next {
            NativeCaller::Found(next) => Step { emit: Emit::One(frame), next },
            NativeCaller::BehindStub(stub, next) => Step { emit: Emit::Two(frame, stub), next },
            NativeCaller::BehindGap(next) => Step {
                emit: Emit::Two(frame, Frame::Gap { missing: Missing::Native, place: cursor.place() }),
                next,
            },
        })
    }

    /// The caller of a small assembler routine without unwind tables (`SpinPause`, `_Copy_*` of libjvm).
    ///
    /// These never move sp. The return address on top is proven by the call before it, which leads to the pc or a
    /// little before it, where no table applies either, or to a function that ends with a jump to such a place.
    /// Source: `os_cpu/linux_x86/linux_x86_64.S` (JDK 11, 17), `copy_linux_x86_64.S` and others (21, 25).
    fn caller_of_assembler(&mut self) -> Option<NativeRegisters> {
        let NativeRegisters { pc, sp, fp, .. } = self.registers;
        let Cursor { pc: returns, sp, .. } = self.unwind(Cursor::calling(pc, sp, fp), 0, Unwind::Return)?;
        let mut code = [0; DIRECT_CALL_BYTES as usize];
        self.memory.read(returns.checked_sub(DIRECT_CALL_BYTES)?, &mut code).ok()?;
        let Some(CallTarget::Known(target)) = call_before(&code, returns) else { return None };
        let is_reached = self.is_in_assembler(target) || self.jumps_to_assembler(target);
        is_reached.then_some(NativeRegisters { pc: returns, sp, interrupted: false, ..self.registers })
    }

    /// Returns whether `address` is in the routine without unwind tables that the pc is in.
    fn is_in_assembler(&mut self, address: u64) -> bool {
        let at = NativeRegisters { pc: address, ..self.registers };
        let distance = self.registers.pc.checked_sub(address);
        distance.is_some_and(|distance| distance <= ASSEMBLER_ROUTINE_BYTES)
            && self
                .native
                .as_deref_mut()
                .is_some_and(|native| matches!(native.caller(&at, &self.stack), Err(NativeStop::NoRule(_))))
    }

    /// Returns whether the function at `start` ends with a jump into the routine without unwind tables that the pc is
    /// in, or with one to another such function.
    ///
    /// The compiler ends these functions so; a jump leaves the return address on top of the stack.
    /// Source: `AccessInternal::arraycopy_*` in `oops/accessBackend.cpp`, some of which call
    /// `Copy::conjoint_memory_atomic` in `utilities/copy.cpp`, JDK 11 to 25.
    fn jumps_to_assembler(&mut self, mut start: u64) -> bool {
        for _ in 0..MAX_TAIL_CALLS {
            let mut code = [0; TAIL_CALL_REACH];
            if self.memory.read(start, &mut code).is_err() {
                return false;
            }
            if far_jumps(&code, start).any(|target| self.is_in_assembler(target)) {
                return true;
            }
            let Some(next) = far_jumps(&code, start).next() else { return false };
            start = next;
        }
        false
    }

    /// Returns whether a thread that runs no Java is in a generated routine of the VM, as compiler threads are in
    /// `flush_icache_stub` when they install code.
    pub(super) fn is_called_by_native(&self) -> bool {
        // Blobs of other names, `flush_icache_stub` among them, have the kind of runtime stubs.
        let is_routine =
            |blob: &CodeBlob| matches!(blob.kind, BlobKind::StubRoutines | BlobKind::RuntimeStub);
        let is_native = self.native.is_some() && self.capture.thread == 0;
        is_native && matches!(self.code_at(self.capture.pc), Ok(Code::Blob(blob)) if is_routine(&blob))
    }

    /// The C code that called a generated routine of the VM, such as `flush_icache_stub`.
    ///
    /// Libraries call these through a pointer, so the proof is a call of any kind and an unwind table for it. The
    /// frames below are proven like all native frames.
    pub(super) fn native_caller_of_stub(&mut self, cursor: Cursor) -> Option<Result<Cursor, Stop>> {
        for rule in [Unwind::Return, Unwind::Pushed, Unwind::FramePointer] {
            let Some(Cursor { pc, sp, fp, .. }) = self.unwind(cursor, 0, rule) else { continue };
            if self.hotspot.is_code(pc) || !self.follows_call(pc) {
                continue;
            }
            let registers =
                NativeRegisters { pc, sp, fp, interrupted: false, ..NativeRegisters::of(&self.capture) };
            if self.native.as_deref_mut()?.caller(&registers, &self.stack).is_ok() {
                return Some(self.begin_native(registers, NativeOrigin::NoAnchor));
            }
        }
        None
    }

    /// The caller of an adapter to the interpreter that has the VM patch the call which led to it.
    ///
    /// A register that the VM's functions preserve keeps the sp of the adapter's entry.
    /// Source: `patch_callers_callsite` in `cpu/x86/sharedRuntime_x86_64.cpp`, JDK 11 to 25.
    fn caller_of_patching_adapter(&self, adapter: &NativeRegisters) -> Option<Cursor> {
        let (entry_sp, rule) = patching_adapter(adapter.sp, &adapter.preserved);
        if !self.on_stack(entry_sp, adapter.sp) || !self.calls_native(adapter.pc) {
            return None;
        }
        let caller = self.unwind(Cursor::calling(adapter.pc, entry_sp, adapter.fp), 0, rule)?;
        self.is_caller(&caller).then_some(caller)
    }

    /// The Java frame that the native code at `cursor` returns to.
    pub(super) fn java_below(&mut self, cursor: Cursor, caller: &NativeRegisters) -> NativeCaller {
        if let NativeOrigin::Anchor(anchor) = self.origin
            && !self.is_yielding(&anchor, caller)
        {
            let near = anchor.sp.checked_sub(caller.sp).is_some_and(|distance| distance <= ANCHOR_SLACK);
            if !near && self.is_upcall(caller.pc) {
                return self.upcall_below(cursor, caller);
            }
            let next = self.at_anchor(&anchor);
            return if near { NativeCaller::Found(next) } else { NativeCaller::BehindGap(next) };
        }
        let NativeRegisters { pc, sp, fp, .. } = *caller;
        let candidate = Cursor::calling(pc, sp, fp);
        let proven = match self.code_at(pc) {
            Ok(Code::Blob(blob)) if blob.kind == BlobKind::StubRoutines => true,
            Ok(Code::Blob(blob)) if blob.kind == BlobKind::Adapter => {
                return match self.caller_of_patching_adapter(caller) {
                    Some(next) => {
                        let stub = Frame::Stub { blob: Blob(blob.address), place: candidate.place() };
                        NativeCaller::BehindStub(stub, Ok(next))
                    }
                    None => NativeCaller::BehindGap(self.after_gap(cursor)),
                };
            }
            _ => self.is_caller(&candidate),
        };
        if proven {
            NativeCaller::Found(self.aligned(candidate))
        } else {
            NativeCaller::BehindGap(self.after_gap(cursor))
        }
    }

    /// The upcall stub that called the VM's code at `cursor`.
    fn upcall_below(&self, cursor: Cursor, caller: &NativeRegisters) -> NativeCaller {
        let NativeRegisters { pc, sp, fp, .. } = *caller;
        let stub = Cursor::calling(pc, sp, fp);
        match self.is_caller(&stub) {
            true => NativeCaller::Found(self.aligned(stub)),
            false => NativeCaller::BehindGap(self.after_gap(cursor)),
        }
    }

    /// Returns whether `caller` is `Continuation.doYield`, whose callers remain on the stack while they are frozen, or
    /// a stub that thaws frames, although the anchor is at the entry already.
    fn is_yielding(&mut self, anchor: &Anchor, caller: &NativeRegisters) -> bool {
        let thaws = |blob: CodeBlob| blob.kind == BlobKind::ContinuationStubs;
        let cursor = Cursor::calling(caller.pc, caller.sp, caller.fp);
        self.is_at_entry(anchor.sp) && (self.is_yield(cursor) || self.blob_at(caller.pc).is_ok_and(thaws))
    }

    /// Returns whether no caller of the frame at `cursor` can have this sp.
    fn is_implausible_sp(&self, cursor: Cursor, sp: u64) -> bool {
        let past_anchor = matches!(self.origin, NativeOrigin::Anchor(anchor) if sp > anchor.sp);
        let is_above = sp > cursor.sp || sp == cursor.sp && RETURNS_BY_REGISTER && self.registers.interrupted;
        past_anchor || !is_above || sp > self.high
    }

    /// The next frame when the tables end at `cursor`.
    pub(super) fn after_gap(&self, cursor: Cursor) -> Result<Cursor, Stop> {
        match self.origin {
            NativeOrigin::Anchor(anchor) => self.at_anchor(&anchor),
            // The Java part is whole; the gap says that the native root is not.
            NativeOrigin::ThreadRoot => Err(Stop::EndOfStack),
            NativeOrigin::NoAnchor => self.caller_of_leaf_call(cursor).ok_or(Stop::NativeCode(cursor.pc)),
        }
    }
}

pub(super) enum NativeCaller {
    /// The next frame, or the end of the walk.
    Found(Result<Cursor, Stop>),
    BehindStub(Frame, Result<Cursor, Stop>),
    /// The next frame behind frames that could not be found.
    BehindGap(Result<Cursor, Stop>),
}
