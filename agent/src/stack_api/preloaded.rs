//! The API in a process that preloads the library and loads it as no agent.
//!
//! Problem: with LD_PRELOAD no entry point of the library is called, and a walk in a signal handler must not search for the
//! VM.
//! Approach: the library interposes pthread_create, which no signal handler may call and every JVM calls after it has made the
//! structures that walks read: for its signal dispatcher, its compilers and all Java threads. Until the API is ready, each
//! call looks for a VM that knows the calling thread. Afterwards each call follows the libraries that were loaded.
//! A library that is loaded as an agent comes behind the C library in the order of symbols, so nothing calls this function then.
//! Invariants: the caller may be in any state of the VM, so nothing here changes it: of the VM's functions only
//! JNI_GetCreatedJavaVMs and GetEnv for JNI are called, which read variables. The thread is created whatever happens.
//! Sources: ld.so(8) (LD_PRELOAD), dlsym(3) (RTLD_NEXT), `prims/jni.cpp` (`jni_GetEnv`), `runtime/{thread,threads}.cpp`
//! (`create_vm`: the main thread gets its object after all stubs were made, and the signal dispatcher comes later), JDK 11 to
//! 25.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::created_vm::created_vm;
use super::{api, start};
use crate::jvmti::guard;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// The C library's function. Relaxed: any caller may find it again.
static CREATE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// True if a VM was found that is not supported.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Creates a thread, as pthread_create(3).
///
/// # Safety
/// As pthread_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    body: Start,
    argument: *mut c_void,
) -> c_int {
    guard::entry_point((), || match api::api() {
        Some(_) => start::follow_libraries(),
        None if !IS_REFUSED.load(Ordering::Relaxed) => look_for_vm(),
        None => {}
    });
    let Some(create) = create() else { return libc::EAGAIN };
    // SAFETY: by the caller's promise.
    unsafe { create(thread, attributes, body, argument) }
}

/// Finds the next function of this name in the order of libraries.
fn create() -> Option<Create> {
    let mut found = CREATE.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: a NUL-terminated name.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        CREATE.store(found, Ordering::Relaxed);
    }
    // SAFETY: null, or the C library's function of this type.
    unsafe { std::mem::transmute::<*mut c_void, Option<Create>>(found) }
}

/// Makes the API ready if the process has a VM that knows the calling thread.
fn look_for_vm() {
    let Some(vm) = created_vm() else { return };
    let Ok(jni) = vm.jni() else { return };
    if let Err(reason) = start::open_preloaded(vm, jni) {
        IS_REFUSED.store(true, Ordering::Relaxed);
        crate::guest::log::print(&format!("{reason}; the stack-walk API is not available"));
    }
}
