//! The iterator generation: walks (`agent/include/iterator/profile2.h`).

use core::ffi::c_void;

use stackwalk::{Frame, Place, Stop};

use super::api::{Api, api};
use super::entry::{Caller, with_caller};
use super::subject::{Start, Subject, address_of};
use super::walk::LiveWalk;
use crate::handler::errno::KeptErrno;

/// Types of frames.
const JAVA: u8 = 1;
const JAVA_INLINED: u8 = 2;
const JAVA_NATIVE: u8 = 3;
const NON_JAVA: u8 = 4;

pub(super) const INCLUDE_NON_JAVA_FRAMES: i32 = 1;
const END_ON_FIRST_JAVA_FRAME: i32 = 2;

pub(super) const JAVA_TRACE: i32 = 1;
const NON_JAVA_TRACE: i32 = 2;

const NO_FRAME: i32 = 0;
const NO_THREAD: i32 = -1;
const THREAD_EXIT: i32 = -2;
const NO_TOP_JAVA_FRAME: i32 = -4;
const BUSY: i32 = -17;
const UNKNOWN_STACK: i32 = -18;
const CUT: i32 = -32;

/// JVMTI thread states.
const ALIVE: i32 = 0x1;
const IN_NATIVE: i32 = 0x40_0000;

/// `_thread_in_Java` minus `_thread_in_native` (`utilities/globalDefinitions.hpp`, JDK 11 to 25).
const FROM_NATIVE_TO_JAVA: u64 = 4;

/// `ASGST_Frame`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ApiFrame {
    kind: u8,
    comp_level: i32,
    bci: i32,
    method: u64,
    pc: u64,
    sp: u64,
    fp: u64,
}

const _: () = assert!(size_of::<ApiFrame>() == 48 && core::mem::offset_of!(ApiFrame, fp) == 40);

impl ApiFrame {
    const RESET: Self = Self { kind: 0, comp_level: -1, bci: -1, method: 0, pc: 0, sp: 0, fp: 0 };

    fn has_bytecodes(&self) -> bool {
        matches!(self.kind, JAVA | JAVA_INLINED)
    }

    #[inline]
    fn at(place: Place) -> Self {
        Self { pc: place.pc.0, sp: place.sp, fp: place.fp, ..Self::RESET }
    }

    /// `None` for a gap.
    #[inline]
    fn of(frame: &Frame) -> Option<Self> {
        let at = Self::at(frame.place());
        let bci = frame.bci().map_or(-1, |bci| bci.0);
        Some(match *frame {
            Frame::Interpreted { method, .. } => {
                Self { kind: JAVA, comp_level: 0, bci, method: method.0, ..at }
            }
            Frame::Compiled { method, level, inlined, .. } => {
                let kind = if inlined { JAVA_INLINED } else { JAVA };
                Self { kind, comp_level: i32::from(level.0), bci, method: method.0, ..at }
            }
            Frame::NativeMethod { method, compiled, .. } => {
                let comp_level = if compiled { -1 } else { 0 };
                Self { kind: JAVA_NATIVE, comp_level, method: method.0, ..at }
            }
            Frame::Stub { .. } | Frame::Entry { .. } | Frame::Native { .. } => Self { kind: NON_JAVA, ..at },
            Frame::Gap { .. } => return None,
        })
    }
}

/// `ASGST_Iterator`.
pub struct ApiIterator {
    walk: LiveWalk,
    options: i32,
    /// True if frames before the first with bytecodes are left out.
    skips_native: bool,
    /// The reason why there are no frames at all.
    refused: Option<Stop>,
    /// The next frame, if it was peeked at.
    peeked: Option<ApiFrame>,
    /// The code after the last frame.
    end: Option<i32>,
}

/// # Signal Safe Methods
impl ApiIterator {
    /// An iterator at the first frame of `walk`.
    fn new(walk: LiveWalk, options: i32) -> Self {
        Self::begun(walk, options, false, None)
    }

    /// An iterator at the first frame with bytecodes of a walk over a copy, or without frames because of `refused`.
    pub(super) fn over_copy(walk: LiveWalk, options: i32, refused: Option<Stop>) -> Self {
        Self::begun(walk, options, true, refused)
    }

    fn begun(walk: LiveWalk, options: i32, skips_native: bool, refused: Option<Stop>) -> Self {
        let mut iterator = Self { walk, options, skips_native, refused, peeked: None, end: None };
        iterator.begin();
        iterator
    }

    fn begin(&mut self) {
        self.walk.begin();
        self.peeked = None;
        self.end = self.refused.map(code_of);
        while self.skips_native && self.peek().is_ok_and(|frame| !frame.has_bytecodes()) {
            self.peeked = None;
        }
    }

    /// Peeks at the next frame; the error is the code in its place.
    fn peek(&mut self) -> Result<ApiFrame, i32> {
        if let Some(frame) = self.peeked {
            return Ok(frame);
        }
        let frame = self.fetch()?;
        self.peeked = Some(frame);
        Ok(frame)
    }

    /// Takes the next frame from the walk; the error is the code in its place.
    #[inline]
    fn fetch(&mut self) -> Result<ApiFrame, i32> {
        if let Some(code) = self.end {
            return Err(code);
        }
        let includes_all = self.options & INCLUDE_NON_JAVA_FRAMES != 0;
        while let Some(frame) = self.walk.next_frame() {
            match ApiFrame::of(&frame) {
                Some(frame) if includes_all || frame.kind != NON_JAVA => return Ok(frame),
                _ => {}
            }
        }
        let code = code_of(self.walk.stop());
        self.end = Some(code);
        Err(code)
    }

    #[inline]
    fn next(&mut self) -> (i32, ApiFrame) {
        let frame = match self.peeked.take().map_or_else(|| self.fetch(), Ok) {
            Ok(frame) => frame,
            Err(code) => return (code, ApiFrame::RESET),
        };
        if frame.has_bytecodes() && self.options & END_ON_FIRST_JAVA_FRAME != 0 {
            self.end = Some(NO_FRAME);
            let ApiFrame { pc, sp, fp, .. } = frame;
            return (NO_FRAME, ApiFrame { kind: JAVA, pc, sp, fp, ..ApiFrame::RESET });
        }
        (1, frame)
    }
}

/// The code for the end of a walk.
fn code_of(stop: Stop) -> i32 {
    match stop {
        Stop::NoJavaFrame => NO_FRAME,
        stop if stop.is_complete() => NO_FRAME,
        stop => CUT.saturating_sub(i32::try_from(stop.index()).unwrap_or(0)),
    }
}

/// `ASGST_IteratorHandler`.
type Handler = unsafe extern "C" fn(*mut ApiIterator, *mut c_void);

/// Calls `body` with an iterator at the first frame; returns the kind of the trace, or a code.
///
/// # Safety
/// As [`Subject::of`].
unsafe fn run(start: Start<'_>, entry: u64, options: i32, body: impl FnOnce(&mut ApiIterator)) -> i32 {
    let Some(api) = api() else { return NO_THREAD };
    let _errno = KeptErrno::new();
    // SAFETY: the context is of this thread, and the walk ends before the exported function returns.
    match unsafe { open(api, start, entry, options) } {
        Ok(opened) => opened.run(options, body),
        Err(code) => code,
    }
}

struct Opened {
    kind: i32,
    has_stack: bool,
    walk: LiveWalk,
}

/// Opens a walk. Not inlined: the subject is large for a signal stack, and not needed while frames are walked.
///
/// # Safety
/// As [`Subject::of`].
#[inline(never)]
unsafe fn open(api: &'static Api, start: Start<'_>, entry: u64, options: i32) -> Result<Opened, i32> {
    // SAFETY: the context is of this thread.
    let subject = unsafe { Subject::of(api, start, entry) };
    Opened::on(api, &subject, options)
}

impl Opened {
    fn on(api: &'static Api, subject: &Subject, options: i32) -> Result<Self, i32> {
        let kind = kind_of(api, subject, options)?;
        let has_stack = !subject.stack.is_empty();
        let wanted = options & INCLUDE_NON_JAVA_FRAMES != 0;
        let walk = LiveWalk::new(api, subject, wanted).ok_or(BUSY)?;
        Ok(Self { kind, has_stack, walk })
    }

    /// Calls `body` with the iterator; returns the kind of the trace, or a code.
    fn run(self, options: i32, body: impl FnOnce(&mut ApiIterator)) -> i32 {
        let Self { kind, has_stack, walk } = self;
        let mut iterator = ApiIterator::new(walk, options);
        match iterator.peek() {
            Ok(_) => {}
            Err(_) if !has_stack => return UNKNOWN_STACK,
            Err(_) if kind == NON_JAVA_TRACE => return NO_FRAME,
            Err(NO_FRAME) => return NO_TOP_JAVA_FRAME,
            Err(code) => return code,
        }
        body(&mut iterator);
        kind
    }
}

fn kind_of(api: &Api, subject: &Subject, options: i32) -> Result<i32, i32> {
    let wanted = options & INCLUDE_NON_JAVA_FRAMES != 0;
    if subject.has_ended(api) {
        return Err(THREAD_EXIT);
    }
    match (subject.is_java_thread(), subject.has_java_frames(api)) {
        (true, true) => Ok(JAVA_TRACE),
        (_, false) if wanted => Ok(NON_JAVA_TRACE),
        (true, false) => Err(NO_TOP_JAVA_FRAME),
        (false, _) => Err(NO_FRAME),
    }
}

/// Returns the call of a client's function with an iterator.
fn call(fun: Option<Handler>, argument: *mut c_void) -> impl FnOnce(&mut ApiIterator) {
    move |iterator| {
        if let Some(fun) = fun {
            // SAFETY: the client's function; nothing else uses the iterator meanwhile.
            unsafe { fun(iterator, argument) };
        }
    }
}

with_caller! {
    /// Calls `fun` with an iterator over the calling thread's stack. Signal safe.
    ///
    /// # Safety
    /// `ucontext` is null or a context of the calling thread; `fun` returns and does not unwind.
    fn ASGST_RunWithIterator(ucontext: *const c_void, options: i32, fun: Handler, argument: *mut c_void) -> i32
        = run_with_iterator, 4
}

unsafe extern "C" fn run_with_iterator(
    ucontext: *const c_void,
    options: i32,
    fun: Option<Handler>,
    argument: *mut c_void,
    caller: &Caller,
) -> i32 {
    // SAFETY: a context of this thread; the walk ends before this returns.
    unsafe { run(Start::of(ucontext, caller), address_of(caller), options, call(fun, argument)) }
}

/// Calls `fun` like [`ASGST_RunWithIterator`], from a frame on. Signal safe.
///
/// # Safety
/// `fun` returns and does not unwind.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_RunWithIteratorFromFrame(
    sp: u64,
    fp: u64,
    pc: u64,
    options: i32,
    fun: Option<Handler>,
    argument: *mut c_void,
) -> i32 {
    let mark = 0_u64;
    // SAFETY: no context; the walk ends before this returns.
    unsafe { run(Start::Frame { pc, sp, fp }, address_of(&mark), options, call(fun, argument)) }
}

/// Fills `frame` and returns 1, or returns 0 or a code. Signal safe.
///
/// # Safety
/// `iterator` is null or the one that was passed to the calling handler; `frame` is null or writable.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_NextFrame(iterator: *mut ApiIterator, frame: *mut ApiFrame) -> i32 {
    let _errno = KeptErrno::new();
    // SAFETY: null, or the iterator that the calling handler was given.
    let (code, next) = match unsafe { iterator.as_mut() } {
        Some(iterator) => iterator.next(),
        None => (NO_FRAME, ApiFrame::RESET),
    };
    if !frame.is_null() {
        // SAFETY: the client's frame is writable.
        unsafe { frame.write(next) };
    }
    code
}

/// Goes back to the first frame. Signal safe.
///
/// # Safety
/// As [`ASGST_NextFrame`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_RewindIterator(iterator: *mut ApiIterator) {
    let _errno = KeptErrno::new();
    // SAFETY: null, or the iterator that the calling handler was given.
    if let Some(iterator) = unsafe { iterator.as_mut() } {
        iterator.begin();
    }
}

/// Returns 1 if there is a next frame, else the code that [`ASGST_NextFrame`] returns. Signal safe.
///
/// # Safety
/// As [`ASGST_NextFrame`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_State(iterator: *mut ApiIterator) -> i32 {
    let _errno = KeptErrno::new();
    // SAFETY: null, or the iterator that the calling handler was given.
    match unsafe { iterator.as_mut() } {
        Some(iterator) => iterator.peek().map_or_else(|code| code, |_| 1),
        None => NO_FRAME,
    }
}

/// Returns what is known of the calling thread's JVMTI state; -1 if the VM does not know the thread. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_ThreadState() -> i32 {
    let Some(api) = api() else { return -1 };
    let _errno = KeptErrno::new();
    let mark = 0_u64;
    let nowhere = Start::Frame { pc: 0, sp: 0, fp: 0 };
    // SAFETY: no context; the stack is not used.
    let subject = unsafe { Subject::of(api, nowhere, address_of(&mark)) };
    if !subject.is_java_thread() {
        return -1;
    }
    let state = subject.capture.thread_state;
    let in_native = u64::from(api.offsets.in_java).saturating_sub(FROM_NATIVE_TO_JAVA);
    if state == in_native { ALIVE | IN_NATIVE } else { ALIVE }
}

/// `ASGST_QueueElement`.
#[repr(C)]
pub struct QueueElement {
    pc: u64,
    fp: u64,
    sp: u64,
    argument: u64,
}

impl QueueElement {
    /// Its words, in their order.
    pub(super) fn words(&self, argument: u64) -> [u64; 4] {
        [self.pc, self.fp, self.sp, argument]
    }
}

/// Finds the first frame with bytecodes; the error is the code without one.
pub(super) fn enqueuable(api: &'static Api, subject: &Subject) -> Result<QueueElement, i32> {
    let mut found = None;
    let kind = Opened::on(api, subject, 0)?.run(0, |iterator| {
        found = loop {
            match iterator.next() {
                (1, frame) if frame.has_bytecodes() => break Some(frame),
                (1, _) => {}
                _ => break None,
            }
        };
    });
    match found {
        _ if kind != JAVA_TRACE => Err(kind),
        None => Err(NO_FRAME),
        Some(ApiFrame { pc, fp, sp, .. }) => Ok(QueueElement { pc, fp, sp, argument: 0 }),
    }
}

with_caller! {
    /// Returns 1 and the first frame with bytecodes, or a code. Signal safe.
    ///
    /// # Safety
    /// `ucontext` is null or a context of the calling thread; `element` is null or writable.
    fn ASGST_GetEnqueuableElement(ucontext: *const c_void, element: *mut QueueElement) -> i32
        = get_enqueuable_element, 2
}

unsafe extern "C" fn get_enqueuable_element(
    ucontext: *const c_void,
    element: *mut QueueElement,
    caller: &Caller,
) -> i32 {
    let Some(api) = api() else { return NO_THREAD };
    let _errno = KeptErrno::new();
    // SAFETY: a context of this thread; the walk ends before this returns.
    let subject = unsafe { Subject::of(api, Start::of(ucontext, caller), address_of(caller)) };
    match enqueuable(api, &subject) {
        Err(code) => code,
        Ok(found) => {
            if !element.is_null() {
                // SAFETY: the client's element is writable.
                unsafe { element.write(found) };
            }
            JAVA_TRACE
        }
    }
}
