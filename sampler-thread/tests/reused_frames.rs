//! A walk that takes over frames of the thread's previous walk equals a walk in full, on recorded and on damaged
//! stacks.

#![allow(missing_docs)]

#[path = "../../stackwalk/tests/support/fixture.rs"]
mod fixture;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fixture::{Fixture, Thread};
use proptest::prelude::*;
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::redefinition::Redefinition;
use sampler_thread::proof::unloading::{Detector, Unloading};
use sampler_thread::walk::routines::Routines;
use sampler_thread::walk::snapshot::Snapshot;
use sampler_thread::walk::stacks::{StackWalker, Walk};
use sampler_thread::walk::vm::Vm;
use stackwalk::{Frame, Memory, Stop, Unreadable};

fn now() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(1);
    TICKS.fetch_add(1, Ordering::SeqCst)
}

/// A recorded process in which a number of four bytes can change.
struct Process {
    fixture: Fixture,
    /// Address of the last number that was read.
    last_number: Cell<u64>,
    /// Address of the number that has another value than recorded; 0 for none.
    changed_number: Cell<u64>,
}

impl Memory for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.fixture.read(address, into)?;
        if let [first, _, _, _] = into {
            self.last_number.set(address);
            *first ^= u8::from(address == self.changed_number.get());
        }
        Ok(())
    }
}

struct Scene<'f> {
    vm: Vm<&'f Process>,
    unloading: Arc<Unloading>,
    routines: Arc<Routines>,
    walker: StackWalker,
}

impl<'f> Scene<'f> {
    fn new(process: &'f Process) -> Self {
        let vm = Vm { hotspot: Arc::new(process.fixture.hotspot()), memory: process };
        let (code, redefinition) = (CodeFreeing::default(), Redefinition::default());
        let none = Duration::ZERO;
        let unloading = Arc::new(Unloading::new(Detector::Pauses, code, redefinition, none, now, Vec::new()));
        let routines = Arc::new(Routines::new(now));
        let mut walker = StackWalker::new(Arc::clone(&unloading), Arc::clone(&routines), true, 2048);
        walker.begin_drain(&vm);
        Self { vm, unloading, routines, walker }
    }

    /// Returns the frames of a thread whose stack bytes are `stack`, the stop reason, and the number of reused frames.
    fn walk(&mut self, thread: &Thread, stack: &[u8]) -> (Vec<Frame>, Stop, usize) {
        self.walk_sample_of(now(), thread, stack)
    }

    /// The same for a sample at this time.
    fn walk_sample_of(&mut self, ticks: u64, thread: &Thread, stack: &[u8]) -> (Vec<Frame>, Stop, usize) {
        let walk = self.kept_walk_of(ticks, (thread, 0), stack);
        let reused = walk.reused.map_or(0, |reused| reused.frames);
        (self.walker.frames(&walk).to_vec(), walk.stop, reused)
    }

    /// The walk of a sample of the virtual thread with this number, 0 for none.
    fn kept_walk_of(&mut self, ticks: u64, (thread, number): (&Thread, u64), stack: &[u8]) -> Walk {
        let mut snapshot =
            Snapshot { stack, frozen: thread.frozen.as_frozen(), ..Snapshot::of_registers(thread.capture) };
        snapshot.head.virtual_thread = number;
        self.walker.begin_group();
        self.walker.walk(&self.vm, 3, &snapshot, ticks)
    }
}

/// Calls `check` with each recorded stack of a virtual thread; their walks end without native frames, whose libraries
/// this process does not have.
fn for_each_stack(mut check: impl FnMut(&Process, &Thread)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
    for jdk in ["jdk21-x86_64", "jdk25-x86_64", "jdk28-sid-x86_64"] {
        let fixture = Fixture::load(&folder.join(jdk).join("frozen-compiled.bin"));
        let process = Process { fixture, last_number: Cell::default(), changed_number: Cell::default() };
        process.fixture.threads.iter().for_each(|thread| check(&process, thread));
    }
}

#[test]
fn an_equal_stack_is_not_walked_twice() {
    let (mut stacks, mut reused_frames) = (0, 0);
    for_each_stack(|process, thread| {
        let mut scene = Scene::new(process);
        let (frames, stop, reused) = scene.walk(thread, &thread.stack);
        assert_eq!(reused, 0, "the first walk");
        let (again, stop_again, reused) = scene.walk(thread, &thread.stack);
        assert_eq!((&again, stop_again), (&frames, stop), "{}", thread.name);
        stacks += usize::from(stop.is_complete());
        reused_frames += reused;
        scene.unloading.pause_begins(scene.vm.memory, || false, || {});
        scene.unloading.pause_ends(scene.vm.memory);
        assert_eq!(scene.walk(thread, &thread.stack).2, 0, "a pause may have unloaded classes");
    });
    assert!(stacks >= 40 && reused_frames >= 20 * stacks, "{reused_frames} frames of {stacks} stacks");
}

#[test]
fn frames_of_replaced_code_are_walked_again() {
    let mut replaced = 0;
    for_each_stack(|process, thread| {
        let mut scene = Scene::new(process);
        let (frames, stop, _) = scene.walk(thread, &thread.stack);
        // The last four bytes that the next walk reads before it takes over frames are a compile id.
        process.last_number.set(0);
        let reused = scene.walk(thread, &thread.stack).2;
        process.changed_number.set(process.last_number.get());
        let found = scene.walk(thread, &thread.stack);
        if reused > 0 {
            assert_eq!(found, (frames, stop, 0), "{}", thread.name);
            assert_eq!(scene.walk(thread, &thread.stack).2, reused, "the new code is known");
            replaced += 1;
        }
        process.changed_number.set(0);
    });
    assert!(replaced >= 20, "{replaced} stacks");
}

/// A stub is reported, the VM frees it and compiles a method into its place: samples from before that method was met do
/// not show it, later ones do.
#[test]
fn code_in_the_place_of_a_freed_stub_is_not_shown_by_older_samples() {
    let mut stacks = 0;
    for_each_stack(|process, thread| {
        let (whole, stop, _) = Scene::new(process).walk(thread, &thread.stack);
        let compiled = |frame: &&Frame| matches!(frame, Frame::Compiled { inlined: false, .. });
        let Some(frame) = whole.iter().filter(|_| stop.is_complete()).rfind(compiled) else { return };
        let mut scene = Scene::new(process);
        let pc = frame.place().pc.0;
        scene.routines.add(pc - 8, 16, "jbyte_fill");
        assert_eq!(scene.walk(thread, &thread.stack).0, whole, "the VM frees no such routine");

        let mut scene = Scene::new(process);
        scene.routines.add(pc - 8, 16, "UpcallStub - upcall_stub_(J)J");
        let before = now();
        let (found, cut, _) = scene.walk_sample_of(before, thread, &thread.stack);
        assert!(found.len() < whole.len() && whole.starts_with(&found), "{}", thread.name);
        assert!(matches!(cut, Stop::CodeReplaced(_)), "{cut:?}");
        scene.walker.begin_drain(&scene.vm);
        let (found, cut, _) = scene.walk_sample_of(before, thread, &thread.stack);
        assert!(found.len() < whole.len() && matches!(cut, Stop::CodeReplaced(_)), "the same sample, later");
        assert_eq!(scene.walk(thread, &thread.stack).0, whole, "a later sample");
        stacks += 1;
    });
    assert!(stacks >= 40, "{stacks} stacks");
}

/// A thread whose long stacks have little in common: most walks are not kept, and all are right. Once they are alike,
/// each is kept.
#[test]
fn hardly_any_walk_is_kept_where_stacks_are_not_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
    let load = || Fixture::load(&folder.join("jdk25-x86_64").join("frozen-compiled.bin"));
    let process = Process { fixture: load(), last_number: Cell::default(), changed_number: Cell::default() };
    let mut scene = Scene::new(&process);
    let reusable = process.fixture.threads.iter().position(|thread| {
        let mut scene = Scene::new(&process);
        [0, 1].map(|_| scene.walk(thread, &thread.stack).2)[1] > 10
    });
    // Copied from an address far below sp on.
    let mut one = load().threads.swap_remove(reusable.expect("a stack"));
    one.capture.stack_low -= 8 << 10;
    one.stack.splice(0..0, [0; 8 << 10]);
    let one = &one;
    let (full, stop, _) = Scene::new(&process).walk(one, &one.stack);
    // Stacks of virtual threads have nothing in common, even if they are equal.
    let walks: Vec<Walk> = (1..=160)
        .map(|number| {
            let walk = scene.kept_walk_of(now(), (one, number), &one.stack);
            assert_eq!((scene.walker.frames(&walk), walk.stop), (&full[..], stop));
            walk
        })
        .collect();
    assert!(walks.iter().all(|walk| walk.reused.is_none()));
    let kept = walks.iter().filter(|walk| walk.number != 0).count();
    // The first nine, and one of eight of the rest.
    assert_eq!(kept, 9 + (walks.len() - 9) / 8);
    let alike: Vec<Walk> = (0..20).map(|_| scene.kept_walk_of(now(), (one, 0), &one.stack)).collect();
    let first = alike.iter().position(|walk| walk.reused.is_some()).expect("they are alike");
    assert!(first <= 8, "{first}");
    let are_kept = |walk: &Walk| walk.number != 0 && walk.reused.is_some();
    assert!(alike.iter().skip(first + 1).all(are_kept));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Words of a stack are replaced by others of it, mostly newer ones, as a running thread does.
    #[test]
    fn damaged_stacks_give_the_same_frames(changes in prop::collection::vec((any::<u16>(), any::<u16>(), 1..8_u32), 1..40)) {
        let mut reused_frames = 0;
        for_each_stack(|process, thread| {
            let mut scene = Scene::new(process);
            scene.walk(thread, &thread.stack);
            let mut stack = thread.stack.clone();
            let words = stack.len() / 8;
            for &(from, to, newness) in changes.iter().filter(|_| words > 0) {
                let (from, to) = (usize::from(from) % words, (usize::from(to) % words) >> newness);
                stack.copy_within(from * 8..from * 8 + 8, to * 8);
                let (frames, stop, reused) = scene.walk(thread, &stack);
                let (full, full_stop, _) = Scene::new(process).walk(thread, &stack);
                assert_eq!((frames, stop), (full, full_stop), "{}", thread.name);
                reused_frames += reused;
            }
        });
        prop_assert!(reused_frames > 0);
    }
}
