//! Repeats recorded walks of real JVMs and compares every frame; needs no JVM.
//!
//! `record_fixtures` in `tests/attached_jvm.rs` makes the fixtures of x86-64, `java-tests/measure/aarch64 record` those
//! of aarch64; the package `stackwalk-aarch64` repeats the latter on any machine.

#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/walks.rs"]
mod walks;

use std::path::Path;

use fixture::Fixture;
use stackwalk::{Capture, ScopeCache, Stop};

fn check(fixture: &Fixture, major: &str) {
    let hotspot = fixture.hotspot();
    let release = hotspot.jdk_major();
    // A folder is named after the release, with `-sid` if the build is not the pinned one.
    let folders = ["", "-sid"].map(|build| format!("jdk{release}{build}-{}", fixture::CPU));
    assert!(folders.contains(&major.to_owned()));
    let (hotspot, cache) = (&hotspot, &mut *Box::new(ScopeCache::new()));
    // The second round uses the cache and must give the same frames.
    for _ in 0..2 {
        for thread in &fixture.threads {
            let walked = (&thread.capture, &*thread.stack);
            let frozen = thread.frozen.as_frozen();
            let (frames, stop) = walks::walk_mounted(hotspot, fixture, cache, None, walked, frozen);
            let found = walks::as_text(hotspot, fixture, &frames, stop);
            assert_eq!(found, thread.expected, "{major} {}", thread.name);
        }
    }
    assert!(cache.stats().pc_stale == 0);
}

/// Loads a recording and repeats its walks.
fn checked(file: &Path) -> Fixture {
    let major = file.parent().and_then(|folder| folder.file_name()).expect("a folder").to_string_lossy();
    let fixture = Fixture::load(file);
    check(&fixture, &major);
    fixture
}

#[test]
fn walks_equal_the_recorded_ones() {
    let files = fixture::all();
    assert_eq!(files.len(), if fixture::CPU == "x86_64" { 7 } else { 4 }, "one for each JDK");
    files.iter().for_each(|file| drop(checked(file)));
}

/// Recordings of a JDK together have frames of every kind.
#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
#[test]
fn every_kind_of_frame_is_recorded_of_each_jdk() {
    let files = fixture::named("lambdas.bin");
    assert_eq!(files.len(), 4, "one for each JDK");
    for file in files {
        let mut lines: Vec<String> = Vec::new();
        for recorded in [checked(&file), Fixture::load(&file.with_file_name("stacks.bin"))] {
            let texts = recorded.threads.iter().flat_map(|thread| thread.expected.lines());
            lines.extend(texts.map(str::to_owned));
        }
        let kinds =
            ["interpreted", "compiled-3", "inlined-3", "compiled-4", "inlined-4", "native", "stub", "entry"];
        for kind in kinds {
            let of_kind = |line: &String| line.split(' ').next() == Some(kind);
            assert!(lines.iter().any(of_kind), "{}: no frame {kind}", file.display());
        }
        for name in ["$$Lambda", " Lambdas.lambda$"] {
            assert!(lines.iter().any(|line| line.contains(name)), "{}: no frame {name}", file.display());
        }
    }
}

/// The program `Panama`, at quiet points: Java calls C, which calls `callback` through an upcall stub, at most three
/// times on one stack.
#[test]
fn upcall_stubs_lead_to_the_java_code_below_the_native_one() {
    let files = fixture::named("upcalls.bin");
    assert_eq!(files.len(), 2, "JDK 21 and 25");
    for file in files {
        let fixture = checked(&file);
        for thread in &fixture.threads {
            let lines: Vec<&str> = thread.expected.lines().collect();
            let is_upcall = |line: &str| line.starts_with("stub") && line.to_lowercase().contains("upcall");
            let upcalls: Vec<usize> = (0..lines.len()).filter(|&at| is_upcall(lines[at])).collect();
            let own = |lines: &[&str]| -> Vec<String> {
                let methods = lines.iter().filter_map(|line| line.split_once(" Panama."));
                methods.map(|(_, name)| name.split(':').next().expect("a name").to_owned()).collect()
            };
            for &at in &upcalls {
                let what = format!("{} {}: {}", file.display(), thread.name, thread.expected);
                // The stub calls `callback`, unless it has just been entered, or is about to return.
                let (newer, older) = (own(&lines[..at]), own(&lines[at + 1..]));
                assert!(newer.last().is_none_or(|name| name == "callback"), "{what}");
                // A thread that C has started has no older frame.
                assert!(older.first().is_none_or(|name| name == "call"), "{what}");
                assert!(older.is_empty() || older.last().is_some_and(|name| name == "main"), "{what}");
            }
            assert!((1..=3).contains(&upcalls.len()), "{}: {}", thread.name, thread.expected);
        }
        assert!(!fixture.threads.is_empty(), "{}", file.display());
    }
}

/// The program `Values`: methods with value classes, whose compiled frames may be larger than their code states. Each
/// thread is stopped at many instructions.
#[cfg(not(any(target_arch = "aarch64", stackwalk_aarch64)))]
#[test]
fn stacks_of_methods_with_value_classes_are_whole() {
    let files = fixture::named("values.bin");
    assert_eq!(files.len(), 1, "JDK 28");
    let fixture = checked(&files[0]);
    assert!(fixture.threads.len() >= 75, "{} stacks", fixture.threads.len());
    for thread in &fixture.threads {
        let what = format!("{}: {}", thread.name, thread.expected);
        assert!(thread.expected.contains(" Values."), "{what}");
        assert!(thread.expected.trim_end().ends_with(Stop::EndOfStack.name()), "{what}");
    }
}

/// The program `VirtualThreads`: 30 calls of `descend`, of which all but the newest are frozen in the heap after a
/// yield. The recordings of x86-64 are in `frozen.rs`.
#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
#[test]
fn frozen_frames_are_walked_to_the_entry_of_the_continuation() {
    let files = fixture::named("frozen.bin");
    assert_eq!(files.len(), 2, "JDK 21 and 25");
    for file in files {
        let fixture = checked(&file);
        let mut whole = 0;
        for thread in &fixture.threads {
            let what = format!("{} {}: {}", file.display(), thread.name, thread.expected);
            assert!(!thread.frozen.chunks.is_empty(), "{what}");
            let calls =
                thread.expected.lines().filter(|line| line.contains(" VirtualThreads.descend:")).count();
            // Calls return one after the other.
            assert!(
                calls <= 30 && thread.expected.ends_with("Continuation.enter:?\nend_of_continuation\n"),
                "{what}"
            );
            let burns = thread.expected.contains(" VirtualThreads.burn:");
            assert!(!burns || calls == 30, "{what}");
            whole += usize::from(burns);
            let hotspot = fixture.hotspot();
            let mut cache = Box::new(ScopeCache::new());
            let (frames, stop) = walks::walk(&hotspot, &fixture, &mut cache, &thread.capture, &thread.stack);
            assert_eq!(stop, Stop::ContinuationBarrier, "without the frozen frames: {what}");
            assert!(frames.len() < thread.expected.lines().count(), "{what}");
        }
        assert!(whole >= 4, "{}: {whole} stacks with all calls", file.display());
    }
}

#[test]
fn a_walk_of_a_short_stack_copy_stops_at_its_end() {
    for file in fixture::all() {
        let fixture = Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let thread = fixture.threads.iter().max_by_key(|thread| thread.expected.len()).expect("recorded");
        let mut cache = Box::new(ScopeCache::new());
        let (whole, _) = walks::walk(&hotspot, &fixture, &mut cache, &thread.capture, &thread.stack);
        let middle = whole[whole.len() / 2].0.place().sp - thread.capture.stack_low;
        let stack = &thread.stack[..middle as usize];
        let (frames, stop) = walks::walk(&hotspot, &fixture, &mut cache, &thread.capture, stack);
        assert_eq!(stop, Stop::CopyEnd);
        let text = walks::as_text(&hotspot, &fixture, &frames, stop);
        let frames = text.strip_suffix("copy_end\n").expect("the reason is last");
        assert!(
            !frames.is_empty() && thread.expected.starts_with(frames),
            "frames before the cut are the same"
        );
    }
}

#[test]
fn a_thread_without_java_frames_has_that_stop_reason() {
    let fixture = Fixture::load(&fixture::all()[0]);
    let hotspot = fixture.hotspot();
    let mut cache = Box::new(ScopeCache::new());
    let (frames, stop) = walks::walk(&hotspot, &fixture, &mut cache, &Capture::ZERO, &[]);
    assert!(frames.is_empty());
    assert_eq!(stop, Stop::NoJavaFrame);
}
