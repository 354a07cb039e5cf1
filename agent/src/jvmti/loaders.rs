//! The class loaders that are never unloaded.
//!
//! Problem: names of most methods can be kept for ever, but the tables do not say which loaders are permanent.
//! Approach: ask Java for the platform and the system loader once, and hold each by a global reference, which is the
//! address of a slot that the collector keeps up to date.
//! Sources: HotSpot `runtime/jniHandles.hpp` (a reference is the slot's address with its kind in the low bits), JDK 11
//! to 25.

use std::ffi::CStr;

use jni::sys::jobject;

use super::Jni;

/// Bits of a reference that tell its kind: two up to JDK 25, a slot is aligned to eight.
const KIND_BITS: u64 = 7;

const GETTERS: [&CStr; 2] = [c"getSystemClassLoader", c"getPlatformClassLoader"];

impl Jni {
    /// Addresses of slots that hold the permanent loaders; fewer if Java does not tell.
    pub fn permanent_loaders(&self) -> Vec<u64> {
        GETTERS.iter().filter_map(|getter| self.loader(getter)).collect()
    }

    fn loader(&self, getter: &CStr) -> Option<u64> {
        // SAFETY: the environment points at its function table.
        let table = unsafe { *self.env };
        // SAFETY: the table lives as long as the VM.
        let table = unsafe { &*table };
        // SAFETY: the table holds at least the functions of JNI 1.1.
        let functions = unsafe { &table.v1_1 };
        // SAFETY: a valid class name.
        let class = unsafe { (functions.FindClass)(self.env, c"java/lang/ClassLoader".as_ptr()) };
        let mut loader: jobject = std::ptr::null_mut();
        if !class.is_null() {
            let signature = c"()Ljava/lang/ClassLoader;".as_ptr();
            // SAFETY: the class is a live reference, the names are NUL-terminated.
            let method =
                unsafe { (functions.GetStaticMethodID)(self.env, class, getter.as_ptr(), signature) };
            if !method.is_null() {
                // SAFETY: a static method of that class without parameters, which returns an object.
                loader =
                    unsafe { (functions.CallStaticObjectMethodA)(self.env, class, method, std::ptr::null()) };
            }
        }
        // SAFETY: always allowed; an exception must not stay pending in a callback.
        unsafe { (functions.ExceptionClear)(self.env) };
        if loader.is_null() {
            return None;
        }
        // SAFETY: a live reference. The global one is kept: these loaders live as long as the VM anyway.
        let global = unsafe { (functions.NewGlobalRef)(self.env, loader) };
        Some(global as u64 & !KIND_BITS).filter(|&slot| slot != 0)
    }
}
