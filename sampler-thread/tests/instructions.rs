//! The instructions that walking and naming a known stack take have a bound.
//!
//! Times depend on the machine and its load; instructions depend on the compiler, and hardly on the processor, for
//! which the C library chooses how to copy memory. The bounds hold for builds of tests, which take many times the
//! instructions of a release; they are a fifth above what was counted there in November 2026. The test starts its own
//! program once more and steps it with ptrace.
#![cfg(target_arch = "x86_64")]

#[path = "../../stackwalk/tests/support/fixture.rs"]
mod fixture;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fixture::{Fixture, Thread};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use sampler_thread::name::shown::Shown;
use sampler_thread::name::stacks::StackNamer;
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::redefinition::Redefinition;
use sampler_thread::proof::self_test::Capabilities;
use sampler_thread::proof::unloading::{Detector, Unloading};
use sampler_thread::walk::routines::Routines;
use sampler_thread::walk::snapshot::Snapshot;
use sampler_thread::walk::stacks::StackWalker;
use sampler_thread::walk::vm::Vm;
use stackwalk::{Limits, Memory, ScopeCache, Unreadable, Walker};

/// Set in the program that is stepped.
const STEPPED: &str = "TICKWALK_STEPPED";
/// The recorded thread whose stack is a recursion in compiled code.
const RECURSION: &str = "quiet-recursion";
/// Fewer frames would be another stack.
const LEAST_FRAMES: usize = 100;
/// Walks before the one that is counted: a walk repeats the reads of the one before only if that found all it needs.
const WARM_UP: usize = 4;
/// Most instructions for a walk of that stack whose steps are known, and for its name. Without known steps the walk
/// takes 101,000.
const MOST_OF_WALK: u64 = 68_000;
const MOST_OF_NAME: u64 = 43_000;
/// Instructions after which something is wrong, such as a panic of the process that is stepped.
const MOST_STEPS: u64 = 1_000_000;

/// Recorded memory that repeats the reads of the walk before, because a search costs more than a load in a JVM.
struct Repeated<'f> {
    fixture: &'f Fixture,
    reads: RefCell<Vec<Read>>,
    next: Cell<usize>,
    repeats: Cell<bool>,
}

/// A read and its outcome.
struct Read {
    address: u64,
    bytes: Result<Vec<u8>, Unreadable>,
}

impl Memory for Repeated<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        if !self.repeats.get() {
            let outcome = self.fixture.read(address, into);
            self.reads.borrow_mut().push(Read { address, bytes: outcome.map(|()| into.to_vec()) });
            return outcome;
        }
        let reads = self.reads.borrow();
        let read = &reads[self.next.replace(self.next.get() + 1)];
        assert_eq!(read.address, address, "the walk reads what the one before did");
        into.copy_from_slice(read.bytes.as_ref().map_err(|error| *error)?);
        Ok(())
    }
}

impl Repeated<'_> {
    /// The next walk reads what the last one did, or other memory.
    fn begin(&self, repeats: bool) {
        self.repeats.set(repeats);
        self.next.set(0);
        if !repeats {
            self.reads.borrow_mut().clear();
        }
    }
}

fn now() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(1);
    TICKS.fetch_add(1, Ordering::SeqCst)
}

/// Walks and names the stack often; in the last round it stops before and after the walk, and before and after the
/// name.
fn stepped(memory: &Repeated<'_>, thread: &Thread) {
    let vm = Vm { hotspot: Arc::new(memory.fixture.hotspot()), memory: memory.fixture };
    let (code, redefinition) = (CodeFreeing::default(), Redefinition::default());
    let unloading =
        Arc::new(Unloading::new(Detector::Pauses, code, redefinition, Duration::ZERO, now, Vec::new()));
    let routines = Arc::new(Routines::new(now));
    let mut namer = StackNamer::new(Capabilities::ALL, Arc::clone(&routines), Shown::default());
    let mut stack_walker = StackWalker::new(unloading, routines, true, 2048);
    stack_walker.begin_drain(&vm);
    let stack = &thread.stack[..];
    let snapshot = Snapshot { stack, ..Snapshot::of_registers(thread.capture) };
    let (mut cache, mut frames, mut groups) = (ScopeCache::new(), Vec::new(), Vec::new());
    let stop = |is_last: bool| {
        if is_last {
            raise(Signal::SIGSTOP).expect("a stop");
        }
    };
    for round in 0..=WARM_UP {
        let is_last = round == WARM_UP;
        memory.begin(is_last);
        frames.clear();
        groups.clear();
        let mut walker = Walker::new(&vm.hotspot, memory, &mut cache, Limits::default());
        stop(is_last);
        let mut walk = walker.frames(&thread.capture, stack);
        walk.append_to(&mut frames, &mut groups);
        stop(is_last);
        assert!(walk.stop().is_complete() && frames.len() > LEAST_FRAMES, "{:?}", walk.stop());
        // The sampler's walker also looks for the libraries of native frames, which differ from machine to machine.
        stack_walker.begin_group();
        let walk = stack_walker.walk(&vm, &snapshot, now());
        stop(is_last);
        let named = namer.name(&vm, &mut stack_walker, &walk, &snapshot, None, None);
        stop(is_last);
        assert!(walk.stop.is_complete() && named.unloaded == 0, "{walk:?} {named:?}");
    }
}

/// Steps a stopped thread to its next stop; returns the number of instructions.
fn steps_to_stop(thread: Pid) -> u64 {
    for steps in 1..MOST_STEPS {
        ptrace::step(thread, None).expect("it is stopped");
        match waitpid(thread, Some(WaitPidFlag::__WALL)).expect("a child") {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, Signal::SIGSTOP) => return steps,
            status => panic!("after {steps} instructions: {status:?}"),
        }
    }
    panic!("no stop after {MOST_STEPS} instructions")
}

#[test]
fn a_known_stack_takes_few_instructions() {
    if std::env::var_os(STEPPED).is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
        let fixture = Fixture::load(&folder.join("jdk25-x86_64/stacks.bin"));
        let thread = fixture.threads.iter().find(|thread| thread.name == RECURSION).expect("recorded");
        let (reads, next, repeats) = Default::default();
        let memory = Repeated { fixture: &fixture, reads, next, repeats };
        ptrace::traceme().expect("a parent that steps this process");
        return stepped(&memory, thread);
    }
    let own = std::env::current_exe().expect("a path");
    let test = ["--exact", "a_known_stack_takes_few_instructions", "--nocapture", "--test-threads=1"];
    let mut child = Command::new(own).args(test).env(STEPPED, "1").spawn().expect("a process");
    // The thread of the child's test, or its end.
    let status = waitpid(None, Some(WaitPidFlag::__WALL)).expect("a child");
    let WaitStatus::Stopped(thread, Signal::SIGSTOP) = status else {
        panic!("the child does not stop: {status:?}")
    };
    let walk = steps_to_stop(thread);
    ptrace::cont(thread, None).expect("it is stopped");
    let before_name = waitpid(thread, Some(WaitPidFlag::__WALL)).expect("a child");
    assert_eq!(before_name, WaitStatus::Stopped(thread, Signal::SIGSTOP));
    let name = steps_to_stop(thread);
    ptrace::detach(thread, None).expect("it is stopped");
    assert!(child.wait().expect("a child").success());
    println!("{walk} instructions for the walk, {name} for the name");
    assert!(walk <= MOST_OF_WALK && name <= MOST_OF_NAME, "{walk} for the walk, {name} for the name");
}
