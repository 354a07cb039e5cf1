//! Walks the stacks of a JVM that was recorded, and prints their frames: the whole API, without a JVM.
//!
//!   cargo run -p stackwalk --example recorded_stack
//!
//! A profiler does the same with [`stackwalk::LiveMemory`], with registers from a signal's context, and with the
//! thread's stack; `agent/src/stack_api/walk.rs` is such a walk.

#[path = "../tests/support/fixture.rs"]
mod fixture;

use fixture::Fixture;
use stackwalk::{Frame, HotSpot, Limits, Memory, Method, ScopeCache, Symbol, Walker};

fn main() {
    // Memory of a JVM: the tables in libjvm, and all that a walk reads.
    let file = fixture::all().pop().expect("a recorded JVM");
    let memory = Fixture::load(&file);
    // Layouts, from the VM's own tables; then what the VM has made while it started.
    let mut hotspot =
        HotSpot::read_tables(|name| memory.symbols.get(name).copied(), &memory).expect("HotSpot");
    hotspot.start(&memory).expect("a VM that has started");
    println!("JDK {}", hotspot.jdk_major());
    // Decoded code, for all walks of one thread.
    let mut cache = ScopeCache::new();
    for thread in &memory.threads {
        println!("\n{}", thread.name);
        let mut walker = Walker::new(&hotspot, &memory, &mut cache, Limits::default());
        let mut frames = walker.frames(&thread.capture, &thread.stack);
        for frame in frames.by_ref() {
            println!("  {}", describe(&hotspot, &memory, &frame));
        }
        // Why there was no further frame: frames before it are right in any case.
        println!("  ({})", frames.stop().name());
    }
}

/// Kind, name and position of a frame.
fn describe(hotspot: &HotSpot, memory: &impl Memory, frame: &Frame) -> String {
    let (kind, level) = match frame {
        Frame::Interpreted { .. } => ("interpreted", String::new()),
        Frame::Compiled { level, inlined: true, .. } => ("inlined", format!(" by tier {}", level.0)),
        Frame::Compiled { level, .. } => ("compiled", format!(" by tier {}", level.0)),
        Frame::NativeMethod { .. } => ("native method", String::new()),
        Frame::Stub { .. } | Frame::Entry { .. } => ("stub", String::new()),
        Frame::Native { .. } => ("native", String::new()),
        Frame::Gap { .. } => ("frames missing", String::new()),
    };
    let name = frame.method().map_or_else(String::new, |method| name_of(hotspot, memory, method, frame));
    format!("{name} {kind}{level} at {:#x}", frame.place().pc.0)
}

fn name_of(hotspot: &HotSpot, memory: &impl Memory, method: Method, frame: &Frame) -> String {
    let Ok(names) = hotspot.method(memory, method) else { return "[unloaded]".to_owned() };
    let text = |symbol: Symbol| {
        let mut bytes = [0; 200];
        let length = hotspot.read_symbol(memory, symbol, &mut bytes).unwrap_or(0).min(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let line = frame.bci().and_then(|bci| hotspot.line(memory, method, bci));
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    format!("{}.{}{line}", text(names.class), text(names.name))
}
