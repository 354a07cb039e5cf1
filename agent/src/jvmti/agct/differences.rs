//! Our walk and AsyncGetCallTrace's of the same moment, method by method and bytecode index by bytecode index.
//!
//! Problem: two lists of a hundred frames differ in many ways, few of which mean that one of them is wrong.
//! Approach: each difference is named by its shape and counted; the first few of each shape are kept in full.
//! Our list is reduced to what the other can say: Java methods, without marks for stubs and entry frames.
//! Invariant: a comparison that could not be made is counted too.
//! Source: HotSpot `prims/forte.cpp`: a negative count is the reason why it failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stackwalk::{Frame, HotSpot, LiveMemory, Memory, Method, Stop, Symbol};

use crate::log;

/// Examples kept of each shape.
const EXAMPLES: usize = 2;

static VM: OnceLock<(Arc<HotSpot>, &'static LiveMemory)> = OnceLock::new();
static COUNTS: Mutex<Counts> = Mutex::new(Counts { shapes: BTreeMap::new(), missing: 0 });

/// Differences by shape.
struct Counts {
    shapes: BTreeMap<String, (u64, Vec<String>)>,
    missing: u64,
}

pub(super) fn start(hotspot: Arc<HotSpot>, memory: &'static LiveMemory) {
    let _ = VM.set((hotspot, memory));
}

/// A sample whose trace was overwritten or never made.
pub(super) fn count_missing() {
    COUNTS.lock().missing += 1;
}

/// A method and bytecode index, `None` where there is none.
type Place = (u64, Option<i32>);

/// Our frames as the VM's own interfaces list them.
pub(super) fn places(frames: &[Frame]) -> Vec<Place> {
    // -1 is the moment before the first bytecode; to the others it is the same as none.
    let place =
        |frame: &Frame| Some((frame.method()?.0, frame.bci().map(|bci| bci.0).filter(|bci| *bci >= 0)));
    frames.iter().filter_map(place).collect()
}

/// A trace with its jmethodIDs resolved: up to JDK 25 each is the address of a word that holds the `Method*`.
pub(super) fn resolved(memory: &LiveMemory, trace: impl Iterator<Item = (u64, i32)>) -> Vec<Place> {
    let place = |(id, bci): (u64, i32)| (memory.read_u64(id).unwrap_or(0), (bci >= 0).then_some(bci));
    trace.map(place).collect()
}

/// Compares one sample; `count` is what the trace says of itself.
pub(super) fn compare(count: i32, trace: impl Iterator<Item = (u64, i32)>, frames: &[Frame], stop: Stop) {
    let Some((hotspot, memory)) = VM.get() else { return };
    let theirs = resolved(memory, trace);
    let ours = places(frames);
    let shape = if count <= 0 {
        let walked = if stop.is_complete() { "ours whole" } else { stop.name() };
        format!("it failed ({count}): {walked}")
    } else {
        shape(&ours, &theirs, frames, stop)
    };
    let mut counts = COUNTS.lock();
    let (count, examples) = counts.shapes.entry(shape).or_default();
    *count += 1;
    if examples.len() < EXAMPLES {
        examples.push(format!(
            "stop {} ours {} theirs {}",
            stop.name(),
            list(hotspot, memory, &ours, &theirs),
            list(hotspot, memory, &theirs, &ours)
        ));
    }
}

/// Names the relation of two lists.
pub(super) fn shape(ours: &[Place], theirs: &[Place], frames: &[Frame], stop: Stop) -> String {
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

/// The methods of `list` down to where it is the same as `other`, and two more.
pub(super) fn list(hotspot: &HotSpot, memory: &LiveMemory, list: &[Place], other: &[Place]) -> String {
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

/// Counts by shape, most first, with examples.
pub(super) fn report() {
    let counts = COUNTS.lock();
    let mut shapes: Vec<_> = counts.shapes.iter().collect();
    shapes.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (shape, (count, examples)) in shapes {
        log::complain(&format!("agct difference: {count} x {shape}"));
        if !shape.starts_with("same methods, same") {
            examples.iter().for_each(|example| log::complain(&format!("agct example: {example}")));
        }
    }
    log::complain(&format!("agct difference: {} x not compared", counts.missing));
}
