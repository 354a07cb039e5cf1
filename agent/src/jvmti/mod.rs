//! JVMTI, checked.
//!
//! Problem: the function table is raw, may come from a newer JVM than the bindings, and every entry may be null.
//! Approach: one method for each call, which tests the entry and turns an error code into a [`JvmtiError`].
//! `jvmti-sys` declares errors as a Rust enum; a newer JVM may return a code outside of it, so codes are read as plain
//! integers (`design/control.md`).
//! Sources: JVM Tool Interface 1.2 to 25 (`jvmti.xml`).

use std::ffi::{CStr, CString};

use jni::sys::jint;
use jvmti_sys::{jthread, jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks, jvmtiEventMode};
use sampler_thread::characters::from_modified_utf8;
use sampler_thread::pacing::Pacer;

/// Phases of the VM, as integers: a newer one may have others.
const LIVE: jint = jvmti_sys::jvmtiPhase::JVMTI_PHASE_LIVE as jint;
const DEAD: jint = jvmti_sys::jvmtiPhase::JVMTI_PHASE_DEAD as jint;

/// Calls a function of the table; returns `Result<(), JvmtiError>`.
#[macro_export]
macro_rules! jvmti_call {
    ($jvmti:expr, $name:ident : fn($($type:ty),*), $($argument:expr),*) => {{
        let env = $jvmti.env();
        // SAFETY: the VM's environment points at its function table.
        let table = unsafe { *env };
        // SAFETY: the table lives as long as the VM and holds at least the functions of JVMTI 1.2.
        let table = unsafe { &*table };
        match table.$name {
            None => Err($crate::jvmti::JvmtiError { function: stringify!($name), code: -1 }),
            Some(function) => {
                type Call = unsafe extern "C" fn(*mut jvmti_sys::jvmtiEnv, $($type),*) -> jni::sys::jint;
                // SAFETY: same function, its return value read as the integer it is in C.
                let function = unsafe { std::mem::transmute::<*const std::ffi::c_void, Call>(function as *const std::ffi::c_void) };
                #[allow(clippy::macro_metavars_in_unsafe, reason = "the arguments are values of C types at every caller")]
                // SAFETY: the arguments are those the specification requires, see each caller.
                let code = unsafe { function(env, $($argument),*) };
                match code {
                    0 => Ok(()),
                    code => Err($crate::jvmti::JvmtiError { function: stringify!($name), code }),
                }
            }
        }
    }};
}

pub(crate) use jvmti_call;

pub mod classes;
pub mod flags;
pub mod guard;
pub mod initialised;
pub mod jni_calls;
pub mod loaders;
pub mod mark;
pub mod routines;
pub mod safe_fetch;
pub mod stack_trace;
pub mod symbols;
pub mod thread_key;
pub mod thread_names;
pub mod vm;
pub mod vm_memory;

/// A JVMTI or JNI call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{function} returned error {code}{}", meaning(*code))]
pub struct JvmtiError {
    pub function: &'static str,
    /// Error code that it returned, -1 if the VM has no such function.
    pub code: jint,
}

/// Returns what a user can make of an error code.
fn meaning(code: jint) -> &'static str {
    if code == jvmti_sys::jvmtiError::JVMTI_ERROR_WRONG_PHASE as jint {
        " (wrong phase): the JVM is ending"
    } else {
        ""
    }
}

/// A JVMTI environment, which lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Jvmti {
    env: *mut jvmtiEnv,
}

// SAFETY: a JVMTI environment may be used from any thread that is attached to the VM (JVMTI specification).
unsafe impl Send for Jvmti {}
// SAFETY: any attached thread may use the environment, and the wrapper is never changed.
unsafe impl Sync for Jvmti {}

/// How far the VM has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is not initialised yet.
    Earlier,
    Live,
    /// It has reported its end.
    Dead,
}

/// A local reference to a `java.lang.Thread`, valid until the callback returns.
#[derive(Debug, Clone, Copy)]
pub struct ThreadRef(jthread);

impl ThreadRef {
    /// Wraps a reference that a callback received.
    ///
    /// # Safety
    /// `thread` is a live local reference to a `java.lang.Thread`, and is not used after the callback returns.
    pub unsafe fn new(thread: jthread) -> Self {
        Self(thread)
    }
}

impl Jvmti {
    /// Wraps an environment.
    ///
    /// # Safety
    /// `env` is a JVMTI environment the VM made.
    pub unsafe fn new(env: *mut jvmtiEnv) -> Self {
        Self { env }
    }

    /// The environment's pointer.
    pub fn env(&self) -> *mut jvmtiEnv {
        self.env
    }

    pub fn system_property(&self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        let mut value = std::ptr::null_mut();
        jvmti_call!(self, GetSystemProperty: fn(*const std::ffi::c_char, *mut *mut std::ffi::c_char), name.as_ptr(), &raw mut value).ok()?;
        // SAFETY: the VM returned this string.
        unsafe { self.take_string(value) }
    }

    /// Returns how far the VM has come.
    ///
    /// # Errors
    /// As GetPhase.
    pub fn phase(&self) -> Result<Phase, JvmtiError> {
        let mut phase: jint = 0;
        jvmti_call!(self, GetPhase: fn(*mut jint), &raw mut phase)?;
        Ok(match phase {
            LIVE => Phase::Live,
            DEAD => Phase::Dead,
            _ => Phase::Earlier,
        })
    }

    /// Registers the callbacks.
    ///
    /// # Errors
    /// As SetEventCallbacks.
    pub fn set_callbacks(&self, callbacks: &jvmtiEventCallbacks) -> Result<(), JvmtiError> {
        let size = size_of::<jvmtiEventCallbacks>() as jint;
        jvmti_call!(self, SetEventCallbacks: fn(*const jvmtiEventCallbacks, jint), std::ptr::from_ref(callbacks), size)
    }

    /// Acquires optional functions or events.
    ///
    /// # Errors
    /// As AddCapabilities.
    pub fn add_capabilities(&self, capabilities: &jvmtiCapabilities) -> Result<(), JvmtiError> {
        jvmti_call!(self, AddCapabilities: fn(*const jvmtiCapabilities), std::ptr::from_ref(capabilities))
    }

    /// Switches an event on for all threads.
    ///
    /// # Errors
    /// As SetEventNotificationMode.
    pub fn enable(&self, event: jvmtiEvent) -> Result<(), JvmtiError> {
        self.notify(event, jvmtiEventMode::JVMTI_ENABLE)
    }

    /// Switches an event off for all threads.
    ///
    /// # Errors
    /// As SetEventNotificationMode.
    pub fn disable(&self, event: jvmtiEvent) -> Result<(), JvmtiError> {
        self.notify(event, jvmtiEventMode::JVMTI_DISABLE)
    }

    /// Has the VM report what an event would have reported so far, on this thread and before the call returns.
    ///
    /// # Errors
    /// As GenerateEvents.
    pub fn generate_events(&self, event: jvmtiEvent) -> Result<(), JvmtiError> {
        jvmti_call!(self, GenerateEvents: fn(jint), event as jint)
    }

    /// The VM visits all threads, under a lock that threads need to start (`jvmtiEventController.cpp`, JDK 11 to
    /// 25): where that takes long, those that wait for it have their turn before the next call.
    fn notify(&self, event: jvmtiEvent, mode: jvmtiEventMode) -> Result<(), JvmtiError> {
        let mode = mode as jint;
        let all: jthread = std::ptr::null_mut();
        let mut pacer = Pacer::start();
        let outcome =
            jvmti_call!(self, SetEventNotificationMode: fn(jint, jint, jthread), mode, event as jint, all);
        pacer.rest_if_due();
        outcome
    }

    pub fn current_thread(&self) -> Option<ThreadRef> {
        let mut thread: jthread = std::ptr::null_mut();
        jvmti_call!(self, GetCurrentThread: fn(*mut jthread), &raw mut thread).ok()?;
        (!thread.is_null()).then_some(ThreadRef(thread))
    }

    pub fn all_threads(&self) -> Vec<ThreadRef> {
        let (mut count, mut threads) = (0, std::ptr::null_mut());
        let outcome = jvmti_call!(self, GetAllThreads: fn(*mut jint, *mut *mut jthread), &raw mut count, &raw mut threads);
        if outcome.is_err() {
            return Vec::new();
        }
        // SAFETY: the VM allocated `count` references at `threads`.
        let threads = unsafe { self.take_array(threads, count) };
        threads.into_iter().map(ThreadRef).collect()
    }

    /// Copies an array the VM allocated, and frees it.
    ///
    /// # Safety
    /// `array` is null, or has `count` elements that the VM allocated for this call.
    pub unsafe fn take_array<T: Copy>(&self, array: *mut T, count: jint) -> Vec<T> {
        if array.is_null() {
            return Vec::new();
        }
        // SAFETY: not null, so `count` elements of the VM.
        let copy = unsafe { std::slice::from_raw_parts(array, usize::try_from(count).unwrap_or(0)) }.to_vec();
        self.deallocate(array.cast());
        copy
    }

    /// Copies a string the VM allocated, and frees it.
    ///
    /// # Safety
    /// `text` is null, or a NUL-terminated string that the VM allocated for this call.
    pub unsafe fn take_string(&self, text: *mut std::ffi::c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: not null, so a NUL-terminated string of the VM.
        let copy = from_modified_utf8(unsafe { CStr::from_ptr(text) }.to_bytes()).into_owned();
        self.deallocate(text.cast());
        Some(copy)
    }

    fn deallocate(&self, memory: *mut u8) {
        // A failure leaks the memory; none is known to occur.
        let _ = jvmti_call!(self, Deallocate: fn(*mut u8), memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_jvm_that_ends_says_so() {
        let text = |code| JvmtiError { function: "SetEventCallbacks", code }.to_string();
        assert_eq!(text(112), "SetEventCallbacks returned error 112 (wrong phase): the JVM is ending");
        assert_eq!(text(103), "SetEventCallbacks returned error 103");
    }
}
