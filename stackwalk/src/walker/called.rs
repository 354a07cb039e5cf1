//! Contradictions between a frame and the call that is said to have led to it.
//!
//! Problem: a wrong return address is often that of a real call of an older frame, so that the frame that it leads to
//! looks right.
//! Approach: a direct call between compiled methods names its target. If that is compiled code of another method than
//! the callee's, by name and descriptor, the return address is not that of the callee, and the walk stops. Name and
//! descriptor, because a call of a virtual method may by then lead to the method of another class. A call that leads to
//! a stub, an adapter, a native method's wrapper (method handle linkers jump on to any method) or code of the caller
//! itself contradicts nothing.
//! Sources: `CompiledIC::set_to_monomorphic` and `CompiledStaticCall::set_to_compiled` in `code/compiledIC.cpp`,
//! `SharedRuntime::resolve_sub_helper` in `runtime/sharedRuntime.cpp`, JDK 11 to 25.

use super::walk::{Call, Cursor, Doing, Emit, Walk};
use crate::cache::CompiledPc;
use crate::cpu::{CALL_BYTES, CallTarget, call_before};
use crate::frame::{Frame, Method};
use crate::hotspot::code_blob::BlobKind;
use crate::hotspot::nmethod::Identity;
use crate::memory::Memory;
use crate::stop::Stop;

/// Distance from an nmethod's header to its entries below which a call certainly leads to this nmethod: shorter than
/// any, header included.
const SURELY_THE_SAME: u64 = 256;

impl<M: Memory> Walk<'_, M> {
    /// Returns `caller` unless its call leads to another method than the one whose frame is `emit`.
    pub(super) fn uncontradicted(&mut self, emit: &Emit, caller: Cursor) -> Result<Cursor, Stop> {
        let pc = caller.pc;
        if caller.doing != Doing::CallingJava
            || pc == self.started.call_stub_return
            || self.in_interpreter(pc)
        {
            self.call.forget();
            return Ok(caller);
        }
        let method = self.outermost_method(emit);
        let callee = method.map_or(0, |method| method.0);
        let known = match self.cache.has_steps() {
            true => self.short_way().step_to(self.cache, pc, callee, self.code).map(|step| step.position),
            false => None,
        };
        if known.is_none() && method.is_some_and(|method| self.calls_another(pc, method)) {
            self.call.forget();
            return Err(Stop::BadFrame(pc));
        }
        self.call = Call { pc, callee, known };
        Ok(caller)
    }

    /// Notes the step to the frame at `cursor`, which is in the code of `entry`, for later walks.
    pub(super) fn note_step(&mut self, cursor: Cursor, entry: &CompiledPc) {
        if cursor.doing == Doing::CallingJava && cursor.pc == self.call.pc {
            self.cache.insert_step(cursor.pc, self.call.callee, entry);
        }
    }

    /// The method that was called when the frame of `emit` began.
    fn outermost_method(&self, emit: &Emit) -> Option<Method> {
        match emit {
            Emit::Scopes(scopes) => {
                let last = scopes.first.checked_add(u32::from(scopes.count.checked_sub(1)?))?;
                self.cache.scope(last).map(|scope| scope.method)
            }
            Emit::One(Frame::Interpreted { method, .. }) => Some(*method),
            _ => None,
        }
    }

    /// Returns whether the call before the return address `pc` leads to compiled code of another method than `callee`.
    fn calls_another(&self, pc: u64, callee: Method) -> bool {
        let Some(target) = self.known_target(pc) else { return false };
        let callee_code = self.code.map(|code| code.blob);
        if callee_code.is_some_and(|blob| target.wrapping_sub(blob) < SURELY_THE_SAME) {
            return false;
        }
        let heap = &self.hotspot.layout.code_heap;
        let blob_of = |pc| self.started.code_cache.find_blob(heap, self.memory, pc).ok();
        // The callee's code, or a static call stub in the caller's.
        let called = blob_of(target);
        if called.is_none() || called == callee_code || called == blob_of(pc) {
            return false;
        }
        self.other_method_at(target, pc, callee).is_some_and(|other| {
            let name = |method| self.hotspot.name_and_descriptor(self.memory, method).ok();
            let (called, found) = (name(other), name(callee));
            let differ = called.is_some() && found.is_some() && called != found;
            // Read again: the VM may have freed the code, and the names with it.
            differ && self.other_method_at(target, pc, callee) == Some(other)
        })
    }

    /// The target of a direct call in compiled code before the return address `pc`.
    fn known_target(&self, pc: u64) -> Option<u64> {
        let mut code = [0; CALL_BYTES as usize];
        self.memory.read(pc.checked_sub(CALL_BYTES)?, &mut code).ok()?;
        match call_before(&code, pc)? {
            CallTarget::Known(target) => Some(target),
            CallTarget::Indirect => None,
        }
    }

    /// The method whose compiled code a call in other compiled code leads to, unless it is `callee`.
    fn other_method_at(&self, target: u64, pc: u64, callee: Method) -> Option<Method> {
        let compiled = |pc| self.blob_at(pc).ok().filter(|blob| blob.kind == BlobKind::Nmethod);
        let called = compiled(target)?;
        let method = Identity::read(&self.hotspot.layout.nmethod, self.memory, called.address).ok()?.method;
        if method == callee.0 {
            return None;
        }
        let caller = compiled(pc)?;
        let is_handler =
            self.hotspot.layout.nmethod.is_deopt_handler(self.memory, &caller, pc).unwrap_or(true);
        (!is_handler).then_some(Method(method))
    }
}
