//! Steps through the routines that the VM generates, with and without the CPU's vector and digest instructions.
//!
//! The code that calls a routine is walked right before; at every instruction of the routine the walk must give the
//! same methods, or be marked as cut. `-XX:UseAVX` and `-XX:-UseSHA` choose among routines of different shapes: some
//! use the frame pointer for data, realign the stack or push registers without a frame. An agent
//! (`workloads/no_sha_ni.c`) hides the CPU's SHA instructions, without which the VM generates another routine for
//! SHA-256.
//! The VM prints the routines that it generates, so counts are given by group.
//!
//! ```sh
//! TICKWALK_STUB_ROUTINES=1 TICKWALK_JDKS=FOLDER cargo test -p stackwalk stub_routines:: -- --nocapture
//! ```
//!
//! TICKWALK_STEPS is the number of instructions in each run; TICKWALK_FLAGS selects runs by their text:
//! `-UseSHA,NO_SHA_NI`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::walks::{Named, walk};
use crate::support::{Jdk, Jvm, compile, jdks, step_through, wait_for_cpu};
use stackwalk::{Frame, Memory, ScopeCache};

/// Sets of flags; one stands for the agent, and one exists from JDK 23 on.
const FLAGS: [&str; 8] = [
    "-XX:UseAVX=0",
    "-XX:UseAVX=1",
    "-XX:UseAVX=2",
    "-XX:UseAVX=3",
    "-XX:-UseSHA",
    NO_SHA_NI,
    SEARCHES,
    INTERPRETED_MATH,
];
const NO_SHA_NI: &str = "NO_SHA_NI";
/// `String.indexOf` as a routine (`generate_string_indexof` in `cpu/x86/c2_stubGenerator_x86_64_string.cpp`), which the
/// VM makes with AVX2 only.
const SEARCHES: &str = "-XX:UseAVX=2 -XX:+EnableX86ECoreOpts";

/// Compiled code calls `Math` methods, and the interpreter's entries without a frame run them.
const INTERPRETED_MATH: &str = "-XX:CompileCommand=option,Stubs.*,ccstrlist,DisableIntrinsic,_dsin,_dcos,_dtan,_dpow,_dexp \
    -XX:CompileCommand=exclude,java.lang.Math::sin -XX:CompileCommand=exclude,java.lang.Math::cos \
    -XX:CompileCommand=exclude,java.lang.Math::tan -XX:CompileCommand=exclude,java.lang.Math::pow \
    -XX:CompileCommand=exclude,java.lang.Math::exp";

/// Groups of routines, by a part of their names. The first that fits counts.
const GROUPS: [(&str, &[&str]); 12] = [
    ("SHA-256 without SHA-NI", &["sha256 without"]),
    ("digests", &["sha", "md5"]),
    ("ciphers", &["AES", "aes", "counterMode", "galois", "ghash", "chacha"]),
    ("checksums", &["CRC", "Adler"]),
    ("copies and fills", &["copy", "fill", "setmemory"]),
    ("`String.indexOf`", &["string_indexof"]),
    ("searches and text", &["ndexOf", "base64", "Encode", "Decode", "Mismatch", "count_positives"]),
    ("conversions", &["f2", "d2"]),
    ("mathematics", &["libm", "dsin", "dcos", "dtan", "dexp", "dlog", "dpow", "dcbrt", "fmod"]),
    ("big integers", &["ToLen", "mulAdd", "montgomery", "bigInteger"]),
    ("entries of compiled code", &["method_entry_barrier"]),
    ("others", &[""]),
];

/// CPU time after which the thread runs compiled code, in nanoseconds.
const LOOP_NS: u64 = 200_000_000;

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
    /// Routines with a step.
    routines: BTreeSet<String>,
    /// Steps, cut and wrong walks by group.
    groups: BTreeMap<&'static str, [u32; 3]>,
    /// Reasons of stacks that are not whole, with their numbers.
    described: BTreeMap<String, u32>,
}

/// Names of the methods of a walk, newest first, without those that have no frame: they are seen while they are entered
/// only.
fn methods(frames: &[(Frame, Option<Named>)]) -> Vec<String> {
    let named = frames.iter().filter_map(|(_, named)| named.as_ref());
    let named = named.filter(|named| named.class != "java/lang/Math");
    named.map(|named| format!("{}.{}", named.class, named.name)).collect()
}

/// The range and the name of each routine, from what the VM prints: `StubRoutines::NAME [0xBEGIN, 0xEND] (...)`.
fn routines(printed: &[String]) -> Vec<(std::ops::Range<u64>, String)> {
    let routine = |line: &String| {
        let (name, range) = line.strip_prefix("StubRoutines::")?.split_once(" [0x")?;
        let (begin, end) = range.split_once(", 0x")?;
        let end = end.split(['[', ']']).next()?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        // From JDK 26 on: `Stub Generator NAME_stub`, `NAME_stub (stub gen)`.
        let name = name.trim_start_matches("Stub Generator ").trim_end_matches(" (stub gen)");
        Some((number(begin)?..number(end)?, name.trim_end_matches("_stub").to_owned()))
    };
    printed.iter().filter_map(routine).collect()
}

fn group(name: &str) -> &'static str {
    let fits = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    GROUPS.iter().find(|(_, parts)| fits(parts)).expect("the last fits").0
}

/// Compiles the agent that hides the SHA instructions.
fn no_sha_ni() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads/no_sha_ni.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libno_sha_ni.so");
    let done = Command::new("cc").args(["-O1", "-fPIC", "-shared", "-o"]).arg(&library).arg(source).status();
    assert!(done.expect("a C compiler").success(), "the agent compiles");
    library
}

fn step_one(jvm: &Jvm, thread_name: &str, counts: &mut Counts) {
    let routines = routines(&jvm.printed);
    // The agent's routine has the same name as that of a CPU with SHA instructions, but is longer.
    let name_at = |pc: u64| {
        let (range, name) = routines.iter().rev().find(|(range, _)| range.contains(&pc))?;
        let is_long = name.starts_with("sha256") && range.end - range.start > 2048;
        Some(if is_long { format!("sha256 without SHA-NI{}", &name[6..]) } else { name.clone() })
    };
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
            let Some(name) = name_at(pc) else {
                entry = None;
                caller = stop.is_complete().then_some(found);
                return ControlFlow::Continue(());
            };
            let Some(caller) = &caller else { return ControlFlow::Continue(()) };
            let entry = *entry.get_or_insert(pc);
            counts.steps += 1;
            let in_group = counts.groups.entry(group(&name)).or_default();
            in_group[0] += 1;
            counts.routines.insert(name.clone());
            let kind = match stop.is_complete() {
                true if found == *caller => {
                    counts.whole += 1;
                    return ControlFlow::Continue(());
                }
                false if caller.starts_with(&found) => "cut",
                _ => "wrong",
            };
            *(if kind == "cut" { &mut counts.cut } else { &mut counts.wrong }) += 1;
            in_group[if kind == "cut" { 1 } else { 2 }] += 1;
            let mut code = [0; 32];
            let _ = memory.read(pc - 12, &mut code);
            let instead = if kind == "cut" { String::new() } else { format!(" {found:?} for {caller:?}") };
            let text = format!(
                "{kind} {} in {name} at +{:#x} of its entry {:02x?} | {:02x?}{instead}",
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
    let selected = std::env::var("TICKWALK_FLAGS").unwrap_or_default();
    let is_selected = |flags: &str| selected.split(',').any(|part| flags.contains(part));
    for Jdk { name: jdk, home, major } in jdks() {
        let mut groups: BTreeMap<&str, [u32; 3]> = BTreeMap::new();
        for flags in
            FLAGS.into_iter().filter(|flags| is_selected(flags) && (major >= 23 || *flags != SEARCHES))
        {
            let mut counts = Counts::default();
            let agent = format!("-agentpath:{}", no_sha_ni().display());
            let chosen = if flags == NO_SHA_NI { vec![agent.as_str()] } else { flags.split(' ').collect() };
            // One run has too few steps for both halves of the program, so each run executes one of them.
            let only = if flags.contains("SHA") { "-Ddigests=true" } else { "-Ddigests=false" };
            let options: Vec<&str> =
                ["-XX:+UnlockDiagnosticVMOptions", "-XX:+PrintStubCode", "-Xbatch", only]
                    .into_iter()
                    .chain(chosen)
                    .collect();
            let jvm = Jvm::start(&home, &options, &classes, "Stubs");
            // The thread enters its loop, and no longer waits for its compilation.
            wait_for_cpu(jvm.pid(), "busy-stubs", LOOP_NS);
            step_one(&jvm, "busy-stubs", &mut counts);
            drop(jvm);
            let Counts { steps, whole, cut, wrong, routines, described, .. } = &counts;
            println!(
                "JDK {jdk} {flags}: {steps} instructions of {} routines: {whole} whole, {cut} cut, {wrong} wrong",
                routines.len()
            );
            println!("  {}", routines.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
            let mut worst: Vec<_> = described.iter().collect();
            worst.sort_by_key(|(text, count)| (!text.starts_with("wrong"), std::cmp::Reverse(**count)));
            let shown = std::env::var("TICKWALK_SHOW").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
            for (text, count) in worst.into_iter().take(shown) {
                println!("  {count:5} {text}");
            }
            for (group, counted) in &counts.groups {
                let sum = groups.entry(group).or_default();
                (0..sum.len()).for_each(|index| sum[index] += counted[index]);
            }
            let has_routine = match flags {
                NO_SHA_NI => counts.groups.contains_key(GROUPS[0].0),
                SEARCHES => routines.iter().any(|name| name.starts_with("string_indexof")),
                INTERPRETED_MATH => counts.groups.get("mathematics").is_some_and(|[steps, ..]| *steps > 500),
                _ => true,
            };
            if *steps < 50 || *wrong > 0 || !has_routine {
                problems.push(format!("JDK {jdk} {flags}"));
            }
        }
        for (group, [steps, cut, wrong]) in groups {
            println!("| {jdk} | {group} | {steps} | {cut} | {wrong} |");
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}
