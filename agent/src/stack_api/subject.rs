//! The stack to walk: registers, the VM's fields, and the bytes of the live stack.
//!
//! Approach: registers come from the signal's context, from the caller, or from a given frame. The stack is read in
//! place, from the sp to its base.
//! Invariant: every byte of the slice is readable. All memory above the running exported function's frame is in use.
//! Any other start is checked by a read of its lowest byte; a stack has no holes above a readable byte, because guard
//! pages lie at its low end. The code of the frames in the slice does not run during the walk.

use core::ffi::c_void;

use stackwalk::{Capture, Memory};

use super::api::Api;
use super::entry::Caller;
use crate::handler::ucontext;

/// The beginning of a walk.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// At the interrupted instruction; the third argument of a signal handler.
    Interrupted(*const c_void),
    /// At the last Java frame, else at the caller of the exported function.
    Last(&'a Caller),
    Frame {
        /// Interrupted instruction or return address.
        pc: u64,
        /// Stack pointer.
        sp: u64,
        /// Frame pointer register.
        fp: u64,
    },
}

impl<'a> Start<'a> {
    /// The start of an exported function: its context, or without one the last Java frame.
    pub fn of(ucontext: *const c_void, caller: &'a Caller) -> Self {
        if ucontext.is_null() { Self::Last(caller) } else { Self::Interrupted(ucontext) }
    }
}

/// Returns the address of a value in the frame of an exported function.
pub fn address_of<T>(value: &T) -> u64 {
    core::ptr::from_ref(value) as u64
}

/// The stack to walk.
pub struct Subject {
    /// Registers and fields of the VM.
    pub capture: Capture,
    /// The live stack from `capture.stack_low` on; empty if it is unknown or not readable.
    pub stack: &'static [u8],
    /// True if the VM has marked the thread as ending.
    pub is_exiting: bool,
}

/// Bytes below the sp of an anchor that may be read: the return address of the call that left Java.
const BELOW_ANCHOR: u64 = 16;

/// # Signal Safe Methods
impl Subject {
    /// The stack of the running thread; `entry` is an address in the frame of the exported function.
    ///
    /// # Safety
    /// A context is the kernel's for the running thread, or a copy of it. The stack is used only while the exported
    /// function runs.
    pub unsafe fn of(api: &'static Api, start: Start<'_>, entry: u64) -> Self {
        let mut capture = match start {
            // SAFETY: a context of the running thread.
            Start::Interrupted(context) => unsafe { ucontext::registers(context) },
            Start::Last(caller) => caller.capture(),
            Start::Frame { pc, sp, fp } => Capture { pc, sp, fp, ..Capture::default() },
        };
        let thread = api.threads.current(api.memory);
        let mut is_exiting = false;
        if thread != 0 {
            // SAFETY: the running thread's JavaThread.
            unsafe { ucontext::add_java_state(&mut capture, thread, &api.offsets) };
            if let (Some(offset), Some(not_terminated)) = (api.offsets.terminated, api.offsets.not_terminated)
            {
                // SAFETY: a field of the running thread's JavaThread.
                is_exiting = unsafe { ucontext::load::<u32>(thread, offset) } != not_terminated;
            }
        }
        let mut subject = Self { capture, stack: &[], is_exiting };
        // SAFETY: the thread is the running one.
        unsafe { subject.find_stack(api, entry) };
        subject.begin_at(api, start);
        subject
    }

    /// Finds the live stack.
    ///
    /// # Safety
    /// The capture is of the running thread; see [`Subject::of`].
    unsafe fn find_stack(&mut self, api: &Api, entry: u64) {
        let Capture { thread, sp, anchor_sp, .. } = self.capture;
        // On an alternate stack the interrupted sp is elsewhere; the last Java frame may still be on this one.
        let below_anchor = anchor_sp.saturating_sub(BELOW_ANCHOR);
        for from in [sp, below_anchor] {
            // SAFETY: `thread` is the running thread's.
            let (low, high) = unsafe { api.threads.bounds(thread, &api.offsets, from) };
            if high == 0 {
                continue;
            }
            let is_on_this_stack = (low..high).contains(&entry);
            let is_mapped = match is_on_this_stack {
                // Below the entry lie frames of this library.
                true => from > entry,
                false => api.memory.read_u8(from).is_ok(),
            };
            if is_mapped {
                let length = high.saturating_sub(from) as usize;
                // SAFETY: mapped up to the base, see the invariant; no running code changes the bytes meanwhile.
                self.stack = unsafe { core::slice::from_raw_parts(from as *const u8, length) };
                self.capture.stack_low = from;
                self.capture.stack_high = high;
                return;
            }
        }
        self.capture.stack_low = sp;
        self.capture.stack_high = sp;
    }

    /// Sets registers and anchor to those of the first frame.
    fn begin_at(&mut self, api: &Api, start: Start<'_>) {
        let capture = &mut self.capture;
        match start {
            Start::Interrupted(_) => {}
            Start::Last(_) if capture.anchor_sp != 0 => {
                // A pc in generated code starts the walk at the anchor.
                let stored = || api.memory.read_u64(capture.anchor_sp.saturating_sub(8)).unwrap_or(0);
                capture.pc = if capture.anchor_pc == 0 { stored() } else { capture.anchor_pc };
                (capture.sp, capture.fp) = (capture.anchor_sp, capture.anchor_fp);
            }
            Start::Last(_) => {}
            Start::Frame { .. } if api.hotspot.is_code(capture.pc) => {
                (capture.anchor_sp, capture.anchor_pc, capture.anchor_fp) = (0, 0, 0);
                capture.deoptimized_pc = 0;
                capture.thread_state = u64::from(api.offsets.in_java);
            }
            Start::Frame { sp, .. } if capture.anchor_sp < sp => {
                (capture.anchor_sp, capture.anchor_pc, capture.anchor_fp) = (0, 0, 0);
            }
            Start::Frame { .. } => {}
        }
    }

    /// Returns whether the VM runs Java code on this thread.
    pub fn is_java_thread(&self) -> bool {
        self.capture.thread != 0
    }

    /// Returns whether the thread runs Java code or has called from it.
    pub fn has_java_frames(&self, api: &Api) -> bool {
        self.is_java_thread()
            && (self.capture.anchor_sp != 0 || self.is_in_java(api) || self.capture.deoptimized_pc != 0)
    }

    /// Returns whether the thread is ending and has no Java frames left. The VM marks a thread as ending after its last
    /// Java code (`JavaThread::exit` in `runtime/thread.cpp`, JDK 11 and 17, `runtime/javaThread.cpp`, JDK 21 and 25),
    /// but also threads with Java frames that are in native code when the VM ends (`VM_Exit::set_vm_exited`).
    pub fn has_ended(&self, api: &Api) -> bool {
        self.is_exiting && !self.has_java_frames(api)
    }

    /// Returns whether the thread runs Java code.
    pub fn is_in_java(&self, api: &Api) -> bool {
        self.capture.thread_state == u64::from(api.offsets.in_java)
    }
}
