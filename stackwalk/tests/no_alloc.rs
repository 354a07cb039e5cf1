//! A walk allocates nothing, with an empty or a filled cache; a counting allocator checks it.

#![allow(unsafe_code)]

#[path = "support/fixture.rs"]
mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fixture::Fixture;
use stackwalk::{Limits, ScopeCache, Walker};

thread_local! {
    /// Allocations of this thread; initialised by a constant, so that reading it allocates nothing.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Walks every thread of a fixture once; returns the numbers of allocations and frames.
fn walk_all(fixture: &Fixture, hotspot: &stackwalk::HotSpot, cache: &mut ScopeCache) -> (u64, usize) {
    let before = ALLOCATIONS.get();
    let mut frames = 0;
    for thread in &fixture.threads {
        let mut walker = Walker::new(hotspot, fixture, cache, Limits::default());
        let mut walk = walker.frames(&thread.capture, &thread.stack);
        frames += walk.by_ref().count();
        assert_ne!(walk.stop().name(), "");
    }
    (ALLOCATIONS.get() - before, frames)
}

#[test]
fn walking_allocates_nothing() {
    for file in fixture::all() {
        let fixture = Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let mut cache = Box::new(ScopeCache::new());
        for temperature in ["cold", "warm"] {
            let (allocations, frames) = walk_all(&fixture, &hotspot, &mut cache);
            assert!(frames > 100, "{frames} frames in {}", file.display());
            assert_eq!(allocations, 0, "{temperature} walks of {}", file.display());
        }
    }
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1_u8)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
