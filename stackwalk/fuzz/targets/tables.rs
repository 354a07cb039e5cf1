//! Damaged tables of the VM give an error or a layout, and walks with such a layout end.
#![no_main]

mod damage;
#[path = "../../tests/support/fixture.rs"]
mod fixture;

use std::sync::LazyLock;

use damage::{Choices, Damaged, fixtures};
use libfuzzer_sys::fuzz_target;
use stackwalk::{HotSpot, Limits, ScopeCache, Walker};

static FIXTURES: LazyLock<Vec<fixture::Fixture>> = LazyLock::new(fixtures);

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let fixture = &FIXTURES[choices.byte() as usize % FIXTURES.len()];
    let thread = &fixture.threads[choices.byte() as usize % fixture.threads.len()];
    let mut memory = Damaged::new(fixture);
    while !choices.is_empty() {
        memory.damage(&mut choices, thread);
    }
    let Ok(mut hotspot) = HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &memory) else {
        return;
    };
    let _ = hotspot.start(&memory);
    let _ = hotspot.flag(&memory, "UseG1GC");
    let _ = hotspot.java_threads(&memory).take(100).count();
    let mut cache = Box::new(ScopeCache::new());
    let mut walker = Walker::new(&hotspot, &memory, &mut cache, Limits::default());
    let mut frames = walker.frames(&thread.capture, &thread.stack);
    assert!(frames.by_ref().count() <= Limits::default().max_frames as usize);
});
