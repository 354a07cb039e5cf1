//! The self-test at start: compares our walk of a thread with the VM's stack trace.
//!
//! Problem: layouts change with every JDK, and a wrong layout gives stacks that look right.
//! Approach: one of the VM's own threads that is parked in Java (`Reference Handler` and its kin: interpreted
//! frames under a native method) is walked like a sample and compared, frame by frame, with JVMTI's stack trace.
//! The start waits for one small stack trace only; the sampler thread walks and compares. Compiled code hardly
//! exists at start; walks through it are checked later (`sampler_thread::proof::self_test`).
//! Invariant: a capability that fails is switched off and reported in one line; the program and the account of its CPU
//! time continue.
//! Sources: `java.base/share/classes/java/lang/ref/{Reference,Finalizer}.java`, JDK 11 to 25.

use sampler_thread::proof::self_test::{Capabilities, SelfTest, failed, failures, not_tried, passed};
use stackwalk::{
    Capture, Frame, HotSpot, Limits, LiveMemory, Memory, ScopeCache, Symbol, ThreadOffsets, Walker,
};

use crate::guest::log;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::stack_trace::VmFrame;
use crate::jvmti::{Jvmti, ThreadRef};

/// Threads that every VM has and that are nearly always parked, the most reliable first.
const PARKED: [&str; 3] = ["Reference Handler", "Finalizer", "Common-Cleaner"];

/// Most threads whose names are read; the VM's own threads are the oldest.
const MAX_THREADS: usize = 64;

/// Most stack bytes of such a thread; they use less than one kilobyte.
const MAX_STACK: u64 = 64 << 10;

const WALKING: &str = "stack walking";
const NAMES: &str = "names";
const POSITIONS: &str = "bytecode positions";

#[derive(Debug, Clone, PartialEq, Eq)]
struct WalkedFrame {
    class: String,
    method: String,
    bci: i64,
}

/// A parked thread at start: a copy of its stack, and the VM's stack trace.
#[derive(Debug, Clone)]
pub struct Evidence {
    thread: &'static str,
    capture: Capture,
    stack: Vec<u8>,
    trace: Vec<VmFrame>,
}

/// The VM to test.
pub struct Subject<'a> {
    pub hotspot: &'a HotSpot,
    pub memory: &'static LiveMemory,
    pub jvmti: Jvmti,
    /// JNI of the calling thread.
    pub jni: Jni,
}

impl Subject<'_> {
    /// Copies the stack of one thread that is parked in Java; `None` if there is none.
    pub fn evidence(&self) -> Option<Evidence> {
        let threads = self.jvmti.all_threads();
        let names: Vec<_> =
            threads.iter().take(MAX_THREADS).map(|thread| self.jni.thread_name(*thread)).collect();
        PARKED.into_iter().find_map(|name| {
            let place = names.iter().position(|found| found.as_deref() == Some(name))?;
            self.evidence_of(*threads.get(place)?, name)
        })
    }

    fn evidence_of(&self, thread: ThreadRef, name: &'static str) -> Option<Evidence> {
        let address = self.jni.java_thread(thread)?;
        let capture = self.capture(address)?;
        let bytes = usize::try_from(capture.stack_high.checked_sub(capture.stack_low)?).ok()?;
        let mut stack = vec![0; bytes];
        self.memory.read(capture.stack_low, &mut stack).ok()?;
        let trace = self.jvmti.stack_trace(thread).ok().filter(|trace| !trace.is_empty())?;
        // If it ran meanwhile, copy and trace are of two moments.
        (self.capture(address)? == capture).then_some(Evidence { thread: name, capture, stack, trace })
    }

    /// Returns the capture that a sample of the parked thread would have; `None` while it runs.
    fn capture(&self, thread: u64) -> Option<Capture> {
        let offsets: ThreadOffsets = self.hotspot.thread_offsets();
        let word = |offset: u32| self.memory.read_u64(thread + u64::from(offset)).ok();
        let state = self.memory.read_u32(thread + u64::from(offsets.state)).ok()?;
        let anchor_sp = word(offsets.anchor_sp)?;
        let stack_high = word(offsets.stack_base)?;
        let is_parked = state != offsets.in_java && anchor_sp != 0;
        // The pc of an anchor may lie in the word below it.
        let stack_low = anchor_sp.checked_sub(16)?;
        if !is_parked || stack_high.checked_sub(stack_low)? > MAX_STACK {
            return None;
        }
        Some(Capture {
            thread,
            thread_state: u64::from(state),
            sp: stack_low,
            anchor_sp,
            anchor_pc: word(offsets.anchor_pc)?,
            anchor_fp: word(offsets.anchor_fp)?,
            stack_low,
            stack_high,
            ..Capture::ZERO
        })
    }
}

/// Compares a walk with the VM's stack trace, on the sampler thread, and reports failures. Returns the capabilities
/// left enabled, and the results.
pub fn examine(
    evidence: Option<&Evidence>,
    hotspot: &HotSpot,
    memory: &LiveMemory,
) -> (Capabilities, Vec<SelfTest>) {
    let results = match evidence {
        Some(evidence) => compare_walk(evidence, hotspot, memory),
        None => {
            let reason = "no thread was parked in Java".to_owned();
            [WALKING, NAMES, POSITIONS].map(|what| not_tried(what, reason.clone())).to_vec()
        }
    };
    let enabled = Capabilities::of(&results, &[WALKING, NAMES], &[POSITIONS]);
    let consequence = match enabled {
        Capabilities { walks: false, .. } => {
            "samples have no Java stacks, CPU time is complete; please report this JVM"
        }
        Capabilities { positions: false, .. } => "frames have no line numbers; please report this JVM",
        _ => return (enabled, results),
    };
    log::print(&format!("self-test failed ({}); {consequence}", failures(&results)));
    (enabled, results)
}

fn compare_walk(evidence: &Evidence, hotspot: &HotSpot, memory: &LiveMemory) -> Vec<SelfTest> {
    let mut cache = Box::new(ScopeCache::new());
    let mut walker = Walker::new(hotspot, memory, &mut cache, Limits::default());
    let mut frames = walker.frames(&evidence.capture, &evidence.stack);
    let walked: Vec<WalkedFrame> =
        frames.by_ref().filter_map(|frame| named(&frame, hotspot, memory)).collect();
    let stop = frames.stop();
    let end = if stop.is_complete() { Ok(()) } else { Err(stop.name()) };
    compare(evidence.thread, &walked, end, &evidence.trace)
}

/// Returns a frame with its names; `None` for the VM's own frames, which JVMTI leaves out.
fn named(frame: &Frame, hotspot: &HotSpot, memory: &LiveMemory) -> Option<WalkedFrame> {
    let names = hotspot.method(memory, frame.method()?).ok();
    let text = |symbol: Option<Symbol>| {
        let mut bytes = [0; 256];
        let length = hotspot.read_symbol(memory, symbol?, &mut bytes).ok()?;
        Some(String::from_utf8_lossy(bytes.get(..length)?).into_owned())
    };
    let unreadable = || "(unreadable)".to_owned();
    Some(WalkedFrame {
        class: text(names.map(|names| names.class)).unwrap_or_else(unreadable),
        method: text(names.map(|names| names.name)).unwrap_or_else(unreadable),
        bci: position(frame),
    })
}

/// Returns the bytecode index that JVMTI states for a frame: -1 for native methods, and 0 where compiled code has none,
/// which is before its first bytecode, as when it waits for the lock of a synchronized method.
///
/// Source: `compiledVFrame::bci` (`runtime/vframe_hp.cpp`, JDK 11 to 25).
fn position(frame: &Frame) -> i64 {
    let without = if matches!(frame, Frame::Compiled { .. }) { 0 } else { -1 };
    frame.bci().map_or(without, |bci| i64::from(bci.0))
}

fn compare(
    thread: &str,
    walked: &[WalkedFrame],
    end: Result<(), &'static str>,
    trace: &[VmFrame],
) -> Vec<SelfTest> {
    let found = walked.len();
    let difference = match end {
        Err(stop) => Some(format!("the walk of {thread} ended with {stop}")),
        Ok(()) if found == trace.len() => None,
        Ok(()) => Some(format!("{thread} has {} frames, the walk found {found}", trace.len())),
    };
    if let Some(detail) = difference {
        let names = not_tried(NAMES, String::new());
        return vec![failed(WALKING, detail), names, not_tried(POSITIONS, String::new())];
    }
    let detail = format!("{} frames of {thread}, equal to the VM's answer", trace.len());
    let mut results = vec![passed(WALKING, detail.clone())];
    let pairs = || walked.iter().zip(trace);
    let other_name =
        pairs().find(|(ours, theirs)| ours.class != theirs.class || ours.method != theirs.method);
    let other_bci = pairs().find(|(ours, theirs)| ours.bci != theirs.bci);
    results.push(match other_name {
        None => passed(NAMES, detail.clone()),
        Some((ours, theirs)) => failed(
            NAMES,
            format!("{}.{} reads as {}.{}", theirs.class, theirs.method, ours.class, ours.method),
        ),
    });
    results.push(match other_bci {
        None => passed(POSITIONS, detail),
        Some((ours, theirs)) => failed(
            POSITIONS,
            format!("{}.{} is at {}, the walk found {}", theirs.class, theirs.method, theirs.bci, ours.bci),
        ),
    });
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::{Bci, CompileLevel, Method, Pc, Place};

    fn vm_frame(method: &str, bci: i64) -> VmFrame {
        VmFrame { class: "java/lang/Object".to_owned(), method: method.to_owned(), bci }
    }

    fn walked(method: &str, bci: i64) -> WalkedFrame {
        WalkedFrame { class: "java/lang/Object".to_owned(), method: method.to_owned(), bci }
    }

    #[track_caller]
    fn check(walked: &[WalkedFrame], end: Result<(), &'static str>, walks: bool, positions: bool, why: &str) {
        let results = compare("T", walked, end, &[vm_frame("wait", -1), vm_frame("run", 7)]);
        let enabled = Capabilities::of(&results, &[WALKING, NAMES], &[POSITIONS]);
        assert_eq!(enabled, Capabilities { walks, positions });
        assert_eq!(failures(&results), why);
    }

    #[test]
    fn positions_are_those_that_jvmti_states() {
        let place = Place { pc: Pc(1), sp: 2, fp: 3 };
        let (method, level, inlined, is_moved) = (Method(4), CompileLevel(4), false, false);
        let compiled = |bci| Frame::Compiled { method, bci, level, inlined, is_moved, place };
        assert_eq!(position(&compiled(Some(Bci(7)))), 7);
        assert_eq!(position(&compiled(None)), 0, "before the first bytecode");
        assert_eq!(position(&Frame::NativeMethod { method: Method(4), compiled: true, place }), -1);
    }

    #[test]
    fn every_difference_is_caught() {
        check(&[walked("wait", -1), walked("run", 7)], Ok(()), true, true, "");
        check(&[walked("wait", -1)], Ok(()), false, true, "stack walking: T has 2 frames, the walk found 1");
        check(
            &[walked("wait", -1), walked("()V", 7)],
            Ok(()),
            false,
            true,
            "names: java/lang/Object.run reads as java/lang/Object.()V",
        );
        check(
            &[walked("wait", -1), walked("run", 8)],
            Ok(()),
            true,
            false,
            "bytecode positions: java/lang/Object.run is at 7, the walk found 8",
        );
        check(&[], Err("bad_frame"), false, true, "stack walking: the walk of T ended with bad_frame");
    }
}
