//! JVMTI and the few JNI calls the agent makes, checked.
//!
//! Problem: the function table is raw, may come from a newer JVM than the bindings know, and every entry may be null.
//! Approach: one method per call used, each of which tests the entry and turns the answer into a [`JvmtiError`].
//! `jvmti-sys` declares errors as a Rust enum; a newer JVM could answer with a number outside of it, so answers are
//! read as plain integers (`design/jvmti-bindings.md`).
//! Sources: JVM Tool Interface 1.2 to 25 (`jvmti.xml`), JNI specification.

use std::ffi::{CStr, CString};

use jni::sys::{JNIEnv, JNINativeInterface__1_1, jint, jlong};
use jvmti_sys::{
    jthread, jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks, jvmtiEventMode, jvmtiThreadInfo,
};

/// Calls a function of the table and turns its answer into a result.
macro_rules! call {
    ($jvmti:expr, $name:ident : fn($($type:ty),*), $($argument:expr),*) => {{
        // SAFETY: the VM's environment points at its function table.
        let table = unsafe { *$jvmti.env };
        // SAFETY: the table lives as long as the VM and holds at least the functions of JVMTI 1.2.
        let table = unsafe { &*table };
        let function = table.$name;
        match function {
            None => Err(JvmtiError { function: stringify!($name), code: -1 }),
            Some(function) => {
                type Call = unsafe extern "C" fn(*mut jvmti_sys::jvmtiEnv, $($type),*) -> jint;
                // SAFETY: same function, its answer read as the integer it is in C.
                let function = unsafe { std::mem::transmute::<*const std::ffi::c_void, Call>(function as *const std::ffi::c_void) };
                // SAFETY: the arguments are those the specification asks for, see each caller.
                match unsafe { function($jvmti.env, $($argument),*) } {
                    0 => Ok(()),
                    code => Err(JvmtiError { function: stringify!($name), code }),
                }
            }
        }
    }};
}

#[cfg(feature = "agct")]
pub mod agct;
pub mod callbacks;
pub mod chunks;
pub mod flags;
pub mod loaders;
pub mod pauses;
pub mod stack_trace;
pub mod symbols;
pub mod vm;
pub mod vm_memory;

/// A JVMTI or JNI call that failed: the function and the number it answered, or -1 if it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JvmtiError {
    /// Name of the function.
    pub function: &'static str,
    /// Error number.
    pub code: jint,
}

impl std::fmt::Display for JvmtiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} answered {}", self.function, self.code)
    }
}

impl std::error::Error for JvmtiError {}

/// A JVMTI environment; the VM keeps it for the life of the process.
#[derive(Debug, Clone, Copy)]
pub struct Jvmti {
    env: *mut jvmtiEnv,
}

// SAFETY: a JVMTI environment may be used from any thread that is attached to the VM (JVMTI specification).
unsafe impl Send for Jvmti {}
// SAFETY: as above; the wrapper itself is never changed.
unsafe impl Sync for Jvmti {}

/// A thread as the VM names it in callbacks and listings: a local reference, valid until the callback returns.
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

/// A class as the VM names it; as [`ThreadRef`].
#[cfg(feature = "agct")]
#[derive(Debug, Clone, Copy)]
pub struct ClassRef(jni::sys::jclass);

#[cfg(feature = "agct")]
impl ClassRef {
    /// Wraps a reference that a callback received.
    ///
    /// # Safety
    /// `class` is a live local reference, and is not used after the callback returns.
    pub unsafe fn new(class: jni::sys::jclass) -> Self {
        Self(class)
    }
}

impl Jvmti {
    /// A system property of the VM.
    pub fn system_property(&self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        let mut value = std::ptr::null_mut();
        call!(self, GetSystemProperty: fn(*const std::ffi::c_char, *mut *mut std::ffi::c_char), name.as_ptr(), &raw mut value).ok()?;
        self.take_string(value)
    }

    /// Registers the callbacks.
    ///
    /// # Errors
    /// As SetEventCallbacks.
    pub fn set_callbacks(&self, callbacks: &jvmtiEventCallbacks) -> Result<(), JvmtiError> {
        let size = size_of::<jvmtiEventCallbacks>() as jint;
        call!(self, SetEventCallbacks: fn(*const jvmtiEventCallbacks, jint), std::ptr::from_ref(callbacks), size)
    }

    /// Asks for optional functions or events.
    ///
    /// # Errors
    /// As AddCapabilities.
    pub fn add_capabilities(&self, wanted: &jvmtiCapabilities) -> Result<(), JvmtiError> {
        call!(self, AddCapabilities: fn(*const jvmtiCapabilities), std::ptr::from_ref(wanted))
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

    fn notify(&self, event: jvmtiEvent, mode: jvmtiEventMode) -> Result<(), JvmtiError> {
        let mode = mode as jint;
        let all: jthread = std::ptr::null_mut();
        call!(self, SetEventNotificationMode: fn(jint, jint, jthread), mode, event as jint, all)
    }

    /// Name of a thread.
    pub fn thread_name(&self, thread: ThreadRef) -> Option<String> {
        let mut info = jvmtiThreadInfo::default();
        call!(self, GetThreadInfo: fn(jthread, *mut jvmtiThreadInfo), thread.0, &raw mut info).ok()?;
        self.take_string(info.name)
    }

    /// All live platform threads, as local references.
    pub fn all_threads(&self) -> Vec<ThreadRef> {
        let mut count: jint = 0;
        let mut threads: *mut jthread = std::ptr::null_mut();
        let answer =
            call!(self, GetAllThreads: fn(*mut jint, *mut *mut jthread), &raw mut count, &raw mut threads);
        if answer.is_err() || threads.is_null() {
            return Vec::new();
        }
        // SAFETY: the VM allocated `count` references at `threads`.
        let list = unsafe { std::slice::from_raw_parts(threads, usize::try_from(count).unwrap_or(0)) };
        let list = list.iter().copied().map(ThreadRef).collect();
        self.deallocate(threads.cast());
        list
    }

    /// The environment a callback received.
    ///
    /// # Safety
    /// `env` is an environment the VM made for this agent.
    #[cfg(feature = "agct")]
    pub unsafe fn from_raw(env: *mut jvmtiEnv) -> Self {
        Self { env }
    }

    /// All loaded classes, as local references.
    #[cfg(feature = "agct")]
    pub fn loaded_classes(&self) -> Vec<ClassRef> {
        use jni::sys::jclass;
        let mut count: jint = 0;
        let mut classes: *mut jclass = std::ptr::null_mut();
        let answer =
            call!(self, GetLoadedClasses: fn(*mut jint, *mut *mut jclass), &raw mut count, &raw mut classes);
        if answer.is_err() || classes.is_null() {
            return Vec::new();
        }
        // SAFETY: the VM allocated `count` references at `classes`.
        let list = unsafe { std::slice::from_raw_parts(classes, usize::try_from(count).unwrap_or(0)) };
        let list = list.iter().copied().map(ClassRef).collect();
        self.deallocate(classes.cast());
        list
    }

    /// Makes the VM create the jmethodIDs of a class, and names them.
    #[cfg(feature = "agct")]
    pub fn touch_methods(&self, class: ClassRef) -> Vec<u64> {
        use jni::sys::{jclass, jmethodID};
        let mut count: jint = 0;
        let mut methods: *mut jmethodID = std::ptr::null_mut();
        let answer = call!(
            self,
            GetClassMethods: fn(jclass, *mut jint, *mut *mut jmethodID),
            class.0, &raw mut count, &raw mut methods
        );
        if answer.is_err() || methods.is_null() {
            return Vec::new();
        }
        // SAFETY: the VM allocated `count` of them at `methods`.
        let list = unsafe { std::slice::from_raw_parts(methods, usize::try_from(count).unwrap_or(0)) };
        let list = list.iter().map(|method| *method as u64).collect();
        self.deallocate(methods.cast());
        list
    }

    /// Copies bytes the VM allocated and frees them.
    #[cfg(feature = "agct")]
    fn take_bytes(&self, bytes: *mut u8, length: jint) -> Vec<u8> {
        if bytes.is_null() {
            return Vec::new();
        }
        // SAFETY: the VM allocated `length` bytes at `bytes`.
        let copy =
            unsafe { std::slice::from_raw_parts(bytes, usize::try_from(length).unwrap_or(0)) }.to_vec();
        self.deallocate(bytes);
        copy
    }

    /// The calling thread's stack, newest frame first: jmethodID and bytecode index, -1 in native methods.
    #[cfg(feature = "agct")]
    pub fn own_stack_trace(&self, depth: usize) -> Vec<(u64, i32)> {
        use jvmti_sys::jvmtiFrameInfo;
        let mut frames: Vec<jvmtiFrameInfo> = Vec::with_capacity(depth);
        let mut count: jint = 0;
        let current: jthread = std::ptr::null_mut();
        let answer = call!(
            self,
            GetStackTrace: fn(jthread, jint, jint, *mut jvmtiFrameInfo, *mut jint),
            current, 0, jint::try_from(depth).unwrap_or(0), frames.as_mut_ptr(), &raw mut count
        );
        if answer.is_err() {
            return Vec::new();
        }
        // SAFETY: the VM wrote `count` frames, at most `depth`.
        unsafe { frames.set_len(usize::try_from(count).unwrap_or(0).min(depth)) };
        let pair =
            |frame: &jvmtiFrameInfo| (frame.method as u64, i32::try_from(frame.location).unwrap_or(-1));
        frames.iter().map(pair).collect()
    }

    /// Copies a string the VM allocated and frees it.
    fn take_string(&self, text: *mut std::ffi::c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: the VM returned a NUL-terminated string.
        let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        self.deallocate(text.cast());
        Some(copy)
    }

    fn deallocate(&self, memory: *mut u8) {
        // Nothing can be done about a failure, and none is known to occur.
        let _ = call!(self, Deallocate: fn(*mut u8), memory);
    }
}

/// The JNI environment of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Jni {
    env: *mut JNIEnv,
}

impl Jni {
    /// Wraps the pointer a callback received.
    ///
    /// # Safety
    /// `env` is the JNI environment of the calling thread.
    pub unsafe fn new(env: *mut JNIEnv) -> Self {
        Self { env }
    }

    /// Address of the environment, which lies inside the thread's `JavaThread`.
    pub fn address(&self) -> u64 {
        self.env as u64
    }

    fn functions(&self) -> &JNINativeInterface__1_1 {
        // SAFETY: the environment points at its function table.
        let table = unsafe { *self.env };
        // SAFETY: the table lives as long as the VM.
        let table = unsafe { &*table };
        // SAFETY: the table holds at least the functions of JNI 1.1.
        unsafe { &table.v1_1 }
    }

    /// `java.lang.Thread.eetop` of a thread: its `JavaThread*`, 0 if it is not alive.
    pub fn java_thread(&self, thread: ThreadRef) -> Option<u64> {
        let functions = self.functions();
        // SAFETY: a valid class name.
        let class = unsafe { (functions.FindClass)(self.env, c"java/lang/Thread".as_ptr()) };
        if class.is_null() {
            // SAFETY: always allowed.
            unsafe { (functions.ExceptionClear)(self.env) };
            return None;
        }
        // SAFETY: the class is a live local reference, the names are NUL-terminated.
        let field = unsafe { (functions.GetFieldID)(self.env, class, c"eetop".as_ptr(), c"J".as_ptr()) };
        if field.is_null() {
            // SAFETY: always allowed.
            unsafe { (functions.ExceptionClear)(self.env) };
            return None;
        }
        // SAFETY: `thread` is a java.lang.Thread and the field one of its long fields.
        let value: jlong = unsafe { (functions.GetLongField)(self.env, thread.0, field) };
        // SAFETY: the class reference is not used again.
        unsafe { (functions.DeleteLocalRef)(self.env, class) };
        Some(value.cast_unsigned())
    }
}
