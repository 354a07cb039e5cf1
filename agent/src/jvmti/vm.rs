//! The VM, as an agent's entry point receives it.
//!
//! Approach: [`Vm`] wraps the raw pointer and returns checked environments.
//! Sources: JNI specification, "The Invocation API"; JVMTI 1.2, GetEnv.

use std::ffi::{CStr, c_void};
use std::time::{Duration, Instant};

use jni::sys::{JNI_EDETACHED, JNIInvokeInterface__1_4, JavaVM, JavaVMAttachArgs, jint};
use parking_lot::Mutex;

use super::jni_calls::Jni;
use super::symbols::Library;
use super::{Jvmti, JvmtiError};

/// JVMTI 1.2, the oldest version all supported JVMs offer.
const JVMTI_VERSION_1_2: jint = 0x3001_0200;
/// Longest wait for a VM that is being created; GetEnv returns `JNI_EDETACHED` until it is live (HotSpot
/// `prims/jvmtiExport.cpp`, `get_jvmti_interface`, JDK 11 to 25).
const STARTING: Duration = Duration::from_secs(1);

/// The VM of this process.
#[derive(Debug, Clone, Copy)]
pub struct Vm {
    pointer: *mut JavaVM,
}

// SAFETY: the invocation functions may be called by any thread (JNI specification, "The Invocation API").
unsafe impl Send for Vm {}
// SAFETY: the invocation functions may be called by any thread, and the wrapper is never changed.
unsafe impl Sync for Vm {}

impl Vm {
    /// Wraps the pointer an entry point received.
    ///
    /// # Safety
    /// `pointer` is the one the VM passed to an agent entry point.
    pub unsafe fn new(pointer: *mut JavaVM) -> Self {
        Self { pointer }
    }

    fn functions(&self) -> &JNIInvokeInterface__1_4 {
        // SAFETY: by the promise of `new`.
        let table = unsafe { *self.pointer };
        // SAFETY: the table lives as long as the VM.
        let table = unsafe { &*table };
        // SAFETY: every supported VM has the invocation functions of JNI 1.4.
        unsafe { &table.v1_4 }
    }

    fn environment(&self, version: jint) -> Result<*mut c_void, JvmtiError> {
        let mut env: *mut c_void = std::ptr::null_mut();
        // SAFETY: `env` is writable.
        let code = unsafe { (self.functions().GetEnv)(self.pointer, &raw mut env, version) };
        if code != 0 || env.is_null() { Err(JvmtiError { function: "GetEnv", code }) } else { Ok(env) }
    }

    /// Returns the agent's JVMTI environment, the same for all profiles of a process. Waits for up to a second for
    /// a VM that is being created.
    ///
    /// # Errors
    /// When the VM offers no JVMTI 1.2; `JNI_EDETACHED` (-2) when it is still being created.
    pub fn jvmti(&self) -> Result<Jvmti, JvmtiError> {
        static MADE: Mutex<Option<Jvmti>> = Mutex::new(None);
        let mut made = MADE.lock();
        if let Some(jvmti) = *made {
            return Ok(jvmti);
        }
        let jvmti = self.separate_jvmti()?;
        *made = Some(jvmti);
        Ok(jvmti)
    }

    /// Returns a JVMTI environment with events of its own. Waits as [`Self::jvmti`].
    ///
    /// # Errors
    /// As [`Self::jvmti`].
    pub fn separate_jvmti(&self) -> Result<Jvmti, JvmtiError> {
        let deadline = Instant::now() + STARTING;
        loop {
            match self.environment(JVMTI_VERSION_1_2) {
                Err(error) if error.code == JNI_EDETACHED && Instant::now() < deadline => {
                    std::thread::park_timeout(STARTING / 50);
                }
                outcome => return Ok(Jvmti { env: outcome?.cast() }),
            }
        }
    }

    /// Returns the JNI environment of the calling thread.
    ///
    /// # Errors
    /// When the thread is not attached to the VM.
    pub fn jni(&self) -> Result<Jni, JvmtiError> {
        let env = self.environment(jni::sys::JNI_VERSION_1_6)?;
        // SAFETY: GetEnv returned the environment of the calling thread.
        Ok(unsafe { Jni::new(env.cast()) })
    }

    /// Makes the calling thread known to the VM, as a daemon, until the result is dropped.
    ///
    /// # Errors
    /// When the VM refuses, because it ends.
    pub fn attach(&self) -> Result<Attached, JvmtiError> {
        self.attach_with(std::ptr::null_mut())
    }

    /// Makes the calling thread known to the VM under this name.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_as(&self, name: &CStr) -> Result<Attached, JvmtiError> {
        let (version, group) = (jni::sys::JNI_VERSION_1_6, std::ptr::null_mut());
        let mut arguments = JavaVMAttachArgs { version, name: name.as_ptr().cast_mut(), group };
        self.attach_with((&raw mut arguments).cast())
    }

    /// Attaches the calling thread; `arguments` are null, or a `JavaVMAttachArgs`, which the VM only reads.
    fn attach_with(&self, arguments: *mut c_void) -> Result<Attached, JvmtiError> {
        const FUNCTION: &str = "AttachCurrentThreadAsDaemon";
        let mut env: *mut c_void = std::ptr::null_mut();
        // SAFETY: `env` is writable, and the arguments are those of the two callers; without any the VM chooses
        // name and group.
        let code =
            unsafe { (self.functions().AttachCurrentThreadAsDaemon)(self.pointer, &raw mut env, arguments) };
        if code == 0 { Ok(Attached(*self)) } else { Err(JvmtiError { function: FUNCTION, code }) }
    }

    /// Returns the library that contains the VM's functions.
    pub fn library(&self) -> Option<Library> {
        Library::containing(self.functions().GetEnv as *const c_void as u64)
    }
}

/// The calling thread is known to the VM.
#[derive(Debug)]
pub struct Attached(Vm);

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the thread was attached by us, and runs no Java code. A refusal leaves it attached until it ends.
        unsafe { (self.0.functions().DetachCurrentThread)(self.0.pointer) };
    }
}
