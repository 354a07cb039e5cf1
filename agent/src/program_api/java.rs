//! The native methods of async-profiler's Java API, for classes of others that declare them.
//!
//! Problem: programs load async-profiler by `System.load` and call native methods of `one.profiler.AsyncProfiler`,
//! or of a copy of that class under another name, as in JMH.
//! Approach: the methods are exported by their JNI names. When a class loads the library, its native methods are bound
//! whatever the class is called: it is the caller of `System.load` on the stack.
//! Invariant: an error of the agent becomes an exception; a panic switches the agent off and the method returns
//! nothing.
//! Sources: async-profiler 4, the public class `one.profiler.AsyncProfiler`; JNI specification, JNI_OnLoad,
//! RegisterNatives, "Resolving Native Method Names".

use std::ffi::{CStr, c_void};

use jni::sys::{
    JNI_VERSION_1_6, JNIEnv, JavaVM, jboolean, jbyteArray, jclass, jint, jlong, jmethodID, jobject, jstring,
};

use crate::guest::log;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::vm::Vm;
use crate::jvmti::{Jvmti, ThreadRef, guard, jvmti_call};
use crate::profile::{Refusal, results, run, state};
use crate::program_api::execute::execute;

const ILLEGAL_ARGUMENT: &CStr = c"java/lang/IllegalArgumentException";
const ILLEGAL_STATE: &CStr = c"java/lang/IllegalStateException";
const IO: &CStr = c"java/io/IOException";

/// Frames among which the caller of `System.load` is looked for: JDK 11 to 25 have up to nine above it.
const MAX_FRAMES: usize = 32;
/// Methods that load a library for their caller.
const LOADERS: [(&CStr, &CStr, bool); 4] = [
    (c"java/lang/System", c"load", true),
    (c"java/lang/System", c"loadLibrary", true),
    (c"java/lang/Runtime", c"load", false),
    (c"java/lang/Runtime", c"loadLibrary", false),
];

/// Called by the VM when a class loads the library; binds the native methods of that class.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn JNI_OnLoad(vm: *mut JavaVM, _reserved: *mut c_void) -> jint {
    // SAFETY: the VM passes its own pointer.
    let vm = unsafe { Vm::new(vm) };
    guard::entry_point((), || {
        if let (Ok(jni), Ok(jvmti)) = (vm.jni(), vm.jvmti()) {
            jni.in_frame(MAX_FRAMES, || bind_natives(jni, &jvmti));
        }
    });
    JNI_VERSION_1_6
}

/// Binds the native methods of the class that loads this library, as far as it declares them.
fn bind_natives(jni: Jni, jvmti: &Jvmti) {
    let Some(class) = loading_class(jni, jvmti) else { return };
    let natives: [(&CStr, &CStr, *mut c_void); 6] = [
        (c"start0", c"(Ljava/lang/String;JZ)V", Java_one_profiler_AsyncProfiler_start0 as *mut c_void),
        (c"stop0", c"()V", Java_one_profiler_AsyncProfiler_stop0 as *mut c_void),
        (
            c"execute0",
            c"(Ljava/lang/String;)Ljava/lang/String;",
            Java_one_profiler_AsyncProfiler_execute0 as *mut c_void,
        ),
        (c"execute1", c"(Ljava/lang/String;)[B", Java_one_profiler_AsyncProfiler_execute1 as *mut c_void),
        (c"getSamples", c"()J", Java_one_profiler_AsyncProfiler_getSamples as *mut c_void),
        (
            c"filterThread0",
            c"(Ljava/lang/Thread;Z)V",
            Java_one_profiler_AsyncProfiler_filterThread0 as *mut c_void,
        ),
    ];
    for (name, signature, function) in natives {
        // SAFETY: the functions below have these signatures. Copies of the class declare some of them only.
        let _ = unsafe { jni.bind(class, name, signature, function) };
    }
}

/// Returns the class that calls `System.load`, `System.loadLibrary` or their counterparts in `Runtime`, on this thread.
fn loading_class(jni: Jni, jvmti: &Jvmti) -> Option<jclass> {
    let loaders = LOADERS.map(|(class, name, is_static)| {
        let class = jni.class(class)?;
        let signature = c"(Ljava/lang/String;)V";
        let method = if is_static {
            jni.static_method(class, name, signature)
        } else {
            jni.method(class, name, signature)
        };
        jni.release(class);
        method
    });
    let frames = jvmti.raw_frames(jvmti.current_thread()?, MAX_FRAMES).ok()?;
    let methods = frames.iter().map(|frame| frame.method.cast());
    let mut callers = methods.skip_while(|method: &jmethodID| !loaders.contains(&Some(*method))).skip(1);
    let mut class: jclass = std::ptr::null_mut();
    jvmti_call!(jvmti, GetMethodDeclaringClass: fn(jmethodID, *mut jclass), callers.next()?, &raw mut class)
        .ok()?;
    (!class.is_null()).then_some(class)
}

/// Runs a command that a Java string holds; throws what has failed.
fn run(jni: Jni, command: jstring) -> Option<Vec<u8>> {
    if command.is_null() {
        jni.throw(c"java/lang/NullPointerException", "command");
        return None;
    }
    let (text, vm) = (jni.text_of(command)?, vm_of(jni)?);
    execute(vm, &text).map_err(|refusal| throw(jni, &refusal)).ok()
}

fn vm_of(jni: Jni) -> Option<Vm> {
    // SAFETY: the VM returned its own pointer.
    jni.vm().map(|vm| unsafe { Vm::new(vm) })
}

/// Throws the exception that the API documents for a refusal.
fn throw(jni: Jni, refusal: &Refusal) {
    let class = match refusal {
        Refusal::Request(_) => ILLEGAL_ARGUMENT,
        Refusal::File { .. } => IO,
        _ => ILLEGAL_STATE,
    };
    jni.throw(class, &refusal.for_programs());
}

/// `void start0(String event, long interval, boolean reset)`.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_one_profiler_AsyncProfiler_start0(
    env: *mut JNIEnv,
    _this: jobject,
    event: jstring,
    interval: jlong,
    reset: jboolean,
) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env) };
    guard::entry_point((), || {
        let Some((event, vm)) =
            (!event.is_null()).then(|| Some((jni.text_of(event)?, vm_of(jni)?))).flatten()
        else {
            return;
        };
        let verb = if reset { "start" } else { "resume" };
        let started = execute(vm, &format!("{verb},event={event},interval={}", interval.max(0)));
        if let Err(refusal) = started {
            // The method declares one kind of exception.
            jni.throw(ILLEGAL_STATE, &refusal.for_programs());
        }
    });
}

/// `void stop0()`.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_one_profiler_AsyncProfiler_stop0(env: *mut JNIEnv, _this: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env) };
    guard::entry_point((), || {
        if let Some(Err(refusal)) = vm_of(jni).map(run::stop) {
            jni.throw(ILLEGAL_STATE, &refusal.for_programs());
        }
    });
}

/// `String execute0(String command)`.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_one_profiler_AsyncProfiler_execute0(
    env: *mut JNIEnv,
    _this: jobject,
    command: jstring,
) -> jstring {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env) };
    let answer = || {
        let answer = run(jni, command)?;
        let string = jni.string_of(&String::from_utf8_lossy(&answer));
        if string.is_none() {
            jni.throw(ILLEGAL_STATE, "the result is too large for a string; name a file with file=");
        }
        string
    };
    guard::entry_point(None, answer).unwrap_or(std::ptr::null_mut())
}

/// `byte[] execute1(String command)`.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_one_profiler_AsyncProfiler_execute1(
    env: *mut JNIEnv,
    _this: jobject,
    command: jstring,
) -> jbyteArray {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env) };
    let answer = || {
        let array = jni.byte_array(&run(jni, command)?);
        if array.is_none() {
            jni.throw(ILLEGAL_STATE, "the result is too large for an array; name a file with file=");
        }
        array
    };
    guard::entry_point(None, answer).unwrap_or(std::ptr::null_mut())
}

/// `long getSamples()`: samples of the profile so far.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_one_profiler_AsyncProfiler_getSamples(
    _env: *mut JNIEnv,
    _this: jobject,
) -> jlong {
    guard::entry_point(0, || jlong::try_from(results::samples()).unwrap_or(jlong::MAX))
}

/// `void filterThread0(Thread thread, boolean enable)`; null stands for the calling thread.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_one_profiler_AsyncProfiler_filterThread0(
    env: *mut JNIEnv,
    _this: jobject,
    thread: jobject,
    enable: jboolean,
) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env) };
    guard::entry_point((), || {
        let tid = if thread.is_null() {
            Some(nix::unistd::gettid().as_raw())
        } else {
            // SAFETY: the caller passes a reference to a thread, which lives until the method returns.
            state::tid_of(jni, unsafe { ThreadRef::new(thread) })
        };
        match tid {
            Some(tid) => state::choose_thread(tid, enable),
            None => {
                log::print("only the calling thread can be chosen while no profile runs; start one before")
            }
        }
    });
}
