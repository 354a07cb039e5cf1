//! A walker that has walked other stacks finds the same frames as a new one, on recorded and on damaged stacks.

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
use sampler_thread::walk::stacks::StackWalker;
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
        let mut walker = StackWalker::new(unloading, Arc::clone(&routines), true, 2048);
        walker.begin_drain(&vm);
        Self { vm, routines, walker }
    }

    /// Returns the frames of a thread whose stack bytes are `stack`, and the stop reason.
    fn walk(&mut self, thread: &Thread, stack: &[u8]) -> (Vec<Frame>, Stop) {
        self.walk_sample_of(now(), thread, stack)
    }

    /// The same for a sample at this time.
    fn walk_sample_of(&mut self, ticks: u64, thread: &Thread, stack: &[u8]) -> (Vec<Frame>, Stop) {
        let snapshot =
            Snapshot { stack, frozen: thread.frozen.as_frozen(), ..Snapshot::of_registers(thread.capture) };
        self.walker.begin_group();
        let walk = self.walker.walk(&self.vm, &snapshot, ticks);
        (self.walker.frames(&walk).to_vec(), walk.stop)
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
fn stacks_walked_again_are_the_same() {
    let mut stacks = 0;
    for_each_stack(|process, thread| {
        let mut scene = Scene::new(process);
        let (frames, stop) = scene.walk(thread, &thread.stack);
        assert_eq!(scene.walk(thread, &thread.stack), (frames, stop), "{}", thread.name);
        stacks += usize::from(stop.is_complete());
    });
    assert!(stacks >= 40, "{stacks} stacks");
}

#[test]
fn replaced_code_is_walked_as_new_code() {
    let mut replaced = 0;
    for_each_stack(|process, thread| {
        let mut scene = Scene::new(process);
        let expected = scene.walk(thread, &thread.stack);
        // The last four bytes that a walk by known steps reads are a compile id.
        process.last_number.set(0);
        assert_eq!(scene.walk(thread, &thread.stack), expected);
        process.changed_number.set(process.last_number.get());
        for _ in 0..2 {
            assert_eq!(scene.walk(thread, &thread.stack), expected, "{}", thread.name);
        }
        replaced += usize::from(process.last_number.get() != 0);
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
        let (whole, stop) = Scene::new(process).walk(thread, &thread.stack);
        let compiled = |frame: &&Frame| matches!(frame, Frame::Compiled { inlined: false, .. });
        let Some(frame) = whole.iter().filter(|_| stop.is_complete()).rfind(compiled) else { return };
        let mut scene = Scene::new(process);
        let pc = frame.place().pc.0;
        scene.routines.add(pc - 8, 16, "jbyte_fill");
        assert_eq!(scene.walk(thread, &thread.stack).0, whole, "the VM frees no such routine");

        let mut scene = Scene::new(process);
        scene.routines.add(pc - 8, 16, "UpcallStub - upcall_stub_(J)J");
        let before = now();
        let (found, cut) = scene.walk_sample_of(before, thread, &thread.stack);
        assert!(found.len() < whole.len() && whole.starts_with(&found), "{}", thread.name);
        assert!(matches!(cut, Stop::CodeReplaced(_)), "{cut:?}");
        scene.walker.begin_drain(&scene.vm);
        let (found, cut) = scene.walk_sample_of(before, thread, &thread.stack);
        assert!(found.len() < whole.len() && matches!(cut, Stop::CodeReplaced(_)), "the same sample, later");
        assert_eq!(scene.walk(thread, &thread.stack).0, whole, "a later sample");
        stacks += 1;
    });
    assert!(stacks >= 40, "{stacks} stacks");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Words of a stack are replaced by others of it, mostly newer ones, as a running thread does.
    #[test]
    fn damaged_stacks_give_the_same_frames(changes in prop::collection::vec((any::<u16>(), any::<u16>(), 1..8_u32), 1..40)) {
        for_each_stack(|process, thread| {
            let mut scene = Scene::new(process);
            scene.walk(thread, &thread.stack);
            let mut stack = thread.stack.clone();
            let words = stack.len() / 8;
            for &(from, to, newness) in changes.iter().filter(|_| words > 0) {
                let (from, to) = (usize::from(from) % words, (usize::from(to) % words) >> newness);
                stack.copy_within(from * 8..from * 8 + 8, to * 8);
                let expected = Scene::new(process).walk(thread, &stack);
                assert_eq!(scene.walk(thread, &stack), expected, "{}", thread.name);
            }
        });
    }
}
