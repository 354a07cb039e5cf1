//! The VM of the process, for code that the VM has not called.

use std::ffi::{c_int, c_void};

use jni::sys::{JavaVM, jsize};

use crate::jvmti::vm::Vm;

type CreatedVms = unsafe extern "C" fn(*mut *mut JavaVM, jsize, *mut jsize) -> c_int;

/// Finds the VM of this process. Not signal safe.
pub fn created_vm() -> Option<Vm> {
    // SAFETY: a NUL-terminated name.
    let created = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"JNI_GetCreatedJavaVMs".as_ptr()) };
    // SAFETY: null, or the VM's function of this type.
    let created = unsafe { std::mem::transmute::<*mut c_void, Option<CreatedVms>>(created) };
    let created = created?;
    let (mut vm, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: room for one VM.
    let code = unsafe { created(&raw mut vm, 1, &raw mut count) };
    let is_found = code == 0 && count == 1 && !vm.is_null();
    // SAFETY: the VM of this process.
    is_found.then(|| unsafe { Vm::new(vm) })
}
