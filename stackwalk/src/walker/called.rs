//! Contradictions between a frame and the call that is said to have led to it.
//!
//! Problem: a wrong return address is often that of a real call of an older frame, so that the frame that it leads to looks
//! right.
//! Approach: a direct call between compiled methods names its target. If that is compiled code of another method than the
//! callee's, by name and descriptor, the return address is not that of the callee, and the walk stops.
//! Name and descriptor, because a call of a virtual method may by then lead to the method of another class. A call that leads
//! to a stub, an adapter, a native method's wrapper (method handle linkers jump on to any method) or code of the caller
//! itself contradicts nothing.
//! Sources: `CompiledIC::set_to_monomorphic` and `CompiledStaticCall::set_to_compiled` in `code/compiledIC.cpp`,
//! `SharedRuntime::resolve_sub_helper` in `runtime/sharedRuntime.cpp`, JDK 11 to 25.

use super::walk::{Call, Cursor, Doing, Emit, Scopes, Walk};
use crate::cache::CompiledPc;
use crate::cpu::{CALL_BYTES, CallTarget, call_before};
use crate::frame::{Frame, Method};
use crate::hotspot::code_blob::BlobKind;
use crate::hotspot::nmethod::Identity;
use crate::memory::Memory;
use crate::stop::Stop;

/// Distance from an nmethod's header to its entries below which a call certainly leads to this nmethod: shorter than any,
/// header included.
const SURELY_THE_SAME: u64 = 256;

impl<M: Memory> Walk<'_, M> {
    /// Returns `caller` unless its call leads to another method than the one whose frame is `emit`.
    pub(super) fn uncontradicted(&mut self, emit: &Emit, caller: Cursor) -> Result<Cursor, Stop> {
        self.uncontradicted_by(caller, |walk| walk.outermost_method(emit))
    }

    /// The same for a callee that is a method in compiled code with these scopes.
    pub(super) fn uncontradicted_by_scopes(
        &mut self,
        scopes: &Scopes,
        caller: Cursor,
    ) -> Result<Cursor, Stop> {
        self.uncontradicted_by(caller, |walk| walk.outermost_scope(scopes))
    }

    fn uncontradicted_by(
        &mut self,
        caller: Cursor,
        callee: impl FnOnce(&Self) -> Option<Method>,
    ) -> Result<Cursor, Stop> {
        let pc = caller.pc;
        if caller.doing != Doing::CallingJava
            || pc == self.started.call_stub_return
            || self.in_interpreter(pc)
        {
            self.call.forget();
            return Ok(caller);
        }
        let method = callee(self);
        let callee = method.map_or(0, |method| method.0);
        let known = self.known_caller(pc, callee);
        let is_compared = known.as_ref().is_some_and(|known| {
            self.cache.keeps_steps() || callee != 0 && self.cache.callee(known) == callee
        });
        if !is_compared {
            if method.is_some_and(|method| self.calls_another(pc, method)) {
                self.call.forget();
                return Err(Stop::BadFrame(pc));
            }
            if let Some(known) = &known {
                self.note_callee(known, callee);
            }
        }
        self.call = Call { pc, callee, known };
        Ok(caller)
    }

    /// The code at the return address `pc`, if it is remembered and still the same: where steps are kept, if a walk has stepped
    /// there from `callee` before.
    fn known_caller(&mut self, pc: u64, callee: u64) -> Option<CompiledPc> {
        let (layout, memory, before) = (&self.hotspot.layout.nmethod, self.memory, self.code);
        let current = |blob| match before {
            // A method that calls itself; its identity was read just before.
            Some(code) if code.blob == blob => Some(code.identity),
            _ => Identity::read(layout, memory, blob).ok(),
        };
        if self.cache.keeps_steps() {
            self.cache.find_step(pc, callee, current)
        } else {
            self.cache.find_caller(pc, current)
        }
    }

    /// Notes that the call before the return address of `code` does not contradict `callee`.
    fn note_callee(&mut self, code: &CompiledPc, callee: u64) {
        if callee != 0 {
            self.cache.set_callee(code, callee);
        }
    }

    /// Notes the step to the frame at `cursor`, which is in the code of `entry`, for later walks.
    pub(super) fn note_step(&mut self, cursor: Cursor, entry: &CompiledPc) {
        if cursor.doing != Doing::CallingJava || cursor.pc != self.call.pc {
            return;
        }
        if self.cache.keeps_steps() {
            self.cache.insert_step(cursor.pc, self.call.callee, entry);
        } else {
            self.note_callee(entry, self.call.callee);
        }
    }

    /// The method that was called when the frame of `emit` began.
    fn outermost_method(&self, emit: &Emit) -> Option<Method> {
        match emit {
            Emit::Scopes(scopes) => self.outermost_scope(scopes),
            Emit::One(Frame::Interpreted { method, .. }) => Some(*method),
            _ => None,
        }
    }

    /// The method of a physical frame with these scopes.
    fn outermost_scope(&self, scopes: &Scopes) -> Option<Method> {
        let last = scopes.first.checked_add(u32::from(scopes.count.checked_sub(1)?))?;
        self.cache.scope(last).map(|scope| scope.method)
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
