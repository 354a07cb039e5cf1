//! The caller of the routine of `StubRoutines` that forwards a pending exception.
//!
//! Problem: no call leads to it. The interpreter, wrappers of native methods and stubs jump to it when the VM has left
//! an exception, with the return address that they would return to on top of the stack.
//! Approach: the routine is found by its place, and the return address by its code.
//! Sources: `generate_initial_stubs` (`generate_initial` before JDK 21) in `cpu/x86/stubGenerator_x86_64.cpp`, JDK 11
//! to 25, makes this routine first and the call stub second (26 to 28: -XX:+PrintStubCode); `call_VM_base` in
//! `cpu/x86/macroAssembler_x86.cpp` and `generate_native_wrapper` in `cpu/x86/sharedRuntime_x86_64.cpp` jump to it.

use super::walk::{Cursor, Doing, Walk};
use crate::cpu::{
    CODE_AFTER, CODE_BEFORE, ForwardExceptionPlace, RETURN_ADDRESS_BYTES, Unwind, forward_exception_place,
};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::Memory;

impl<M: Memory> Walk<'_, M> {
    /// The code to which the routine at `cursor`, interrupted or calling the VM, would return. `None` if it is another
    /// routine, and `Some(None)` if no return address is where this one keeps it.
    pub(super) fn caller_of_forward_exception(
        &self,
        cursor: Cursor,
        blob: &CodeBlob,
    ) -> Option<Option<Cursor>> {
        let call_stub_returns = self.started.call_stub_return;
        let is_before_call_stub =
            (blob.code_begin..call_stub_returns).contains(&cursor.pc) && call_stub_returns < blob.code_end;
        if blob.kind != BlobKind::StubRoutines || !is_before_call_stub {
            return None;
        }
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, blob, &mut bytes).ok()?;
        let caller = match forward_exception_place(around)? {
            ForwardExceptionPlace::Top => self.unwind(cursor, 0, Unwind::OnTop),
            ForwardExceptionPlace::AboveWord => {
                let sp = cursor.sp.checked_add(RETURN_ADDRESS_BYTES)?;
                self.unwind(Cursor { sp, ..cursor }, 0, Unwind::OnTop)
            }
            ForwardExceptionPlace::Register => {
                let pc = self.capture.registers.throwing_pc();
                (cursor.sp == self.capture.sp).then_some(Cursor { pc, ..cursor })
            }
        };
        let caller = caller.map(|caller| Cursor { doing: Doing::CallingVm, ..caller });
        Some(caller.filter(|caller| self.is_caller(caller)))
    }
}
