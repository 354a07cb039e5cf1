//! AsyncGetCallTrace in the signal handler, after our capture of the same moment.
//!
//! Problem: its frames are needed only once the sampler thread has walked our copy of the same stack.
//! Approach: the handler counts the cycles of both and leaves the frames in a buffer, found by the request's time
//! stamp.
//! Invariant: a buffer whose time stamp matches is complete.
//! Source: HotSpot `prims/forte.cpp`, JDK 11 to 25.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jni::sys::{jint, jmethodID};
use proto::histogram::{BUCKETS, bucket_of, quantile};
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{Frame, Stop};
use tickwalk::guest::mappings;
use tickwalk::handler::ucontext::cycles;
use tickwalk::hooks::HandlerRun;

use crate::{differences, print, record};

/// Most frames of a trace.
const DEPTH: usize = 2048;
/// Traces kept for the sampler thread: at a tick of 4 ms on 2 processors, those of two seconds.
const TRACES: usize = 1024;
/// Longest wait for a trace: the request is pushed before the trace is made, which takes less than a millisecond.
const PATIENCE: Duration = Duration::from_millis(5);

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
struct KeptTrace {
    /// Time stamp of the request it belongs to, 0 while it is being written. Release by the handler, Acquire by the
    /// sampler thread.
    ticks: AtomicU64,
    slot: u32,
    count: jint,
    frames: [CallFrame; DEPTH],
}

type AsyncGetCallTrace = unsafe extern "C" fn(*mut CallTrace, jint, *mut c_void);

static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Address of [`TRACES`] traces, 0 before they are mapped.
static BUFFERS: AtomicUsize = AtomicUsize::new(0);
static ENV_OFFSET: AtomicI64 = AtomicI64::new(0);
static OUR_CYCLES: Histogram = Histogram::new();
static THEIR_CYCLES: Histogram = Histogram::new();
static DEPTHS: Histogram = Histogram::new();

/// A histogram that handlers record into.
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max: AtomicU64,
}

impl Histogram {
    const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], max: AtomicU64::new(0) }
    }

    fn record(&self, value: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    fn message(&self) -> proto::v1::Histogram {
        let counts = (0_u32..).zip(self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)));
        let (bucket, bucket_count): (Vec<u32>, Vec<u64>) = counts.filter(|&(_, count)| count > 0).unzip();
        let max = self.max.load(Ordering::Relaxed);
        proto::v1::Histogram { count: bucket_count.iter().sum(), max, bucket, bucket_count }
    }
}
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Maps the buffers and looks the function up; `env_offset` is the distance from a JavaThread to its JNI environment.
pub fn start(env_offset: u64) {
    let Ok(buffers) = mappings::map_forever(TRACES * size_of::<KeptTrace>()) else { return };
    BUFFERS.store(buffers.as_mut_ptr() as usize, Ordering::Release);
    ENV_OFFSET.store(env_offset.cast_signed(), Ordering::Release);
    // SAFETY: a NUL-terminated name, looked up in what the launcher loaded.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"AsyncGetCallTrace".as_ptr()) };
    FUNCTION.store(function, Ordering::Release);
}

/// Calls AsyncGetCallTrace for the interrupted thread and keeps its trace.
///
/// # Safety
/// Called by the handler, for the running thread and with the kernel's context.
pub unsafe fn captured(run: &HandlerRun) {
    let function = FUNCTION.load(Ordering::Acquire);
    let thread = run.java_thread;
    if function.is_null() || thread == 0 {
        return;
    }
    // SAFETY: libjvm exports it with this signature.
    let function: AsyncGetCallTrace = unsafe { std::mem::transmute(function) };
    let kept = trace_of(run.ticks);
    // SAFETY: the buffer is never unmapped; its atomic field may be shared.
    let ticks = unsafe { &(*kept).ticks };
    ticks.store(0, Ordering::Release);
    // SAFETY: as above; the frames are written before `ticks`.
    let frames = unsafe { &raw mut (*kept).frames };
    let env = thread.wrapping_add_signed(ENV_OFFSET.load(Ordering::Acquire));
    let mut trace = CallTrace { env: env as *mut c_void, count: 0, frames: frames.cast() };
    let start = cycles();
    // SAFETY: the trace names a buffer of DEPTH frames that only this thread uses.
    unsafe { function(&raw mut trace, DEPTH as jint, run.context) };
    let their_cycles = cycles().wrapping_sub(start);
    // SAFETY: only the handler that stored 0 writes; two that share a buffer lose both, which the reader notices.
    unsafe { (*kept).slot = run.slot };
    // SAFETY: as above.
    unsafe { (*kept).count = trace.count };
    ticks.store(run.ticks, Ordering::Release);
    if trace.count > 0 {
        OUR_CYCLES.record(run.cycles);
        THEIR_CYCLES.record(their_cycles);
        DEPTHS.record(u64::from(trace.count.cast_unsigned()));
    } else {
        FAILED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the buffer for the trace of a request.
fn trace_of(ticks: u64) -> *mut KeptTrace {
    // The low bits of a time stamp are as good as random; a multiplication spreads them.
    let index = ticks.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let index = usize::try_from(index).unwrap_or(0) % TRACES;
    (BUFFERS.load(Ordering::Acquire) as *mut KeptTrace).wrapping_add(index)
}

/// Compares our walk of a request with the trace the handler kept for it; called by the sampler thread.
pub fn walked(slot: u32, ticks: u64, snapshot: &Snapshot<'_>, frames: &[Frame], stop: Stop) {
    if BUFFERS.load(Ordering::Acquire) == 0 {
        return;
    }
    let kept = trace_of(ticks);
    // SAFETY: the buffer is never unmapped; its atomic field may be shared.
    let kept_ticks = unsafe { &(*kept).ticks };
    let deadline = Instant::now() + PATIENCE;
    while kept_ticks.load(Ordering::Acquire) != ticks {
        if Instant::now() > deadline {
            return differences::count_missing();
        }
        std::hint::spin_loop();
    }
    // SAFETY: `ticks` shows that the handler is done with the buffer; a later one can have taken it only if
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
    if differences::compare(count, &theirs, snapshot, frames, stop) {
        record::sample(snapshot);
    }
}

/// Prints one line with the cycles of both.
pub fn report() {
    let line = |histogram: &Histogram| {
        let message = histogram.message();
        format!("p50 {} p99 {} max {}", quantile(&message, 0.5), quantile(&message, 0.99), message.max)
    };
    print(&format!(
        "agct comparison: {} samples, frames {}; cycles ours {}; AsyncGetCallTrace {}; it failed in {}",
        THEIR_CYCLES.message().count,
        line(&DEPTHS),
        line(&OUR_CYCLES),
        line(&THEIR_CYCLES),
        FAILED.load(Ordering::Relaxed)
    ));
}
