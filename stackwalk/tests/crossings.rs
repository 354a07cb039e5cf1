//! Calls from compiled to interpreted code and back, instruction by instruction: the few places in between where neither
//! side's frame is on the stack as it will be.
//!
//! Recorded from real JVMs (one sample a place) and repeated without one; each must name the same methods as the others.

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use stackwalk::{Capture, HotSpot, Memory, Pc, Registers, ScopeCache};
use support::fixture::{Fixture, Overlaid, Recorder, Thread, reduced_tables, tables_address};
use support::walks::{as_text, walk};
use support::{Jdk, Jvm, Snapshot, compile, jdks, pause, step_through};

const CROSSINGS: &str = "crossings.bin";
const BARRIERS: &str = "barriers.bin";
const WRAPPERS: &str = "wrappers.bin";

/// Steps taken; one round of the workload is a few hundred.
const STEPS: u32 = 4000;

/// A native method's code polls with its frame gone.
const WRAPPER: &str = "native wrapper polls";
/// The routine that looks at code before it is entered, saving arguments.
const BARRIER: &str = "entry barrier";
/// Words from sp on that it saves them and all other registers to.
const SAVED_WORDS: usize = 33;

/// Places by what lies before and from the pc on.
const PLACES: [(&str, &[u8], &[u8]); 9] = [
    // nmethod: mov rbx, method; jmp.
    ("static call stub", &[], &[0x48, 0xbb]),
    // Adapter to the interpreter behind pop rax, in both its forms.
    ("adapter without return address", &[0x58, 0x4c, 0x8b, 0xec], &[0x48, 0x83, 0xec]),
    ("later adapter without return address", &[0x4c, 0x8d, 0x6c, 0x24, 0x08, 0x58], &[0x48, 0x83, 0xec]),
    // Interpreter: the first instructions behind a call that has returned.
    ("interpreter goes on", &[], &[0x48, 0x8b, 0x65, 0xf0, 0x48, 0xc7, 0x45, 0xf0]),
    ("later interpreter goes on", &[], &[0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd]),
    ("interpreter restores bytecode pointer", &[0xf0, 0, 0, 0, 0], &[0x4c, 0x8b, 0x6d, 0xc0]),
    // mov rsp, rbx [and a poll]; jmp r13.
    ("interpreter leaves", &[], &[0x41, 0xff, 0xe5]),
    // leave, before test byte [r15 + disp], 1.
    (WRAPPER, &[0xc9], &[0x41, 0xf6, 0x47]),
    // vmovdqu [rsp], xmm0; test spl, 15.
    (BARRIER, &[], &[0xc5, 0xfa, 0x7f, 0x04, 0x24, 0x40, 0xf6, 0xc4, 0x0f]),
];

fn place(hotspot: &HotSpot, memory: &impl Memory, capture: &Capture) -> Option<&'static str> {
    hotspot.blob_at(memory, Pc(capture.pc)).ok()?;
    let (mut before, mut after) = ([0; 8], [0; 16]);
    memory.read(capture.pc - before.len() as u64, &mut before).ok()?;
    memory.read(capture.pc, &mut after).ok()?;
    let found = PLACES.iter().find(|(name, head, tail)| {
        // The stub's method is followed by a jump; other constants are not.
        let jumps = *name != "static call stub" || after[10] == 0xe9;
        before.ends_with(head) && after.starts_with(tail) && jumps
    })?;
    Some(found.0)
}

fn files(name: &str) -> Vec<PathBuf> {
    support::fixture::folders()
        .into_iter()
        .map(|folder| folder.join(name))
        .filter(|file| file.exists())
        .collect()
}

#[test]
fn every_place_has_all_its_callers() {
    let files = files(CROSSINGS);
    assert_eq!(files.len(), 4, "one of each pinned JDK");
    for file in files {
        let fixture = Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let mut cache = Box::new(ScopeCache::new());
        assert!(fixture.threads.len() >= 4, "{} has {} places", file.display(), fixture.threads.len());
        for thread in &fixture.threads {
            let (frames, stop) = walk(&hotspot, &fixture, &mut cache, &thread.capture, &thread.stack);
            assert_eq!(as_text(&hotspot, &fixture, &frames, stop), thread.expected, "{}", thread.name);
            let methods: Vec<&str> =
                frames.iter().filter_map(|(_, named)| Some(named.as_ref()?.name.as_str())).collect();
            // The newest method may be entered or left; from `outer` on all are there.
            let newer = methods.iter().position(|name| *name == "outer").expect("called by outer");
            assert!(
                ["", "middle", "inner"].contains(&methods[..newer].first().copied().unwrap_or("")),
                "{methods:?}"
            );
            assert!(
                newer <= 2 && methods[newer..].starts_with(&["outer", "cross"]),
                "{}: {methods:?}",
                thread.name
            );
            assert!(stop.is_complete(), "{}: {stop:?}", thread.name);
        }
    }
}

/// Arguments are any numbers, among them the one by which the routine's frame is known.
#[test]
fn an_entry_barrier_has_its_callers_whatever_the_arguments() {
    let files = files(BARRIERS);
    assert_eq!(files.len(), 2, "JDK 21 and 25; older ones have none with G1");
    for file in files {
        let fixture = Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let [thread] = &fixture.threads[..] else { panic!("one in {}", file.display()) };
        assert_eq!(thread.name, BARRIER);
        for ones in 0..=SAVED_WORDS {
            let mut cache = Box::new(ScopeCache::new());
            let mut stack = thread.stack.clone();
            stack[..ones * 8].fill(0xff);
            let (frames, stop) = walk(&hotspot, &fixture, &mut cache, &thread.capture, &stack);
            assert_eq!(as_text(&hotspot, &fixture, &frames, stop), thread.expected, "{ones} words of ones");
            let methods = frames.iter().filter_map(|(_, named)| Some(named.as_ref()?.name.as_str()));
            let methods: Vec<&str> = methods.collect();
            let called = methods.iter().position(|name| *name == "cross").expect("called by cross");
            let above = ["inner", "middle", "outer"];
            assert!(!methods[..called].is_empty() && above.ends_with(&methods[..called]), "{methods:?}");
            assert!(stop.is_complete(), "{stop:?}");
        }
    }
}

/// From JDK 25 on a native method's code polls after its frame has been taken off the stack.
#[test]
fn a_wrapper_that_polls_has_its_callers() {
    let files = files(WRAPPERS);
    assert_eq!(files.len(), 1, "JDK 25");
    let fixture = Fixture::load(&files[0]);
    let hotspot = fixture.hotspot();
    let [thread] = &fixture.threads[..] else { panic!("one") };
    let mut cache = Box::new(ScopeCache::new());
    let (frames, stop) = walk(&hotspot, &fixture, &mut cache, &thread.capture, &thread.stack);
    assert_eq!(as_text(&hotspot, &fixture, &frames, stop), thread.expected);
    let methods = frames.iter().filter_map(|(_, named)| Some(named.as_ref()?.name.as_str()));
    assert_eq!(methods.take(2).collect::<Vec<_>>(), ["holdsLock", "cross"]);
    assert!(stop.is_complete(), "{stop:?}");
}

/// How the names of the adapter's places end.
const ADAPTER: &str = "adapter without return address";

/// Bytes before an adapter's last part that hold what it does before: saving and restoring all registers.
const EARLIER: u64 = 400;

/// Places, from the first behind `and rsp, -16` to `mov rsp, r13`, where an adapter saves all registers, calls the VM to
/// correct the call that led to it, and restores them; at every byte, of which those between instructions do no harm.
fn saving_places(memory: &impl Memory, adapter: &Capture) -> Option<std::ops::RangeInclusive<u64>> {
    let mut code = [0; EARLIER as usize];
    memory.read(adapter.pc - EARLIER, &mut code).ok()?;
    let begin = [0x4c, 0x8b, 0xec, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x83, 0xe4, 0xf0];
    let at = |wanted: &[u8]| code.windows(wanted.len()).rposition(|bytes| bytes == wanted);
    let (begin, end) = (at(&begin)? + begin.len(), at(&[0x49, 0x8b, 0xe5])?);
    let address = |index: usize| adapter.pc - EARLIER + index as u64;
    Some(address(begin)..=address(end))
}

/// The same thread while `saved` words lie below the return address: each of them the return address, as stale ones are.
fn while_saving(thread: &Thread, pc: u64, saved: u64) -> (Capture, Vec<u8>) {
    // Behind `pop rax` the return address is in rax and its place is below sp.
    let adapter = thread.capture;
    let entry = adapter.sp - 8;
    let sp = entry - saved * 8;
    let capture = Capture {
        pc,
        sp,
        stack_low: sp,
        registers: Registers { r13: entry, rax: 0, ..adapter.registers },
        ..adapter
    };
    let words = std::iter::repeat_n(adapter.registers.rax.to_le_bytes(), saved as usize + 1).flatten();
    (capture, words.chain(thread.stack.iter().copied()).collect())
}

/// The VM corrects a call once, and stepping does not meet it: the adapter and the thread are real, the moment is made up.
fn check_saving(hotspot: &HotSpot, memory: &impl Memory, thread: &Thread) -> usize {
    let mut cache = Box::new(ScopeCache::new());
    let methods = |capture: &Capture, stack: &[u8], cache: &mut ScopeCache| {
        let (frames, stop) = walk(hotspot, memory, cache, capture, stack);
        assert!(stop.is_complete(), "{}: {stop:?} at {:x}", thread.name, capture.pc);
        frames
            .into_iter()
            .map(|(frame, named)| (frame.place().sp, named.map(|named| named.name)))
            .skip(1)
            .collect()
    };
    let wanted: Vec<_> = methods(&thread.capture, &thread.stack, &mut cache);
    let places = saving_places(memory, &thread.capture).expect("an adapter with all its parts");
    let mut seen = 0;
    for pc in places {
        // One word of alignment; that, flags and registers; and what belongs to the floating point unit.
        for saved in [1, 19, 356] {
            let (capture, stack) = while_saving(thread, pc, saved);
            let found: Vec<_> = methods(&capture, &stack, &mut cache);
            assert_eq!(found, wanted, "{} at {pc:x}, {saved} words", thread.name);
            seen += 1;
        }
    }
    seen
}

#[test]
fn an_adapter_that_saves_registers_has_its_callers() {
    let mut seen = 0;
    for file in files(CROSSINGS) {
        let fixture = Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let adapter = fixture.threads.iter().find(|thread| thread.name.ends_with(ADAPTER));
        seen += check_saving(&hotspot, &fixture, adapter.expect("recorded on each JDK"));
    }
    assert!(seen > 2000, "{seen}");
}

/// Writes `tests/fixtures/jdk<NAME>-x86_64/crossings.bin` and, where there are such, `barriers.bin` and `wrappers.bin` anew:
/// `TICKWALK_RECORD=1 TICKWALK_JDKS=... cargo test -p stackwalk --test crossings record`
#[test]
fn record_crossings() {
    if std::env::var_os("TICKWALK_RECORD").is_none() {
        eprintln!("not run: TICKWALK_RECORD is not set");
        return;
    }
    for jdk in jdks() {
        record(&jdk, CROSSINGS, &["-XX:+UseSerialGC"], STEPS, |place| place != BARRIER && place != WRAPPER);
        if jdk.major >= 21 {
            // Each marking has every method looked at again.
            let flags = ["-XX:+UseG1GC", "-XX:G1PeriodicGCInterval=20"];
            record(&jdk, BARRIERS, &flags, 100 * STEPS, |place| place == BARRIER);
        }
        if jdk.major >= 25 {
            record(&jdk, WRAPPERS, &["-XX:+UseSerialGC"], 10 * STEPS, |place| place == WRAPPER);
        }
    }
}

/// Records a stop at each of the places that are `wanted` to the file `to`.
fn record(jdk: &Jdk, to: &str, flags: &[&str], steps: u32, wanted: fn(&str) -> bool) {
    let (classes, Jdk { name, home, .. }) = (compile("Crossings.java"), jdk);
    let of_program =
        ["-XX:CompileCommand=exclude,Crossings::middle", "-XX:CompileCommand=dontinline,Crossings::*"];
    let flags = [flags, &of_program].concat();
    let jvm = Jvm::start(home, &flags, &classes, "Crossings");
    let (memory, symbols) = (jvm.memory(), jvm.symbols());
    pause(2000);
    let (symbols, image) = reduced_tables(&|name| symbols.get(name).copied(), &memory);
    let mut fixture = Fixture { symbols, ..Fixture::default() };
    fixture.regions.insert(tables_address(), image);
    let live = Overlaid { image: &fixture, process: &memory };
    let recorder = Recorder { memory: &live, seen: Default::default() };
    let mut hotspot =
        HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &recorder).expect("complete");
    hotspot.start(&recorder).expect("started");
    let mut found: BTreeMap<&str, Thread> = BTreeMap::new();
    let threads: Vec<u64> = hotspot.java_threads(&memory).collect();
    for thread in threads {
        let Some(tid) = hotspot.thread_id(&memory, thread) else { continue };
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", jvm.pid()));
        if comm.is_ok_and(|comm| comm.trim() == "busy-crossing") {
            step_through(&hotspot, &memory, thread, tid, steps, |Snapshot { capture, stack }| {
                let go_on = ControlFlow::Continue(());
                let place = place(&hotspot, &memory, capture);
                let Some(place) = place.filter(|place| wanted(place)) else { return go_on };
                found.entry(place).or_insert_with(|| {
                    let mut cache = Box::new(ScopeCache::new());
                    let (frames, stop) = walk(&hotspot, &recorder, &mut cache, capture, stack);
                    let expected = as_text(&hotspot, &recorder, &frames, stop);
                    let thread = Thread::on_stack(place.to_owned(), *capture, stack.clone(), expected);
                    if place.ends_with(ADAPTER) {
                        check_saving(&hotspot, &recorder, &thread);
                    }
                    thread
                });
                if [BARRIER, WRAPPER].contains(&place) { ControlFlow::Break(()) } else { go_on }
            });
        }
    }
    let mut regions = recorder.regions();
    regions.retain(|address, _| *address > tables_address() + (1 << 20));
    fixture.regions.extend(regions);
    for thread in found.values() {
        println!("JDK {name}: {}\n{}", thread.name, thread.expected);
    }
    fixture.threads = found.into_values().collect();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixture.store(&folder.join(format!("jdk{name}-x86_64/{to}")));
}
