//! Our walk and JVMTI's GetStackTrace at a quiet point: inside the callback that a class was prepared.
//!
//! Problem: at an arbitrary instruction there is no answer that is certain; while a thread is in the VM there is one.
//! Approach: classes are prepared on all kinds of stacks, by the thread that needs them. Its frames are walked from
//! its anchor, over its own stack as it is, and compared with what the VM says.
//! Invariant: the thread compares its own stack, so nothing moves meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stackwalk::{Capture, HotSpot, Limits, LiveMemory, Memory, ScopeCache, Walker};

use super::DEPTH;
use super::differences::{list, places, resolved, shape};
use crate::jvmti::Jvmti;
use crate::log;
use crate::signal::ucontext;

static VM: OnceLock<(Arc<HotSpot>, &'static LiveMemory)> = OnceLock::new();
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    cache: Box<ScopeCache>,
    shapes: BTreeMap<String, u64>,
    examples: Vec<String>,
}

pub(super) fn start(hotspot: Arc<HotSpot>, memory: &'static LiveMemory) {
    *STATE.lock() =
        Some(State { cache: Box::new(ScopeCache::new()), shapes: BTreeMap::new(), examples: Vec::new() });
    let _ = VM.set((hotspot, memory));
}

/// Compares the stack of the calling Java thread, which is in a callback.
pub(super) fn compare(jvmti: &Jvmti, thread: u64) {
    let Some((hotspot, memory)) = VM.get() else { return };
    let theirs = resolved(memory, jvmti.own_stack_trace(DEPTH).into_iter());
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
    *state.shapes.entry(shape).or_default() += 1;
}

/// Counts by shape.
pub(super) fn report() {
    if let Some(state) = STATE.lock().as_ref() {
        for (shape, count) in &state.shapes {
            log::complain(&format!("quiet difference: {count} x {shape}"));
        }
        state.examples.iter().for_each(|example| log::complain(&format!("quiet example: {example}")));
    }
}
