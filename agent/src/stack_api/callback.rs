//! The callback generation (`agent/include/callback/profile.h`), without safepoint callbacks.

use core::ffi::c_void;

use stackwalk::{Frame, Place, Stop};

use super::api::api;
use super::entry::{Caller, with_caller};
use super::subject::{Start, Subject, address_of};
use super::walk::LiveWalk;
use crate::handler::errno::KeptErrno;

/// `ASGST_Frame` of this generation.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Registers {
    pc: u64,
    sp: u64,
    fp: u64,
}

impl Registers {
    fn of(Place { pc, sp, fp }: Place) -> Self {
        Self { pc: pc.0, sp, fp }
    }
}

/// `ASGST_FrameInfo`.
#[repr(C)]
pub struct FrameInfo {
    kind: u8,
    comp_level: i32,
    bci: i32,
    id: u64,
    frame: Registers,
}

const _: () = assert!(size_of::<FrameInfo>() == 48);

const NO_JAVA_FRAME: i32 = 0;
const NOT_WALKABLE_JAVA: i32 = -6;
const UNKNOWN_STATE: i32 = -7;
const THREAD_EXIT: i32 = -8;
const UNSUPPORTED_OPTION: i32 = -11;
const NATIVE_BCI: i32 = -3;

type JavaCallback = unsafe extern "C" fn(*mut FrameInfo, *mut c_void) -> i32;
type NativeCallback = unsafe extern "C" fn(*mut Registers, *mut c_void) -> i32;

/// `None` for frames without a method.
fn info_of(frame: &Frame, walk: &mut LiveWalk) -> Option<FrameInfo> {
    let bci = frame.bci().map_or(-1, |bci| bci.0);
    let (kind, comp_level, bci) = match *frame {
        Frame::Interpreted { .. } => (1, 0, bci),
        Frame::Compiled { level, inlined: false, .. } => (1, i32::from(level.0), bci),
        Frame::Compiled { level, inlined: true, .. } => (2, i32::from(level.0), bci),
        Frame::NativeMethod { compiled, .. } => (3, if compiled { -1 } else { 0 }, NATIVE_BCI),
        _ => return None,
    };
    let id = walk.id_of(frame.method()?);
    Some(FrameInfo { kind, comp_level, bci, id, frame: Registers::of(frame.place()) })
}

/// Walks the calling thread's stack from a frame on. Signal safe.
///
/// # Safety
/// The callbacks are null or valid, return and do not unwind.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_WalkStackFromFrame(
    frame: Registers,
    java_callback: Option<JavaCallback>,
    native_callback: Option<NativeCallback>,
    argument: *mut c_void,
    options: i32,
) -> i32 {
    let _errno = KeptErrno::new();
    let mark = 0_u64;
    if options != 0 {
        return UNSUPPORTED_OPTION;
    }
    let Some(api) = api() else { return THREAD_EXIT };
    let Registers { pc, sp, fp } = frame;
    // SAFETY: no context; the walk ends before this returns.
    let subject = unsafe { Subject::of(api, Start::Frame { pc, sp, fp }, address_of(&mark)) };
    if !subject.is_java_thread() || subject.has_ended(api) {
        return THREAD_EXIT;
    }
    let Some(mut walk) = LiveWalk::new(api, &subject, native_callback.is_some()) else {
        return UNKNOWN_STATE;
    };
    walk.begin();
    let (mut frames, mut follows_java) = (0_u32, false);
    while let Some(frame) = walk.next_frame() {
        let goes_on = match info_of(&frame, &mut walk) {
            Some(mut info) => {
                frames = frames.saturating_add(1);
                follows_java = true;
                // SAFETY: the client's function.
                java_callback.is_none_or(|call| unsafe { call(&raw mut info, argument) } == 1)
            }
            None if follows_java && matches!(frame, Frame::Native { .. }) => {
                follows_java = false;
                let mut registers = Registers::of(frame.place());
                // SAFETY: the client's function.
                native_callback.is_none_or(|call| unsafe { call(&raw mut registers, argument) } == 1)
            }
            None => true,
        };
        if !goes_on {
            return 1;
        }
    }
    match walk.stop() {
        stop if stop.is_complete() && frames > 0 => 1,
        stop if stop.is_complete() || stop == Stop::NoJavaFrame => NO_JAVA_FRAME,
        _ => NOT_WALKABLE_JAVA,
    }
}

/// Returns 1 if the pc lies in generated code. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_IsJavaFrame(frame: Registers) -> i32 {
    i32::from(api().is_some_and(|api| api.hotspot.is_code(frame.pc)))
}

with_caller! {
    /// Returns the interrupted frame, the last Java frame without a context, or the first Java frame. Signal safe.
    ///
    /// # Safety
    /// `ucontext` is null or a context of the calling thread.
    fn ASGST_GetFrame(result: *mut Registers, ucontext: *const c_void, focus_on_java: bool) -> *mut Registers
        = get_frame, 3
}

/// The result is returned in memory whose address is the first argument (System V ABI for AMD64, section 3.2.3).
unsafe extern "C" fn get_frame(
    result: *mut Registers,
    ucontext: *const c_void,
    focus_on_java: bool,
    caller: &Caller,
) -> *mut Registers {
    let _errno = KeptErrno::new();
    let start = Start::of(ucontext, caller);
    // SAFETY: the context is of this thread.
    let found = unsafe { first_frame(start, address_of(caller), focus_on_java) };
    // SAFETY: the caller's memory for the result.
    unsafe { result.write(found.unwrap_or_default()) };
    result
}

/// # Safety
/// As [`Subject::of`].
unsafe fn first_frame(start: Start<'_>, entry: u64, focus_on_java: bool) -> Option<Registers> {
    let api = api()?;
    // SAFETY: the context is of this thread.
    let subject = unsafe { Subject::of(api, start, entry) };
    if subject.has_ended(api) || !subject.is_java_thread() {
        return None;
    }
    if !focus_on_java && matches!(start, Start::Interrupted(_)) {
        let stackwalk::Capture { pc, sp, fp, .. } = subject.capture;
        return Some(Registers { pc, sp, fp });
    }
    let mut walk = LiveWalk::new(api, &subject, false)?;
    walk.begin();
    loop {
        let frame = walk.next_frame()?;
        if frame.method().is_some() {
            return Some(Registers::of(frame.place()));
        }
    }
}
