//! Functions of the iterator generation that no stock VM allows, so that clients which name them can be loaded.
//!
//! Each returns the code that its header states; [`ASGST_Capabilities`] tells clients so.

#![allow(non_snake_case, reason = "the proposal's names")]

use core::ffi::c_void;

use super::iterator::QueueElement;

const ENQUEUE_NO_QUEUE: i32 = -5;

/// Returns 0: neither queues nor frame marks are served. Signal safe.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_Capabilities() -> i32 {
    0
}

/// Returns null.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_JClassToClass(_class: *mut c_void) -> *mut c_void {
    core::ptr::null_mut()
}

/// Returns null.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_ClassToJClass(_class: *mut c_void) -> *mut c_void {
    core::ptr::null_mut()
}

/// Without effect.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_RegisterClassUnloadHandler(_handler: *mut c_void, _argument: *mut c_void) {}

/// Returns false.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_DeregisterClassUnloadHandler(_handler: *mut c_void, _argument: *mut c_void) -> bool {
    false
}

/// Returns null.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_RegisterQueue(
    _environment: *mut c_void,
    _size: i32,
    _options: i32,
    _handler: *mut c_void,
    _argument: *mut c_void,
) -> *mut c_void {
    core::ptr::null_mut()
}

/// Returns false.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_DeregisterQueue(_environment: *mut c_void, _queue: *mut c_void) -> bool {
    false
}

/// Without effect.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_SetOnQueueProcessingStart(
    _queue: *mut c_void,
    _options: i32,
    _offer_iterator: bool,
    _before: *mut c_void,
    _argument: *mut c_void,
) {
}

/// Without effect.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_SetOnQueueProcessingEnd(
    _queue: *mut c_void,
    _options: i32,
    _offer_iterator: bool,
    _end: *mut c_void,
    _argument: *mut c_void,
) {
}

/// Returns the code for a missing queue. Signal safe.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_Enqueue(_queue: *mut c_void, _ucontext: *mut c_void, _argument: *mut c_void) -> i32 {
    ENQUEUE_NO_QUEUE
}

/// Returns null.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_GetQueueElement(_queue: *mut c_void, _number: i32) -> *mut QueueElement {
    core::ptr::null_mut()
}

/// `ASGST_QueueSizeInfo`.
#[repr(C)]
pub struct QueueSizeInfo {
    size: i32,
    capacity: i32,
    attempts: i32,
}

/// Returns zeros.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_GetQueueSizeInfo(_queue: *mut c_void) -> QueueSizeInfo {
    QueueSizeInfo { size: 0, capacity: 0, attempts: 0 }
}

/// Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_QueueSize(_queue: *mut c_void) -> i32 {
    0
}

/// Without effect.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_ResizeQueue(_queue: *mut c_void, _size: i32) {}

/// Returns null.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_RegisterFrameMark(
    _environment: *mut c_void,
    _handler: *mut c_void,
    _options: i32,
    _argument: *mut c_void,
) -> *mut c_void {
    core::ptr::null_mut()
}

/// Without effect.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_MoveFrameMark(_mark: *mut c_void, _sp: *mut c_void) {}

/// Returns null.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_GetFrameMarkStackPointer(_mark: *mut c_void) -> *mut c_void {
    core::ptr::null_mut()
}

/// Without effect.
#[unsafe(no_mangle)]
pub extern "C" fn ASGST_RemoveFrameMark(_mark: *mut c_void) {}
