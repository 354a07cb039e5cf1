//! AsyncGetCallTrace beside our own capture, in a build with the feature `agct`; for measurements, never for users.
//!
//! Problem: a claim about the cost of the handler needs its rival in the same handler, on the same samples.
//! Approach: after our capture the handler calls AsyncGetCallTrace with the same context and counts the cycles of each.
//! Its frames stay in a buffer until the sampler thread has walked our copy of the same stack ([`differences`]), and
//! where a class is prepared, a quiet place on arbitrary stacks, our walk is compared with GetStackTrace ([`quiet`]).
//! At the end a few lines report costs and differences, and who is right where the lists differ ([`judge`]).
//! Sources: HotSpot `prims/forte.cpp` (JDK 11 to 25): CLASS_LOAD events must be on and jmethodIDs made beforehand.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use jni::sys::{jclass, jint, jmethodID, jobject};
use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use queue::Histogram;
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{Frame, HotSpot, LiveMemory, Stop};

use super::{ClassRef, Jvmti, JvmtiError};
use crate::arena::{self, ThreadSlot};
use crate::log;
use crate::signal::ucontext::cycles;

mod class_files;
mod differences;
mod judge;
mod quiet;

const DEPTH: usize = 2048;
/// Traces kept for the sampler thread: at a tick of 4 ms on 2 processors, those of two seconds.
const TRACES: usize = 1024;
/// `can_get_bytecodes` in the first word of the capabilities.
const BYTECODES: u32 = 1 << 3;
/// `can_get_constant_pool` in the second.
const CONSTANT_POOL: u32 = 1 << 3;

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

/// A trace as the handler leaves it for the sampler thread.
#[repr(C)]
struct Kept {
    /// Time stamp of the request it belongs to, 0 while it is being written. Release by the handler, Acquire by the
    /// sampler thread.
    ticks: AtomicU64,
    slot: u32,
    count: jint,
    frames: [CallFrame; DEPTH],
}

type AsyncGetCallTrace = unsafe extern "C" fn(*mut CallTrace, jint, *mut c_void);

static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Address of [`TRACES`] traces.
static BUFFERS: AtomicUsize = AtomicUsize::new(0);
static ENV_OFFSET: AtomicI64 = AtomicI64::new(0);
static OURS: Histogram = Histogram::new();
static THEIRS: Histogram = Histogram::new();
static DEPTHS: Histogram = Histogram::new();
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Makes jmethodIDs for every class, as AsyncGetCallTrace needs, and prepares the buffers.
pub fn prepare(jvmti: &Jvmti, callbacks: &mut jvmtiEventCallbacks) -> Result<(), JvmtiError> {
    jvmti.add_capabilities(&jvmtiCapabilities {
        _bindgen_bitfield_1_: BYTECODES,
        _bindgen_bitfield_2_: CONSTANT_POOL,
        ..jvmtiCapabilities::default()
    })?;
    callbacks.ClassLoad = Some(class_load);
    callbacks.ClassPrepare = Some(class_prepare);
    jvmti.set_callbacks(callbacks)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_CLASS_LOAD)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_CLASS_PREPARE)
}

/// Looks the function up; `env_offset` is the distance from a JavaThread to its JNI environment.
pub fn start(jvmti: &Jvmti, env_offset: u64, hotspot: Arc<HotSpot>, memory: &'static LiveMemory) {
    differences::start(Arc::clone(&hotspot), memory);
    for class in jvmti.loaded_classes() {
        differences::learn(jvmti.touch_methods(class));
    }
    quiet::start(hotspot, memory);
    let Ok(buffers) = arena::map_forever(TRACES * size_of::<Kept>()) else {
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
pub unsafe fn compare(slot: u32, owner: &ThreadSlot, ticks: u64, ours: u64, context: *mut c_void) {
    let function = FUNCTION.load(Ordering::Acquire);
    let thread = owner.java_thread.load(Ordering::Acquire);
    if function.is_null() || thread == 0 {
        return;
    }
    // SAFETY: libjvm exports it with this signature.
    let function: AsyncGetCallTrace = unsafe { std::mem::transmute(function) };
    let kept = trace_of(ticks);
    // SAFETY: the buffer is mapped for ever; its atomic field may be shared.
    let taken = unsafe { &(*kept).ticks };
    taken.store(0, Ordering::Release);
    // SAFETY: as above; the frames are written before `ticks` says so.
    let frames = unsafe { &raw mut (*kept).frames };
    let env = thread.wrapping_add_signed(ENV_OFFSET.load(Ordering::Acquire));
    let mut trace = CallTrace { env: env as *mut c_void, count: 0, frames: frames.cast() };
    let start = cycles();
    // SAFETY: the trace names a buffer of DEPTH frames that only this thread uses.
    unsafe { function(&raw mut trace, DEPTH as jint, context) };
    let theirs = cycles().wrapping_sub(start);
    // SAFETY: only the handler that stored 0 writes; two that share a buffer lose both, which the reader notices.
    unsafe { (*kept).slot = slot };
    // SAFETY: as above.
    unsafe { (*kept).count = trace.count };
    taken.store(ticks, Ordering::Release);
    if trace.count > 0 {
        OURS.record(ours);
        THEIRS.record(theirs);
        DEPTHS.record(u64::from(trace.count.cast_unsigned()));
    } else {
        FAILED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The buffer for the trace of a request.
fn trace_of(ticks: u64) -> *mut Kept {
    // The low bits of a time stamp are as good as random; a multiplication spreads them.
    let index = ticks.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let index = usize::try_from(index).unwrap_or(0) % TRACES;
    (BUFFERS.load(Ordering::Acquire) as *mut Kept).wrapping_add(index)
}

/// Compares our walk of a request with the trace the handler kept for it; called by the sampler thread.
pub fn walked(slot: u32, ticks: u64, snapshot: &Snapshot, frames: &[Frame], stop: Stop) {
    let kept = trace_of(ticks);
    if BUFFERS.load(Ordering::Acquire) == 0 {
        return;
    }
    // SAFETY: the buffer is mapped for ever; its atomic field may be shared.
    let taken = unsafe { &(*kept).ticks };
    // The request is pushed before the trace is made: it follows within a millisecond, or belongs to no Java thread.
    let patience = std::time::Instant::now() + std::time::Duration::from_millis(5);
    while taken.load(Ordering::Acquire) != ticks {
        if std::time::Instant::now() > patience {
            return differences::count_missing();
        }
        std::hint::spin_loop();
    }
    // SAFETY: `ticks` says that the handler is done with the buffer; a later one would have taken it by now only if
    // the sampler thread were a thousand samples behind.
    let owner = unsafe { (*kept).slot };
    // SAFETY: as above.
    let count = unsafe { (*kept).count };
    if owner != slot {
        return differences::count_missing();
    }
    let length = usize::try_from(count).unwrap_or(0).min(DEPTH);
    // SAFETY: as above.
    let start = unsafe { &raw const (*kept).frames };
    // SAFETY: as above; `length` frames were written.
    let theirs = unsafe { std::slice::from_raw_parts(start.cast::<CallFrame>(), length) };
    let theirs: Vec<_> = theirs.iter().map(|frame| (frame.method as u64, frame.bci)).collect();
    differences::compare(count, &theirs, snapshot, frames, stop);
}

/// A line with both costs, and lines with the differences; to be called on a thread of the VM.
pub fn report(jvmti: &Jvmti) {
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
    differences::report(jvmti);
    quiet::report();
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
    env: *mut Env,
    _thread: jobject,
    class: jclass,
) {
    // SAFETY: the VM passes our environment.
    let jvmti = unsafe { Jvmti::from_raw(jvmti) };
    // SAFETY: and a reference to the class.
    differences::learn(jvmti.touch_methods(unsafe { ClassRef::new(class) }));
    let thread = (env as u64).wrapping_add_signed(-ENV_OFFSET.load(Ordering::Acquire));
    if ENV_OFFSET.load(Ordering::Acquire) != 0 {
        quiet::compare(&jvmti, thread);
    }
}
