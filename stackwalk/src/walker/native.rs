//! Native frames: above, between and below the Java frames of one physical stack.
//!
//! A native stretch begins at the interrupted instruction or below an entry frame, and is followed by unwind tables
//! until it reaches the code cache or the thread's root. What lies there is known beforehand: the anchor the VM
//! left, nothing (the first native frames of a thread), or the Java code that made a leaf call.
//! Invariant: the anchor decides where Java goes on, the tables only fill in what is above it; where both disagree
//! or the tables end, a [`Frame::Gap`] stands for what is missing and no Java frame is lost.

use super::walk::{Below, Code, Cursor, Doing, Emit, Step, Walk};
use crate::arch::{CallTarget, Unwind, call_before};
use crate::frame::{Blob, Frame, Missing};
use crate::hotspot::anchor::Anchor;
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;
use crate::native::{NativeRegisters, NativeStop};
use crate::stop::Stop;

/// Bytes between the sp of the Java frame that native code returns to and the sp in its anchor.
///
/// Wrappers and stubs set the anchor with sp as it is at the call, the interpreter after two words and its
/// arguments (`MacroAssembler::call_VM_base`); more means that frames of a stub called by the VM lie in between.
const ANCHOR_SLACK: u64 = 256;

/// Longest routine of libjvm without unwind tables, generously: `_Copy_arrayof_conjoint_bytes` has 352 bytes.
const ASSEMBLER_REACH: u64 = 1024;

/// Bytes of `call` with a distance, the only call between functions of one library.
const DIRECT_CALL_BYTES: usize = 5;

impl<M: Memory> Walk<'_, M> {
    /// Whether a native stretch can begin at the interrupted instruction.
    pub(super) fn starts_native(&self) -> bool {
        self.native.is_some() && !self.hotspot.is_code(self.capture.pc)
    }

    /// Begins a native stretch at the interrupted instruction.
    pub(super) fn first_native(&mut self, below: Below) -> Result<Cursor, Stop> {
        self.begin_native(NativeRegisters::of(&self.capture), true, below)
    }

    /// Begins a native stretch at `registers`.
    pub(super) fn begin_native(
        &mut self,
        registers: NativeRegisters,
        interrupted: bool,
        below: Below,
    ) -> Result<Cursor, Stop> {
        self.registers = registers;
        self.below = below;
        let NativeRegisters { pc, sp, fp, .. } = registers;
        self.aligned(Cursor { pc, sp, fp, doing: Doing::Native { interrupted } })
    }

    /// One native frame.
    pub(super) fn step_native(&mut self, cursor: Cursor, interrupted: bool) -> Result<Step, Stop> {
        let frame = Frame::Native { place: cursor.place(), interrupted };
        let Some(native) = self.native.as_deref_mut() else {
            return Err(Stop::NativeCode(cursor.pc));
        };
        let found = match native.caller(&self.registers, interrupted, &self.stack) {
            Err(stop @ NativeStop::NoRule(_)) if interrupted => self.caller_of_assembler().ok_or(stop),
            found => found,
        };
        let next = match found {
            Ok(caller) if self.hotspot.is_code(caller.pc) => self.java_below(cursor, &caller),
            Ok(caller) if self.is_astray(cursor, caller.sp) => Found::Lost(self.after_gap(cursor)),
            Ok(caller) => Found::Next(self.begin_native(caller, false, self.below)),
            Err(NativeStop::Root) => match self.below {
                Below::Anchor(_) => Found::Lost(self.after_gap(cursor)),
                Below::Unknown | Below::Root => Found::Next(Err(Stop::EndOfStack)),
            },
            Err(stop) => Found::Lost(self.after_gap(cursor).map_err(|reason| match (reason, stop) {
                (Stop::NativeCode(_), NativeStop::Unreadable(address)) => self.unreadable(address),
                (reason, _) => reason,
            })),
        };
        Ok(match next {
            Found::Next(next) => Step { emit: Emit::One(frame), next },
            Found::Behind(stub, next) => Step { emit: Emit::Two(frame, stub), next },
            Found::Lost(next) => Step {
                emit: Emit::Two(frame, Frame::Gap { missing: Missing::Native, place: cursor.place() }),
                next,
            },
        })
    }

    /// The caller of a small assembler routine without unwind tables (`SpinPause`, `_Copy_*` of libjvm).
    ///
    /// These never move sp. The return address on top proves itself: the call before it leads to where the pc is or a
    /// little before it, and no table describes that place either.
    /// Source: `os_cpu/linux_x86/linux_x86_64.S` (JDK 11, 17), `copy_linux_x86_64.S` and others (21, 25).
    fn caller_of_assembler(&mut self) -> Option<NativeRegisters> {
        let NativeRegisters { pc, sp, .. } = self.registers;
        let returns = self.stack.word(sp)?;
        let mut code = [0; DIRECT_CALL_BYTES];
        self.memory.read(returns.checked_sub(DIRECT_CALL_BYTES as u64)?, &mut code).ok()?;
        let Some(CallTarget::Known(target)) = call_before(&code, returns) else { return None };
        if pc.checked_sub(target).is_none_or(|distance| distance > ASSEMBLER_REACH) {
            return None;
        }
        let routine = NativeRegisters { pc: target, ..self.registers };
        let described = self.native.as_deref_mut()?.caller(&routine, true, &self.stack);
        matches!(described, Err(NativeStop::NoRule(_))).then_some(NativeRegisters {
            pc: returns,
            sp: sp.checked_add(8)?,
            ..self.registers
        })
    }

    /// Whether a thread that runs no Java stands in a routine of the VM's own making, as compiler threads do in
    /// `flush_icache_stub` when they install code.
    pub(super) fn is_called_by_native(&self) -> bool {
        // Blobs of other names, `flush_icache_stub` among them, are runtime stubs to us.
        let is_routine =
            |blob: &CodeBlob| matches!(blob.kind, BlobKind::StubRoutines | BlobKind::RuntimeStub);
        let is_native = self.native.is_some() && self.capture.thread == 0;
        is_native && matches!(self.code_at(self.capture.pc), Ok(Code::Blob(blob)) if is_routine(&blob))
    }

    /// The C code that called a routine of the VM's own making, such as `flush_icache_stub`.
    ///
    /// Libraries call these through a pointer, so only a call of any kind and a table for it can be asked for; what is
    /// behind proves itself as it does for all native frames.
    pub(super) fn native_caller_of_stub(&mut self, cursor: Cursor) -> Option<Result<Cursor, Stop>> {
        for rule in [Unwind::Return, Unwind::Pushed, Unwind::FramePointer] {
            let Some(Cursor { pc, sp, fp, .. }) = self.unwind(cursor, 0, rule) else { continue };
            if self.hotspot.is_code(pc) || !self.follows_call(pc) {
                continue;
            }
            let registers = NativeRegisters { pc, sp, fp, ..NativeRegisters::of(&self.capture) };
            if self.native.as_deref_mut()?.caller(&registers, false, &self.stack).is_ok() {
                return Some(self.begin_native(registers, false, Below::Unknown));
            }
        }
        None
    }

    /// The caller of an adapter to the interpreter that lets the VM correct the call which led to it.
    ///
    /// r13 is sp as it was at the adapter's entry, and so it is after the VM's functions, which keep it.
    /// Source: `patch_callers_callsite` in `cpu/x86/sharedRuntime_x86_64.cpp`, JDK 11 to 25.
    fn caller_of_patching_adapter(&self, adapter: &NativeRegisters) -> Option<Cursor> {
        let [_, r13, ..] = adapter.r12_to_r15;
        if !self.on_stack(r13, adapter.sp) || !self.calls_native(adapter.pc) {
            return None;
        }
        let caller = self.unwind(Cursor::calling(adapter.pc, r13, adapter.fp), 0, Unwind::Return)?;
        self.is_caller(&caller).then_some(caller)
    }

    /// Where native code returns to Java.
    fn java_below(&mut self, cursor: Cursor, caller: &NativeRegisters) -> Found {
        if let Below::Anchor(anchor) = self.below
            && !self.is_yielding(&anchor, caller)
        {
            let near = anchor.sp.checked_sub(caller.sp).is_some_and(|distance| distance <= ANCHOR_SLACK);
            let next = self.at_anchor(&anchor);
            return if near { Found::Next(next) } else { Found::Lost(next) };
        }
        let NativeRegisters { pc, sp, fp, .. } = *caller;
        let candidate = Cursor::calling(pc, sp, fp);
        let proven = match self.code_at(pc) {
            Ok(Code::Blob(blob)) if blob.kind == BlobKind::StubRoutines => true,
            Ok(Code::Blob(blob)) if blob.kind == BlobKind::Adapter => {
                return match self.caller_of_patching_adapter(caller) {
                    Some(next) => {
                        let stub = Frame::Stub { blob: Blob(blob.address), place: candidate.place() };
                        Found::Behind(stub, Ok(next))
                    }
                    None => Found::Lost(self.after_gap(cursor)),
                };
            }
            _ => self.is_caller(&candidate),
        };
        if proven { Found::Next(self.aligned(candidate)) } else { Found::Lost(self.after_gap(cursor)) }
    }

    /// Whether `caller` is `Continuation.doYield`, whose callers are still on the stack while they are copied, or a stub
    /// that brings frames back, although the anchor is at the entry already.
    fn is_yielding(&mut self, anchor: &Anchor, caller: &NativeRegisters) -> bool {
        let thaws = |blob: CodeBlob| blob.kind == BlobKind::ContinuationStubs;
        let cursor = Cursor::calling(caller.pc, caller.sp, caller.fp);
        self.is_at_entry(anchor.sp) && (self.is_yield(cursor) || self.blob_at(caller.pc).is_ok_and(thaws))
    }

    /// Whether no caller of the frame at `cursor` can have this sp.
    fn is_astray(&self, cursor: Cursor, sp: u64) -> bool {
        let past_anchor = matches!(self.below, Below::Anchor(anchor) if sp > anchor.sp);
        past_anchor || sp <= cursor.sp || sp > self.high
    }

    /// Where to go on when the tables end at `cursor`.
    fn after_gap(&self, cursor: Cursor) -> Result<Cursor, Stop> {
        match self.below {
            Below::Anchor(anchor) => self.at_anchor(&anchor),
            // The Java part is whole; the gap says that the native root is not.
            Below::Root => Err(Stop::EndOfStack),
            Below::Unknown => self.caller_of_leaf_call(cursor).ok_or(Stop::NativeCode(cursor.pc)),
        }
    }
}

/// Result of looking for the caller of a native frame.
enum Found {
    /// The next frame, or the end of the walk.
    Next(Result<Cursor, Stop>),
    /// The next frame behind that of a stub.
    Behind(Frame, Result<Cursor, Stop>),
    /// Where to go on behind frames that could not be found.
    Lost(Result<Cursor, Stop>),
}
