//! Walks of recorded virtual threads whose frames are on the stack, in the heap, or being frozen or thawed.
//!
//! `tests/record_frozen.rs` makes the fixtures. The recursion of the workload is known, so the methods are also
//! checked against the program.

use std::path::PathBuf;

use crate::support::fixture::{AnyMemory, Fixture, FrozenCopy, Thread, folders};
use crate::support::frozen::MOMENTS;
use crate::support::walks::{Named, as_text, walk_mounted};
use stackwalk::{Frame, Frozen, HotSpot, Limits, NativeCode, ScopeCache, Stop, Walker};

/// Files of each JDK with virtual threads, and the depths of the two recursions in each.
const FILES: [(&str, usize, usize); 2] = [("compiled", 44, 44), ("mixed", 10, 4)];

const JDKS: [&str; 5] =
    ["jdk21-x86_64", "jdk25-x86_64", "jdk26-sid-x86_64", "jdk27-sid-x86_64", "jdk28-sid-x86_64"];

/// Returns each recording: its name, the fixture and the depths.
fn recordings() -> impl Iterator<Item = (String, Fixture, usize, usize)> {
    let folder = |jdk: &&str| folders().into_iter().find(|folder| folder.ends_with(jdk));
    let files = JDKS.iter().map(move |jdk| folder(jdk).expect("a folder of this JDK")).flat_map(|folder| {
        let path = |mode: &str| -> PathBuf { folder.join(format!("frozen-{mode}.bin")) };
        FILES.map(|(mode, depth, again)| (path(mode), depth, again))
    });
    files.map(|(path, depth, again)| (path.display().to_string(), Fixture::load(&path), depth, again))
}

type Walked = (Vec<(Frame, Option<Named>)>, Stop);

fn walk(hotspot: &HotSpot, fixture: &Fixture, thread: &Thread, frozen: Frozen<'_>, native: bool) -> Walked {
    let mut cache = Box::new(ScopeCache::new());
    let mut tables = thread.native.filter(|_| native);
    let tables = tables.as_mut().map(|tables| tables as &mut dyn NativeCode);
    walk_mounted(hotspot, fixture, &mut cache, tables, (&thread.capture, &thread.stack), frozen)
}

/// Returns the Java methods, newest first.
fn methods(frames: &[(Frame, Option<Named>)]) -> Vec<String> {
    let named = frames.iter().filter_map(|(_, named)| named.as_ref());
    named.map(|named| format!("{}.{}", named.class, named.name)).collect()
}

/// Returns the methods of a recursion of `depth` calls, newest first.
fn recursion(depth: usize) -> Vec<String> {
    (0..=depth).map(|level| format!("Mounted.{}", if level % 2 == 0 { "even" } else { "odd" })).collect()
}

/// Returns the two possible lists of the workload's methods: with one recursion, and with a second one called by it.
fn known(depth: usize, again: usize) -> [Vec<String>; 2] {
    let bottom = || vec!["Mounted.bottom".to_owned()];
    let once: Vec<String> =
        [bottom(), recursion(depth), vec!["Mounted.round".to_owned()]].into_iter().flatten().collect();
    [once.clone(), [bottom(), recursion(again), once].into_iter().flatten().collect()]
}

/// Prefixes of the methods that are called by the workload's methods.
const NEWER: [&str; 3] = ["java/lang/Thread.", "java/lang/VirtualThread.", CONTINUATION];
const CONTINUATION: &str = "jdk/internal/vm/Continuation.";

/// The newest methods of the workload that may be missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Nothing,
    /// The newest one, in which the recursion ends.
    Newest,
    /// Those that have returned.
    Returned,
}

/// Callers of the workload's first method, newest first; the name of the lambda's class varies.
const ROOTS: [&str; 6] = [
    LAMBDA,
    "java/lang/Thread.runWith",
    "java/lang/VirtualThread.run",
    "java/lang/VirtualThread$VThreadContinuation$1.run",
    "jdk/internal/vm/Continuation.enter0",
    "jdk/internal/vm/Continuation.enter",
];
const LAMBDA: &str = "Mounted$$Lambda.run";

/// Asserts that a stack that ends at its root fits the program.
#[track_caller]
fn check_rooted(what: &str, methods: &[String], depth: usize, again: usize, missing: Missing) {
    let is_lambda = |name: &str| name.starts_with("Mounted$$Lambda") && name.ends_with(".run");
    let names = methods.iter().map(|name| if is_lambda(name) { LAMBDA } else { name.as_str() });
    let names: Vec<&str> = names.collect();
    let newer = |name: &&str| NEWER.iter().any(|newer| name.starts_with(newer));
    let first = names.iter().position(|name| !newer(name)).unwrap_or(0);
    let own = &names[first..];
    let own = own.strip_prefix(&["Mounted.work"]).unwrap_or(own);
    let is_known = |list: &Vec<String>| {
        let whole: Vec<&str> = list.iter().map(String::as_str).chain(ROOTS).collect();
        match missing {
            Missing::Nothing => whole == own,
            Missing::Newest => whole == own || &whole[1..] == own,
            Missing::Returned => !own.is_empty() && whole.ends_with(own),
        }
    };
    assert!(known(depth, again).iter().any(is_known), "{what}: {methods:#?}");
}

#[test]
fn walks_equal_the_recorded_ones() {
    for (file, fixture, depth, again) in recordings() {
        let hotspot = fixture.hotspot();
        for thread in &fixture.threads {
            let what = format!("{file} {}", thread.name);
            let (frames, stop) = walk(&hotspot, &fixture, thread, thread.frozen.as_frozen(), true);
            assert_eq!(as_text(&hotspot, &fixture, &frames, stop), thread.expected, "{what}");
            let (_, expected) = MOMENTS.iter().find(|(name, _)| *name == thread.name).expect("a moment");
            assert_eq!(stop, *expected, "{what}");
            let methods = methods(&frames);
            // It is unknown how many methods have returned.
            let missing = match thread.name.as_str() {
                name if name.contains("return barrier") || name.starts_with("thaw after a return") => {
                    Missing::Returned
                }
                "thaw after a yield, taken out, in C code" => Missing::Newest,
                _ => Missing::Nothing,
            };
            let thawing = |(frame, _): &(Frame, _)| {
                matches!(frame, Frame::Gap { missing: stackwalk::Missing::Thawing, .. })
            };
            let gap = stop == Stop::EndPastThaw;
            assert_eq!(frames.iter().filter(|frame| thawing(frame)).count(), usize::from(gap), "{what}");
            if stop.is_complete() {
                check_rooted(&what, &methods, depth, again, missing);
            } else {
                // Frames being frozen or thawed and older ones are not shown, except that those of a yield are also
                // on the stack.
                let copied = thread.name == "yield, not patched, in C code";
                assert_eq!(!methods.is_empty(), copied, "{what}: {methods:#?}");
            }
        }
    }
}

#[test]
fn every_moment_is_recorded_once_on_every_jdk() {
    for (file, fixture, ..) in recordings() {
        let mut names: Vec<&str> = fixture.threads.iter().map(|thread| thread.name.as_str()).collect();
        let mut expected: Vec<&str> = MOMENTS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected, "{file}");
        for thread in &fixture.threads {
            assert_eq!(
                thread.native.is_some(),
                thread.name.ends_with(", in C code"),
                "{file} {}",
                thread.name
            );
            let chunks = thread.frozen.chunks.len();
            let is_expected = match thread.name.as_str() {
                "running over two chunks" => chunks == 2,
                "running over one chunk" => chunks == 1,
                name if name.starts_with("yield, all on the stack") => chunks == 0,
                _ => chunks > 0,
            };
            assert!(is_expected, "{file} {}: {chunks} chunks", thread.name);
        }
    }
}

/// Without copies of the chunks the walk has the same frames of the stack, and its stop reason says that others are
/// missing.
#[test]
fn without_chunk_copies_walks_end_at_the_barrier() {
    let mut cut = 0;
    for (file, fixture, ..) in recordings() {
        let hotspot = fixture.hotspot();
        for thread in fixture.threads.iter().filter(|thread| !thread.frozen.chunks.is_empty()) {
            let (frames, stop) = walk(&hotspot, &fixture, thread, Frozen::NONE, true);
            assert_eq!(stop, Stop::ContinuationBarrier, "{file} {}", thread.name);
            let (whole, _) = walk(&hotspot, &fixture, thread, thread.frozen.as_frozen(), true);
            assert!(methods(&whole).starts_with(&methods(&frames)), "{file} {}", thread.name);
            cut += 1;
        }
    }
    assert_eq!(cut, JDKS.len() * FILES.len() * (MOMENTS.len() - 2));
}

/// An empty chunk may have had any number of frames, so frames being thawed and older ones are not shown.
#[test]
fn an_emptied_chunk_cuts_the_walk_during_a_thaw() {
    let mut walked = 0;
    for (file, fixture, ..) in recordings() {
        let hotspot = fixture.hotspot();
        for thread in &fixture.threads {
            let what = format!("{file} {}", thread.name);
            let (_, stop) = walk(&hotspot, &fixture, thread, thread.frozen.as_frozen(), true);
            let emptied = thread.frozen.as_frozen().emptied(true);
            let (frames, cut) = walk(&hotspot, &fixture, thread, emptied, true);
            if stop == Stop::EndPastThaw {
                assert_eq!((cut, methods(&frames).len()), (Stop::ContinuationBarrier, 0), "{what}");
                walked += 1;
            } else {
                assert_eq!(cut, stop, "{what}");
            }
        }
    }
    assert_eq!(walked, JDKS.len() * FILES.len() * 3);
}

#[test]
fn a_missing_older_chunk_cuts_the_walk() {
    for (file, fixture, ..) in recordings() {
        let hotspot = fixture.hotspot();
        let thread = fixture.threads.iter().find(|thread| thread.name == "running over two chunks");
        let thread = thread.expect("recorded");
        let (whole, _) = walk(&hotspot, &fixture, thread, thread.frozen.as_frozen(), true);
        let newest = FrozenCopy { chunks: thread.frozen.chunks[..1].to_vec(), whole: false, emptied: false };
        let (frames, stop) = walk(&hotspot, &fixture, thread, newest.as_frozen(), true);
        assert_eq!(stop, Stop::ContinuationBarrier, "{file}");
        let (whole, frames) = (methods(&whole), methods(&frames));
        assert!(whole.starts_with(&frames) && (10..whole.len()).contains(&(frames.len() + 6)), "{file}");
    }
}

/// Returns the copy with `bytes` bytes at `at` removed, or repeated if `twice`.
fn damaged(frozen: &FrozenCopy, chunk: usize, at: usize, bytes: usize, twice: bool) -> FrozenCopy {
    let mut damaged = frozen.clone();
    let (_, copy) = &mut damaged.chunks[chunk];
    let end = copy.len().min(at + bytes);
    if twice {
        let piece = copy[at..end].to_vec();
        copy.splice(at..at, piece);
    } else {
        copy.drain(at..end);
    }
    damaged
}

/// Returns whether `list` is a subsequence of `all`.
fn is_subsequence(list: &[String], all: &[String]) -> bool {
    let mut rest = all.iter();
    list.iter().all(|name| rest.any(|other| other == name))
}

/// Returns the Java methods of a walk over a damaged copy, without invalid ones, and the stop reason.
fn methods_of_damaged(
    hotspot: &HotSpot,
    fixture: &Fixture,
    thread: &Thread,
    frozen: &FrozenCopy,
) -> (Vec<String>, Stop) {
    let mut cache = Box::new(ScopeCache::new());
    let mut tables = thread.native;
    let memory = AnyMemory::new(fixture);
    let mut walker = Walker::new(hotspot, &memory, &mut cache, Limits::default());
    if let Some(tables) = &mut tables {
        walker = walker.with_native(tables);
    }
    let mut frames = walker.frames_with(&thread.capture, &thread.stack, frozen.as_frozen());
    let text = |symbol| {
        let mut bytes = [0; 256];
        let length = hotspot.read_symbol(fixture, symbol, &mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    };
    let name = |frame: Frame| {
        let names = hotspot.method(fixture, frame.method()?).ok()?;
        Some(format!("{}.{}", text(names.class)?, text(names.name)?))
    };
    let methods = frames.by_ref().filter_map(name).collect();
    (methods, frames.stop())
}

/// Bytes of a chunk are removed or repeated: the walk may lose methods, but adds none and keeps their order.
///
/// An interpreter frame ends where its own distances tell, so damage can make it look like the oldest of its chunk.
/// With compiled frames alone, a walk that is reported complete is complete.
#[test]
fn a_damaged_chunk_adds_no_wrong_method() {
    const DAMAGES: [(usize, bool); 5] = [(8, false), (8, true), (4, false), (24, true), (40, false)];
    for (file, fixture, ..) in recordings() {
        let hotspot = fixture.hotspot();
        let (mut cut, mut whole, mut shortened) = (0, 0, 0);
        let moments = ["running over two chunks", "yield, copied", "thaw after a yield"];
        for thread in fixture.threads.iter().filter(|thread| moments.contains(&thread.name.as_str())) {
            let (all, _) = methods_of_damaged(&hotspot, &fixture, thread, &thread.frozen);
            for (chunk, (_, copy)) in thread.frozen.chunks.iter().enumerate() {
                for at in (0..copy.len()).step_by(16) {
                    let (bytes, twice) = DAMAGES[at / 16 % DAMAGES.len()];
                    let frozen = damaged(&thread.frozen, chunk, at, bytes, twice);
                    let (methods, stop) = methods_of_damaged(&hotspot, &fixture, thread, &frozen);
                    assert!(
                        is_subsequence(&methods, &all),
                        "{file} {}: {bytes} at {at}, {stop:?} {methods:#?}",
                        thread.name
                    );
                    match (stop.is_complete(), methods == all) {
                        (false, _) => cut += 1,
                        (true, true) => whole += 1,
                        (true, false) => shortened += 1,
                    }
                }
            }
        }
        assert!(cut > 100 && cut > 10 * whole, "{file}: {cut} cut, {whole} whole");
        let few = if file.ends_with("frozen-mixed.bin") { cut / 20 } else { 0 };
        assert!(shortened <= few, "{file}: {shortened} shortened, {cut} cut");
    }
}

/// The chunk was larger than the space left for its copy: the copied frames are walked, and the stop reason says the
/// cut.
#[test]
fn a_cut_chunk_cuts_the_walk() {
    for (file, fixture, ..) in recordings() {
        let hotspot = fixture.hotspot();
        let mut longest = 0;
        for thread in fixture.threads.iter().filter(|thread| !thread.frozen.chunks.is_empty()) {
            let what = format!("{file} {}", thread.name);
            let (whole, stop) = walk(&hotspot, &fixture, thread, thread.frozen.as_frozen(), true);
            let (whole, is_complete) = (methods(&whole), stop.is_complete());
            for (last, (base, bytes)) in thread.frozen.chunks.iter().enumerate() {
                for length in (256..bytes.len()).step_by(40) {
                    let mut chunks = thread.frozen.chunks[..=last].to_vec();
                    chunks[last].1.truncate(length);
                    let cut = FrozenCopy { chunks, whole: true, emptied: false };
                    let frozen = cut.as_frozen().ending_at(base + bytes.len() as u64);
                    assert!(!frozen.is_whole());
                    let (frames, stop) = walk(&hotspot, &fixture, thread, frozen, true);
                    let frames = methods(&frames);
                    assert!(whole.starts_with(&frames), "{what}: {length} bytes, {stop:?}: {frames:#?}");
                    // If the chunks cannot be walked, their length has no effect.
                    let reason = if is_complete { Stop::CopyEnd } else { Stop::ContinuationBarrier };
                    assert_eq!(stop, reason, "{what}: {length} bytes of chunk {last}");
                    longest = longest.max(frames.len());
                }
            }
        }
        assert!(longest > 20, "{file}: {longest} frames");
    }
}
