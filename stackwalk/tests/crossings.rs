//! Calls from compiled to interpreted code and back: the few instructions at which neither frame is complete.
//!
//! Stops at these places were recorded from real JVMs, one for each place, and are walked here without a JVM. All
//! must give the same callers.

use crate::support;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::support::fixture::{Fixture, Overlaid, Recorder, Thread, reduced_tables, tables_address};
use crate::support::walks::{as_text, walk};
use crate::support::{Jdk, Jvm, Snapshot, compile, jdks, pause, step_through};
use stackwalk::{Capture, HotSpot, Memory, Pc, Registers, ScopeCache};

const CROSSINGS: &str = "crossings.bin";
const BARRIERS: &str = "barriers.bin";
const WRAPPERS: &str = "wrappers.bin";
const LINKERS: &str = "linkers.bin";

/// Instructions to step through; one round of the workload takes a few hundred.
const STEPS: u32 = 4000;

/// The code of a native method, which polls after its frame is popped.
const WRAPPER: &str = "native wrapper polls";
/// The nmethod entry barrier, which saves the arguments.
const BARRIER: &str = "entry barrier";
/// The interpreter's entry of a method handle linker, which takes the return address and an argument off the stack.
const LINKER: &str = "linker without return address";
const LATER_LINKER: &str = "linker without return address and argument";
/// Words from sp on to which the barrier saves all registers.
const SAVED_WORDS: usize = 33;

/// Name of each place, the code bytes before the pc, and those from the pc on.
const PLACES: [(&str, &[u8], &[u8]); 11] = [
    // nmethod: mov rbx, method; jmp.
    ("static call stub", &[], &[0x48, 0xbb]),
    // Adapter to the interpreter after pop rax, in both its forms.
    ("adapter without return address", &[0x58, 0x4c, 0x8b, 0xec], &[0x48, 0x83, 0xec]),
    ("later adapter without return address", &[0x4c, 0x8d, 0x6c, 0x24, 0x08, 0x58], &[0x48, 0x83, 0xec]),
    // Interpreter: the first instructions after a call has returned.
    ("interpreter goes on", &[], &[0x48, 0x8b, 0x65, 0xf0, 0x48, 0xc7, 0x45, 0xf0]),
    ("later interpreter goes on", &[], &[0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd]),
    ("interpreter restores bytecode pointer", &[0xf0, 0, 0, 0, 0], &[0x4c, 0x8b, 0x6d, 0xc0]),
    // mov rsp, rbx [and a poll]; jmp r13.
    ("interpreter leaves", &[], &[0x41, 0xff, 0xe5]),
    // leave, before test byte [r15 + disp], 1.
    (WRAPPER, &[0xc9], &[0x41, 0xf6, 0x47]),
    // vmovdqu [rsp], xmm0; test spl, 15.
    (BARRIER, &[], &[0xc5, 0xfa, 0x7f, 0x04, 0x24, 0x40, 0xf6, 0xc4, 0x0f]),
    // pop rax; pop rbx; push rax.
    (LINKER, &[0x58], &[0x5b, 0x50]),
    (LATER_LINKER, &[0x58, 0x5b], &[0x50]),
];

fn place(hotspot: &HotSpot, memory: &impl Memory, capture: &Capture) -> Option<&'static str> {
    hotspot.blob_at(memory, Pc(capture.pc)).ok()?;
    let (mut before, mut after) = ([0; 8], [0; 16]);
    memory.read(capture.pc - before.len() as u64, &mut before).ok()?;
    memory.read(capture.pc, &mut after).ok()?;
    let found = PLACES.iter().find(|(name, before_pc, from_pc)| {
        // A jump follows the stub's constant, but not other constants.
        let jumps = *name != "static call stub" || after[10] == 0xe9;
        before.ends_with(before_pc) && after.starts_with(from_pc) && jumps
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
fn walks_at_every_recorded_place_find_all_callers() {
    let files = files(CROSSINGS);
    assert_eq!(files.len(), 4, "one for each pinned JDK");
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
            // The newest method may be half entered or left; from `outer` on all are complete.
            let newer_count = methods.iter().position(|name| *name == "outer").expect("called by outer");
            assert!(
                ["", "middle", "inner"].contains(&methods[..newer_count].first().copied().unwrap_or("")),
                "{methods:?}"
            );
            assert!(
                newer_count <= 2 && methods[newer_count..].starts_with(&["outer", "cross"]),
                "{}: {methods:?}",
                thread.name
            );
            assert!(stop.is_complete(), "{}: {stop:?}", thread.name);
        }
    }
}

/// Arguments may have any value, also the one that identifies the barrier's frame.
#[test]
fn walks_from_an_entry_barrier_find_all_callers_with_any_arguments() {
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

/// From JDK 25 on the code of a native method polls after its frame is popped.
#[test]
fn walks_from_a_polling_native_wrapper_find_all_callers() {
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

/// In the interpreter a method handle is called by way of linkers, each of which finds its method in an argument.
#[test]
fn walks_from_a_method_handle_linker_find_all_callers() {
    let files = files(LINKERS);
    assert_eq!(files.len(), 4, "one for each pinned JDK");
    for file in files {
        let fixture = Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let names: Vec<&str> = fixture.threads.iter().map(|thread| thread.name.as_str()).collect();
        assert_eq!(names, [LINKER, LATER_LINKER]);
        for thread in &fixture.threads {
            let mut cache = Box::new(ScopeCache::new());
            let (frames, stop) = walk(&hotspot, &fixture, &mut cache, &thread.capture, &thread.stack);
            assert_eq!(as_text(&hotspot, &fixture, &frames, stop), thread.expected, "{}", thread.name);
            let methods: Vec<&str> =
                frames.iter().filter_map(|(_, named)| Some(named.as_ref()?.name.as_str())).collect();
            // Frames of the handle's own code come first.
            assert!(methods.len() > 2 && methods[1..].contains(&"link"), "{methods:?}");
            assert!(stop.is_complete(), "{stop:?}");
        }
    }
}

/// End of the names of the adapter's places.
const ADAPTER: &str = "adapter without return address";

/// Bytes of an adapter before its last part; they save and restore all registers.
const EARLIER: u64 = 400;

/// Returns the addresses at which an adapter saves all registers, calls the VM to correct the call, and restores
/// them: from the end of `and rsp, -16` to `mov rsp, r13`. Includes addresses inside instructions, which are
/// harmless.
fn saving_places(memory: &impl Memory, adapter: &Capture) -> Option<std::ops::RangeInclusive<u64>> {
    let mut code = [0; EARLIER as usize];
    memory.read(adapter.pc - EARLIER, &mut code).ok()?;
    let begin = [0x4c, 0x8b, 0xec, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x83, 0xe4, 0xf0];
    let at = |pattern: &[u8]| code.windows(pattern.len()).rposition(|bytes| bytes == pattern);
    let (begin, end) = (at(&begin)? + begin.len(), at(&[0x49, 0x8b, 0xe5])?);
    let address = |index: usize| adapter.pc - EARLIER + index as u64;
    Some(address(begin)..=address(end))
}

/// Returns the thread at `pc` with `saved` words below the return address, each a copy of it, as stale words may be.
fn while_saving(thread: &Thread, pc: u64, saved: u64) -> (Capture, Vec<u8>) {
    // After `pop rax` the return address is in rax, and its slot is below sp.
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

/// Walks a recorded thread from every address of [`saving_places`]; returns the number of walks.
///
/// The adapter and the thread are recorded, but the registers are constructed: the VM corrects a call only once, which
/// stepping misses.
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
    let expected: Vec<_> = methods(&thread.capture, &thread.stack, &mut cache);
    let places = saving_places(memory, &thread.capture).expect("an adapter with all its parts");
    let mut walks = 0;
    for pc in places {
        // The alignment word; with flags and registers; with the state of the floating-point unit.
        for saved in [1, 19, 356] {
            let (capture, stack) = while_saving(thread, pc, saved);
            let found: Vec<_> = methods(&capture, &stack, &mut cache);
            assert_eq!(found, expected, "{} at {pc:x}, {saved} words", thread.name);
            walks += 1;
        }
    }
    walks
}

#[test]
fn walks_from_an_adapter_that_saves_registers_find_all_callers() {
    let mut walks = 0;
    for file in files(CROSSINGS) {
        let fixture = Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let adapter = fixture.threads.iter().find(|thread| thread.name.ends_with(ADAPTER));
        walks += check_saving(&hotspot, &fixture, adapter.expect("recorded on each JDK"));
    }
    assert!(walks > 2000, "{walks}");
}

/// The names of the methods that a walk finds; it must be complete.
fn methods_of(fixture: &Fixture, capture: &Capture, stack: &[u8], what: &str) -> Vec<String> {
    let mut cache = Box::new(ScopeCache::new());
    let (frames, stop) = walk(&fixture.hotspot(), fixture, &mut cache, capture, stack);
    assert!(stop.is_complete(), "{what}: {stop:?}");
    frames.into_iter().filter_map(|(_, named)| Some(named?.name)).collect()
}

/// One instruction before the recorded one: JDK 11 and 17 copy the caller's sp after they have popped the return
/// address.
#[test]
fn walks_from_an_adapter_between_its_pop_and_its_copy_of_sp_find_all_callers() {
    let mut walks = 0;
    for file in files(CROSSINGS) {
        let fixture = Fixture::load(&file);
        for thread in fixture.threads.iter().filter(|thread| thread.name == ADAPTER) {
            let Thread { capture, stack, .. } = thread;
            let expected = methods_of(&fixture, capture, stack, &thread.name);
            // r13 is not set: an address of code, one of the stack, none.
            for r13 in [capture.pc, capture.sp + 0x98, 0] {
                let pc = capture.pc - 3;
                let capture = Capture { pc, registers: Registers { r13, ..capture.registers }, ..*capture };
                assert_eq!(methods_of(&fixture, &capture, stack, &thread.name), expected, "{r13:x}");
                walks += 1;
            }
        }
    }
    assert_eq!(walks, 6, "JDK 11 and 17");
}

/// An adapter from interpreted to compiled code aligns sp before it pushes the return address, so a stale word may be
/// on top.
///
/// The adapter and the interpreter's frame are recorded, on JDK 11 with all that this walk reads; the registers are
/// constructed.
#[test]
fn walks_from_an_adapter_that_aligns_sp_find_all_callers() {
    const ALIGNS: [u8; 12] = [0x48, 0x8b, 0x04, 0x24, 0x4c, 0x8b, 0xdc, 0x48, 0x83, 0xe4, 0xf0, 0x50];
    let files = files(CROSSINGS);
    let file = files.iter().find(|file| file.to_string_lossy().contains("jdk11-")).expect("JDK 11");
    let fixture = Fixture::load(file);
    let named = |name: &str| fixture.threads.iter().find(|thread| thread.name == name).expect("recorded");
    let (adapter, caller) = (&named(ADAPTER).capture, named("interpreter goes on"));
    let mut code = [0; EARLIER as usize];
    fixture.read(adapter.pc - EARLIER, &mut code).expect("recorded");
    let at = code.windows(ALIGNS.len()).position(|bytes| bytes == ALIGNS).expect("aligns sp");
    let push = adapter.pc - EARLIER + (at + ALIGNS.len() - 1) as u64;
    let returned = &caller.capture;
    let expected = methods_of(&fixture, returned, &caller.stack, &caller.name);
    let registers = Registers { rax: returned.pc, r13: returned.sp, ..returned.registers };
    // Of compiled code, or of none.
    for stale in [adapter.registers.rax, 0] {
        let sp = returned.sp - 16;
        let capture = Capture { pc: push, sp, stack_low: sp, registers, ..*returned };
        let above = [stale.to_le_bytes(), returned.pc.to_le_bytes()].concat();
        let stack = [above, caller.stack.clone()].concat();
        assert_eq!(methods_of(&fixture, &capture, &stack, "aligning"), expected, "{stale:x}");
    }
}

/// Rewrites `tests/fixtures/jdk<NAME>-x86_64/crossings.bin`, `linkers.bin` and, if the JDK has them, `barriers.bin` and
/// `wrappers.bin`; TICKWALK_RECORD_ONLY selects one of these files:
/// `TICKWALK_RECORD=1 TICKWALK_JDKS=... cargo test -p stackwalk crossings::record`
#[test]
fn record_crossings() {
    if std::env::var_os("TICKWALK_RECORD").is_none() {
        eprintln!("not run: TICKWALK_RECORD is not set");
        return;
    }
    for jdk in jdks() {
        let others = [BARRIER, WRAPPER, LINKER, LATER_LINKER];
        record(&jdk, CROSSINGS, &["-XX:+UseSerialGC"], STEPS, move |place| !others.contains(&place));
        record(&jdk, LINKERS, &["-Xint", "-XX:+UseSerialGC"], 5 * STEPS, |place| {
            [LINKER, LATER_LINKER].contains(&place)
        });
        if jdk.major >= 21 {
            // Each marking cycle arms the barriers of all methods again.
            let flags = ["-XX:+UseG1GC", "-XX:G1PeriodicGCInterval=20"];
            record(&jdk, BARRIERS, &flags, 100 * STEPS, |place| place == BARRIER);
        }
        if jdk.major >= 25 {
            record(&jdk, WRAPPERS, &["-XX:+UseSerialGC"], 10 * STEPS, |place| place == WRAPPER);
        }
    }
}

/// Records a stop at each selected place to the file `to`.
fn record(jdk: &Jdk, to: &str, flags: &[&str], steps: u32, is_selected: impl Fn(&str) -> bool) {
    if std::env::var("TICKWALK_RECORD_ONLY").is_ok_and(|only| only != to) {
        return;
    }
    let busy = if to == LINKERS { "busy-linking" } else { "busy-crossing" };
    let (classes, Jdk { name, home, .. }) = (compile("Crossings.java"), jdk);
    let compile_commands =
        ["-XX:CompileCommand=exclude,Crossings::middle", "-XX:CompileCommand=dontinline,Crossings::*"];
    let flags = [flags, &compile_commands].concat();
    let jvm = Jvm::start(home, &flags, &classes, "Crossings");
    let (memory, symbols) = (jvm.memory(), jvm.symbols());
    pause(2000);
    let (symbols, image) = reduced_tables(&|name| symbols.get(name).copied(), &memory);
    let mut fixture = Fixture { symbols, ..Fixture::default() };
    fixture.regions.insert(tables_address(), image);
    let live = Overlaid { image: &fixture, process: &memory };
    let recorder = Recorder { memory: &live, bytes: Default::default() };
    let mut hotspot =
        HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &recorder).expect("complete");
    hotspot.start(&recorder).expect("started");
    let mut found: BTreeMap<&str, Thread> = BTreeMap::new();
    let threads: Vec<u64> = hotspot.java_threads(&memory).collect();
    for thread in threads {
        let Some(tid) = hotspot.thread_id(&memory, thread) else { continue };
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", jvm.pid()));
        if comm.is_ok_and(|comm| comm.trim() == busy) {
            step_through(&hotspot, &memory, thread, tid, steps, |Snapshot { capture, stack }| {
                let go_on = ControlFlow::Continue(());
                let place = place(&hotspot, &memory, capture);
                let Some(place) = place.filter(|place| is_selected(place)) else { return go_on };
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
