//! AsyncGetCallTrace beside our own capture, in a build with the feature `agct`; for measurements, never for users.
//!
//! Problem: a claim about the cost of the handler needs its rival in the same handler, on the same samples.
//! Approach: after our capture the handler calls AsyncGetCallTrace with the same context and counts the cycles of each.
//! At the end one line reports both.
//! Sources: HotSpot `prims/forte.cpp` (JDK 11 to 25): CLASS_LOAD events must be on and jmethodIDs made beforehand.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use jni::sys::{jclass, jint, jmethodID, jobject};
use jvmti_sys::{jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use queue::Histogram;

use super::{ClassRef, Jvmti, JvmtiError};
use crate::arena::{self, MAX_THREADS, ThreadSlot};
use crate::log;
use crate::signal::ucontext::cycles;

const DEPTH: usize = 2048;

#[repr(C)]
struct CallFrame {
    bci: jint,
    method: jmethodID,
}

#[repr(C)]
struct CallTrace {
    env: *mut c_void,
    count: jint,
    frames: *mut CallFrame,
}

type AsyncGetCallTrace = unsafe extern "C" fn(*mut CallTrace, jint, *mut c_void);

static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static BUFFERS: AtomicUsize = AtomicUsize::new(0);
static ENV_OFFSET: AtomicI64 = AtomicI64::new(0);
static OURS: Histogram = Histogram::new();
static THEIRS: Histogram = Histogram::new();
static DEPTHS: Histogram = Histogram::new();
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Makes jmethodIDs for every class, as AsyncGetCallTrace needs, and prepares the buffers.
pub fn prepare(jvmti: &Jvmti, callbacks: &mut jvmtiEventCallbacks) -> Result<(), JvmtiError> {
    callbacks.ClassLoad = Some(class_load);
    callbacks.ClassPrepare = Some(class_prepare);
    jvmti.set_callbacks(callbacks)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_CLASS_LOAD)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_CLASS_PREPARE)
}

/// Looks the function up; `env_offset` is the distance from a JavaThread to its JNI environment.
pub fn start(jvmti: &Jvmti, env_offset: u64) {
    for class in jvmti.loaded_classes() {
        jvmti.touch_methods(class);
    }
    let bytes = MAX_THREADS as usize * DEPTH * size_of::<CallFrame>();
    let Ok(buffers) = arena::map_forever(bytes) else {
        return;
    };
    BUFFERS.store(buffers.as_mut_ptr() as usize, Ordering::Release);
    ENV_OFFSET.store(env_offset.cast_signed(), Ordering::Release);
    // SAFETY: a NUL-terminated name, looked up in what the launcher loaded.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"AsyncGetCallTrace".as_ptr()) };
    FUNCTION.store(function, Ordering::Release);
}

/// Called by the handler after its own work, which took `ours` cycles.
///
/// # Safety
/// `context` is the handler's third argument, `owner` the slot of the running thread.
pub unsafe fn compare(slot: u32, owner: &ThreadSlot, ours: u64, context: *mut c_void) {
    let function = FUNCTION.load(Ordering::Acquire);
    let thread = owner.java_thread.load(Ordering::Acquire);
    if function.is_null() || thread == 0 {
        return;
    }
    // SAFETY: libjvm exports it with this signature.
    let function: AsyncGetCallTrace = unsafe { std::mem::transmute(function) };
    let frames = BUFFERS.load(Ordering::Acquire).wrapping_add(slot as usize * DEPTH * size_of::<CallFrame>());
    let env = thread.wrapping_add_signed(ENV_OFFSET.load(Ordering::Acquire));
    let mut trace = CallTrace { env: env as *mut c_void, count: 0, frames: frames as *mut CallFrame };
    let start = cycles();
    // SAFETY: the trace names a buffer of DEPTH frames that only this thread uses.
    unsafe { function(&raw mut trace, DEPTH as jint, context) };
    let theirs = cycles().wrapping_sub(start);
    if trace.count > 0 {
        OURS.record(ours);
        THEIRS.record(theirs);
        DEPTHS.record(u64::from(trace.count.cast_unsigned()));
    } else {
        FAILED.fetch_add(1, Ordering::Relaxed);
    }
}

/// One line with both costs.
pub fn report() {
    let line = |histogram: &Histogram| {
        let snapshot = histogram.snapshot();
        let quantile = |q| snapshot.quantile(q).unwrap_or(0);
        format!("p50 {} p99 {} max {}", quantile(0.5), quantile(0.99), snapshot.max())
    };
    log::complain(&format!(
        "agct comparison: {} samples, frames {}; cycles ours {}; AsyncGetCallTrace {}; it failed in {}",
        THEIRS.snapshot().count(),
        line(&DEPTHS),
        line(&OURS),
        line(&THEIRS),
        FAILED.load(Ordering::Relaxed)
    ));
}

unsafe extern "C" fn class_load<Env>(
    _jvmti: *mut jvmtiEnv,
    _env: *mut Env,
    _thread: jobject,
    _class: jclass,
) {
}

unsafe extern "C" fn class_prepare<Env>(
    jvmti: *mut jvmtiEnv,
    _env: *mut Env,
    _thread: jobject,
    class: jclass,
) {
    // SAFETY: the VM passes our environment.
    let jvmti = unsafe { Jvmti::from_raw(jvmti) };
    // SAFETY: and a reference to the class.
    jvmti.touch_methods(unsafe { ClassRef::new(class) });
}
