//! Upcall stubs, through which native code calls Java by the foreign function API (JDK 21 and later).
//!
//! Problem: a stub is called by C code like a function, and the anchor of the Java frames below is in its frame.
//! Approach: the stub's first call (`UpcallLinker::on_entry`) moves the thread's anchor into the frame's `FrameData`,
//! and its last (`on_exit`) moves it back. The thread's own anchor counts while it lies above the stub, otherwise that
//! of the frame. The native frames between stub and anchor follow by unwind tables.
//! Invariant: an anchor counts only if it lies above the stub's frame and leads to code; the anchor 0 means that no
//! Java frames are below.
//! Sources: `prims/upcallLinker.cpp`, `UpcallStub::jfa_for_frame` in `cpu/x86/frame_x86.cpp` (21: `code/codeBlob.cpp`),
//! JDK 21 and 25.

use super::walk::{Code, Cursor, Doing, Emit, NativeOrigin, Step, Walk};
use crate::capture::Capture;
use crate::cpu::{CODE_AFTER, UPCALL_START, Unwind, UpcallFrame, upcall_frame, upcall_state};
use crate::frame::{Blob, Frame};
use crate::hotspot::anchor::Anchor;
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::memory::{Memory, at};
use crate::stop::Stop;
use crate::walker::native_code::NativeRegisters;

/// First release with upcall stubs of this form.
const FIRST_WITH_UPCALLS: u32 = 21;

/// The Java frames below an upcall stub.
enum Below {
    Anchor(Anchor),
    /// None: the thread began in native code.
    Nothing,
    /// Unknown: the frame does not tell.
    Unknown,
}

impl<M: Memory> Walk<'_, M> {
    /// Returns whether the thread was interrupted in an upcall stub while its anchor or its state are those of native
    /// code.
    pub(super) fn is_between_upcall_and_native(&self) -> bool {
        let capture = &self.capture;
        let is_native = capture.anchor_sp != 0
            || capture.thread == 0
            || capture.thread_state != u64::from(self.hotspot.layout.thread.in_java);
        is_native && self.hotspot.is_code(capture.pc) && self.is_upcall(capture.pc)
    }

    pub(super) fn is_upcall(&self, pc: u64) -> bool {
        self.hotspot.jdk_major() >= FIRST_WITH_UPCALLS
            && matches!(self.code_at(pc), Ok(Code::Blob(blob)) if blob.kind == BlobKind::Upcall)
    }

    /// An upcall stub stopped at an arbitrary instruction.
    pub(super) fn interrupted_upcall(&mut self, cursor: Cursor, blob: &CodeBlob) -> Result<Step, Stop> {
        let mut bytes = [0; CODE_AFTER as usize];
        let after = self.code_ahead(cursor.pc, blob, &mut bytes).unwrap_or_default();
        let rule = upcall_state(cursor.pc.saturating_sub(blob.code_begin), after);
        self.step_upcall(cursor, blob, rule)
    }

    /// Steps from an upcall stub to the C code that called it, or to the Java frames below where native code is not
    /// followed.
    pub(super) fn step_upcall(
        &mut self,
        cursor: Cursor,
        blob: &CodeBlob,
        rule: Unwind,
    ) -> Result<Step, Stop> {
        let bad = Stop::BadFrame(cursor.pc);
        let Cursor { pc, sp, fp, .. } = self.unwind(cursor, 0, rule).ok_or(bad)?;
        let mut code = [0; UPCALL_START];
        let start = self.code_ahead(blob.code_begin, blob, &mut code);
        let frame = start.and_then(upcall_frame).ok_or(bad)?;
        let below = self.below_upcall(cursor, blob, &frame);
        let next = if self.native.is_some() {
            let origin = match below {
                Below::Anchor(anchor) => NativeOrigin::Anchor(anchor),
                Below::Nothing => NativeOrigin::ThreadRoot,
                Below::Unknown => NativeOrigin::NoAnchor,
            };
            // The stub keeps fp as frame pointer; the other registers of its caller are not recovered.
            self.begin_native(NativeRegisters { pc, sp, fp, ..NativeRegisters::default() }, origin)
        } else {
            match below {
                Below::Anchor(anchor) => self.at_anchor(&anchor),
                Below::Nothing => Err(Stop::EndOfStack),
                Below::Unknown => Err(Stop::NativeCode(cursor.pc)),
            }
        };
        let stub = Frame::Stub { blob: Blob(blob.address), place: cursor.place() };
        Ok(Step { emit: Emit::One(stub), next })
    }

    /// The Java frames below the upcall stub at a cursor.
    fn below_upcall(&mut self, cursor: Cursor, blob: &CodeBlob, frame: &UpcallFrame) -> Below {
        let Capture { anchor_sp, anchor_pc, anchor_fp, .. } = self.capture;
        if self.on_stack(anchor_sp, cursor.sp) {
            return Below::Anchor(Anchor { sp: anchor_sp, pc: anchor_pc, fp: anchor_fp });
        }
        let done = cursor.pc.saturating_sub(blob.code_begin);
        if done < frame.entered || (done == frame.entered && cursor.doing == Doing::CallingVm) {
            return Below::Unknown;
        }
        self.has_met_entry = true;
        match self.upcall_anchor(cursor, blob, frame) {
            Some(Anchor { sp: 0, .. }) => Below::Nothing,
            Some(anchor) if self.on_stack(anchor.sp, cursor.fp) => Below::Anchor(anchor),
            _ => Below::Unknown,
        }
    }

    fn upcall_anchor(&self, cursor: Cursor, blob: &CodeBlob, frame: &UpcallFrame) -> Option<Anchor> {
        let layout = &self.hotspot.layout.frame;
        let data = match layout.upcall_frame_data {
            Some(field) => u64::from(self.memory.read_u32(at(blob.address, field)).ok()?),
            None => frame.data,
        };
        let sp = cursor.fp.checked_sub(frame.bytes)?;
        let anchor = sp.checked_add(data)?.checked_add(u64::from(layout.upcall_anchor.unwrap_or(0)))?;
        Anchor::read(layout, &self.stack, anchor)
    }
}
