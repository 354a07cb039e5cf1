//! The iterator stack-walk API in Rust: walks and names of `profile2.h`. A client includes this file as a module and
//! links with nothing; the functions are those of `libtickwalk.so`, which is loaded before the client.

use std::ffi::{CStr, c_char, c_int, c_void};

/// Code of a walk of a thread that has no Java frames.
pub const NO_TOP_JAVA_FRAME: i32 = -4;

/// `ASGST_Frame`: type, compile level, bytecode index, method, and place.
#[repr(C)]
#[derive(Default)]
pub struct Frame {
    pub kind: u8,
    pub comp_level: c_int,
    pub bci: c_int,
    pub method: u64,
    pub pc: u64,
    pub sp: u64,
    pub fp: u64,
}

/// `ASGST_MethodInfo`: class; name, signature and generic signature with their lengths; numbers.
#[repr(C)]
struct MethodInfo(u64, Text, Text, Text, c_int, c_int, i64);

/// `ASGST_ClassInfo`: name and generic name with their lengths; numbers.
#[repr(C)]
struct ClassInfo(Text, Text, c_int, i64);

/// A buffer of the caller's.
#[repr(C)]
struct Text(*mut c_char, c_int);

const NONE: Text = Text(std::ptr::null_mut(), 0);

unsafe extern "C" {
    fn ASGST_RunWithIterator(
        ucontext: *const c_void,
        options: i32,
        fun: extern "C" fn(*mut c_void, *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
    fn ASGST_NextFrame(iterator: *mut c_void, frame: *mut Frame) -> c_int;
    fn ASGST_GetMethodInfo(method: u64, info: *mut MethodInfo);
    fn ASGST_GetClassInfo(class: u64, info: *mut ClassInfo);
}

/// Passes each frame of the calling thread to `each`, the newest first. Signal safe if `each` is.
///
/// # Errors
/// The code, if there is no walk or it did not reach the thread's first frame; 0 if the VM does not know the thread.
///
/// # Safety
/// `ucontext` is the context of the signal handler that calls, or null.
pub unsafe fn walk<F: FnMut(&Frame)>(ucontext: *const c_void, options: i32, each: F) -> Result<(), i32> {
    extern "C" fn all<F: FnMut(&Frame)>(iterator: *mut c_void, argument: *mut c_void) {
        // SAFETY: the argument of the call below, which uses it for nothing else meanwhile.
        let (each, code) = unsafe { &mut *argument.cast::<(F, c_int)>() };
        let mut frame = Frame::default();
        loop {
            // SAFETY: the iterator of this call.
            *code = unsafe { ASGST_NextFrame(iterator, &raw mut frame) };
            if *code != 1 {
                return;
            }
            each(&frame);
        }
    }
    let mut argument = (each, 0);
    // SAFETY: by the caller's promise; the function fits the argument.
    let kind = unsafe { ASGST_RunWithIterator(ucontext, options, all::<F>, (&raw mut argument).cast()) };
    match (kind, argument.1) {
        (1.., 0) => Ok(()),
        (1.., code) | (code, _) => Err(code),
    }
}

/// Returns `CLASS.METHOD`; of a method that was unloaded only the dot.
#[must_use]
pub fn name_of(method: u64) -> String {
    let (mut name, mut class_name) = ([0_u8; 200], [0_u8; 200]);
    let mut info = MethodInfo(0, Text(name.as_mut_ptr().cast(), 200), NONE, NONE, 0, 0, 0);
    // SAFETY: the buffers live until the call returns.
    unsafe { ASGST_GetMethodInfo(method, &raw mut info) };
    let mut class = ClassInfo(Text(class_name.as_mut_ptr().cast(), 200), NONE, 0, 0);
    // SAFETY: as above.
    unsafe { ASGST_GetClassInfo(info.0, &raw mut class) };
    let text = |bytes| CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned();
    format!("{}.{}", text(&class_name), text(&name))
}
