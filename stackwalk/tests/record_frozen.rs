//! Records mounted virtual threads while their frames go to the heap and come back: `frozen-*.bin` of `tests/fixtures`.
//!
//! A carrier is stopped after every instruction of a few rounds of `Mounted`. What it was doing is told without the
//! rules of the walk: by the code it is in, by what it did before, and by the chunk, whose beginning moves when frames
//! were put in or taken out. One sample of each such moment is kept; `tests/frozen.rs` repeats them.
//!
//! `TICKWALK_RECORD=1 TICKWALK_JDKS=... cargo test -p stackwalk --test record_frozen -- --nocapture`

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stackwalk::{
    Capture, Frame, Frozen, FrozenOffsets, HotSpot, Memory, NativeCode, NativeRegisters, Pc, ScopeCache,
};
use support::fixture::{
    Fixture, FrozenCopy, Overlaid, Recorder, Returning, Thread, reduced_tables, tables_address,
};
use support::frozen::MOMENTS;
use support::walks::{Named, as_text, walk_mounted};
use support::{Jdk, Jvm, RemoteMemory, Snapshot, compile, frozen, jdks, pause, step_through};

/// Instructions of the carrier that are looked at, at most; TICKWALK_STEPS overrides. One round has all moments.
fn steps() -> u32 {
    std::env::var("TICKWALK_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(500_000)
}

/// Bytes of the carrier's own frames that are kept: no walk of a virtual thread has any business there.
const CARRIER_BYTES: u64 = 512;

const COMMON: [&str; 6] = [
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.vm=ALL-UNNAMED",
    "-Djdk.virtualThreadScheduler.parallelism=1",
    "-Djdk.virtualThreadScheduler.maxPoolSize=1",
    "-XX:CompileCommand=quiet",
    "-XX:CompileCommand=dontinline,Mounted::*",
];

/// Name of the file and flags. In the second every other frame of the recursion is interpreted, and so is the caller of
/// `doYield`.
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

/// What a carrier is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    /// Running or calling compiled or interpreted methods.
    Java,
    /// `Continuation.doYield` or C code it called.
    Yield,
    /// A stub that brings frames back, or C code it called.
    Thaw,
}

/// What the steps before tell of the present one.
struct Past {
    doing: Doing,
    /// Whether the thread has yielded and not come back since; not known of the first one that is met on its way.
    yielded: Option<bool>,
    /// Where the newest chunk began when the thread began what it does.
    chunk: Option<u64>,
    in_code: bool,
    sp: u64,
    /// Where the running C code returns to VM code.
    returning: Option<Returning>,
    /// Whether the C code was called that takes frames out.
    took: bool,
    barrier: Option<u64>,
}

/// Most bytes that a stub saves before it makes room for frames: two registers, and a word to align the stack.
const MOST_SAVED: u64 = 32;

/// Whether the next instruction is one of those behind the last call at which the newest frame's pc is not known: `add
/// rsp, 8` and `jmp`, which undo what was done to align the stack for it, and `sub rsp, 16`, below which it lies.
fn is_between(memory: &RemoteMemory, pc: u64) -> bool {
    let mut code = [0; 4];
    let is_read = memory.read(pc, &mut code).is_ok();
    is_read && matches!(code, [0x48, 0x83, 0xc4, 8] | [0xe9 | 0xeb, ..] | [0x48, 0x83, 0xec, 0x10])
}

/// Whether the next instructions are `pop rbp; ret`, or the second of them.
fn is_leaving(memory: &RemoteMemory, pc: u64) -> bool {
    let mut code = [0; 2];
    memory.read(pc, &mut code).is_ok() && (code == [0x5d, 0xc3] || code[0] == 0xc3)
}

/// The first `mov rsp, [r15 + offset]` behind `blob`.
fn find_barrier(memory: &RemoteMemory, blob: u64) -> u64 {
    let mut code = vec![0; 2048];
    memory.read(blob, &mut code).expect("code");
    let at = code.windows(3).position(|code| code == [0x49, 0x8b, 0xa7]).expect("the barrier");
    blob + at as u64
}

impl Past {
    const NOTHING: Self = Self {
        doing: Doing::Java,
        yielded: None,
        chunk: None,
        in_code: false,
        sp: 0,
        returning: None,
        took: false,
        barrier: None,
    };

    /// Notes which call led to C code; to be done at every step.
    fn follow(&mut self, hotspot: &HotSpot, Snapshot { capture, stack }: &Snapshot) {
        let in_code = hotspot.is_code(capture.pc);
        let top = stack.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        if in_code {
            self.returning = None;
        } else if self.in_code && capture.sp.wrapping_add(8) == self.sp && hotspot.is_code(top) {
            let registers = NativeRegisters::of(capture);
            self.returning =
                Some(Returning(NativeRegisters { pc: top, sp: capture.sp.wrapping_add(8), ..registers }));
        }
        (self.in_code, self.sp) = (in_code, capture.sp);
    }

    /// Name of the moment, if it is one of those to keep.
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
        let doing = if name[..length].starts_with(b"StubRoutines (cont") {
            Doing::Thaw
        } else if newest == Some("doYield") {
            Doing::Yield
        } else {
            Doing::Java
        };
        if doing == Doing::Thaw {
            self.barrier.get_or_insert_with(|| find_barrier(memory, blob.0));
        }
        let chunk = frozen.chunks.first().map(|(base, _)| *base);
        if doing != self.doing {
            (self.doing, self.chunk, self.took) = (doing, chunk, false);
        }
        match doing {
            Doing::Java => self.yielded = Some(false),
            Doing::Yield => self.yielded = Some(true),
            Doing::Thaw => {}
        }
        let moved = chunk != self.chunk;
        let sp = if self.in_code { self.sp } else { self.returning.as_ref()?.0.sp };
        let room = sp.saturating_add(MOST_SAVED) < capture.cont_entry;
        self.took |= doing == Doing::Thaw && !self.in_code && room;
        // Found when the first stub was seen.
        let barrier = self.barrier?;
        let newest_pc = frozen.chunks.first().and_then(|(_, bytes)| bytes.get(8..)?.first_chunk::<8>());
        let unpatched = newest_pc.is_some_and(|pc| u64::from_le_bytes(*pc) == barrier);
        let what = match doing {
            Doing::Java if newest == Some("work") && self.in_code => match frozen.chunks.len() {
                0 => return None,
                1 => "running over one chunk",
                _ => "running over two chunks",
            },
            Doing::Java => return None,
            Doing::Yield => match (unpatched, moved, chunk) {
                (true, ..) => "yield, not patched",
                // Frames that were all on the stack still are.
                (false, true, _) if self.chunk.is_none() => return None,
                (false, true, _) => "yield, copied",
                (false, false, None) => "yield, all on the stack",
                (false, false, Some(_)) => "yield, some on the stack",
            },
            Doing::Thaw if pc == barrier => "at the return barrier",
            // Back on the stack after a yield or a return: known of a yield alone how many.
            Doing::Thaw if self.in_code && (self.took || is_leaving(memory, pc)) => match self.yielded? {
                true if !is_between(memory, pc) => "thaw about to return",
                _ => return None,
            },
            // Of those that a chunk had which is empty nothing is known.
            Doing::Thaw if frozen.emptied => return None,
            Doing::Thaw => match (self.yielded?, moved, room) {
                (true, false, _) => "thaw after a yield",
                (true, true, _) => "thaw after a yield, taken out",
                (false, _, false) => "thaw after a return",
                (false, _, true) => "thaw after a return, with room",
            },
        };
        // Once a thaw has emptied the chunk there is nothing to be mistaken about.
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
    past: Past,
    cache: Box<ScopeCache>,
    /// How often a moment was seen, and the one kept.
    found: BTreeMap<String, (u32, Thread)>,
    /// Moments by how their walks ended.
    ends: BTreeMap<(String, &'static str), u32>,
}

impl Recording<'_> {
    fn look(&mut self, snapshot: &Snapshot) -> ControlFlow<()> {
        self.note(snapshot);
        match self.found.len() {
            found if found < MOMENTS.len() => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    fn note(&mut self, snapshot: &Snapshot) {
        self.past.follow(self.hotspot, snapshot);
        let Snapshot { capture, stack } = snapshot;
        if !self.offsets.is_entered(capture.cont_entry, capture.pc, capture.sp)
            || (!self.past.in_code && self.past.returning.is_none())
        {
            return;
        }
        let in_java = self.hotspot.thread_offsets().in_java;
        let frozen = frozen::copy(self.process, capture, &self.offsets, in_java);
        let mut native = self.past.returning;
        let tables = native.as_mut().map(|native| native as &mut dyn NativeCode);
        let (frames, stop) = walk_mounted(
            self.hotspot,
            self.process,
            &mut self.cache,
            tables,
            (capture, stack),
            frozen.as_frozen(),
        );
        let Some(name) = self.past.moment(self.hotspot, self.process, capture, &frames, &frozen) else {
            return;
        };
        *self.ends.entry((name.clone(), stop.name())).or_default() += 1;
        let seen = self.found.get(&name).map_or(0, |(seen, _)| *seen) + 1;
        // Later ones are further from the first instruction of what is being done.
        if seen.is_power_of_two() && seen <= 256 {
            let thread = self.record(&name, snapshot, frozen, native);
            self.found.insert(name, (seen, thread));
        } else if let Some((count, _)) = self.found.get_mut(&name) {
            *count = seen;
        }
    }

    /// Walks so that every byte is noted that a repeated walk reads: cold, warm, and without what is not on the stack.
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
            // Let the compilers finish: code that is replaced while it is stepped through tells nothing.
            pause(2000);
            let fixture = record(&name, &jvm);
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
            fixture.store(&folder.join(format!("jdk{name}-x86_64/frozen-{mode}.bin")));
        }
    }
}

/// The one thread that runs a continuation, most of the time.
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
    let recorder = Recorder { memory: &live, seen: Default::default() };
    let mut hotspot =
        HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &recorder).expect("complete");
    hotspot.start(&recorder).expect("started");
    let mut recording = Recording {
        hotspot: &hotspot,
        process: &memory,
        recorder: &recorder,
        offsets: frozen::offsets(jvm, &jvm.hotspot()),
        past: Past::NOTHING,
        cache: Box::new(ScopeCache::new()),
        found: BTreeMap::new(),
        ends: BTreeMap::new(),
    };
    let (thread, tid) = carrier(jvm, &hotspot, &memory);
    step_through(&hotspot, &memory, thread, tid, steps(), |snapshot| recording.look(snapshot));
    let mut surprises = Vec::new();
    for ((moment, stop), count) in &recording.ends {
        println!("JDK {jdk}: {count:6} {moment}: {stop}");
        if !MOMENTS.iter().any(|(name, expected)| name == moment && expected.name() == *stop) {
            surprises.push(format!("{moment}: {stop}"));
        }
    }
    let missing = MOMENTS.iter().filter(|(name, _)| !recording.found.contains_key(*name));
    surprises.extend(missing.map(|(name, _)| format!("never: {name}")));
    assert!(surprises.is_empty(), "JDK {jdk}: {surprises:#?}");
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
