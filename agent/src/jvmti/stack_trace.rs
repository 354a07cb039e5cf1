//! A thread's stack trace from the VM, for the self-test and for `mode=jvmti`.
//!
//! Source: JVMTI 1.2, GetStackTrace, GetMethodName, GetMethodDeclaringClass, GetClassSignature.

use std::ffi::c_char;

use jni::sys::{jclass, jint, jmethodID};
use jvmti_sys::{jthread, jvmtiFrameInfo};

use super::{Jvmti, JvmtiError, ThreadRef};

/// Most frames that are read; the VM's own threads have two to six.
const MAX_FRAMES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmFrame {
    /// Class in internal form, `java/lang/Object`.
    pub class: String,
    pub method: String,
    /// Bytecode index, -1 in native methods.
    pub bci: i64,
}

impl Jvmti {
    /// Returns the frames of a thread, newest first. The VM may stop the thread meanwhile.
    ///
    /// # Errors
    /// As the JVMTI functions, and -1 for more frames than are read.
    pub fn stack_trace(&self, thread: ThreadRef) -> Result<Vec<VmFrame>, JvmtiError> {
        let frames = self.raw_frames(thread, MAX_FRAMES)?;
        match frames.len() < MAX_FRAMES {
            true => frames.iter().map(|frame| self.vm_frame(frame)).collect(),
            false => Err(JvmtiError { function: "GetStackTrace", code: -1 }),
        }
    }

    /// Returns method id and bytecode index of each frame of a thread, newest first and at most `most`. The VM
    /// waits until the thread is at a safepoint.
    ///
    /// # Errors
    /// As GetStackTrace.
    pub fn frames_of(&self, thread: ThreadRef, most: usize) -> Result<Vec<(u64, i64)>, JvmtiError> {
        let frames = self.raw_frames(thread, most)?;
        Ok(frames.iter().map(|frame| (frame.method as u64, frame.location)).collect())
    }

    /// Returns at most `most` frames of a thread, newest first.
    ///
    /// # Errors
    /// As GetStackTrace.
    pub fn raw_frames(&self, thread: ThreadRef, most: usize) -> Result<Vec<jvmtiFrameInfo>, JvmtiError> {
        let mut frames = vec![jvmtiFrameInfo::default(); most];
        let mut count: jint = 0;
        jvmti_call!(
            self,
            GetStackTrace: fn(jthread, jint, jint, *mut jvmtiFrameInfo, *mut jint),
            thread.0, 0, jint::try_from(most).unwrap_or(jint::MAX), frames.as_mut_ptr(), &raw mut count
        )?;
        frames.truncate(usize::try_from(count).unwrap_or(0));
        Ok(frames)
    }

    fn vm_frame(&self, frame: &jvmtiFrameInfo) -> Result<VmFrame, JvmtiError> {
        let method: jmethodID = frame.method.cast();
        let mut name: *mut c_char = std::ptr::null_mut();
        let none: *mut *mut c_char = std::ptr::null_mut();
        jvmti_call!(
            self,
            GetMethodName: fn(jmethodID, *mut *mut c_char, *mut *mut c_char, *mut *mut c_char),
            method, &raw mut name, none, none
        )?;
        // SAFETY: the VM returned this string.
        let name = unsafe { self.take_string(name) }.unwrap_or_default();
        let mut class: jclass = std::ptr::null_mut();
        jvmti_call!(self, GetMethodDeclaringClass: fn(jmethodID, *mut jclass), method, &raw mut class)?;
        let mut signature: *mut c_char = std::ptr::null_mut();
        jvmti_call!(
            self,
            GetClassSignature: fn(jclass, *mut *mut c_char, *mut *mut c_char),
            class, &raw mut signature, none
        )?;
        // SAFETY: the VM returned this string.
        let signature = unsafe { self.take_string(signature) }.unwrap_or_default();
        // `Ljava/lang/Object;`
        let class = signature.strip_prefix('L').and_then(|class| class.strip_suffix(';')).unwrap_or("");
        Ok(VmFrame { class: class.to_owned(), method: name, bci: frame.location })
    }
}
