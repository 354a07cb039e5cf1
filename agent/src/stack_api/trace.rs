//! Calls that store a whole trace: `AsyncGetStackTrace` (`agent/include/jep435/profile.h`) and the shape of
//! AsyncGetCallTrace (`agent/include/calltrace/tickwalk_calltrace.h`).

use core::ffi::c_void;

use stackwalk::{Frame, Stop};

use super::api::{Api, api};
use super::entry::{Caller, with_caller};
use super::subject::{Start, Subject, address_of};
use super::walk::LiveWalk;
use crate::handler::errno::KeptErrno;
use crate::handler::ucontext::load;

/// Codes in the place of the number of frames, with the numbers of HotSpot's `forte.cpp`.
mod code {
    pub(super) const NO_JAVA_FRAME: i32 = 0;
    pub(super) const NOT_WALKABLE_NOT_JAVA: i32 = -4;
    pub(super) const UNKNOWN_JAVA: i32 = -5;
    pub(super) const NOT_WALKABLE_JAVA: i32 = -6;
    pub(super) const UNKNOWN_STATE: i32 = -7;
    pub(super) const THREAD_EXIT: i32 = -8;
    pub(super) const DEOPT: i32 = -9;
    pub(super) const THREAD_NOT_JAVA: i32 = -10;
}

/// The outcome of a walk.
struct Found {
    frames: i32,
    stop: Stop,
}

/// Walks, and offers each frame to `store` with the number of frames it has stored; `None` if too many walks run.
fn store_frames(
    api: &'static Api,
    subject: Subject,
    native: bool,
    mut store: impl FnMut(i32, &Frame, &mut LiveWalk) -> bool,
) -> Option<Found> {
    let mut walk = LiveWalk::new(api, &subject, native)?;
    walk.begin();
    let mut frames = 0_i32;
    while let Some(frame) = walk.next_frame() {
        if store(frames, &frame, &mut walk) {
            frames = frames.saturating_add(1);
        }
    }
    Some(Found { frames, stop: walk.stop() })
}

/// Returns the number of frames, or the code for none.
fn outcome(found: Option<&Found>, was_in_java: bool) -> i32 {
    match found {
        None => code::UNKNOWN_STATE,
        Some(found) if found.frames > 0 => found.frames,
        Some(Found { stop: Stop::Deoptimizing, .. }) => code::DEOPT,
        Some(Found { stop: Stop::NoJavaFrame, .. }) => code::NO_JAVA_FRAME,
        Some(Found { stop, .. }) if stop.is_complete() => code::NO_JAVA_FRAME,
        Some(Found { stop: Stop::NativeCode(_) | Stop::UnknownCode(_), .. }) if was_in_java => {
            code::UNKNOWN_JAVA
        }
        Some(_) if was_in_java => code::NOT_WALKABLE_JAVA,
        Some(_) => code::NOT_WALKABLE_NOT_JAVA,
    }
}

// ---------------------------------------------------------------- the shape of AsyncGetCallTrace

/// `TICKWALK_CallFrame`.
#[repr(C)]
pub struct CallFrame {
    bci: i32,
    id: u64,
}

/// `TICKWALK_CallTrace`.
#[repr(C)]
pub struct CallTrace {
    environment: *const c_void,
    count: i32,
    frames: *mut CallFrame,
}

/// Bytecode index of native methods.
const NATIVE_BCI: i32 = -3;

with_caller! {
    /// Stores the calling thread's Java frames, as AsyncGetCallTrace does. Signal safe.
    ///
    /// # Safety
    /// `trace` is null or valid, its frames are writable for `depth`; `ucontext` is null or a context of the calling
    /// thread.
    fn TickwalkAsyncGetCallTrace(trace: *mut CallTrace, depth: i32, ucontext: *const c_void) = call_trace, 3
}

unsafe extern "C" fn call_trace(trace: *mut CallTrace, depth: i32, ucontext: *const c_void, caller: &Caller) {
    let _errno = KeptErrno::new();
    // SAFETY: null, or the client's trace.
    let Some(trace) = (unsafe { trace.as_mut() }) else { return };
    // SAFETY: the trace's frames are writable for `depth`, and the context is of this thread.
    trace.count = unsafe { count_frames(trace, depth, ucontext, caller) };
}

/// # Safety
/// As [`TickwalkAsyncGetCallTrace`].
unsafe fn count_frames(trace: &CallTrace, depth: i32, ucontext: *const c_void, caller: &Caller) -> i32 {
    let Some(api) = api().filter(|_| !trace.environment.is_null()) else { return code::THREAD_EXIT };
    // SAFETY: a context of this thread; the walk ends before this returns.
    let subject = unsafe { Subject::of(api, Start::of(ucontext, caller), address_of(caller)) };
    if !subject.is_java_thread() || subject.has_ended(api) {
        return code::THREAD_EXIT;
    }
    if !subject.has_java_frames(api) {
        return code::NO_JAVA_FRAME;
    }
    let was_in_java = subject.is_in_java(api);
    let found = store_frames(api, subject, false, |number, frame, walk| {
        let Some(method) = frame.method() else { return false };
        let bci = match frame {
            Frame::NativeMethod { .. } => NATIVE_BCI,
            frame => frame.bci().map_or(-1, |bci| bci.0),
        };
        if number >= depth {
            return false;
        }
        let stored = CallFrame { bci, id: walk.id_of(method) };
        // SAFETY: below `depth`, by the caller's promise.
        unsafe { trace.frames.wrapping_offset(number as isize).write(stored) };
        true
    });
    outcome(found.as_ref(), was_in_java)
}

// ---------------------------------------------------------------- AsyncGetStackTrace

/// `ASGST_CallFrame`: `word` is a jmethodID or a pc.
#[repr(C)]
pub struct StackFrame {
    kind: u8,
    comp_level: i8,
    bci: u16,
    word: u64,
}

/// `ASGST_CallTrace`.
#[repr(C)]
pub struct StackTrace {
    count: i32,
    kind: u8,
    frames: *mut StackFrame,
    info: *mut c_void,
}

const _: () = assert!(size_of::<StackFrame>() == 16 && size_of::<StackTrace>() == 24);
const _: () = assert!(size_of::<CallFrame>() == 16 && core::mem::offset_of!(CallTrace, frames) == 16);

const INCLUDE_C_FRAMES: u32 = 1;
const INCLUDE_NON_JAVA_THREADS: u32 = 2;

const JAVA: u8 = 1;
const JAVA_INLINED: u8 = 2;
const NATIVE: u8 = 3;
const STUB: u8 = 4;
const CPP: u8 = 5;

const JAVA_TRACE: u8 = 0;
const CPP_TRACE: u8 = 1;
const GC_TRACE: u8 = 2;
const DEOPT_TRACE: u8 = 3;
const UNKNOWN_TRACE: u8 = 4;

impl StackFrame {
    /// `None` for frames that are not wanted.
    fn of(frame: &Frame, walk: &mut LiveWalk, native: bool) -> Option<Self> {
        let pc = frame.place().pc.0;
        let bci = frame.bci().map_or(0, |bci| u16::try_from(bci.0).unwrap_or(0));
        let (kind, comp_level, word) = match *frame {
            Frame::Interpreted { method, .. } => (JAVA, 0, walk.id_of(method)),
            Frame::Compiled { method, level, inlined, .. } => {
                let kind = if inlined { JAVA_INLINED } else { JAVA };
                (kind, i8::try_from(level.0).unwrap_or(-1), walk.id_of(method))
            }
            Frame::NativeMethod { method, compiled, .. } => {
                (NATIVE, if compiled { -1 } else { 0 }, walk.id_of(method))
            }
            Frame::Stub { .. } | Frame::Entry { .. } if native => (STUB, -1, pc),
            Frame::Native { .. } if native => (CPP, -1, pc),
            _ => return None,
        };
        Some(Self { kind, comp_level, bci, word })
    }
}

with_caller! {
    /// Stores the calling thread's frames (JEP 435). Signal safe.
    ///
    /// # Safety
    /// As [`TickwalkAsyncGetCallTrace`].
    fn AsyncGetStackTrace(trace: *mut StackTrace, depth: i32, ucontext: *const c_void, options: u32)
        = stack_trace, 4
}

unsafe extern "C" fn stack_trace(
    trace: *mut StackTrace,
    depth: i32,
    ucontext: *const c_void,
    options: u32,
    caller: &Caller,
) {
    let _errno = KeptErrno::new();
    // SAFETY: null, or the client's trace.
    let Some(trace) = (unsafe { trace.as_mut() }) else { return };
    // SAFETY: the trace's frames are writable for `depth`, and the context is of this thread.
    (trace.kind, trace.count) = unsafe { kind_and_count(trace, depth, ucontext, options, caller) };
}

/// # Safety
/// As [`AsyncGetStackTrace`].
unsafe fn kind_and_count(
    trace: &StackTrace,
    depth: i32,
    ucontext: *const c_void,
    options: u32,
    caller: &Caller,
) -> (u8, i32) {
    let Some(api) = api() else { return (UNKNOWN_TRACE, code::THREAD_EXIT) };
    // SAFETY: a context of this thread; the walk ends before this returns.
    let subject = unsafe { Subject::of(api, Start::of(ucontext, caller), address_of(caller)) };
    if subject.has_ended(api) {
        return (UNKNOWN_TRACE, code::THREAD_EXIT);
    }
    let native = options & INCLUDE_C_FRAMES != 0;
    let kind = if subject.has_java_frames(api) { JAVA_TRACE } else { CPP_TRACE };
    if kind == CPP_TRACE {
        match (subject.is_java_thread(), options & INCLUDE_NON_JAVA_THREADS != 0) {
            (false, false) => return (CPP_TRACE, code::THREAD_NOT_JAVA),
            (true, false) => return (JAVA_TRACE, code::NO_JAVA_FRAME),
            _ if !native => return (CPP_TRACE, code::NO_JAVA_FRAME),
            _ => {}
        }
    }
    let was_in_java = subject.is_in_java(api);
    // A collector stops no thread while it runs Java code.
    let kind = match (was_in_java, subject.capture.deoptimized_pc) {
        (false, _) if is_stopped_by_collector(api) => GC_TRACE,
        (_, 0) => kind,
        _ => DEOPT_TRACE,
    };
    let found = store_frames(api, subject, native, |number, frame, walk| {
        if number >= depth {
            return false;
        }
        let Some(stored) = StackFrame::of(frame, walk, native) else { return false };
        // SAFETY: below `depth`, by the caller's promise.
        unsafe { trace.frames.wrapping_offset(number as isize).write(stored) };
        true
    });
    let count = outcome(found.as_ref(), was_in_java);
    (if count > 0 { kind } else { UNKNOWN_TRACE }, count)
}

fn is_stopped_by_collector(api: &Api) -> bool {
    // SAFETY: a field of the heap's object, which the VM never frees.
    api.stopping_collector.is_some_and(|flag| unsafe { load::<u8>(flag, 0) } != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of walks without a frame, by why they ended, in Java code and elsewhere.
    #[test]
    fn each_end_without_frames_has_its_code() {
        let code = |stop, was_in_java| outcome(Some(&Found { frames: 0, stop }), was_in_java);
        for (stop, in_java, elsewhere) in [
            (Stop::Deoptimizing, -9, -9),
            (Stop::NoJavaFrame, 0, 0),
            (Stop::EndOfStack, 0, 0),
            (Stop::NativeCode(16), -5, -4),
            (Stop::UnknownCode(16), -5, -4),
            (Stop::BadFrame(16), -6, -4),
            (Stop::ContinuationBarrier, -6, -4),
        ] {
            assert_eq!((code(stop, true), code(stop, false)), (in_java, elsewhere), "{stop:?}");
        }
        assert_eq!(outcome(None, true), -7, "too many walks");
        assert_eq!(outcome(Some(&Found { frames: 3, stop: Stop::BadFrame(16) }), true), 3);
    }
}
