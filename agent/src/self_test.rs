//! At start: does our walk say the same as the VM?
//!
//! Problem: layouts change with every JDK, and a layout that is read wrongly gives stacks that look right.
//! Approach: threads of the VM's own that are parked in Java (`Reference Handler` and its kin: interpreted frames under
//! a native method) are walked like a sample and compared, frame by frame, with what JVMTI answers. The start waits for
//! one small stack trace only: walk and comparison are the sampler thread's first work.
//! Compiled code hardly exists at start; how walks through it end is watched later (`sampler_thread::validity::self_test`).
//! Invariant: a capability that fails is switched off and told in one line; the program and the account of its CPU time
//! go on.
//! Sources: `java.base/share/classes/java/lang/ref/{Reference,Finalizer}.java`, JDK 11 to 25.

use sampler_thread::validity::self_test::{SelfTest, Trust, failed, failures, not_tried, passed};
use stackwalk::{
    Capture, Frame, HotSpot, Limits, LiveMemory, Memory, ScopeCache, Symbol, ThreadOffsets, Walker,
};

use crate::jvmti::jni_calls::Jni;
use crate::jvmti::stack_trace::ToldFrame;
use crate::jvmti::{Jvmti, ThreadRef};
use crate::log;

/// Threads that every VM has and that wait nearly always, most certain first.
const PARKED: [&str; 3] = ["Reference Handler", "Finalizer", "Common-Cleaner"];

/// Threads looked at when an agent is attached to a program with many; the VM's own are the oldest.
const MAX_THREADS: usize = 64;

/// Most stack bytes of such a thread; they use less than one kilobyte.
const MAX_STACK: u64 = 64 << 10;

const WALKING: &str = "stack walking";
const NAMES: &str = "names";
const POSITIONS: &str = "bytecode positions";

/// A frame as our walk found it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Walked {
    class: String,
    method: String,
    bci: i64,
}

/// A parked thread as it was at start, and the VM's description of it.
#[derive(Debug, Clone)]
pub struct Evidence {
    thread: &'static str,
    capture: Capture,
    stack: Vec<u8>,
    told: Vec<ToldFrame>,
}

/// The VM as evidence is taken from it.
pub struct Subject<'a> {
    /// Layouts.
    pub hotspot: &'a HotSpot,
    /// Its memory.
    pub memory: &'static LiveMemory,
    /// JVMTI.
    pub jvmti: Jvmti,
    /// JNI of the calling thread.
    pub jni: Jni,
}

impl Subject<'_> {
    /// Takes evidence of one thread; `None` if none was parked in Java.
    pub fn evidence(&self) -> Option<Evidence> {
        let threads = self.jvmti.all_threads();
        let names: Vec<_> =
            threads.iter().take(MAX_THREADS).map(|thread| self.jvmti.thread_name(*thread)).collect();
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
        let told = self.jvmti.stack_trace(thread).ok().filter(|told| !told.is_empty())?;
        // It may have run meanwhile; then copy and description are of two moments.
        (self.capture(address)? == capture).then_some(Evidence { thread: name, capture, stack, told })
    }

    /// The thread's newest Java frame as a sample would have it; `None` while it runs.
    fn capture(&self, thread: u64) -> Option<Capture> {
        let offsets: ThreadOffsets = self.hotspot.thread_offsets();
        let word = |offset: u32| self.memory.read_u64(thread + u64::from(offset)).ok();
        let state = self.memory.read_u32(thread + u64::from(offsets.state)).ok()?;
        let anchor_sp = word(offsets.anchor_sp)?;
        let stack_high = word(offsets.stack_base)?;
        let parked = state != offsets.in_java && anchor_sp != 0;
        // The pc of an anchor may lie in the word below it.
        let stack_low = anchor_sp.checked_sub(16)?;
        if !parked || stack_high.checked_sub(stack_low)? > MAX_STACK {
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

/// Compares a walk with the VM's answer, on the sampler thread; warns of what fails.
pub fn examine(
    evidence: Option<&Evidence>,
    hotspot: &HotSpot,
    memory: &LiveMemory,
) -> (Trust, Vec<SelfTest>) {
    let results = match evidence {
        Some(evidence) => compare_walk(evidence, hotspot, memory),
        None => {
            let nobody = "no thread was parked in Java".to_owned();
            [WALKING, NAMES, POSITIONS].map(|what| not_tried(what, nobody.clone())).to_vec()
        }
    };
    let trust = Trust::of(&results, &[WALKING, NAMES], &[POSITIONS]);
    let consequence = match trust {
        Trust { walks: false, .. } => "Java stacks are off, CPU time is still accounted for",
        Trust { positions: false, .. } => "line numbers are off",
        _ => return (trust, results),
    };
    log::complain(&format!("self-test failed ({}); {consequence}", failures(&results)));
    (trust, results)
}

fn compare_walk(evidence: &Evidence, hotspot: &HotSpot, memory: &LiveMemory) -> Vec<SelfTest> {
    let mut cache = Box::new(ScopeCache::new());
    let mut walker = Walker::new(hotspot, memory, &mut cache, Limits::default());
    let mut frames = walker.frames(&evidence.capture, &evidence.stack);
    let walked: Vec<Walked> = frames.by_ref().filter_map(|frame| walked(&frame, hotspot, memory)).collect();
    let stop = frames.stop();
    let end = if stop.is_complete() { Ok(()) } else { Err(stop.name()) };
    compare(evidence.thread, &walked, end, &evidence.told)
}

/// A frame with its names; `None` for the VM's own frames, which JVMTI leaves out.
fn walked(frame: &Frame, hotspot: &HotSpot, memory: &LiveMemory) -> Option<Walked> {
    let names = hotspot.method(memory, frame.method()?).ok();
    let text = |symbol: Option<Symbol>| {
        let mut bytes = [0; 256];
        let length = hotspot.read_symbol(memory, symbol?, &mut bytes).ok()?;
        Some(String::from_utf8_lossy(bytes.get(..length)?).into_owned())
    };
    let unreadable = || "(unreadable)".to_owned();
    Some(Walked {
        class: text(names.map(|names| names.class)).unwrap_or_else(unreadable),
        method: text(names.map(|names| names.name)).unwrap_or_else(unreadable),
        bci: frame.bci().map_or(-1, |bci| i64::from(bci.0)),
    })
}

/// What a walk and the VM's answer say about each capability.
fn compare(
    thread: &str,
    walked: &[Walked],
    end: Result<(), &'static str>,
    told: &[ToldFrame],
) -> Vec<SelfTest> {
    if let Err(stop) = end {
        let detail = format!("the walk of {thread} ended with {stop}");
        return vec![
            failed(WALKING, detail),
            not_tried(NAMES, String::new()),
            not_tried(POSITIONS, String::new()),
        ];
    }
    if walked.len() != told.len() {
        let detail = format!("{thread} has {} frames, the walk found {}", told.len(), walked.len());
        return vec![
            failed(WALKING, detail),
            not_tried(NAMES, String::new()),
            not_tried(POSITIONS, String::new()),
        ];
    }
    let detail = format!("{} frames of {thread}", told.len());
    let mut results = vec![passed(WALKING, detail.clone())];
    let pairs = || walked.iter().zip(told);
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
            format!("{}.{} is at {}, the walk says {}", theirs.class, theirs.method, theirs.bci, ours.bci),
        ),
    });
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str, bci: i64) -> ToldFrame {
        ToldFrame { class: "java/lang/Object".to_owned(), method: method.to_owned(), bci }
    }

    fn walked(method: &str, bci: i64) -> Walked {
        Walked { class: "java/lang/Object".to_owned(), method: method.to_owned(), bci }
    }

    #[track_caller]
    fn check(walked: &[Walked], end: Result<(), &'static str>, walks: bool, positions: bool, why: &str) {
        let results = compare("T", walked, end, &[told("wait", -1), told("run", 7)]);
        let trust = Trust::of(&results, &[WALKING, NAMES], &[POSITIONS]);
        assert_eq!(trust, Trust { walks, positions });
        assert_eq!(failures(&results), why);
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
            "bytecode positions: java/lang/Object.run is at 7, the walk says 8",
        );
        check(&[], Err("bad_frame"), false, true, "stack walking: the walk of T ended with bad_frame");
    }
}
