//! A walk that takes over frames of the thread's previous walk equals a walk in full, on recorded and on damaged stacks.

#![allow(missing_docs)]

#[path = "../../stackwalk/tests/support/fixture.rs"]
mod fixture;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fixture::{Fixture, Thread};
use proptest::prelude::*;
use sampler_thread::validity::code_freeing::CodeFreeing;
use sampler_thread::validity::redefinition::Redefinition;
use sampler_thread::validity::unloading::{Detector, Unloading};
use sampler_thread::walk::snapshot::Snapshot;
use sampler_thread::walk::stacks::StackWalker;
use sampler_thread::walk::vm::Vm;
use stackwalk::{Frame, Stop};

fn now() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(1);
    TICKS.fetch_add(1, Ordering::SeqCst)
}

struct Scene<'f> {
    vm: Vm<&'f Fixture>,
    unloading: Arc<Unloading>,
    walker: StackWalker,
}

impl<'f> Scene<'f> {
    fn new(fixture: &'f Fixture) -> Self {
        let vm = Vm { hotspot: Arc::new(fixture.hotspot()), memory: fixture };
        let (code, redefinition) = (CodeFreeing::default(), Redefinition::default());
        let none = Duration::ZERO;
        let unloading = Arc::new(Unloading::new(Detector::Pauses, code, redefinition, none, now, Vec::new()));
        let mut walker = StackWalker::new(Arc::clone(&unloading), true);
        walker.begin_drain(&vm);
        Self { vm, unloading, walker }
    }

    /// Returns the frames of a thread whose stack bytes are `stack`, the stop reason, and the number of reused frames.
    fn walk(&mut self, thread: &Thread, stack: &[u8]) -> (Vec<Frame>, Stop, usize) {
        let snapshot =
            Snapshot { stack, frozen: thread.frozen.as_frozen(), ..Snapshot::of_registers(thread.capture) };
        self.walker.begin_group();
        let walk = self.walker.walk(&self.vm, 3, &snapshot, now());
        let reused = walk.reused.map_or(0, |reused| reused.frames);
        (self.walker.frames(&walk).to_vec(), walk.stop, reused)
    }
}

/// Calls `check` with each recorded stack of a virtual thread; their walks end without native frames, whose libraries
/// this process does not have.
fn for_each_stack(mut check: impl FnMut(&Fixture, &Thread)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
    for jdk in ["jdk21-x86_64", "jdk25-x86_64", "jdk28-sid-x86_64"] {
        let fixture = Fixture::load(&folder.join(jdk).join("frozen-compiled.bin"));
        fixture.threads.iter().for_each(|thread| check(&fixture, thread));
    }
}

#[test]
fn an_equal_stack_is_not_walked_twice() {
    let (mut stacks, mut reused_frames) = (0, 0);
    for_each_stack(|fixture, thread| {
        let mut scene = Scene::new(fixture);
        let (frames, stop, reused) = scene.walk(thread, &thread.stack);
        assert_eq!(reused, 0, "the first walk");
        let (again, stop_again, reused) = scene.walk(thread, &thread.stack);
        assert_eq!((&again, stop_again), (&frames, stop), "{}", thread.name);
        stacks += usize::from(stop.is_complete());
        reused_frames += reused;
        scene.unloading.pause_begins(|| false, || {});
        scene.unloading.pause_ends(scene.vm.memory);
        assert_eq!(scene.walk(thread, &thread.stack).2, 0, "a pause may have unloaded classes");
    });
    assert!(stacks >= 40 && reused_frames >= 20 * stacks, "{reused_frames} frames of {stacks} stacks");
}

#[test]
fn a_walk_into_code_that_was_replaced_is_not_shortened() {
    for_each_stack(|fixture, thread| {
        let mut scene = Scene::new(fixture);
        scene.walk(thread, &thread.stack);
        // The same layout over memory without any code.
        let empty =
            Fixture { symbols: fixture.symbols.clone(), regions: Default::default(), threads: Vec::new() };
        let mut other = Scene::new(fixture);
        std::mem::swap(&mut scene.walker, &mut other.walker);
        let vm = Vm { hotspot: Arc::clone(&scene.vm.hotspot), memory: &empty };
        let snapshot = Snapshot {
            stack: &thread.stack,
            frozen: thread.frozen.as_frozen(),
            ..Snapshot::of_registers(thread.capture)
        };
        other.walker.begin_group();
        let walk = other.walker.walk(&vm, 3, &snapshot, now());
        assert_eq!(walk.reused, None, "{}", thread.name);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Words of a stack are replaced by others of it, mostly newer ones, as a running thread does.
    #[test]
    fn damaged_stacks_give_the_same_frames(changes in prop::collection::vec((any::<u16>(), any::<u16>(), 1..8_u32), 1..40)) {
        let mut reused_frames = 0;
        for_each_stack(|fixture, thread| {
            let mut scene = Scene::new(fixture);
            scene.walk(thread, &thread.stack);
            let mut stack = thread.stack.clone();
            let words = stack.len() / 8;
            for &(from, to, newness) in changes.iter().filter(|_| words > 0) {
                let (from, to) = (usize::from(from) % words, (usize::from(to) % words) >> newness);
                stack.copy_within(from * 8..from * 8 + 8, to * 8);
                let (frames, stop, reused) = scene.walk(thread, &stack);
                let (full, full_stop, _) = Scene::new(fixture).walk(thread, &stack);
                assert_eq!((frames, stop), (full, full_stop), "{}", thread.name);
                reused_frames += reused;
            }
        });
        prop_assert!(reused_frames > 0);
    }
}
