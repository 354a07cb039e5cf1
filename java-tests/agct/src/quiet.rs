//! Our walk and JVMTI's GetStackTrace at a quiet point: inside the callback that a class was prepared.
//!
//! Problem: at an arbitrary instruction no walk is certain to be right; while a thread is in the VM, GetStackTrace is.
//! Approach: classes are prepared on all kinds of stacks, by the thread that needs them. Its frames are walked from
//! its anchor, over its own stack, and compared with GetStackTrace.
//! Invariant: the thread compares its own stack, so nothing moves meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jni::sys::jint;
use jvmti_sys::{jthread, jvmtiFrameInfo};
use parking_lot::Mutex;
use stackwalk::{Capture, HotSpot, Limits, LiveMemory, Memory, ScopeCache, Walker};
use tickwalk::handler::ucontext;
use tickwalk::jvmti::Jvmti;
use tickwalk::jvmti_call;

use crate::differences::{list, places, resolved, shape};
use crate::{print, record};

/// Most frames of a stack.
const DEPTH: usize = 2048;

static VM: OnceLock<(Arc<HotSpot>, &'static LiveMemory)> = OnceLock::new();
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    cache: Box<ScopeCache>,
    shapes: BTreeMap<String, u64>,
    examples: Vec<String>,
}

pub fn start(hotspot: Arc<HotSpot>, memory: &'static LiveMemory) {
    *STATE.lock() =
        Some(State { cache: Box::new(ScopeCache::new()), shapes: BTreeMap::new(), examples: Vec::new() });
    let _ = VM.set((hotspot, memory));
}

/// Compares the stack of the calling Java thread, which is in a callback.
pub fn compare(jvmti: &Jvmti, thread: u64) {
    let Some((hotspot, memory)) = VM.get() else { return };
    let theirs = resolved(memory, own_stack_trace(jvmti).into_iter());
    let offsets = hotspot.thread_offsets();
    let mut capture = Capture::default();
    // SAFETY: the calling thread's own JavaThread.
    unsafe { ucontext::add_java_state(&mut capture, thread, &offsets) };
    let Ok(high) = memory.read_u64(thread + u64::from(offsets.stack_base)) else { return };
    (capture.stack_low, capture.stack_high) = (capture.anchor_sp.wrapping_sub(64), high);
    let length = usize::try_from(high.wrapping_sub(capture.stack_low)).unwrap_or(usize::MAX);
    if capture.anchor_sp == 0 || length > 8 << 20 {
        return;
    }
    let mut stack = vec![0; length];
    if memory.read(capture.stack_low, &mut stack).is_err() {
        return;
    }
    let mut state = STATE.lock();
    let Some(state) = state.as_mut() else { return };
    let limits = Limits { max_frames: 2 * DEPTH as u32 };
    let mut walker = Walker::new(hotspot, *memory, &mut state.cache, limits);
    let mut walk = walker.frames(&capture, &stack);
    let frames: Vec<_> = walk.by_ref().collect();
    let stop = walk.stop();
    let ours = places(&frames);
    let shape = shape(&ours, &theirs, &frames, stop);
    if !shape.starts_with("same methods, same") && state.examples.len() < 8 {
        state.examples.push(format!(
            "{shape}: ours {} theirs {}",
            list(hotspot, memory, &ours, &theirs),
            list(hotspot, memory, &theirs, &ours)
        ));
    }
    if shape.starts_with("same methods, same") {
        record::quiet(&capture, &stack);
    }
    *state.shapes.entry(shape).or_default() += 1;
}

/// Returns the calling thread's stack, newest frame first: jmethodID and bytecode index, -1 in native methods.
fn own_stack_trace(jvmti: &Jvmti) -> Vec<(u64, i32)> {
    let mut frames: Vec<jvmtiFrameInfo> = vec![jvmtiFrameInfo::default(); DEPTH];
    let mut count: jint = 0;
    let current: jthread = std::ptr::null_mut();
    let outcome = jvmti_call!(
        jvmti,
        GetStackTrace: fn(jthread, jint, jint, *mut jvmtiFrameInfo, *mut jint),
        current, 0, DEPTH as jint, frames.as_mut_ptr(), &raw mut count
    );
    let count = if outcome.is_ok() { usize::try_from(count).unwrap_or(0) } else { 0 };
    let pair = |frame: &jvmtiFrameInfo| (frame.method as u64, i32::try_from(frame.location).unwrap_or(-1));
    frames.iter().take(count).map(pair).collect()
}

/// Prints the counts by shape, and examples.
pub fn report() {
    if let Some(state) = STATE.lock().as_ref() {
        for (shape, count) in &state.shapes {
            print(&format!("quiet difference: {count} x {shape}"));
        }
        state.examples.iter().for_each(|example| print(&format!("quiet example: {example}")));
    }
}
