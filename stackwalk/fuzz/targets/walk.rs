//! Walks over damaged registers, stacks and metadata end, do not panic and return at most the maximum number of
//! frames.
#![no_main]

mod damage;
#[path = "../../tests/support/fixture.rs"]
mod fixture;

use std::sync::LazyLock;

use damage::{Choices, Damaged, fixtures};
use libfuzzer_sys::fuzz_target;
use stackwalk::{Bci, CAPTURE_BYTES, Capture, HotSpot, Limits, ScopeCache, Walker};

const MAX_FRAMES: u32 = 300;

struct Recorded(Vec<(fixture::Fixture, HotSpot)>);

static RECORDED: LazyLock<Recorded> = LazyLock::new(|| {
    let with_layout = |fixture: fixture::Fixture| {
        let hotspot = fixture.hotspot();
        (fixture, hotspot)
    };
    Recorded(fixtures().into_iter().map(with_layout).collect())
});

/// Damages words of the capture and the stack copy.
fn damage_thread(
    choices: &mut Choices<'_>,
    thread: &fixture::Thread,
    capture: &mut Capture,
    stack: &mut Vec<u8>,
) {
    match choices.byte() % 4 {
        0 | 1 => {
            let mut bytes = capture.to_bytes();
            let at = choices.byte() as usize % (CAPTURE_BYTES / 8) * 8;
            let old = u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            bytes[at..at + 8].copy_from_slice(&choices.value(old, thread).to_ne_bytes());
            *capture = Capture::from_bytes(&bytes).expect("same size");
        }
        2 => {
            let words = stack.as_chunks_mut::<8>().0;
            if !words.is_empty() {
                let at = choices.number(2) as usize % words.len();
                words[at] = choices.value(u64::from_ne_bytes(words[at]), thread).to_ne_bytes();
            }
        }
        _ => stack.truncate(choices.number(2) as usize),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let recorded = &RECORDED.0;
    let (fixture, hotspot) = &recorded[choices.byte() as usize % recorded.len()];
    let thread = &fixture.threads[choices.byte() as usize % fixture.threads.len()];
    let (mut capture, mut stack) = (thread.capture, thread.stack.clone());
    let mut memory = Damaged::new(fixture);
    while !choices.is_empty() {
        if choices.byte() % 2 == 0 {
            damage_thread(&mut choices, thread, &mut capture, &mut stack);
        } else {
            memory.damage(&mut choices, thread);
        }
    }
    let mut cache = Box::new(ScopeCache::new());
    // With an empty cache, then with the cache that the first walk filled.
    for _ in 0..2 {
        let mut walker = Walker::new(hotspot, &memory, &mut cache, Limits { max_frames: MAX_FRAMES });
        let mut frames = walker.frames(&capture, &stack);
        let mut count = 0;
        for frame in frames.by_ref() {
            count += 1;
            if let Some(method) = frame.method() {
                let _ = hotspot.line(&memory, method, frame.bci().unwrap_or(Bci(0)));
                if let Ok(names) = hotspot.method(&memory, method) {
                    let _ = hotspot.read_symbol(&memory, names.name, &mut [0; 64]);
                }
            }
        }
        let _ = frames.stop();
        assert!(count <= MAX_FRAMES);
    }
});
