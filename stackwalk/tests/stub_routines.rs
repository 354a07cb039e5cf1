//! Steps through the routines that the VM generates, with and without the CPU's vector and digest instructions.
//!
//! The code that calls a routine is walked right before; at every instruction of the routine the walk must give the same
//! methods, or be marked as cut. `-XX:UseAVX` and `-XX:-UseSHA` choose among routines of different shapes: some use the frame
//! pointer for data, realign the stack or push registers without a frame.
//!
//! ```sh
//! TICKWALK_STUB_ROUTINES=1 TICKWALK_JDKS=FOLDER cargo test -p stackwalk --test stub_routines -- --nocapture
//! ```
//!
//! TICKWALK_STEPS is the number of instructions in each run.

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stackwalk::{Frame, HotSpot, Memory, Pc, ScopeCache};
use support::walks::{Named, walk};
use support::{Jdk, Jvm, RemoteMemory, compile, jdks, pause, step_through};

const FLAGS: [&[&str]; 5] =
    [&["-XX:UseAVX=0"], &["-XX:UseAVX=1"], &["-XX:UseAVX=2"], &["-XX:UseAVX=3"], &["-XX:-UseSHA"]];

fn steps_per_run() -> u32 {
    std::env::var("TICKWALK_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(40_000)
}

/// Counts of the instructions of routines.
#[derive(Default)]
struct Counts {
    steps: u32,
    whole: u32,
    cut: u32,
    wrong: u32,
    /// Routines by entry.
    entries: BTreeMap<u64, u32>,
    /// Reasons of stacks that are not whole, with their numbers.
    described: BTreeMap<String, u32>,
}

/// Names of the methods of a walk, newest first.
fn methods(frames: &[(Frame, Option<Named>)]) -> Vec<String> {
    let named = frames.iter().filter_map(|(_, named)| named.as_ref());
    named.map(|named| format!("{}.{}", named.class, named.name)).collect()
}

fn is_routine(hotspot: &HotSpot, memory: &RemoteMemory, pc: u64) -> bool {
    let mut name = [0; 48];
    let blob = hotspot.blob_at(memory, Pc(pc));
    let length = blob.ok().and_then(|blob| hotspot.blob_name(memory, blob, &mut name).ok()).unwrap_or(0);
    name[..length].starts_with(b"StubRoutines")
}

fn step_one(jvm: &Jvm, thread_name: &str, counts: &mut Counts) {
    let (hotspot, memory) = (jvm.hotspot(), jvm.memory());
    let mut cache = Box::new(ScopeCache::new());
    for thread in hotspot.java_threads(&memory) {
        let Some(tid) = hotspot.thread_id(&memory, thread) else { continue };
        let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", jvm.pid()));
        if name.ok().is_none_or(|name| name.trim() != thread_name) {
            continue;
        }
        // The methods of the code that called the routine, and the routine's entry.
        let mut caller: Option<Vec<String>> = None;
        let mut entry = None;
        step_through(&hotspot, &memory, thread, tid, steps_per_run(), |snapshot| {
            let pc = snapshot.capture.pc;
            if !hotspot.is_code(pc) {
                return ControlFlow::Continue(());
            }
            let (frames, stop) = walk(&hotspot, &memory, &mut cache, &snapshot.capture, &snapshot.stack);
            let found = methods(&frames);
            if !is_routine(&hotspot, &memory, pc) {
                entry = None;
                caller = stop.is_complete().then_some(found);
                return ControlFlow::Continue(());
            }
            let Some(caller) = &caller else { return ControlFlow::Continue(()) };
            let entry = *entry.get_or_insert(pc);
            counts.steps += 1;
            *counts.entries.entry(entry).or_default() += 1;
            let kind = match stop.is_complete() {
                true if found == *caller => {
                    counts.whole += 1;
                    return ControlFlow::Continue(());
                }
                false if caller.starts_with(&found) => "cut",
                _ => "wrong",
            };
            *(if kind == "cut" { &mut counts.cut } else { &mut counts.wrong }) += 1;
            let mut code = [0; 32];
            let _ = memory.read(pc - 12, &mut code);
            let instead = if kind == "cut" { String::new() } else { format!(" {found:?} for {caller:?}") };
            let text = format!(
                "{kind} {} at +{:#x} of its routine {:02x?} | {:02x?}{instead}",
                stop.name(),
                pc.wrapping_sub(entry),
                &code[..12],
                &code[12..]
            );
            *counts.described.entry(text).or_default() += 1;
            ControlFlow::Continue(())
        });
    }
}

#[test]
fn walks_inside_routines_find_the_caller_or_are_cut() {
    if std::env::var_os("TICKWALK_STUB_ROUTINES").is_none() {
        eprintln!("SKIPPED: takes some minutes; set TICKWALK_STUB_ROUTINES=1");
        return;
    }
    let classes = compile("Stubs.java");
    let mut problems = Vec::new();
    for Jdk { name: jdk, home, .. } in jdks() {
        for flags in FLAGS {
            let mut counts = Counts::default();
            let options = [flags, &["-Xbatch"]].concat();
            let jvm = Jvm::start(&home, &options, &classes, "Stubs");
            // The thread enters its loop.
            pause(500);
            step_one(&jvm, "busy-stubs", &mut counts);
            drop(jvm);
            let Counts { steps, whole, cut, wrong, entries, described } = &counts;
            println!(
                "JDK {jdk} {}: {steps} instructions from {} entries: {whole} whole, {cut} cut, {wrong} wrong",
                flags.join(" "),
                entries.len()
            );
            let mut worst: Vec<_> = described.iter().collect();
            worst.sort_by_key(|(text, count)| (!text.starts_with("wrong"), std::cmp::Reverse(**count)));
            let shown = std::env::var("TICKWALK_SHOW").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
            for (text, count) in worst.into_iter().take(shown) {
                println!("  {count:5} {text}");
            }
            if *steps < 50 || *wrong > 0 {
                problems.push(format!("JDK {jdk} {}", flags.join(" ")));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}
