//! Repeats recorded walks of real JVMs and compares every frame; needs no JVM.
//!
//! `record_fixtures` in `tests/attached_jvm.rs` makes the fixtures of x86-64, `java-tests/aarch64 record` those of aarch64; the
//! package `stackwalk-aarch64` repeats the latter on any machine.

#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/walks.rs"]
mod walks;

use fixture::Fixture;
use stackwalk::{Capture, HotSpot, ScopeCache, Stop};

fn check(fixture: &Fixture, major: &str) {
    let hotspot = fixture.hotspot();
    let release = hotspot.jdk_major();
    // A folder is named after the release, with `-sid` if the build is not the pinned one.
    let folders = ["", "-sid"].map(|build| format!("jdk{release}{build}-{}", fixture::CPU));
    assert!(folders.contains(&major.to_owned()));
    for mut cache in [ScopeCache::new(), ScopeCache::for_live_stacks()].map(Box::new) {
        check_with(fixture, &hotspot, &mut cache, major);
    }
}

fn check_with(fixture: &Fixture, hotspot: &HotSpot, cache: &mut ScopeCache, major: &str) {
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

#[test]
fn walks_equal_the_recorded_ones() {
    let files = fixture::all();
    assert_eq!(files.len(), if fixture::CPU == "x86_64" { 7 } else { 4 }, "one for each JDK");
    for file in files {
        let major = file.parent().and_then(|folder| folder.file_name()).expect("a folder").to_string_lossy();
        check(&Fixture::load(&file), &major);
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
