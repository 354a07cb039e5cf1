//! Walks with named frames, and their text form that the tests compare.

#![allow(dead_code)]

use stackwalk::{
    Capture, Frame, Frozen, Group, HotSpot, Limits, Memory, Method, Missing, NativeCode, ScopeCache, Stop,
    Symbol, Walker,
};

use super::fixture::AnyMemory;

/// A frame with its names.
#[derive(Clone, Debug)]
pub struct Named {
    pub class: String,
    pub name: String,
    pub descriptor: String,
    pub bci: Option<i32>,
    pub line: Option<u16>,
    pub native: bool,
}

fn text(hotspot: &HotSpot, memory: &AnyMemory<'_>, symbol: Symbol) -> String {
    let mut bytes = vec![0; 65_535];
    let length = hotspot.read_symbol(memory, symbol, &mut bytes).expect("a live symbol");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn named(hotspot: &HotSpot, memory: &AnyMemory<'_>, frame: &Frame, method: Method) -> Named {
    let names = hotspot.method(memory, method).expect("a live method");
    let line = frame.bci().and_then(|bci| hotspot.line(memory, method, bci));
    Named {
        class: text(hotspot, memory, names.class),
        name: text(hotspot, memory, names.name),
        descriptor: text(hotspot, memory, names.signature),
        bci: frame.bci().map(|bci| bci.0),
        line,
        native: names.is_native(),
    }
}

/// Walks a stack; returns the frames, with names if they are Java, and the stop reason.
pub fn walk(
    hotspot: &HotSpot,
    memory: &impl Memory,
    cache: &mut ScopeCache,
    capture: &Capture,
    stack: &[u8],
) -> (Vec<(Frame, Option<Named>)>, Stop) {
    let memory = &AnyMemory::new(memory);
    run(hotspot, memory, Walker::new(hotspot, memory, cache, Limits::default()), capture, stack, Frozen::NONE)
}

/// Like [`walk`], for a virtual thread with frozen frames; walks native code if its tables are given.
pub fn walk_mounted(
    hotspot: &HotSpot,
    memory: &impl Memory,
    cache: &mut ScopeCache,
    native: Option<&mut dyn NativeCode>,
    (capture, stack): (&Capture, &[u8]),
    frozen: Frozen<'_>,
) -> (Vec<(Frame, Option<Named>)>, Stop) {
    let memory = &AnyMemory::new(memory);
    let mut walker = Walker::new(hotspot, memory, cache, Limits::default());
    if let Some(native) = native {
        walker = walker.with_native(native);
    }
    run(hotspot, memory, walker, capture, stack, frozen)
}

/// Like [`walk`], including native code.
pub fn walk_through(
    hotspot: &HotSpot,
    memory: &impl Memory,
    cache: &mut ScopeCache,
    native: &mut dyn NativeCode,
    capture: &Capture,
    stack: &[u8],
) -> (Vec<(Frame, Option<Named>)>, Stop) {
    let memory = &AnyMemory::new(memory);
    let walker = Walker::new(hotspot, memory, cache, Limits::default()).with_native(native);
    run(hotspot, memory, walker, capture, stack, Frozen::NONE)
}

/// Walks a stack at once, checks the groups of its frames, and returns these and the stop reason.
fn walk_at_once(
    walker: &mut Walker<'_, AnyMemory<'_>>,
    capture: &Capture,
    stack: &[u8],
    frozen: Frozen<'_>,
) -> (Vec<Frame>, Stop) {
    let (mut found, mut groups) = (Vec::new(), Vec::new());
    let mut frames = walker.frames_with(capture, stack, frozen);
    frames.append_to(&mut found, &mut groups);
    let mut rest = &found[..];
    for Group { frames, number } in groups {
        let (group, older) = rest.split_at(frames as usize);
        rest = older;
        let are_inlined: Vec<bool> =
            group.iter().map(|frame| matches!(frame, Frame::Compiled { inlined: true, .. })).collect();
        assert!(number == 0 || are_inlined.iter().rposition(|inlined| !inlined) == Some(group.len() - 1));
        assert!(group.iter().all(|frame| frame.place() == group[0].place()) || number == 0);
    }
    assert!(rest.is_empty());
    (found, frames.stop())
}

fn run(
    hotspot: &HotSpot,
    memory: &AnyMemory<'_>,
    mut walker: Walker<'_, AnyMemory<'_>>,
    capture: &Capture,
    stack: &[u8],
    frozen: Frozen<'_>,
) -> (Vec<(Frame, Option<Named>)>, Stop) {
    let mut frames = walker.frames_with(capture, stack, frozen);
    let found: Vec<Frame> = frames.by_ref().collect();
    let stop = frames.stop();
    assert_eq!(walk_at_once(&mut walker, capture, stack, frozen), (found.clone(), stop), "at once");
    let mut walker = walker.without_known_steps();
    assert_eq!(
        walk_at_once(&mut walker, capture, stack, frozen),
        (found.clone(), stop),
        "each frame by itself"
    );
    let name = |frame: Frame| {
        let named = frame.method().map(|method| named(hotspot, memory, &frame, method));
        (frame, named)
    };
    (found.into_iter().map(name).collect(), stop)
}

/// Formats a frame like the JVM's thread dump, without the addresses of hidden classes.
pub fn as_dumped(frame: &Named) -> String {
    let line = match frame.line {
        _ if frame.native => "native".to_owned(),
        Some(line) => line.to_string(),
        None => "?".to_owned(),
    };
    let class = frame.class.split("+0x").next().unwrap_or("").replace('/', ".");
    format!("{class}.{}:{line}", frame.name)
}

/// Formats a walk: one line for each frame with its kind, then the stop reason.
pub fn as_text(
    hotspot: &HotSpot,
    memory: &impl Memory,
    frames: &[(Frame, Option<Named>)],
    stop: Stop,
) -> String {
    let mut text = String::new();
    for (frame, named) in frames {
        let kind = match frame {
            Frame::Interpreted { .. } => "interpreted".to_owned(),
            Frame::Compiled { level, inlined: false, .. } => format!("compiled-{}", level.0),
            Frame::Compiled { level, inlined: true, .. } => format!("inlined-{}", level.0),
            Frame::NativeMethod { .. } => "native".to_owned(),
            Frame::Stub { .. } => "stub".to_owned(),
            Frame::Entry { .. } => "entry".to_owned(),
            Frame::Native { .. } => "native code".to_owned(),
            Frame::Gap { missing: Missing::Native, .. } => "gap".to_owned(),
            Frame::Gap { missing: Missing::Thawing, .. } => "being thawed".to_owned(),
        };
        let name = match (frame, named) {
            (_, Some(named)) => as_dumped(named),
            (Frame::Stub { blob, .. }, None) => {
                let mut bytes = [0; 64];
                let length = hotspot.blob_name(memory, *blob, &mut bytes).expect("a live blob");
                String::from_utf8_lossy(&bytes[..length]).into_owned()
            }
            _ => String::new(),
        };
        text.push_str(format!("{kind} {name}").trim_end());
        text.push('\n');
    }
    text + stop.name() + "\n"
}
