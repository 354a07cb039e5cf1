//! Frames that called something: the pc is a return address and the frame is complete.

use super::walk::{Code, Cursor, Doing, Emit, NativeOrigin, Step, Walk};
use crate::cpu::{
    FRAME_RECORD_BYTES, INTERPRETER_BCP, INTERPRETER_METHOD, RETURN_ADDRESS_BYTES, Unwind, return_address,
};
use crate::frame::{Blob, Frame, Method};
use crate::hotspot::anchor::Anchor;
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::hotspot::interpreter::Bytecodes;
use crate::memory::{Memory, at};
use crate::stop::Stop;
use crate::walker::native_code::NativeRegisters;

impl<M: Memory> Walk<'_, M> {
    pub(super) fn step_caller(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        if cursor.pc == self.started.call_stub_return {
            return self.step_entry(cursor);
        }
        if self.in_interpreter(cursor.pc) {
            return self.step_interpreter(cursor);
        }
        let known = self.call.known.filter(|_| self.call.pc == cursor.pc);
        if let Some(position) = known
            && let Some(entry) = self.cache.step_code(position)
        {
            self.cache.touch_step(position);
            return self.step_compiled(cursor, &entry);
        }
        if let Some(entry) = self.remembered(cursor) {
            self.note_step(cursor, &entry);
            return self.step_compiled(cursor, &entry);
        }
        match self.code_at(cursor.pc)? {
            Code::CallStub => self.step_entry(cursor),
            Code::Interpreter => self.step_interpreter(cursor),
            Code::ContinuationBarrier => Ok(Step { emit: Emit::Nothing, next: self.next_chunk() }),
            Code::Blob(blob) => self.step_blob(cursor, &blob),
        }
    }

    fn step_blob(&mut self, cursor: Cursor, blob: &CodeBlob) -> Result<Step, Stop> {
        let stub = Emit::One(Frame::Stub { blob: Blob(blob.address), place: cursor.place() });
        if let Some(next) = self.caller_of_followed_stub(cursor, blob) {
            return Ok(Step { emit: stub, next: Ok(next) });
        }
        match blob.kind {
            BlobKind::Nmethod | BlobKind::NativeWrapper => {
                let undone = self.undo_deoptimisation(cursor, blob)?;
                let known = if undone == cursor { None } else { self.remembered(undone) };
                let is_replaced = undone != cursor;
                let cursor = undone;
                let entry = match known {
                    Some(entry) => entry,
                    None => self.decode(cursor, blob)?,
                };
                // A return address that deoptimisation has replaced stands for any pc of the code.
                if !is_replaced {
                    self.note_step(cursor, &entry);
                }
                self.step_compiled(cursor, &entry)
            }
            BlobKind::ContinuationStubs => Ok(self.step_thaw(cursor, None)),
            BlobKind::Safepoint if blob.frame_bytes >= FRAME_RECORD_BYTES => {
                let frame = cursor.sp.wrapping_add(blob.frame_bytes);
                let fp = self.word(frame.wrapping_sub(FRAME_RECORD_BYTES))?;
                let slot = frame.wrapping_sub(RETURN_ADDRESS_BYTES);
                let next = match self.returning_below(blob, slot, fp) {
                    Some(polling) => Ok(polling),
                    None => self.caller_of_fixed_frame(cursor, blob.frame_bytes, Doing::CallingVm),
                };
                Ok(Step { emit: stub, next })
            }
            BlobKind::RuntimeStub | BlobKind::Exception if blob.frame_bytes >= FRAME_RECORD_BYTES => {
                let next = self.caller_of_fixed_frame(cursor, blob.frame_bytes, Doing::CallingVm);
                Ok(Step { emit: stub, next })
            }
            BlobKind::Deoptimization => self.step_deoptimization(cursor, blob),
            BlobKind::Upcall => self.step_upcall(cursor, blob, Unwind::FramePointer),
            BlobKind::StubRoutines | BlobKind::RuntimeStub | BlobKind::Safepoint | BlobKind::Exception => {
                let next = self
                    .caller_of_entry_barrier(cursor, blob)
                    .or_else(|| self.caller_of_calling_stub(cursor, blob))
                    .ok_or(Stop::BadFrame(cursor.pc));
                Ok(Step { emit: stub, next })
            }
            // An adapter that allocates objects for the fields that its caller passes.
            BlobKind::Adapter if blob.frame_bytes >= FRAME_RECORD_BYTES => Ok(Step {
                emit: stub,
                next: self.caller_of_fixed_frame(cursor, blob.frame_bytes, Doing::CallingJava),
            }),
            BlobKind::Interpreter | BlobKind::Adapter | BlobKind::Leaf | BlobKind::ValueFields => {
                Err(Stop::BadFrame(cursor.pc))
            }
        }
    }

    /// Deoptimisation replaces the return address into a frame by the address of a handler and keeps the
    /// original in the frame; debug information exists for the original only.
    fn undo_deoptimisation(&self, cursor: Cursor, blob: &CodeBlob) -> Result<Cursor, Stop> {
        let layout = &self.hotspot.layout.nmethod;
        if blob.kind != BlobKind::Nmethod || !layout.is_deopt_handler(self.memory, blob, cursor.pc)? {
            return Ok(cursor);
        }
        let offset = layout.orig_pc_offset(self.memory, blob.address)?;
        let pc = self.word(at(cursor.sp, offset))?;
        if pc < blob.code_begin || pc >= blob.code_end {
            return Err(Stop::BadFrame(cursor.pc));
        }
        Ok(Cursor { pc, ..cursor })
    }

    /// The caller of a complete frame of `size` bytes.
    pub(super) fn caller_of_fixed_frame(
        &self,
        cursor: Cursor,
        size: u64,
        doing: Doing,
    ) -> Result<Cursor, Stop> {
        if size < FRAME_RECORD_BYTES {
            return Err(Stop::BadFrame(cursor.pc));
        }
        let sp = cursor.sp.wrapping_add(size);
        if self.leaves_chunk(sp) {
            return Ok(Cursor { pc: 0, sp, fp: 0, doing });
        }
        let (pc, fp) = self.frame_record(sp)?;
        Ok(Cursor { pc, sp, fp, doing })
    }

    /// The call stub, through which the VM called Java: continues with the VM's frames, or with the Java frame below
    /// them.
    pub(super) fn step_entry(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        let layout = &self.hotspot.layout.frame;
        if !self.on_stack(cursor.fp, cursor.sp) {
            return Err(Stop::BadFrame(cursor.pc));
        }
        let wrapper = self.slot(cursor.fp, layout.entry_wrapper)?;
        let sp = cursor.fp.wrapping_add(FRAME_RECORD_BYTES);
        let (pc, fp) = self.frame_record(sp)?;
        let caller = Cursor { pc, sp, fp, doing: Doing::CallingVm };
        self.enter(cursor, caller, wrapper)
    }

    /// Steps from the call stub at `cursor` to `caller`, code of the VM; `wrapper` is the stub's `JavaCallWrapper`.
    pub(super) fn enter(&mut self, cursor: Cursor, caller: Cursor, wrapper: u64) -> Result<Step, Stop> {
        self.has_met_entry = true;
        let layout = &self.hotspot.layout.frame;
        // The wrapper is a local variable of the C++ function that called the stub.
        if !self.on_stack(wrapper, caller.sp) {
            return Err(Stop::BadFrame(cursor.pc));
        }
        let anchor = match Anchor::of_wrapper(layout, &self.stack, wrapper) {
            Some(anchor) => anchor,
            None => return Err(Stop::CopyEnd),
        };
        let emit = Emit::One(Frame::Entry { place: cursor.place() });
        let next = if self.native.is_some() {
            // The call stub keeps fp as frame pointer; the other registers of its C++ caller are not recovered.
            let Cursor { pc, sp, fp, .. } = caller;
            let origin = if anchor.sp == 0 { NativeOrigin::ThreadRoot } else { NativeOrigin::Anchor(anchor) };
            self.begin_native(NativeRegisters { pc, sp, fp, ..NativeRegisters::default() }, origin)
        } else if anchor.sp == 0 {
            Err(Stop::EndOfStack)
        } else {
            self.at_anchor(&anchor)
        };
        Ok(Step { emit, next })
    }

    /// An interpreter frame that is calling.
    fn step_interpreter(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        if cursor.doing == Doing::CallingVm
            && let Some(caller) = self.caller_of_frameless_entry(cursor)
        {
            return Ok(Step { emit: Emit::Nothing, next: caller.ok_or(Stop::BadFrame(cursor.pc)) });
        }
        if !self.on_stack(cursor.fp, cursor.sp) {
            return Err(Stop::BadFrame(cursor.pc));
        }
        let method = Method(self.slot(cursor.fp, INTERPRETER_METHOD)?);
        let bcp = self.slot(cursor.fp, INTERPRETER_BCP)?;
        let emit = self.interpreted_frame(cursor, method, &[bcp]).ok_or(Stop::InvalidMethod(method.0))?;
        Ok(Step { emit, next: self.caller_of_interpreter(cursor) })
    }

    /// The frame of `method` with the first of the `bcps` that lies in its bytecodes; `None` if neither the
    /// method is native nor any of them fits.
    pub(super) fn interpreted_frame(&mut self, cursor: Cursor, method: Method, bcps: &[u64]) -> Option<Emit> {
        let place = cursor.place();
        let bytecodes = self.bytecodes(method, |bytecodes| {
            bytecodes.native || bcps.iter().any(|&bcp| bytecodes.bci(bcp).is_some())
        })?;
        if bytecodes.native {
            return Some(Emit::One(Frame::NativeMethod { method, compiled: false, place }));
        }
        let bci = bcps.iter().find_map(|&bcp| bytecodes.bci(bcp));
        Some(Emit::One(Frame::Interpreted { method, bci, place }))
    }

    /// Bytecodes of a method, remembered or read, if `fits` accepts them.
    ///
    /// A remembered entry counts only if `fits` proves it by a bytecode pointer; a native method has none.
    pub(super) fn bytecodes(
        &mut self,
        method: Method,
        fits: impl Fn(&Bytecodes) -> bool,
    ) -> Option<Bytecodes> {
        if let Some(found) = self.cache.find_bytecodes(method.0, |known| !known.native && fits(known)) {
            return Some(found);
        }
        let read = self.read_bytecodes(method).filter(|read| fits(read))?;
        self.cache.insert_bytecodes(read);
        Some(read)
    }

    /// Bytecodes of a method as they are in the VM.
    pub(super) fn read_bytecodes(&self, method: Method) -> Option<Bytecodes> {
        Bytecodes::read(&self.hotspot.layout.method, self.memory, method)
    }

    /// The caller of the interpreter frame at `cursor.fp`.
    ///
    /// Compiled callers get the sp they had at the call: an adapter may have pushed arguments after it.
    pub(super) fn caller_of_interpreter(&self, cursor: Cursor) -> Result<Cursor, Stop> {
        if self.thawing.in_heap() {
            return self.caller_of_frozen_interpreter(cursor);
        }
        let pc = return_address(self.slot(cursor.fp, 1)?, cursor.fp);
        let fp = self.slot(cursor.fp, 0)?;
        let from_compiled = pc != self.started.call_stub_return && !self.in_interpreter(pc);
        let sp = if from_compiled {
            self.slot(cursor.fp, self.hotspot.layout.frame.interpreter_sender_sp)?
        } else {
            cursor.fp.wrapping_add(FRAME_RECORD_BYTES)
        };
        if sp <= cursor.fp {
            return Err(Stop::NotProgressing(cursor.sp));
        }
        Ok(Cursor { pc, sp, fp, doing: Doing::CallingJava })
    }
}
