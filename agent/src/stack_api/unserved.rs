//! Functions of the iterator generation that no stock VM allows; they exist so that clients which name them can be
//! loaded.
//!
//! Each returns what its header states; `ASGST_Capabilities` reports that frame marks are missing.

#![allow(non_snake_case, reason = "the proposal's names")]

use core::ffi::c_void;

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
