//! The C functions of `agent/include/control/tickwalk.h`.
//!
//! Problem: programs start, end and read profiles without Java classes of ours, on any way by which the
//! library got into the process; dlopen passes no VM.
//! Approach: the VM is found by the invocation API (`JNI_GetCreatedJavaVMs`), whose symbol the launcher makes
//! global, or in the library `libjvm.so` if it is loaded.
//! Invariant: every function returns a code and writes a text that ends in NUL; errno is set for errors of files only.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use jni::sys::{JNI_OK, JavaVM, jint, jsize};

use super::messages;
use crate::jvmti::guard;
use crate::jvmti::vm::Vm;
use crate::profile::{Refusal, results, run, start, status};
use agent_options::output::{Format, Output, format_of};
use agent_options::{Action, Door};

const OK: c_int = 0;
const ERROR_REQUEST: c_int = 1;
const ERROR_STATE: c_int = 2;
const ERROR_FILE: c_int = 3;
const ERROR_THREAD: c_int = 4;
const ERROR_OFF: c_int = 5;

/// A failure as code and message.
struct Error(c_int, String);

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Request(_) => ERROR_REQUEST,
            Refusal::File { error, .. } => {
                set_errno(error.raw_os_error().unwrap_or(libc::EIO));
                ERROR_FILE
            }
            _ => ERROR_STATE,
        };
        Self(code, refusal.for_programs())
    }
}

/// Starts a profile; see the header.
///
/// # Safety
/// `options` is null or NUL-terminated; `size` bytes lie at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tickwalk_start(options: *const c_char, text: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller passes null or a NUL-terminated text.
    let options = unsafe { text_at(options) };
    let body = || {
        let request = start::request(Door::C, &options.unwrap_or_default()).map_err(Refusal::from)?;
        if request.action != Action::Start {
            return Err(Error(ERROR_REQUEST, "write options of a start only".to_owned()));
        }
        messages::warn(&request);
        Ok(start::now(vm()?, &request)?)
    };
    // SAFETY: the caller has `size` bytes at `text`.
    unsafe { answer(text, size, || body().map(|()| String::new())) }
}

/// Ends the profile; see the header.
///
/// # Safety
/// `size` bytes lie at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tickwalk_stop(text: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller has `size` bytes at `text`.
    unsafe { answer(text, size, || Ok(run::stop(vm()?).map(|()| String::new())?)) }
}

/// Writes a result; see the header.
///
/// # Safety
/// `path` is null or NUL-terminated; `size` bytes lie at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tickwalk_dump(path: *const c_char, text: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller passes null or a NUL-terminated text.
    let path = unsafe { text_at(path) };
    let body = || {
        let path = path.filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| Error(ERROR_REQUEST, "the path is missing".to_owned()))?;
        results::dump_to(Path::new(&path), Output::of(format_of(&path).unwrap_or(Format::Text)))?;
        Ok(String::new())
    };
    // SAFETY: the caller has `size` bytes at `text`.
    unsafe { answer(text, size, body) }
}

/// Describes what the agent does; see the header.
///
/// # Safety
/// `size` bytes lie at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tickwalk_status(text: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller has `size` bytes at `text`.
    unsafe { answer(text, size, || Ok(status::described())) }
}

/// Runs `body`, writes its text or the message of its error, and returns the code.
///
/// # Safety
/// `size` bytes lie at `text`.
unsafe fn answer(text: *mut c_char, size: usize, body: impl FnOnce() -> Result<String, Error>) -> c_int {
    let off = || Err(Error(ERROR_OFF, "an internal error has switched the agent off".to_owned()));
    let (code, message) = match guard::entry_point(off(), body) {
        Ok(text) => (OK, text),
        Err(Error(code, message)) => (code, message),
    };
    if size == 0 || text.is_null() {
        return code;
    }
    let mut length = message.len().min(size - 1);
    while !message.is_char_boundary(length) {
        length -= 1;
    }
    let text = text.cast::<u8>();
    // SAFETY: `length` is below `size`.
    unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), text, length) };
    // SAFETY: `length` is below `size`.
    let end = unsafe { text.add(length) };
    // SAFETY: inside of the caller's memory.
    unsafe { end.write(0) };
    code
}

/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn text_at(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so NUL-terminated as the caller promises.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Returns the VM of this process, if the calling thread is attached to it.
fn vm() -> Result<Vm, Error> {
    let error = |reason: &str| Error(ERROR_THREAD, reason.to_owned());
    let vm = created_vm().ok_or_else(|| error("no JVM has been created in this process"))?;
    // SAFETY: the VM gave its own pointer.
    let vm = unsafe { Vm::new(vm) };
    match vm.jni() {
        Ok(_) => Ok(vm),
        Err(_) => Err(error("the JVM does not know this thread; call from a Java thread, or attach it")),
    }
}

/// Returns the first VM of this process.
fn created_vm() -> Option<*mut JavaVM> {
    type GetCreatedVms = unsafe extern "system" fn(*mut *mut JavaVM, jsize, *mut jsize) -> jint;
    let name = c"JNI_GetCreatedJavaVMs".as_ptr();
    // SAFETY: the name is NUL-terminated.
    let mut function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
    if function.is_null() {
        let already_loaded = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
        // SAFETY: the name is NUL-terminated; with NOLOAD nothing is run.
        let library = unsafe { libc::dlopen(c"libjvm.so".as_ptr(), already_loaded) };
        if library.is_null() {
            return None;
        }
        // SAFETY: an open library and a NUL-terminated name.
        function = unsafe { libc::dlsym(library, name) };
    }
    if function.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this type (JNI specification, "The Invocation API").
    let get = unsafe { std::mem::transmute::<*mut c_void, GetCreatedVms>(function) };
    let (mut vm, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: one pointer and one count are writable.
    let code = unsafe { get(&raw mut vm, 1, &raw mut count) };
    (code == JNI_OK && count > 0 && !vm.is_null()).then_some(vm)
}

fn set_errno(value: c_int) {
    // SAFETY: always allowed.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's own variable.
    unsafe { place.write(value) };
}
