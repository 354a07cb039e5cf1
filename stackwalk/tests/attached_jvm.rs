//! Walks real JVMs from outside and compares with what they say about themselves.
//!
//! Quiet threads: the list of methods and lines must equal the JVM's own thread dump.
//! Busy threads, stopped at arbitrary instructions: the walk must reach the thread's root, and every caller
//! must stand at an invoke of its callee according to the class file.
//!
//! `TICKWALK_JDKS=<folder with JAVA_HOMEs 11 17 21 25> cargo test -p stackwalk --test attached_jvm -- --nocapture`

mod support;

use stackwalk::{Frame, HotSpot, Limits, Memory, Method, Pc, ScopeCache, Stop, Symbol, Walker};
use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use support::{Jvm, RemoteMemory, Snapshot, compile, jdks, pause, with_stopped};

/// Stops of each busy thread; TICKWALK_STOPS overrides.
fn stops_per_thread() -> u32 {
    std::env::var("TICKWALK_STOPS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Modes to run, all if TICKWALK_MODE is unset.
fn wanted(mode: &str, major: u32) -> bool {
    let is = |variable: &str, value: &str| std::env::var(variable).map_or(true, |wanted| wanted == value);
    is("TICKWALK_MODE", mode) && is("TICKWALK_JDK", &major.to_string())
}

const MODES: [(&str, &[&str]); 4] = [
    ("default", &[]),
    ("interpreter", &["-Xint"]),
    ("c1", &["-XX:TieredStopAtLevel=1"]),
    ("non-safepoints", &["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints", "-XX:+UseParallelGC"]),
];

/// A frame with its names.
#[derive(Clone, Debug)]
struct Named {
    class: String,
    name: String,
    descriptor: String,
    bci: Option<i32>,
    line: Option<u16>,
    native: bool,
}

fn text(hotspot: &HotSpot, memory: &RemoteMemory, symbol: Symbol) -> String {
    let mut bytes = vec![0; 65_535];
    let length = hotspot.read_symbol(memory, symbol, &mut bytes).expect("a live symbol");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn named(hotspot: &HotSpot, memory: &RemoteMemory, frame: &Frame, method: Method) -> Named {
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

/// One walk of a snapshot: its frames, Java ones named, and why it ended.
fn walk(
    hotspot: &HotSpot,
    memory: &RemoteMemory,
    cache: &mut ScopeCache,
    snapshot: &Snapshot,
) -> (Vec<(Frame, Option<Named>)>, Stop) {
    let mut walker = Walker::new(hotspot, memory, cache, Limits::default());
    let mut frames = walker.frames(&snapshot.capture, &snapshot.stack);
    let found: Vec<Frame> = frames.by_ref().collect();
    let stop = frames.stop();
    let name = |frame: Frame| {
        let named = frame.method().map(|method| named(hotspot, memory, &frame, method));
        (frame, named)
    };
    (found.into_iter().map(name).collect(), stop)
}

/// Threads of a JVM's dump: name, kernel id and frames as `class.method:line`.
fn parse_dump(dump: &str) -> Vec<(String, u32, Vec<String>)> {
    let mut threads: Vec<(String, u32, Vec<String>)> = Vec::new();
    for line in dump.lines() {
        if let Some(rest) = line.strip_prefix('"') {
            let name = rest.split('"').next().unwrap_or("").to_owned();
            let nid = line.split("nid=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("0");
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

/// A method of a hidden class without the address that JDK 11 prints but does not keep in the name.
fn without_address(method: &str) -> String {
    let Some((class, rest)) = method.split_once("/0x") else { return method.to_owned() };
    format!("{class}{}", rest.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()))
}

/// A frame as the thread dump prints it, without the addresses of hidden classes.
fn as_dumped(frame: &Named) -> String {
    let line = match frame.line {
        _ if frame.native => "native".to_owned(),
        Some(line) => line.to_string(),
        None => "?".to_owned(),
    };
    let class = frame.class.split("+0x").next().unwrap_or("").replace('/', ".");
    format!("{class}.{}:{line}", frame.name)
}

/// (class, method, descriptor, bci) -> instruction, of the workload's classes.
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
            let head = trimmed.split('(').next().unwrap_or("");
            method = head.rsplit(' ').next().unwrap_or("").to_owned();
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

/// Whether every caller of the workload stands at an invoke of its callee; else a description.
fn contradiction(frames: &[(Frame, Option<Named>)], invokes: &Invokes) -> Option<String> {
    for pair in frames.windows(2) {
        let [(_, Some(callee)), (_, Some(caller))] = pair else { continue };
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
        // Linking and class loading are upcalls of the VM at any instruction that needs them.
        let upcall = callee.class.starts_with("java/lang/invoke") || callee.class.contains("Loader");
        let wanted = format!("{}:", callee.name.replace('<', "\"<").replace('>', ">\""));
        if !(instruction.contains("invoke") && instruction.contains(&wanted)) && !handle && !upcall {
            return Some(format!("{}.{}@{bci} `{instruction}` -> {}", caller.class, caller.name, callee.name));
        }
    }
    None
}

/// Quiet threads must match the JVM's dump frame by frame.
fn check_quiet(jvm: &Jvm, hotspot: &HotSpot, cache: &mut ScopeCache) -> (u32, Vec<String>) {
    let memory = jvm.memory();
    let dump = parse_dump(&jvm.thread_dump());
    let (mut equal, mut different) = (0, Vec::new());
    for thread in hotspot.java_threads(&memory) {
        let Some(tid) = hotspot.thread_id(&memory, thread) else { continue };
        let Some((name, _, expected)) = dump.iter().find(|(_, id, _)| *id == tid) else { continue };
        if !(name.starts_with("quiet-") || matches!(name.as_str(), "main" | "Finalizer" | "Reference Handler")) {
            continue;
        }
        let result = with_stopped(hotspot, &memory, thread, tid, |snapshot| walk(hotspot, &memory, cache, snapshot));
        let Some((frames, stop)) = result else { continue };
        let found: Vec<String> = frames.iter().filter_map(|(_, named)| named.as_ref()).map(as_dumped).collect();
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

/// What happened to the stops of busy threads.
#[derive(Default)]
struct Busy {
    walks: u32,
    complete: u32,
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
                let (frames, stop) = walk(hotspot, &memory, cache, snapshot);
                judge(&mut busy, hotspot, &memory, name, snapshot, &frames, stop, invokes);
            });
        }
    }
    busy
}

#[allow(clippy::too_many_arguments)]
fn judge(
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
            capture.rbx,
            capture.r13,
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
    for (major, home) in jdks() {
        for (mode, flags) in MODES {
            if !wanted(mode, major) {
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
                "JDK {major} {mode}: quiet {equal} equal {} different; busy {} of {} whole ({share:.1} %), \
                 {} contradictions; {:?} {:?}",
                different.len(),
                busy.complete,
                busy.walks,
                busy.contradictions.len(),
                busy.stops,
                cache.stats()
            );
            for line in different.iter().chain(&busy.contradictions).take(12).chain(busy.failures.iter().take(
                std::env::var("TICKWALK_SHOW").ok().and_then(|text| text.parse().ok()).unwrap_or(3),
            )) {
                println!("    {line}");
            }
            if equal < 6 || !different.is_empty() || share < 98.0 || !busy.contradictions.is_empty() {
                problems.push(format!("JDK {major} {mode}"));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}
