//! Records mounted virtual threads while their frames are frozen and thawed, to `frozen-*.bin` of `tests/fixtures`.
//!
//! A carrier is stopped after every instruction of a few rounds of `Mounted`. Its state is determined without the
//! rules of the walk: from the code it executes, its previous state, and the start of the newest chunk, which changes
//! when frames are frozen or thawed. One sample of each moment is kept; `tests/frozen.rs` walks them.
//!
//! `TICKWALK_RECORD=1 TICKWALK_JDKS=... cargo test -p stackwalk record_frozen:: -- --nocapture`

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::support::fixture::{
    Fixture, FrozenCopy, Overlaid, Recorder, Returning, Thread, reduced_tables, tables_address,
};
use crate::support::frozen::MOMENTS;
use crate::support::walks::{Named, as_text, walk_mounted};
use crate::support::{Jdk, Jvm, RemoteMemory, Snapshot, compile, frozen, jdks, pause, step_through};
use stackwalk::{
    Capture, Frame, Frozen, FrozenOffsets, HotSpot, Memory, NativeCode, NativeRegisters, Pc, ScopeCache,
};

/// Returns the maximum number of instructions to step; TICKWALK_STEPS overrides. One round has all moments.
fn steps() -> u32 {
    std::env::var("TICKWALK_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(500_000)
}

/// Bytes of the carrier's own frames that are kept; a walk of a virtual thread must not use them.
const CARRIER_BYTES: u64 = 512;

const COMMON: [&str; 6] = [
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.vm=ALL-UNNAMED",
    "-Djdk.virtualThreadScheduler.parallelism=1",
    "-Djdk.virtualThreadScheduler.maxPoolSize=1",
    "-XX:CompileCommand=quiet",
    "-XX:CompileCommand=dontinline,Mounted::*",
];

/// Name of the file, and flags. In `mixed` every other frame of the recursion and the caller of `doYield` are
/// interpreted.
const MODES: [(&str, &[&str]); 2] = [
    ("compiled", &["-XX:+UseSerialGC", "-Dmounted.depth=44", "-Dmounted.again=44"]),
    (
        "mixed",
        &[
            "-XX:+UseG1GC",
            "-Dmounted.depth=10",
            "-Dmounted.again=4",
            "-XX:CompileCommand=exclude,Mounted::odd",
            "-XX:CompileCommand=exclude,jdk.internal.vm.Continuation::yield0",
        ],
    ),
];

type Frames = [(Frame, Option<Named>)];

/// Activity of a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
    /// Running or calling compiled or interpreted methods.
    Java,
    /// `Continuation.doYield` or C code it called.
    Yield,
    /// A stub that thaws frames, or C code it called.
    Thaw,
}

/// State of the carrier, from the previous steps.
struct History {
    activity: Activity,
    /// True if the thread has yielded and is not thawed yet; unknown until its first yield or Java code.
    yielded: Option<bool>,
    /// Start of the newest chunk when the current activity began.
    chunk: Option<u64>,
    in_code: bool,
    sp: u64,
    /// Registers with which the running C code returns to VM code.
    returning: Option<Returning>,
    /// True if the C code that thaws frames was called.
    called_thaw: bool,
    barrier: Option<u64>,
}

/// Most bytes that a stub pushes before it reserves stack for frames: two registers, and a word of alignment.
const MOST_SAVED: u64 = 32;

/// Returns whether the next instruction is one after the last call at which the newest frame's pc is unknown: `add rsp,
/// 8` and `jmp`, which undo the alignment of the stack, and `sub rsp, 16`, which moves sp below that pc.
fn is_between(memory: &RemoteMemory, pc: u64) -> bool {
    let mut code = [0; 4];
    let is_read = memory.read(pc, &mut code).is_ok();
    is_read && matches!(code, [0x48, 0x83, 0xc4, 8] | [0xe9 | 0xeb, ..] | [0x48, 0x83, 0xec, 0x10])
}

/// Returns whether the next instructions are `pop rbp; ret`, or the second of them.
fn is_leaving(memory: &RemoteMemory, pc: u64) -> bool {
    let mut code = [0; 2];
    memory.read(pc, &mut code).is_ok() && (code == [0x5d, 0xc3] || code[0] == 0xc3)
}

/// Returns the address of the first `mov rsp, [r15 + offset]` after `blob`.
fn find_barrier(memory: &RemoteMemory, blob: u64) -> u64 {
    let mut code = vec![0; 2048];
    memory.read(blob, &mut code).expect("code");
    let at = code.windows(3).position(|code| code == [0x49, 0x8b, 0xa7]).expect("the barrier");
    blob + at as u64
}

impl History {
    const EMPTY: Self = Self {
        activity: Activity::Java,
        yielded: None,
        chunk: None,
        in_code: false,
        sp: 0,
        returning: None,
        called_thaw: false,
        barrier: None,
    };

    /// Records the call that led to C code; must be called at every step.
    fn follow(&mut self, hotspot: &HotSpot, Snapshot { capture, stack }: &Snapshot) {
        let in_code = hotspot.is_code(capture.pc);
        let top = stack.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        if in_code {
            self.returning = None;
        } else if self.in_code && capture.sp.wrapping_add(8) == self.sp && hotspot.is_code(top) {
            let registers = NativeRegisters::of(capture);
            self.returning = Some(Returning(NativeRegisters {
                pc: top,
                sp: capture.sp.wrapping_add(8),
                interrupted: false,
                ..registers
            }));
        }
        (self.in_code, self.sp) = (in_code, capture.sp);
    }

    /// Returns the name of the moment, if it is recorded.
    fn moment(
        &mut self,
        hotspot: &HotSpot,
        memory: &RemoteMemory,
        capture: &Capture,
        frames: &Frames,
        frozen: &FrozenCopy,
    ) -> Option<String> {
        let pc = capture.pc;
        let newest = frames.iter().find_map(|(_, named)| named.as_ref()).map(|named| named.name.as_str());
        let code = if self.in_code { pc } else { self.returning.as_ref()?.0.pc };
        let blob = hotspot.blob_at(memory, Pc(code)).ok()?;
        let mut name = [0; 48];
        let length = hotspot.blob_name(memory, blob, &mut name).ok()?;
        let activity = if name[..length].starts_with(b"StubRoutines (cont") {
            Activity::Thaw
        } else if newest == Some("doYield") {
            Activity::Yield
        } else {
            Activity::Java
        };
        if activity == Activity::Thaw {
            self.barrier.get_or_insert_with(|| find_barrier(memory, blob.0));
        }
        let chunk = frozen.chunks.first().map(|(base, _)| *base);
        if activity != self.activity {
            (self.activity, self.chunk, self.called_thaw) = (activity, chunk, false);
        }
        match activity {
            Activity::Java => self.yielded = Some(false),
            Activity::Yield => self.yielded = Some(true),
            Activity::Thaw => {}
        }
        let chunk_changed = chunk != self.chunk;
        let sp = if self.in_code { self.sp } else { self.returning.as_ref()?.0.sp };
        let has_reserved = sp.saturating_add(MOST_SAVED) < capture.cont_entry;
        self.called_thaw |= activity == Activity::Thaw && !self.in_code && has_reserved;
        // Known once a stub was met.
        let barrier = self.barrier?;
        let newest_pc = frozen.chunks.first().and_then(|(_, bytes)| bytes.get(8..)?.first_chunk::<8>());
        let unpatched = newest_pc.is_some_and(|pc| u64::from_le_bytes(*pc) == barrier);
        let what = match activity {
            Activity::Java if newest == Some("work") && self.in_code => match frozen.chunks.len() {
                0 => return None,
                1 => "running over one chunk",
                _ => "running over two chunks",
            },
            Activity::Java => return None,
            Activity::Yield => match (unpatched, chunk_changed, chunk) {
                (true, ..) => "yield, not patched",
                // All frames are on the stack throughout.
                (false, true, _) if self.chunk.is_none() => return None,
                (false, true, _) => "yield, copied",
                (false, false, None) => "yield, all on the stack",
                (false, false, Some(_)) => "yield, some on the stack",
            },
            Activity::Thaw if pc == barrier => "at the return barrier",
            // Frames are thawed, after a yield or a return; only after a yield is their number known.
            Activity::Thaw if self.in_code && (self.called_thaw || is_leaving(memory, pc)) => {
                match self.yielded? {
                    true if !is_between(memory, pc) => "thaw about to return",
                    _ => return None,
                }
            }
            // The former frames of an empty chunk are unknown.
            Activity::Thaw if frozen.emptied => return None,
            Activity::Thaw => match (self.yielded?, chunk_changed, has_reserved) {
                (true, false, _) => "thaw after a yield",
                (true, true, _) => "thaw after a yield, taken out",
                (false, _, false) => "thaw after a return",
                (false, _, true) => "thaw after a return, with room",
            },
        };
        // A thaw that has emptied the chunk is not recorded.
        if what != "yield, all on the stack" && chunk.is_none() {
            return None;
        }
        Some(format!("{what}{}", if self.in_code { "" } else { ", in C code" }))
    }
}

/// The samples of one JVM.
struct Recording<'a> {
    hotspot: &'a HotSpot,
    process: &'a RemoteMemory,
    recorder: &'a Recorder<'a, Overlaid<'a, RemoteMemory>>,
    offsets: FrozenOffsets,
    history: History,
    cache: Box<ScopeCache>,
    /// Number of samples of each moment, and the kept one.
    found: BTreeMap<String, (u32, Thread)>,
    /// Number of samples by moment and stop reason.
    ends: BTreeMap<(String, &'static str), u32>,
}

impl Recording<'_> {
    fn add(&mut self, snapshot: &Snapshot) -> ControlFlow<()> {
        self.record_moment(snapshot);
        match self.found.len() {
            found if found < MOMENTS.len() => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    fn record_moment(&mut self, snapshot: &Snapshot) {
        self.history.follow(self.hotspot, snapshot);
        let Snapshot { capture, stack } = snapshot;
        if !self.offsets.is_entered(capture.cont_entry, capture.pc, capture.sp)
            || (!self.history.in_code && self.history.returning.is_none())
        {
            return;
        }
        let frozen = frozen::copy(self.process, capture, &self.offsets);
        let mut native = self.history.returning;
        let tables = native.as_mut().map(|native| native as &mut dyn NativeCode);
        let (frames, stop) = walk_mounted(
            self.hotspot,
            self.process,
            &mut self.cache,
            tables,
            (capture, stack),
            frozen.as_frozen(),
        );
        let Some(name) = self.history.moment(self.hotspot, self.process, capture, &frames, &frozen) else {
            return;
        };
        *self.ends.entry((name.clone(), stop.name())).or_default() += 1;
        let count = self.found.get(&name).map_or(0, |(count, _)| *count) + 1;
        // Later samples are further from the first instruction of the activity.
        if count.is_power_of_two() && count <= 256 {
            let thread = self.record(&name, snapshot, frozen, native);
            self.found.insert(name, (count, thread));
        } else if let Some((total, _)) = self.found.get_mut(&name) {
            *total = count;
        }
    }

    /// Records every byte that a repeated walk reads: with an empty and a filled cache, with and without frozen
    /// frames and native code.
    fn record(
        &self,
        name: &str,
        snapshot: &Snapshot,
        frozen: FrozenCopy,
        native: Option<Returning>,
    ) -> Thread {
        let Snapshot { capture, stack } = snapshot;
        let stack =
            &stack[..stack.len().min((capture.cont_entry + CARRIER_BYTES - capture.stack_low) as usize)];
        let mut expected = String::new();
        let mut cache = Box::new(ScopeCache::new());
        for (with_frozen, with_native) in [(false, true), (true, false), (true, true), (true, true)] {
            let mut native = native.filter(|_| with_native);
            let (frames, stop) = walk_mounted(
                self.hotspot,
                self.recorder,
                &mut cache,
                native.as_mut().map(|native| native as &mut dyn NativeCode),
                (capture, stack),
                if with_frozen { frozen.as_frozen() } else { Frozen::NONE },
            );
            expected = as_text(self.hotspot, self.recorder, &frames, stop);
        }
        Thread { name: name.to_owned(), capture: *capture, stack: stack.to_vec(), expected, frozen, native }
    }
}

#[test]
fn record_frozen() {
    if std::env::var_os("TICKWALK_RECORD").is_none() {
        eprintln!("not run: TICKWALK_RECORD is not set");
        return;
    }
    let classes = compile("Mounted.java");
    for Jdk { name, home, .. } in jdks().into_iter().filter(|jdk| jdk.major >= 21) {
        for (mode, flags) in MODES {
            let flags: Vec<&str> = COMMON.iter().chain(flags).copied().collect();
            let jvm = Jvm::start(&home, &flags, &classes, "Mounted");
            // The compilers must finish first: code may not be replaced while it is stepped through.
            pause(2000);
            let fixture = record(&name, &jvm);
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
            fixture.store(&folder.join(format!("jdk{name}-x86_64/frozen-{mode}.bin")));
        }
    }
}

/// Returns the only carrier; waits until it runs a continuation.
fn carrier(jvm: &Jvm, hotspot: &HotSpot, memory: &RemoteMemory) -> (u64, u32) {
    let entry = u64::from(hotspot.thread_offsets().cont_entry.expect("known"));
    let is_carrier = |(thread, tid): &(u64, u32)| {
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", jvm.pid()));
        comm.is_ok_and(|comm| comm.starts_with("ForkJoi"))
            && memory.read_u64(thread + entry).is_ok_and(|entry| entry != 0)
    };
    loop {
        let threads = hotspot.java_threads(memory);
        let mut known = threads.filter_map(|thread| Some((thread, hotspot.thread_id(memory, thread)?)));
        if let Some(found) = known.find(is_carrier) {
            return found;
        }
    }
}

fn record(jdk: &str, jvm: &Jvm) -> Fixture {
    let (memory, symbols) = (jvm.memory(), jvm.symbols());
    let (symbols, image) = reduced_tables(&|name| symbols.get(name).copied(), &memory);
    let mut fixture = Fixture { symbols, ..Fixture::default() };
    fixture.regions.insert(tables_address(), image);
    let live = Overlaid { image: &fixture, process: &memory };
    let recorder = Recorder { memory: &live, bytes: Default::default() };
    let mut hotspot =
        HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &recorder).expect("complete");
    hotspot.start(&recorder).expect("started");
    let mut recording = Recording {
        hotspot: &hotspot,
        process: &memory,
        recorder: &recorder,
        offsets: frozen::offsets(jvm, &jvm.hotspot()),
        history: History::EMPTY,
        cache: Box::new(ScopeCache::new()),
        found: BTreeMap::new(),
        ends: BTreeMap::new(),
    };
    let (thread, tid) = carrier(jvm, &hotspot, &memory);
    step_through(&hotspot, &memory, thread, tid, steps(), |snapshot| recording.add(snapshot));
    let mut problems = Vec::new();
    for ((moment, stop), count) in &recording.ends {
        println!("JDK {jdk}: {count:6} {moment}: {stop}");
        if !MOMENTS.iter().any(|(name, expected)| name == moment && expected.name() == *stop) {
            problems.push(format!("{moment}: {stop}"));
        }
    }
    let missing = MOMENTS.iter().filter(|(name, _)| !recording.found.contains_key(*name));
    problems.extend(missing.map(|(name, _)| format!("never met: {name}")));
    assert!(problems.is_empty(), "JDK {jdk}: {problems:#?}");
    let threads: Vec<Thread> = recording.found.into_values().map(|(_, thread)| thread).collect();
    if std::env::var_os("TICKWALK_SHOW").is_some() {
        threads.iter().for_each(|thread| println!("JDK {jdk}: {}\n{}", thread.name, thread.expected));
    }
    let mut regions = recorder.regions();
    regions.retain(|address, _| *address > tables_address() + (1 << 20));
    fixture.regions.extend(regions);
    fixture.threads = threads;
    fixture
}
