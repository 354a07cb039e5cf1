//! Proofs of return addresses, and the Java code that called the interrupted C code or stub.
//!
//! Old frames leave return addresses in memory that newer frames do not overwrite, so finding one proves nothing. A
//! candidate counts only where a rule says a return address must be, and for calls out of Java only if the call
//! instruction's target lies outside the code cache.

use super::walk::{Code, Cursor, Doing, Walk};
use crate::cpu::{
    CALL_BYTES, CALLING_STUB_RULES, CODE_AFTER, CODE_BEFORE, CallTarget, INTERPRETER_METHOD,
    RETURN_ENTRY_BYTES, TRAMPOLINE_BYTES, Unwind, call_before, is_interpreter_return_entry,
    static_call_stub_offset, trampoline_target,
};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::limits::MAX_NATIVE_HOPS;
use crate::memory::Memory;

/// Last release whose return entries have been compared with those that are recognised; later ones are not judged by
/// them.
const LAST_KNOWN_RETURN_ENTRIES: u32 = 28;

impl<M: Memory> Walk<'_, M> {
    /// Returns whether a cursor is a frame that is calling: right code, and a call before its pc.
    pub(super) fn is_caller(&self, cursor: &Cursor) -> bool {
        if cursor.sp > self.capture.stack_high {
            return false;
        }
        match self.code_at(cursor.pc) {
            Ok(Code::CallStub) => self.on_stack(cursor.fp, cursor.sp),
            Ok(Code::Interpreter) => {
                if let Some(caller) = self.caller_of_frameless_entry(*cursor) {
                    return caller.is_some();
                }
                let method = self.slot(cursor.fp, INTERPRETER_METHOD);
                self.on_stack(cursor.fp, cursor.sp)
                    && method.is_ok_and(|method| method != 0 && method.is_multiple_of(8))
                    && !self.is_no_return_to_interpreter(cursor.pc)
            }
            Ok(Code::ContinuationBarrier) => true,
            Ok(Code::Blob(blob)) => self.is_calling_blob(cursor.pc, &blob),
            Err(_) => false,
        }
    }

    /// True if the interpreter code at `pc` shows that no call returns there.
    ///
    /// A bytecode invokes a method by a jump, so its return address follows no call instruction; it is the entry that
    /// restores the frame. A deoptimised frame leaves the same entries to its callers. Calls of the VM and of native
    /// code are calls.
    /// Sources: `generate_return_entry_for` in `cpu/x86/templateInterpreterGenerator_x86.cpp`,
    /// `AbstractInterpreter::deopt_continue_after_entry` in `interpreter/abstractInterpreter.cpp`, JDK 11 to 25.
    fn is_no_return_to_interpreter(&self, pc: u64) -> bool {
        if self.hotspot.jdk_major() > LAST_KNOWN_RETURN_ENTRIES {
            return false;
        }
        let mut code = [0; RETURN_ENTRY_BYTES];
        // Code of the interpreter stays mapped; a recording may lack it.
        self.memory.read(pc, &mut code).is_ok()
            && !is_interpreter_return_entry(&code)
            && !self.follows_call(pc)
    }

    fn is_calling_blob(&self, pc: u64, blob: &CodeBlob) -> bool {
        match blob.kind {
            BlobKind::Nmethod | BlobKind::NativeWrapper => {
                let layout = &self.hotspot.layout.nmethod;
                self.call_target(pc, blob).is_some()
                    || layout.is_deopt_handler(self.memory, blob, pc).unwrap_or(false)
            }
            BlobKind::RuntimeStub
            | BlobKind::Safepoint
            | BlobKind::Exception
            | BlobKind::Upcall
            | BlobKind::ValueFields => self.call_target(pc, blob).is_some(),
            BlobKind::ContinuationStubs => true,
            _ => false,
        }
    }

    /// The target of the call before the return address `pc`.
    pub(super) fn call_target(&self, pc: u64, blob: &CodeBlob) -> Option<CallTarget> {
        let mut bytes = [0; CALL_BYTES as usize];
        let target = call_before(self.code_behind(pc, blob, &mut bytes)?, pc)?;
        let CallTarget::Known(direct) = target else { return Some(target) };
        let is_own = direct >= blob.code_begin && direct < blob.code_end;
        let mut code = [0; TRAMPOLINE_BYTES];
        if code.is_empty() || !is_own || self.memory.read(direct, &mut code).is_err() {
            return Some(target);
        }
        Some(trampoline_target(&code).map_or(target, CallTarget::Known))
    }

    /// Returns whether the call before `pc` leads to an instruction of `callee`.
    pub(super) fn calls_into(&self, pc: u64, callee: &CodeBlob) -> bool {
        let target = self.blob_at(pc).ok().and_then(|blob| self.call_target(pc, &blob));
        match target {
            Some(CallTarget::Known(target)) => target >= callee.code_begin && target < callee.code_end,
            Some(CallTarget::Indirect) | None => false,
        }
    }

    /// The code that called the static call stub of its own method that the pc is in.
    ///
    /// After the sample the call may have been led elsewhere: to the callee's compiled code, or to be resolved again
    /// (`CompiledStaticCall::set`, later `CompiledDirectCall::set`, in `code/compiledIC.cpp`, JDK 11 to 25). In the
    /// part of an nmethod for stubs these instructions are a static call stub, where a return address is on top.
    pub(super) fn caller_of_static_call_stub(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        let start = cursor.pc.checked_sub(static_call_stub_offset(around)?)?;
        let caller = self.unwind(cursor, 0, Unwind::Return)?;
        let Some(CallTarget::Known(target)) = self.call_target(caller.pc, blob) else { return None };
        let stubs = self.hotspot.layout.nmethod.stubs(self.memory, blob);
        let called = target == start || stubs.is_some_and(|stubs| start >= stubs);
        (called && self.is_caller(&caller)).then_some(caller)
    }

    /// Returns whether a call precedes the return address `pc`, in a library or in the interpreter.
    pub(super) fn follows_call(&self, pc: u64) -> bool {
        self.preceding_call(pc).is_some()
    }

    /// The target of the call before the return address `pc`, in a library or in the interpreter.
    pub(super) fn preceding_call(&self, pc: u64) -> Option<CallTarget> {
        let mut code = [0; CALL_BYTES as usize];
        self.memory.read(pc.checked_sub(CALL_BYTES)?, &mut code).ok()?;
        call_before(&code, pc)
    }

    /// Returns whether the call before `pc` leads out of the code cache.
    pub(super) fn calls_native(&self, pc: u64) -> bool {
        let blob = match self.blob_at(pc) {
            Ok(blob) => blob,
            Err(_) => return false,
        };
        match self.call_target(pc, &blob) {
            Some(CallTarget::Known(target)) => !self.hotspot.is_code(target),
            Some(CallTarget::Indirect) | None => false,
        }
    }

    /// The Java frame that called the C code at `cursor` as a leaf, without leaving an anchor.
    ///
    /// Tried: the return address on top of the stack (a C function without frame) and the chain of frame
    /// pointers, which libjvm keeps.
    pub(super) fn caller_of_leaf_call(&self, cursor: Cursor) -> Option<Cursor> {
        let direct = self.unwind(cursor, 0, Unwind::Return)?;
        if let Some(caller) = self.as_leaf_caller(direct) {
            return Some(caller);
        }
        let mut at = cursor;
        for _ in 0..MAX_NATIVE_HOPS {
            let caller = self.unwind(at, 0, Unwind::FramePointer)?;
            if caller.sp <= at.sp {
                return None;
            }
            if self.hotspot.is_code(caller.pc) {
                return self.as_leaf_caller(caller);
            }
            at = caller;
        }
        None
    }

    fn as_leaf_caller(&self, cursor: Cursor) -> Option<Cursor> {
        if !self.calls_native(cursor.pc) {
            return None;
        }
        let cursor = Cursor { doing: Doing::CallingVm, ..cursor };
        match self.code_at(cursor.pc) {
            Ok(Code::Blob(blob)) if blob.kind == BlobKind::StubRoutines => Some(cursor),
            _ => self.is_caller(&cursor).then_some(cursor),
        }
    }

    /// The caller of a stub without fixed frame that is itself calling C code.
    ///
    /// Stubs of a blob of their own are called directly, and some push all registers that C code may change, such as
    /// those of load barriers of ZGC in JDK 11 (`ZBarrierSetAssembler::generate_load_barrier_stub` in
    /// `gc/z/zBarrierSetAssembler_x86.cpp`).
    /// Routines call C code too, such as G1's barriers in those that copy arrays, and are proven like interrupted ones.
    pub(super) fn caller_of_calling_stub(&self, cursor: Cursor, blob: &CodeBlob) -> Option<Cursor> {
        if let Some(caller) = self.caller_of_forward_exception(cursor, blob) {
            return caller;
        }
        let by_call = Some(cursor)
            .filter(|_| blob.kind == BlobKind::RuntimeStub && blob.frame_bytes == 0)
            .and_then(|cursor| self.caller_above_pushed(cursor, 0, blob));
        let accepted =
            |caller: &Cursor| self.is_caller(caller) && self.may_have_called(caller.pc, cursor.pc, blob);
        let by_rule = |&(above, rule): &(u64, Unwind)| {
            let at = Cursor { sp: cursor.sp.checked_add(above)?, ..cursor };
            self.unwind(at, 0, rule).filter(accepted)
        };
        let next = by_call
            .or_else(|| CALLING_STUB_RULES.iter().find_map(by_rule))
            .or_else(|| self.caller_above_routine(cursor, blob))?;
        Some(Cursor { doing: Doing::CallingVm, ..next })
    }
}
