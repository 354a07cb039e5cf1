//! Walks the threads of real JVMs from another process and compares with the JVM's thread dump and the class files.
//!
//! Quiet threads: methods and lines must equal those of the thread dump.
//! Busy threads, stopped at arbitrary instructions: the walk must reach the thread's root, and the bytecode of every
//! caller must be an invoke of its callee.
//!
//! `TICKWALK_JDKS=<folder with JAVA_HOMEs 11 17 21 25> cargo test -p stackwalk attached_jvm:: -- --nocapture`

use crate::support::fixture::{Fixture, Overlaid, Recorder, Thread, reduced_tables, tables_address};
use crate::support::walks::{Named, as_dumped, as_text, walk};
use crate::support::{
    Jdk, Jvm, RemoteMemory, Snapshot, VALUE_CLASSES, compile, compile_preview, jdks, pause, with_stopped,
};
use stackwalk::{Frame, HotSpot, Limits, Memory, Pc, ScopeCache, Stop, Unreadable, Walker};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;

/// Returns the number of stops of each busy thread; TICKWALK_STOPS overrides.
fn stops_per_thread() -> u32 {
    std::env::var("TICKWALK_STOPS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Returns whether TICKWALK_MODE selects `mode`; unset selects all.
fn is_selected(mode: &str) -> bool {
    std::env::var("TICKWALK_MODE").map_or(true, |selected| selected == mode)
}

const MODES: [(&str, &[&str]); 4] = [
    ("default", &[]),
    ("interpreter", &["-Xint"]),
    ("c1", &["-XX:TieredStopAtLevel=1"]),
    ("non-safepoints", &["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints", "-XX:+UseParallelGC"]),
];

/// Returns the threads of a thread dump: name, kernel id and frames as `class.method:line`.
fn parse_dump(dump: &str) -> Vec<(String, u32, Vec<String>)> {
    let mut threads: Vec<(String, u32, Vec<String>)> = Vec::new();
    for line in dump.lines() {
        if let Some(rest) = line.strip_prefix('"') {
            let name = rest.split('"').next().unwrap_or("").to_owned();
            let nid =
                line.split("nid=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("0");
            let tid = match nid.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => nid.parse(),
            };
            threads.push((name, tid.unwrap_or(0), Vec::new()));
        } else if let Some(frame) = line.trim_start().strip_prefix("at ") {
            let (method, place) = frame.split_once('(').expect("a place in brackets");
            let method = without_address(method);
            let place = place.trim_end_matches(')').rsplit('/').next().unwrap_or("");
            let place = match place {
                "Native Method" => "native".to_owned(),
                place => place.rsplit_once(':').map_or("?", |(_, line)| line).to_owned(),
            };
            if let Some(thread) = threads.last_mut() {
                thread.2.push(format!("{method}:{place}"));
            }
        }
    }
    threads
}

/// Removes the address that JDK 11 prints after a hidden class but does not keep in its name.
fn without_address(method: &str) -> String {
    let Some((class, rest)) = method.split_once("/0x") else {
        return method.to_owned();
    };
    format!("{class}{}", rest.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()))
}

/// Instructions of the workload's classes by (class, method, descriptor, bci).
type Invokes = HashMap<(String, String, String, i32), String>;

fn invokes(classes: &std::path::Path) -> Invokes {
    let files = std::fs::read_dir(classes).expect("compiled").map(|entry| entry.expect("readable").path());
    let output = Command::new("javap").args(["-c", "-p", "-s"]).args(files).output().expect("javap runs");
    let mut found = Invokes::new();
    let (mut class, mut method, mut descriptor) = (String::new(), String::new(), String::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let trimmed = line.trim();
        if let Some(rest) = trimmed.strip_prefix("descriptor: ") {
            descriptor = rest.to_owned();
        } else if line.starts_with("  ") && !line.starts_with("   ") && trimmed.ends_with(';') {
            let declaration = trimmed.split('(').next().unwrap_or("");
            method = declaration.rsplit(' ').next().unwrap_or("").to_owned();
            if method == class {
                method = "<init>".to_owned();
            }
        } else if !line.starts_with(' ') && trimmed.ends_with('{') {
            let words: Vec<&str> = trimmed.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "class" || *word == "interface").expect("a class");
            class = words[at + 1].to_owned();
        } else if let Some((bci, instruction)) = trimmed.split_once(": ")
            && let Ok(bci) = bci.parse()
        {
            found.insert((class.clone(), method.clone(), descriptor.clone(), bci), instruction.to_owned());
        }
    }
    found
}

/// Describes the first caller of the workload whose instruction is no invoke of its callee.
fn contradiction(frames: &[(Frame, Option<Named>)], invokes: &Invokes) -> Option<String> {
    for pair in frames.windows(2) {
        let [(_, Some(callee)), (_, Some(caller))] = pair else {
            continue;
        };
        let Some(bci) = caller.bci else {
            if caller.native {
                continue;
            }
            return Some(format!("caller without bci: {caller:?}"));
        };
        let key = (caller.class.clone(), caller.name.clone(), caller.descriptor.clone(), bci);
        if !invokes.keys().any(|(class, ..)| *class == caller.class) {
            continue;
        }
        let instruction = invokes.get(&key).map_or("", String::as_str);
        let handle = instruction.contains("invokedynamic") || instruction.contains("MethodHandle.invoke");
        // The VM may call Java at any instruction to link or load a class.
        let upcall = callee.class.starts_with("java/lang/invoke") || callee.class.contains("Loader");
        let callee_name = format!("{}:", callee.name.replace('<', "\"<").replace('>', ">\""));
        let invoked = instruction.contains("invoke") && instruction.contains(&callee_name);
        if !invoked && !handle && !upcall {
            return Some(format!(
                "{}.{}@{bci} `{instruction}` -> {}",
                caller.class, caller.name, callee.name
            ));
        }
    }
    None
}

/// Compares quiet threads with the thread dump, frame by frame; returns the number of equal ones, and the others.
fn check_quiet(jvm: &Jvm, hotspot: &HotSpot, cache: &mut ScopeCache) -> (u32, Vec<String>) {
    let memory = jvm.memory();
    let dump = parse_dump(&jvm.thread_dump());
    let (mut equal, mut different) = (0, Vec::new());
    for thread in hotspot.java_threads(&memory) {
        let Some(tid) = hotspot.thread_id(&memory, thread) else {
            continue;
        };
        let Some((name, _, expected)) = dump.iter().find(|(_, id, _)| *id == tid) else {
            continue;
        };
        if !(name.starts_with("quiet-")
            || matches!(name.as_str(), "main" | "Finalizer" | "Reference Handler"))
        {
            continue;
        }
        let result = with_stopped(hotspot, &memory, thread, tid, |snapshot| {
            walk(hotspot, &memory, cache, &snapshot.capture, &snapshot.stack)
        });
        let Some((frames, stop)) = result else { continue };
        let found: Vec<String> =
            frames.iter().filter_map(|(_, named)| named.as_ref()).map(as_dumped).collect();
        if stop == Stop::EndOfStack && found == *expected {
            equal += 1;
        } else {
            let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
            let at = at.unwrap_or(found.len().min(expected.len()));
            different.push(format!(
                "{name}: {stop:?}, {} frames of {}, at {at}: {:?} for {:?}",
                found.len(),
                expected.len(),
                found.get(at),
                expected.get(at)
            ));
        }
    }
    (equal, different)
}

/// Results of the walks of busy threads.
#[derive(Default)]
struct Busy {
    walks: u32,
    complete: u32,
    /// Distinct (pc, sp): a thread that did not run between two stops is at the same place twice.
    places: BTreeSet<(u64, u64)>,
    /// Stops in Java without anchor, to which the rules for interrupted code apply.
    interrupted: u32,
    stops: BTreeMap<(String, &'static str), u32>,
    contradictions: Vec<String>,
    failures: Vec<String>,
}

fn check_busy(jvm: &Jvm, hotspot: &HotSpot, cache: &mut ScopeCache, invokes: &Invokes) -> Busy {
    let memory = jvm.memory();
    let dump = parse_dump(&jvm.thread_dump());
    let threads: Vec<(u64, u32, &str)> = hotspot
        .java_threads(&memory)
        .filter_map(|thread| {
            let tid = hotspot.thread_id(&memory, thread)?;
            let (name, ..) = dump.iter().find(|(name, id, _)| *id == tid && name.starts_with("busy-"))?;
            Some((thread, tid, name.as_str()))
        })
        .collect();
    let mut busy = Busy::default();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..stops_per_thread() {
        for &(thread, tid, name) in &threads {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if round % 4 == 0 {
                pause((random % 3) as u16);
            }
            let _ = with_stopped(hotspot, &memory, thread, tid, |snapshot| {
                let (frames, stop) = walk(hotspot, &memory, cache, &snapshot.capture, &snapshot.stack);
                count_walk(&mut busy, hotspot, &memory, name, snapshot, &frames, stop, invokes);
            });
        }
    }
    busy
}

#[allow(clippy::too_many_arguments)]
fn count_walk(
    busy: &mut Busy,
    hotspot: &HotSpot,
    memory: &RemoteMemory,
    name: &str,
    snapshot: &Snapshot,
    frames: &[(Frame, Option<Named>)],
    stop: Stop,
    invokes: &Invokes,
) {
    busy.walks += 1;
    busy.places.insert((snapshot.capture.pc, snapshot.capture.sp));
    let in_java = snapshot.capture.thread_state == u64::from(hotspot.thread_offsets().in_java);
    busy.interrupted += u32::from(in_java && snapshot.capture.anchor_sp == 0);
    let root = frames.iter().rev().find_map(|(_, named)| named.as_ref());
    let rooted = root.is_some_and(|root| root.class == "java/lang/Thread" && root.name == "run");
    if stop == Stop::EndOfStack && rooted {
        busy.complete += 1;
    } else {
        *busy.stops.entry((name.to_owned(), stop.name())).or_default() += 1;
        let capture = &snapshot.capture;
        let mut code = [0; 40];
        let _ = memory.read(capture.pc - 16, &mut code);
        let list: Vec<String> = frames
            .iter()
            .map(|(frame, named)| match (frame, named) {
                (_, Some(named)) => format!("{}@{:?}", named.name, named.bci),
                (Frame::Stub { blob, .. }, _) => {
                    let mut bytes = [0; 48];
                    let length = hotspot.blob_name(memory, *blob, &mut bytes).unwrap_or(0);
                    format!("[{}]", String::from_utf8_lossy(&bytes[..length]))
                }
                _ => "entry".to_owned(),
            })
            .collect();
        let on_stack: Vec<String> = snapshot
            .stack
            .as_chunks::<8>()
            .0
            .iter()
            .take(48)
            .enumerate()
            .filter_map(|(index, word)| {
                let word = u64::from_ne_bytes(*word);
                let blob = hotspot.blob_at(memory, Pc(word)).ok()?;
                let mut bytes = [0; 24];
                let length = hotspot.blob_name(memory, blob, &mut bytes).unwrap_or(0);
                let mut call = [0; 8];
                let _ = memory.read(word - 8, &mut call);
                Some(format!("{index}: {word:x} {} {call:02x?}", String::from_utf8_lossy(&bytes[..length])))
            })
            .collect();
        busy.failures.push(format!(
            "{name} {stop:x?} state {} pc {:x} sp {:x} fp {:x} anchor {:x} rbx {:x} r13 {:x} code {:02x?} | {:02x?} {:?} {:?}",
            capture.thread_state,
            capture.pc,
            capture.sp,
            capture.fp,
            capture.anchor_sp,
            capture.registers.rbx,
            capture.registers.r13,
            &code[..16],
            &code[16..],
            list,
            on_stack
        ));
    }
    if let Some(text) = contradiction(frames, invokes) {
        busy.contradictions.push(format!("{name}: {text}"));
    }
}

#[test]
fn walks_agree_with_the_vm() {
    let classes = compile("Stacks.java");
    let invokes = invokes(&classes);
    let mut problems = Vec::new();
    for Jdk { name, major, home } in jdks() {
        for (mode, flags) in MODES {
            if !is_selected(mode) {
                continue;
            }
            let jvm = Jvm::start(&home, flags, &classes, "Stacks");
            let hotspot = jvm.hotspot();
            assert_eq!(hotspot.jdk_major(), major);
            let mut cache = Box::new(ScopeCache::new());
            let (equal, different) = check_quiet(&jvm, &hotspot, &mut cache);
            let busy = check_busy(&jvm, &hotspot, &mut cache, &invokes);
            let share = 100.0 * f64::from(busy.complete) / f64::from(busy.walks.max(1));
            println!(
                "JDK {name} {mode}: quiet {equal} equal {} different; busy {} of {} complete ({share:.1} %), \
                 {} places, {} in Java without anchor, {} contradictions; {:?} {:?}",
                different.len(),
                busy.complete,
                busy.walks,
                busy.places.len(),
                busy.interrupted,
                busy.contradictions.len(),
                busy.stops,
                cache.stats()
            );
            for line in
                different.iter().chain(&busy.contradictions).take(12).chain(busy.failures.iter().take(
                    std::env::var("TICKWALK_SHOW").ok().and_then(|text| text.parse().ok()).unwrap_or(3),
                ))
            {
                println!("    {line}");
            }
            if equal < 6 || !different.is_empty() || share < 98.0 || !busy.contradictions.is_empty() {
                problems.push(format!("JDK {name} {mode}"));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn walks_of_mounted_virtual_threads_end_at_their_root_or_at_frozen_frames() {
    let classes = compile("Virtual.java");
    for Jdk { name, home, .. } in jdks().into_iter().filter(|jdk| jdk.major >= 21) {
        let jvm = Jvm::start(&home, &["-Djdk.virtualThreadScheduler.parallelism=2"], &classes, "Virtual");
        let (hotspot, memory) = (jvm.hotspot(), jvm.memory());
        let mut cache = Box::new(ScopeCache::new());
        let mut stops: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
        let mut walks = 0;
        for _ in 0..stops_per_thread() {
            pause(1);
            for thread in hotspot.java_threads(&memory) {
                let Some(tid) = hotspot.thread_id(&memory, thread) else {
                    continue;
                };
                // Thread dumps leave out carriers.
                let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", jvm.pid()));
                // Shortened by JDK 26 and later to `ForkJoi..rker-1`.
                if !name.is_ok_and(|name| name.starts_with("ForkJoi")) {
                    continue;
                }
                with_stopped(&hotspot, &memory, thread, tid, |Snapshot { capture, stack }| {
                    let (frames, stop) = walk(&hotspot, &memory, &mut cache, capture, stack);
                    let root = frames.iter().rev().find_map(|(_, named)| named.as_ref());
                    let root = root.map_or(String::new(), |root| format!("{}.{}", root.class, root.name));
                    // A platform thread of JDK 25 with the same name prefix.
                    if root != "java/util/concurrent/DelayScheduler.run" {
                        *stops.entry((stop.name(), root)).or_default() += 1;
                        walks += 1;
                    }
                });
            }
        }
        println!("JDK {name} virtual threads: {stops:?}");
        let count = |stop: Stop, root: &str| stops.get(&(stop.name(), root.to_owned())).copied().unwrap_or(0);
        let complete = count(Stop::EndOfContinuation, "jdk/internal/vm/Continuation.enter");
        let frozen = count(Stop::ContinuationBarrier, "Virtual.descend");
        assert!(complete > 0 && frozen > 0, "JDK {name}");
        assert!(f64::from(complete + frozen) >= 0.98 * f64::from(walks), "JDK {name}");
    }
}

/// Returns whether `variable` is set, which the tools among these tests require.
fn is_set(variable: &str) -> bool {
    let is_set = std::env::var_os(variable).is_some();
    if !is_set {
        eprintln!("not run: {variable} is not set");
    }
    is_set
}

/// Rewrites `tests/fixtures/jdk<NAME>-x86_64/stacks.bin`:
/// `TICKWALK_RECORD=1 TICKWALK_JDKS=... cargo test -p stackwalk attached_jvm::record_fixtures`
#[test]
fn record_fixtures() {
    if !is_set("TICKWALK_RECORD") {
        return;
    }
    let classes = compile("Stacks.java");
    let busy = ["busy-recursion", "busy-exception", "busy-text"];
    for Jdk { name: jdk, home, .. } in jdks() {
        let jvm = Jvm::start(&home, &["-XX:+UseSerialGC"], &classes, "Stacks");
        let is_recorded = |name: &str| name.starts_with("quiet-") || busy.contains(&name);
        recorded(&jvm, is_recorded, 1).store(&fixture_folder(&jdk).join("stacks.bin"));
    }
}

/// Rewrites `tests/fixtures/jdk<NAME>-x86_64/values.bin` of JDK 28 and later:
/// `TICKWALK_RECORD=1 TICKWALK_JDKS=... TICKWALK_JDK=28-sid cargo test -p stackwalk attached_jvm::
/// record_value_classes`
#[test]
fn record_value_classes() {
    if !is_set("TICKWALK_RECORD") {
        return;
    }
    for Jdk { name: jdk, home, .. } in jdks().into_iter().filter(|jdk| jdk.major >= 28) {
        let classes = compile_preview(&home, "Values.java");
        let flags = [&VALUE_CLASSES[..], &["-XX:+UseSerialGC"]].concat();
        let jvm = Jvm::start(&home, &flags, &classes, "Values");
        let fixture = recorded(&jvm, |name| name.starts_with("busy-"), VALUE_CLASS_STOPS);
        fixture.store(&fixture_folder(&jdk).join("values.bin"));
    }
}

/// Stops of each thread that are recorded with value classes: each is at another instruction.
const VALUE_CLASS_STOPS: u32 = 25;

fn fixture_folder(jdk: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/jdk{jdk}-x86_64"))
}

/// Records walks of the threads with these names, each stopped so many times.
fn recorded(jvm: &Jvm, is_recorded: impl Fn(&str) -> bool, stops: u32) -> Fixture {
    let memory = jvm.memory();
    let symbols = jvm.symbols();
    let (symbols, image) = reduced_tables(&|name| symbols.get(name).copied(), &memory);
    let dump = parse_dump(&jvm.thread_dump());
    // The compilers must finish first: code may not be replaced while the threads are recorded.
    pause(3000);
    let mut fixture = Fixture { symbols, ..Fixture::default() };
    fixture.regions.insert(tables_address(), image);
    let live = Overlaid { image: &fixture, process: &memory };
    let mut hotspot =
        HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &live).expect("complete");
    let recorder = Recorder { memory: &live, bytes: Default::default() };
    hotspot = HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &recorder).unwrap_or(hotspot);
    hotspot.start(&recorder).expect("started");
    let mut threads = Vec::new();
    for thread in hotspot.java_threads(&memory) {
        let Some(tid) = hotspot.thread_id(&memory, thread) else {
            continue;
        };
        let Some((name, ..)) = dump.iter().find(|(_, id, _)| *id == tid) else {
            continue;
        };
        let stops = if is_recorded(name) { stops } else { 0 };
        for _ in 0..stops {
            let recorded = with_stopped(&hotspot, &memory, thread, tid, |Snapshot { capture, stack }| {
                let mut cache = Box::new(ScopeCache::new());
                let (frames, stop) = walk(&hotspot, &recorder, &mut cache, capture, stack);
                let expected = as_text(&hotspot, &recorder, &frames, stop);
                // Again with the cache, so that the reads that check a hit are recorded.
                let _ = walk(&hotspot, &recorder, &mut cache, capture, stack);
                Thread::on_stack(name.clone(), *capture, stack.clone(), expected)
            });
            threads.extend(recorded);
        }
    }
    let mut regions = recorder.regions();
    regions.retain(|address, _| *address > tables_address() + (1 << 20));
    fixture.regions.extend(regions);
    fixture.threads = threads;
    fixture
}

/// A process with a copy of its code: code is read by direct loads, as in the agent, all else by system calls.
struct CodeCopied<'a> {
    ranges: Vec<(u64, Vec<u8>)>,
    process: &'a RemoteMemory,
    system_calls: std::cell::Cell<u32>,
}

impl Memory for CodeCopied<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        for (start, bytes) in &self.ranges {
            if let Some(offset) = address.checked_sub(*start)
                && let Some(found) = bytes.get(offset as usize..).and_then(|rest| rest.get(..into.len()))
            {
                into.copy_from_slice(found);
                return Ok(());
            }
        }
        self.system_calls.set(self.system_calls.get() + 1);
        self.process.read(address, into)
    }
}

/// Prints the cost of a warm walk:
/// `TICKWALK_MEASURE=1 TICKWALK_JDKS=... cargo test --release -p stackwalk attached_jvm::warm_walk_cost --
/// --nocapture`
#[test]
fn warm_walk_cost() {
    if !is_set("TICKWALK_MEASURE") {
        return;
    }
    let classes = compile("Stacks.java");
    for Jdk { name, home, .. } in jdks() {
        let jvm = Jvm::start(&home, &[], &classes, "Stacks");
        let (hotspot, memory) = (jvm.hotspot(), jvm.memory());
        let dump = parse_dump(&jvm.thread_dump());
        let copied = hotspot.code_ranges(&memory).map(|(start, end)| {
            let mut bytes = vec![0; (end - start) as usize];
            memory.read(start, &mut bytes).expect("committed");
            (start, bytes)
        });
        let live =
            CodeCopied { ranges: copied.collect(), process: &memory, system_calls: Default::default() };
        let (_, tid, _) = dump.iter().find(|(name, ..)| name == "quiet-recursion").expect("runs");
        let thread =
            hotspot.java_threads(&memory).find(|&thread| hotspot.thread_id(&memory, thread) == Some(*tid));
        let mut cache = Box::new(ScopeCache::new());
        with_stopped(&hotspot, &memory, thread.expect("runs"), *tid, |Snapshot { capture, stack }| {
            let mut once = || {
                let mut walker = Walker::new(&hotspot, &live, &mut cache, Limits::default());
                walker.frames(capture, stack).count()
            };
            let start = std::time::Instant::now();
            let frames = once();
            let cold = start.elapsed();
            const WALKS: u32 = 10_000;
            let start = std::time::Instant::now();
            for _ in 0..WALKS {
                assert_eq!(once(), frames);
            }
            let warm = start.elapsed() / WALKS;
            let calls = live.system_calls.get();
            println!(
                "JDK {name}: {frames} frames, cold {cold:?}, warm {warm:?}, {calls} system calls in all"
            );
            nix::sys::signal::kill(jvm.pid(), nix::sys::signal::Signal::SIGCONT).expect("own child");
        });
    }
}
