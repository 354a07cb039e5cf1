//! Compares our walk with AsyncGetCallTrace's of the same moment, by method and bytecode index.
//!
//! Problem: two lists of a hundred frames differ in many ways, few of which mean that one of them is wrong.
//! Approach: each difference is named by its shape and counted; the first few of each shape are kept in full. Where the
//! methods differ, both lists are kept with facts of the sample until the end, when [`judge`] decides. Our list is
//! reduced to the Java methods, which the other one contains: no stubs, no entry frames. The newest compiled frame is
//! looked up at different instructions: ours at the one before the pc, which was running or is the call, the other at
//! the one at the pc (`design/verification.md`). Where that explains the whole difference, it is an error of neither
//! and counted apart ([`instruction_behind`]), but where debug information lists the call itself it is an error of
//! theirs.
//! Invariant: a comparison that is not possible is counted too.
//! Source: HotSpot `prims/forte.cpp`: a negative count is the reason of its failure.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{
    Blob, Capture, Frame, HotSpot, LiveMemory, Memory, Method, Pc, RETURNS_BY_REGISTER, StackCopy, Stop,
    Symbol,
};
use tickwalk::jvmti::Jvmti;

use crate::class_files::ClassFiles;
use crate::judge::{self, Activation, Case, Control, Verdict};
use crate::print;

/// Examples kept of each shape.
const EXAMPLES: usize = 2;
/// Most interpreter frames that replace one compiled frame.
const MAX_SAVED_FPS: usize = 32;
/// One in this many equal lists is kept for the control.
const CONTROL: u64 = 8;

static VM: OnceLock<(Arc<HotSpot>, &'static LiveMemory)> = OnceLock::new();
static COUNTS: Mutex<Counts> = Mutex::new(Counts {
    shapes: BTreeMap::new(),
    missing: 0,
    same: 0,
    differing: Vec::new(),
    control: Vec::new(),
});
/// jmethodIDs by the method they stand for.
static IDS: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);

/// Differences by shape.
#[derive(Default)]
struct Counts {
    shapes: BTreeMap<String, (u64, Vec<String>)>,
    missing: u64,
    same: u64,
    differing: Vec<Case>,
    control: Vec<Case>,
}

pub fn start(hotspot: Arc<HotSpot>, memory: &'static LiveMemory) {
    let _ = VM.set((hotspot, memory));
}

/// Adds jmethodIDs to those that are known.
pub fn add_methods(ids: Vec<u64>) {
    let Some((_, memory)) = VM.get() else { return };
    let mut known = IDS.lock();
    let known = known.get_or_insert_with(HashMap::new);
    known.extend(ids.into_iter().filter_map(|id| Some((memory.read_u64(id).ok()?, id))));
}

/// Counts a sample whose trace was overwritten or never made.
pub fn count_missing() {
    COUNTS.lock().missing += 1;
}

/// A method and bytecode index, `None` where there is none.
type Place = (u64, Option<i32>);

/// Returns our frames as the VM's interfaces list them.
pub fn places(frames: &[Frame]) -> Vec<Place> {
    // -1 is the moment before the first bytecode, which the others list as none.
    let place =
        |frame: &Frame| Some((frame.method()?.0, frame.bci().map(|bci| bci.0).filter(|bci| *bci >= 0)));
    frames.iter().filter_map(place).collect()
}

/// Resolves the jmethodIDs of a trace: up to JDK 25 each is the address of a word that holds the `Method*`.
pub fn resolved(memory: &LiveMemory, trace: impl Iterator<Item = (u64, i32)>) -> Vec<Place> {
    let place = |(id, bci): (u64, i32)| (memory.read_u64(id).unwrap_or(0), (bci >= 0).then_some(bci));
    trace.map(place).collect()
}

/// Compares one sample; `count` is the number of frames, or the reason of a failure. Returns whether the methods are
/// the same, or the same down to the frozen frames.
pub fn compare(count: i32, trace: &[(u64, i32)], snapshot: &Snapshot, frames: &[Frame], stop: Stop) -> bool {
    let Some((hotspot, memory)) = VM.get() else { return false };
    let theirs = resolved(memory, trace.iter().copied());
    let ours = places(frames);
    let behind = if count > 0 { instruction_behind(&ours, &theirs, frames) } else { None };
    let pc = snapshot.head.capture.pc;
    let is_behind_call = behind.is_some_and(|(_, at)| at.0 != pc && hotspot.is_listed_call(*memory, at));
    let shape = match behind {
        _ if count <= 0 => {
            let walked = if stop.is_complete() { "ours whole" } else { stop.name() };
            format!("it failed ({count}): {walked}")
        }
        Some((shape, _)) if !is_behind_call => shape.to_owned(),
        _ => shape(&ours, &theirs, frames, stop),
    };
    let apart = shape == BEHIND;
    let same = shape.starts_with("same methods");
    let text = || {
        format!(
            "stop {} ours {} theirs {}",
            stop.name(),
            list(hotspot, memory, &ours, &theirs),
            list(hotspot, memory, &theirs, &ours)
        )
    };
    let mut counts = COUNTS.lock();
    if count > 0 {
        counts.same += u64::from(same);
        if !same && !apart {
            let case = case(trace, snapshot, frames, stop, text());
            counts.differing.push(Case { is_behind_call, ..case });
        } else if same && counts.same.is_multiple_of(CONTROL) {
            counts.control.push(case(trace, snapshot, frames, stop, text()));
        }
    }
    let (number, examples) = counts.shapes.entry(shape).or_default();
    *number += 1;
    if examples.len() < EXAMPLES {
        examples.push(text());
    }
    count > 0 && (same || same_down_to_frozen(hotspot, memory, &theirs, snapshot, frames))
}

/// Returns whether our list goes into frozen frames, and theirs has the same methods newer than these and leaves them
/// out.
///
/// Source: HotSpot `runtime/frame.inline.hpp` (`frame::sender`), JDK 21 and 25: without `WalkContinuation` the frame
/// that follows a return barrier is `Continuation.enterSpecial`.
fn same_down_to_frozen(
    hotspot: &HotSpot,
    memory: &LiveMemory,
    theirs: &[Place],
    snapshot: &Snapshot,
    frames: &[Frame],
) -> bool {
    let capture = &snapshot.head.capture;
    let on_stack = |frame: &&Frame| (capture.stack_low..capture.stack_high).contains(&frame.place().sp);
    let newest: Vec<Frame> = frames.iter().take_while(on_stack).copied().collect();
    let ours = places(&newest);
    let Some((their_newest, [(next, _), ..])) = theirs.split_at_checked(ours.len()) else { return false };
    let same = ours.iter().zip(their_newest).all(|((our, _), (their, _))| our == their);
    let next = hotspot.method(memory, Method(*next)).map(|names| symbol(hotspot, memory, names.name));
    newest.len() < frames.len() && same && next.is_ok_and(|name| name == "enterSpecial")
}

/// Makes the case of a sample for the judge.
fn case(theirs: &[(u64, i32)], snapshot: &Snapshot, frames: &[Frame], stop: Stop, text: String) -> Case {
    let ids = IDS.lock();
    let capture = &snapshot.head.capture;
    let stack = StackCopy::new(capture.stack_low, snapshot.stack);
    let mut ours: Vec<Activation> = Vec::new();
    let (mut newer, mut second) = (None, None);
    for frame in frames {
        let place = frame.place();
        let newer = newer.replace(*frame);
        if place.pc.0 != capture.pc {
            second.get_or_insert(place.sp);
        }
        let Some(method) = frame.method() else {
            let outside = matches!(frame, Frame::Entry { .. } | Frame::Native { .. } | Frame::Gap { .. });
            if let Some(newer) = ours.last_mut().filter(|_| outside) {
                newer.called_from_outside = true;
            }
            continue;
        };
        let is_there = match (newer, ours.last()) {
            // Inlined into the same frame.
            (Some(newer), Some(last)) if newer.place() == place => last.is_there,
            _ if place.pc.0 == capture.pc => true,
            // Left by a jump, at a poll.
            _ if ours.is_empty() && place.pc.0 == capture.saved_exception_pc => true,
            _ => returns_to(place, newer, capture, &stack),
        };
        ours.push(Activation {
            id: ids.as_ref().and_then(|ids| ids.get(&method.0)).copied().unwrap_or(0),
            bci: frame.bci().map_or(-1, |bci| bci.0),
            called_from_outside: false,
            is_there,
            is_listed: place.pc.0 != capture.pc
                && VM.get().is_some_and(|(hotspot, memory)| hotspot.is_listed_call(*memory, place.pc)),
        });
    }
    let cut = (!stop.is_complete()).then(|| stop.name());
    let compiled = matches!(frames.first(), Some(Frame::Compiled { .. }));
    let mut newer = frames.iter().take_while(|frame| frame.method().is_none());
    let below_entry = newer.any(|frame| matches!(frame, Frame::Entry { .. }));
    let no_frame = compiled && second.is_some_and(|sp| sp.wrapping_sub(8) == capture.sp);
    let theirs = theirs.to_vec();
    Case { ours, theirs, cut, below_entry, no_frame, is_behind_call: false, top: running(frames), text }
}

/// Returns whether a return address to a frame is on the stack and not yet popped: in the word below the frame, in the
/// fixed place of an interpreted callee (which may have moved away for its locals), or in a register: while an adapter
/// holds it there, or where calls leave it there.
/// Several interpreter frames, chained by saved fp, may replace a compiled callee that is being deoptimised.
/// In a frame that is to be deoptimised the VM replaces the address by that of a handler in the same CodeBlob.
fn returns_to(place: stackwalk::Place, newer: Option<Frame>, capture: &Capture, stack: &StackCopy) -> bool {
    let blob = |pc| VM.get().and_then(|(hotspot, memory)| hotspot.blob_at(*memory, pc).ok());
    let means = |word: u64| {
        word == place.pc.0 || blob(Pc(word)).is_some_and(|handler| blob(place.pc) == Some(handler))
    };
    let on_stack = |at: u64| at >= capture.sp && stack.word(at).is_some_and(means);
    let is_register_live = |callee: Frame| {
        matches!(callee, Frame::Interpreted { bci: None, .. })
            || RETURNS_BY_REGISTER && callee.place().pc.0 == capture.pc
    };
    let by_callee = match newer {
        Some(frame) if is_register_live(frame) && means(capture.registers.popped_return_address()) => true,
        Some(Frame::Interpreted { .. } | Frame::NativeMethod { .. } | Frame::Compiled { .. }) => {
            let first = newer.map(|frame| frame.place().fp);
            let mut saved_fps = std::iter::successors(first, |fp| stack.word(*fp)).take(MAX_SAVED_FPS);
            saved_fps.any(|fp| fp < place.sp && on_stack(fp.wrapping_add(8)))
        }
        _ => false,
    };
    by_callee || on_stack(place.sp.wrapping_sub(8))
}

/// Describes the newest frames, down to the first one of a method.
fn running(frames: &[Frame]) -> String {
    let mut text = String::new();
    for frame in frames {
        let part = match frame {
            Frame::Interpreted { bci: None, .. } => "interpreted method being entered",
            Frame::Interpreted { .. } => "interpreted method",
            Frame::Compiled { .. } => "compiled method",
            Frame::NativeMethod { .. } => "native method",
            Frame::Stub { blob, .. } => &blob_name(*blob),
            Frame::Entry { .. } => "entry",
            Frame::Native { .. } | Frame::Gap { .. } => "C code",
        };
        if !text.ends_with(part) {
            let _ = write!(text, "{}{part}", if text.is_empty() { "" } else { " called by " });
        }
        if frame.method().is_some() {
            break;
        }
    }
    text
}

fn blob_name(blob: Blob) -> String {
    let mut bytes = [0; 64];
    let name = VM.get().and_then(|(hotspot, memory)| {
        let length = hotspot.blob_name(*memory, blob, &mut bytes).ok()?;
        Some(String::from_utf8_lossy(bytes.get(..length.min(64))?).into_owned())
    });
    name.unwrap_or_else(|| "stub".to_owned())
}

/// Shapes of differences that the instruction at the pc explains, in methods and in bytecodes alone.
const BEHIND: &str = "theirs is of the instruction behind";
const BYTECODE_BEHIND: &str = "same methods, newest bytecode of the instruction behind";

/// Returns the name of a difference that is explained by the instruction at the pc of the newest method's frame, and
/// that pc: the thread was interrupted there in compiled code, or that code has called a stub or C code. Their list is
/// ours with the methods of that frame replaced by those that the debug information gives for the instruction at the
/// pc, each at the bytecode given there.
///
/// Source: HotSpot `prims/forte.cpp` (`is_decipherable_compiled_frame`), JDK 11 to 25: the frame is looked up behind
/// its pc (`pc_desc_near(pc + 1)`) also where the pc is a return address.
fn instruction_behind(ours: &[Place], theirs: &[Place], frames: &[Frame]) -> Option<(&'static str, Pc)> {
    let (hotspot, memory) = VM.get()?;
    let is_called =
        |frame: &&Frame| matches!(frame, Frame::Stub { .. } | Frame::Native { .. } | Frame::Gap { .. });
    let mut frames = frames.iter().skip_while(is_called).peekable();
    let newest = frames.peek().filter(|frame| matches!(frame, Frame::Compiled { .. }))?.place();
    let inlined = frames.take_while(|frame| frame.place() == newest).count();
    let mut behind: Vec<Place> = Vec::new();
    let found = hotspot.methods_at_instruction(*memory, newest.pc, |method, bci| {
        behind.push((method.0, (bci.0 >= 0).then_some(bci.0)));
    });
    let (their_newest, their_rest) = theirs.split_at_checked(behind.len())?;
    let (our_newest, our_rest) = ours.split_at_checked(inlined)?;
    let methods = |list: &[Place]| list.iter().map(|(method, _)| *method).collect::<Vec<_>>();
    if !found || their_newest != behind || our_newest == behind || methods(their_rest) != methods(our_rest) {
        return None;
    }
    let shape = if methods(our_newest) == methods(&behind) { BYTECODE_BEHIND } else { BEHIND };
    Some((shape, newest.pc))
}

/// Returns the name of the difference of two lists.
pub fn shape(ours: &[Place], theirs: &[Place], frames: &[Frame], stop: Stop) -> String {
    let methods = |list: &[Place]| list.iter().map(|(method, _)| *method).collect::<Vec<_>>();
    let (our_methods, their_methods) = (methods(ours), methods(theirs));
    let top = match frames.first() {
        Some(Frame::Interpreted { bci: None, .. }) => "interpreted, being entered",
        Some(Frame::Interpreted { .. }) => "interpreted",
        Some(Frame::Compiled { .. }) => "compiled",
        Some(Frame::NativeMethod { .. }) => "native method",
        Some(Frame::Stub { .. }) => "stub",
        Some(Frame::Entry { .. }) => "entry",
        Some(Frame::Native { .. } | Frame::Gap { .. }) => "native code",
        None => "nothing",
    };
    if our_methods == their_methods {
        let differing: Vec<usize> = (0..ours.len()).filter(|&at| ours.get(at) != theirs.get(at)).collect();
        return match differing.as_slice() {
            [] => "same methods, same bytecodes".to_owned(),
            [0] => format!("same methods, newest bytecode differs: {top}"),
            _ => format!("same methods, bytecodes differ below the newest: {top}"),
        };
    }
    let end = if stop.is_complete() { "whole" } else { stop.name() };
    if their_methods.starts_with(&our_methods) {
        return format!("ours ends earlier: {end}");
    }
    let more = |long: &[u64], short: &[u64]| long.ends_with(short).then(|| long.len() - short.len());
    if let Some(count) = more(&our_methods, &their_methods) {
        return format!("ours has {count} more newest frames: {top}, {end}");
    }
    if let Some(count) = more(&their_methods, &our_methods) {
        return format!("theirs has {count} more newest frames: {top}, {end}");
    }
    if our_methods.starts_with(&their_methods) {
        return "theirs ends earlier".to_owned();
    }
    let common = our_methods.iter().rev().zip(their_methods.iter().rev()).take_while(|(a, b)| a == b).count();
    let (our_rest, their_rest) = (our_methods.len() - common, their_methods.len() - common);
    format!("{our_rest} newest frames of ours for {their_rest} of theirs: {top}, {end}")
}

/// Returns the methods of `list` down to where it equals `other`, and two more.
pub fn list(hotspot: &HotSpot, memory: &LiveMemory, list: &[Place], other: &[Place]) -> String {
    let same = list.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let mut text = format!("{} frames:", list.len());
    for (method, bci) in list.iter().take((list.len() - same + 2).min(8)) {
        let name = match hotspot.method(memory, Method(*method)) {
            Ok(names) => {
                format!("{}.{}", symbol(hotspot, memory, names.class), symbol(hotspot, memory, names.name))
            }
            Err(_) => format!("{method:x}"),
        };
        let _ = write!(text, " {name}@{}", bci.unwrap_or(-1));
    }
    text
}

fn symbol(hotspot: &HotSpot, memory: &LiveMemory, symbol: Symbol) -> String {
    let mut bytes = [0; 128];
    let length = hotspot.read_symbol(memory, symbol, &mut bytes).unwrap_or(0);
    String::from_utf8_lossy(bytes.get(..length.min(128)).unwrap_or_default()).into_owned()
}

/// Prints the counts by shape, the most frequent first, examples and verdicts.
pub fn report(jvmti: &Jvmti) {
    let counts = std::mem::take(&mut *COUNTS.lock());
    let mut shapes: Vec<_> = counts.shapes.iter().collect();
    shapes.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (shape, (count, examples)) in shapes {
        print(&format!("agct difference: {count} x {shape}"));
        if !shape.starts_with("same methods, same") {
            examples.iter().for_each(|example| print(&format!("agct example: {example}")));
        }
    }
    print(&format!("agct difference: {} x not compared", counts.missing));
    let mut files = ClassFiles::new(*jvmti);
    let (verdicts, texts) = judge::judge_all(&counts.differing, &mut files);
    for (verdict, count) in verdicts {
        let (who, rule) = match verdict {
            Verdict::Ours(rule) => ("ours", rule),
            Verdict::Theirs(rule) => ("theirs", rule),
            Verdict::Undecided(rule) => ("undecided", rule),
        };
        print(&format!("agct judged: {count} x {who}: {rule}"));
    }
    texts.iter().for_each(|text| print(&format!("agct example: {text}")));
    let mut found = Control::default();
    for (number, case) in counts.control.iter().enumerate() {
        let relation = &mut |caller, bci, callee| files.relation(caller, bci, callee);
        judge::control(case, number, &mut found, relation);
        judge::dropped(case, number, &mut found, relation);
    }
    found.texts.iter().take(2 * EXAMPLES).for_each(|text| print(&format!("agct example: control {text}")));
    for (relation, count) in found.relations {
        print(&format!("agct control: {count} x {relation}"));
    }
    print(&format!("agct control: {} x frame removed", found.removed.0));
    print(&format!("agct control: {} x noticed", found.removed.1));
    print(&format!("agct control: {} x frames dropped from ours", found.dropped.0));
    print(&format!("agct control: {} x dropped and found right", found.dropped.1));
}
