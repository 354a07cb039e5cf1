//! Walks a real JVM's threads after every single instruction they execute.
//!
//! Random stops hit mostly instructions that take long; stepping covers all of them: prologues, epilogues, polls,
//! stubs, adapters, and the interpreter entering and leaving methods. At each step the walk must reach the thread's
//! root, and its frames may differ from those of the previous step by one frame pushed, popped or replaced.
//!
//! `TICKWALK_JDKS=<folder with JAVA_HOMEs 11 17 21 25> cargo test -p stackwalk every_instruction:: -- --nocapture`

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::support::walks::{Named, walk};
use crate::support::{
    Jdk, Jvm, RemoteMemory, Snapshot, VALUE_CLASSES, compile, compile_preview, jdks, pause, step_through,
};
use stackwalk::{Frame, HotSpot, Memory, ScopeCache, Stop, Unreadable};

/// Steps of each busy thread; TICKWALK_STEPS overrides.
fn steps_per_thread() -> u32 {
    std::env::var("TICKWALK_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(1500)
}

const MODES: [(&str, &[&str]); 3] =
    [("default", &[]), ("interpreter", &["-Xint"]), ("c1", &["-XX:TieredStopAtLevel=1"])];

/// Threads of the workload; each is stepped through in a separate JVM.
const THREADS: [&str; 5] = ["busy-recursion", "busy-exception", "busy-text", "busy-lambda", "busy-chain"];

/// Returns the outermost method of each physical frame, newest first.
fn physical_methods(frames: &[(Frame, Option<Named>)]) -> Vec<String> {
    let mut found: Vec<(u64, String)> = Vec::new();
    for (frame, named) in frames {
        let name = named.as_ref().map_or_else(String::new, |named| format!("{}.{}", named.class, named.name));
        let place = frame.place();
        match found.last_mut() {
            Some((sp, last)) if *sp == place.sp && !matches!(frame, Frame::Stub { .. }) => *last = name,
            _ => found.push((place.sp, name)),
        }
    }
    found.into_iter().map(|(_, name)| name).filter(|name| !name.is_empty()).collect()
}

/// Returns whether one call, return or jump leads from the frames `before` to those `after`; newest first.
fn differ_by_one_frame(before: &[String], after: &[String]) -> bool {
    let callers = |frames: &'_ [String]| frames.get(1..).unwrap_or_default().to_vec();
    callers(before) == callers(after) || callers(after) == before || callers(before) == after
}

#[derive(Default)]
struct StepCounts {
    /// Steps in C code, which includes the VM's signal handler; their walks are not checked.
    native: u32,
    steps: u32,
    complete: u32,
    jumps: u32,
    /// Steps in each piece of VM code, by its name.
    blobs: BTreeMap<String, u32>,
    problems: BTreeMap<String, u32>,
}

fn blob_name(hotspot: &HotSpot, memory: &RemoteMemory, pc: u64) -> String {
    let mut name = [0; 48];
    let blob = hotspot.blob_at(memory, stackwalk::Pc(pc));
    let length = blob.ok().and_then(|blob| hotspot.blob_name(memory, blob, &mut name).ok()).unwrap_or(0);
    String::from_utf8_lossy(&name[..length]).into_owned()
}

fn describe(hotspot: &HotSpot, memory: &RemoteMemory, snapshot: &Snapshot, what: &str) -> String {
    let capture = &snapshot.capture;
    let mut code = [0; 40];
    let _ = memory.read(capture.pc - 16, &mut code);
    let name = blob_name(hotspot, memory, capture.pc);
    let anchor = if capture.anchor_sp == 0 { "" } else { " anchor" };
    format!("{what} in [{name}]{anchor} {:02x?} | {:02x?}", &code[..16], &code[16..])
}

#[test]
fn walks_at_every_instruction_find_the_same_callers() {
    let classes = compile("Stacks.java");
    let mut problems = Vec::new();
    for Jdk { name: jdk, home, .. } in jdks() {
        for (mode, flags) in MODES {
            if std::env::var("TICKWALK_MODE").is_ok_and(|selected| selected != mode) {
                continue;
            }
            let mut counts = StepCounts::default();
            for name in THREADS {
                let jvm = Jvm::start(&home, flags, &classes, "Stacks");
                // The compilers must finish first: code may not be replaced while it is stepped through.
                pause(2500);
                step_one(&jvm, name, &mut counts);
            }
            counts.report(&format!("JDK {jdk} {mode}"), &mut problems);
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}

/// The VM may change code between a sample and its walk: it puts a jump at the entry of code that it makes not entrant,
/// and leads calls to newer code.
#[test]
fn walks_after_a_change_of_the_code_find_the_same_callers() {
    let classes = compile("Crossings.java");
    let commands =
        ["-XX:CompileCommand=exclude,Crossings::middle", "-XX:CompileCommand=dontinline,Crossings::*"];
    for Jdk { name: jdk, home, .. } in jdks().into_iter().filter(|jdk| jdk.major <= 25) {
        let jvm = Jvm::start(&home, &commands, &classes, "Crossings");
        pause(2500);
        let (hotspot, memory) = (jvm.hotspot(), jvm.memory());
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut wrong = Vec::new();
        let busy = hotspot.java_threads(&memory).filter_map(|thread| {
            let tid = hotspot.thread_id(&memory, thread)?;
            let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", jvm.pid())).ok()?;
            (name.trim() == "busy-crossing").then_some((thread, tid))
        });
        let (thread, tid) = busy.collect::<Vec<_>>()[0];
        step_through(&hotspot, &memory, thread, tid, 4 * steps_per_thread(), |snapshot| {
            let walked = |memory: &Changed<'_>| {
                let mut cache = Box::new(ScopeCache::new());
                let (frames, stop) = walk(&hotspot, memory, &mut cache, &snapshot.capture, &snapshot.stack);
                (physical_methods(&frames), stop)
            };
            let unchanged = walked(&Changed { memory: &memory, at: 0, code: [0; 5] });
            for (what, at) in [
                ("entry", replaced_entry(&memory, snapshot.capture.pc)),
                ("call of a static call stub", replaced_call(&memory, snapshot)),
            ] {
                let Some((at, code)) = at.filter(|_| unchanged.1 == Stop::EndOfStack) else { continue };
                *counts.entry(what).or_default() += 1;
                let changed = walked(&Changed { memory: &memory, at, code });
                if changed != unchanged {
                    let what = format!("{what} {unchanged:?} -> {changed:?}");
                    wrong.push(describe(&hotspot, &memory, snapshot, &what));
                }
            }
            ControlFlow::Continue(())
        });
        println!("JDK {jdk}: {counts:?}");
        assert!(wrong.is_empty(), "JDK {jdk}: {} of {counts:?} walks, such as {}", wrong.len(), wrong[0]);
        let count = |what| counts.get(what).copied().unwrap_or(0);
        assert!(count("entry") >= 30 && count("call of a static call stub") >= 10, "JDK {jdk}: {counts:?}");
    }
}

/// A process in which five bytes of code are others.
struct Changed<'a> {
    memory: &'a RemoteMemory,
    at: u64,
    code: [u8; 5],
}

impl Memory for Changed<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.memory.read(address, into)?;
        for (place, byte) in (self.at..).zip(self.code) {
            if let Some(old) = place.checked_sub(address).and_then(|index| into.get_mut(index as usize)) {
                *old = byte;
            }
        }
        Ok(())
    }
}

/// The jump that makes code not entrant, if the pc is in a prologue or shortly behind it
/// (`NativeJump::patch_verified_entry` in `nativeInst_x86.cpp`, JDK 11 to 25).
fn replaced_entry(memory: &RemoteMemory, pc: u64) -> Option<(u64, [u8; 5])> {
    let entry = (1..=16).map(|distance| pc - distance).find(|entry| {
        let mut code = [0; 4];
        // The entry is aligned: mov [rsp + n], eax, or sub rsp, n without push rbp before it.
        entry % 8 == 0
            && memory.read(entry - 1, &mut code).is_ok()
            && code[0] != 0x55
            && [[0x89, 0x84, 0x24], [0x48, 0x81, 0xec]].iter().any(|start| code[1..] == *start)
    })?;
    Some((entry, [0xe9, 0x31, 0x48, 0x5a, 0xff]))
}

/// The call of the static call stub in which the pc is, led to where the stub leads.
fn replaced_call(memory: &RemoteMemory, snapshot: &Snapshot) -> Option<(u64, [u8; 5])> {
    let pc = snapshot.capture.pc;
    let stub = [pc, pc - 10].into_iter().find(|&stub| {
        let mut code = [0; 11];
        memory.read(stub, &mut code).is_ok() && code[..2] == [0x48, 0xbb] && code[10] == 0xe9
    })?;
    let top = snapshot.stack.first_chunk().map(|word| u64::from_le_bytes(*word))?;
    let distance = |at: u64| {
        let mut bytes = [0; 4];
        memory.read(at, &mut bytes).ok().map(|()| i32::from_le_bytes(bytes))
    };
    if top.wrapping_add_signed(distance(top - 4)?.into()) != stub {
        return None;
    }
    let target = (stub + 15).wrapping_add_signed(distance(stub + 11)?.into());
    let bytes = i32::try_from(target.wrapping_sub(top).cast_signed()).ok()?.to_le_bytes();
    Some((top - 5, [0xe8, bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Value classes, a preview of JDK 28: entries that take stack for fields, extended frames, adapters that allocate,
/// and the interpreter's allocation of objects whose fields were returned.
#[test]
fn walks_at_every_instruction_with_value_classes_find_the_same_callers() {
    let mut problems = Vec::new();
    for Jdk { name: jdk, home, .. } in jdks().into_iter().filter(|jdk| jdk.major >= 28) {
        let classes = compile_preview(&home, "Values.java");
        for (mode, flags) in MODES {
            let mut counts = StepCounts::default();
            for name in ["busy-enters", "busy-receives", "busy-passes"] {
                let jvm = Jvm::start(&home, &[&VALUE_CLASSES, flags].concat(), &classes, "Values");
                pause(2500);
                step_one(&jvm, name, &mut counts);
            }
            println!("{:?}", counts.blobs);
            counts.report(&format!("JDK {jdk} {mode} values"), &mut problems);
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}

/// Upcall stubs: C code calls Java (JDK 21 and later). Each stack leads to the Java frames below the C code.
#[test]
fn walks_at_every_instruction_between_c_and_java_find_the_same_callers() {
    let classes = compile("Upcalls.java");
    let mut problems = Vec::new();
    for Jdk { name: jdk, home, .. } in jdks().into_iter().filter(|jdk| jdk.major >= 21) {
        let mut counts = StepCounts::default();
        let jvm = Jvm::start(&home, &["--enable-native-access=ALL-UNNAMED"], &classes, "Upcalls");
        pause(2500);
        step_one(&jvm, "busy-upcall", &mut counts);
        counts.report(&format!("JDK {jdk} upcalls"), &mut problems);
        let stubs =
            ["UpcallStub", "upcall_stub"].iter().filter_map(|name| counts.blobs.get(*name)).sum::<u32>();
        if stubs < 100 {
            problems.push(format!("JDK {jdk}: {stubs} steps in upcall stubs, {:?}", counts.blobs));
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}

impl StepCounts {
    /// Prints the counts, and adds `run` to `problems` if too many walks were cut or lost frames.
    fn report(&self, run: &str, problems: &mut Vec<String>) {
        let counts = self;
        let share = f64::from(counts.complete) / f64::from(counts.steps.max(1));
        println!(
            "{run}: {} of {} walks in VM code complete ({:.2} %), {} jumps, {} steps in C code",
            counts.complete,
            counts.steps,
            100.0 * share,
            counts.jumps,
            counts.native
        );
        let mut worst: Vec<_> = counts.problems.iter().collect();
        worst.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown = std::env::var("TICKWALK_SHOW").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
        for (text, count) in worst.into_iter().take(shown) {
            println!("  {count:5} {text}");
        }
        let jumps = f64::from(counts.jumps) / f64::from(counts.steps.max(1));
        if counts.steps < 300 || share < 0.99 || jumps > 0.02 {
            problems.push(run.to_owned());
        }
    }
}

/// Steps through the thread of this name.
fn step_one(jvm: &Jvm, thread_name: &str, counts: &mut StepCounts) {
    let (hotspot, memory) = (jvm.hotspot(), jvm.memory());
    let mut cache = Box::new(ScopeCache::new());
    for thread in hotspot.java_threads(&memory) {
        let Some(tid) = hotspot.thread_id(&memory, thread) else { continue };
        let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", jvm.pid()));
        let Some(name) = name.ok().filter(|name| name.trim() == thread_name) else { continue };
        let mut before: Option<Vec<String>> = None;
        step_through(&hotspot, &memory, thread, tid, steps_per_thread(), |snapshot| {
            let (frames, stop) = walk(&hotspot, &memory, &mut cache, &snapshot.capture, &snapshot.stack);
            if !hotspot.is_code(snapshot.capture.pc) {
                counts.native += 1;
                return ControlFlow::Continue(());
            }
            counts.steps += 1;
            *counts.blobs.entry(blob_name(&hotspot, &memory, snapshot.capture.pc)).or_default() += 1;
            let methods = physical_methods(&frames);
            if stop != Stop::EndOfStack {
                let text = describe(&hotspot, &memory, snapshot, &format!("{} {}", name.trim(), stop.name()));
                *counts.problems.entry(text).or_default() += 1;
                return ControlFlow::Continue(());
            }
            counts.complete += 1;
            if let Some(before) = before.replace(methods.clone())
                && !differ_by_one_frame(&before, &methods)
            {
                counts.jumps += 1;
                let short = |frames: &[String]| frames.iter().take(4).cloned().collect::<Vec<_>>().join("<");
                let what = format!("{} jump {} -> {}", name.trim(), short(&before), short(&methods));
                *counts.problems.entry(describe(&hotspot, &memory, snapshot, &what)).or_default() += 1;
            }
            ControlFlow::Continue(())
        });
    }
}
