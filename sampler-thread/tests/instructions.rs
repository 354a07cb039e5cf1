//! The instructions that walking and naming a known stack take have a bound.
//!
//! Times depend on the machine and its load. Instructions depend on the compiler, and on how the C library copies large
//! memory, which neither a walk nor a name does. The bounds hold for builds of tests, whose instructions are many
//! times those of a release; they are a quarter above what was counted there in November 2026. The test starts its own
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
/// Rounds before the one that is counted; the caches are full after two.
const WARM_UP: usize = 4;
/// Most instructions for a walk of that stack whose steps are known, and for its name.
const MOST_OF_WALK: u64 = 72_000;
const MOST_OF_NAME: u64 = 45_000;
/// Most instructions of that walk per hundred of the same walk without known steps. 57 were counted.
const MOST_PERCENT: u64 = 70;
/// Instructions after which something is wrong, such as a panic of the process that is stepped.
const MOST_STEPS: u64 = 1_000_000;
/// Exit code of the process that is stepped, where the system does not permit that.
const NOT_PERMITTED: i32 = 77;

/// Recorded memory that repeats its reads in the same order, because a search costs more than a load in a JVM.
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
        let read = reads.get(self.next.replace(self.next.get() + 1)).expect("no more reads than before");
        assert_eq!(read.address, address, "the walk reads what the one before did");
        into.copy_from_slice(read.bytes.as_ref().map_err(|error| *error)?);
        Ok(())
    }
}

impl<'f> Repeated<'f> {
    fn new(fixture: &'f Fixture) -> Self {
        let (reads, next, repeats) = Default::default();
        Self { fixture, reads, next, repeats }
    }

    /// From here on the reads since the last call are repeated, or others are recorded in their place.
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

fn stop_if(is_last: bool) {
    if is_last {
        raise(Signal::SIGSTOP).expect("a stop");
    }
}

/// Walks the stack often; stops before and after the last walk.
fn walk_often(fixture: &Fixture, thread: &Thread, uses_known_steps: bool) {
    let (hotspot, memory) = (fixture.hotspot(), Repeated::new(fixture));
    let (mut cache, mut frames, mut groups) = (ScopeCache::new(), Vec::new(), Vec::new());
    for round in 0..=WARM_UP {
        let is_last = round == WARM_UP;
        memory.begin(is_last);
        frames.clear();
        groups.clear();
        let mut walker = Walker::new(&hotspot, &memory, &mut cache, Limits::default());
        if !uses_known_steps {
            walker = walker.without_known_steps();
        }
        stop_if(is_last);
        let mut walk = walker.frames(&thread.capture, &thread.stack);
        walk.append_to(&mut frames, &mut groups);
        stop_if(is_last);
        assert!(walk.stop().is_complete() && frames.len() > LEAST_FRAMES, "{:?}", walk.stop());
    }
}

/// Names the stack often; stops before and after the last name.
fn name_often(fixture: &Fixture, thread: &Thread) {
    let memory = Repeated::new(fixture);
    let vm = Vm { hotspot: Arc::new(fixture.hotspot()), memory: &memory };
    let (code, redefinition) = (CodeFreeing::default(), Redefinition::default());
    let unloading =
        Arc::new(Unloading::new(Detector::Pauses, code, redefinition, Duration::ZERO, now, Vec::new()));
    let routines = Arc::new(Routines::new(now));
    let mut namer = StackNamer::new(Capabilities::ALL, Arc::clone(&routines), Shown::default());
    let mut walker = StackWalker::new(unloading, routines, true, 2048);
    walker.begin_drain(&vm);
    let snapshot = Snapshot { stack: &thread.stack, ..Snapshot::of_registers(thread.capture) };
    for round in 0..=WARM_UP {
        let is_last = round == WARM_UP;
        walker.begin_group();
        let walk = walker.walk(&vm, &snapshot, now());
        memory.begin(false);
        stop_if(is_last);
        let named = namer.name(&vm, &mut walker, &walk, &snapshot, None, None);
        stop_if(is_last);
        assert!(walk.stop.is_complete() && !walk.is_restricted && named.unloaded == 0, "{walk:?} {named:?}");
        assert!(!is_last || memory.reads.borrow().is_empty(), "the names are not known");
    }
}

/// Waits until a stopped thread has gone on to its next stop.
fn go_to_stop(thread: Pid) {
    ptrace::cont(thread, None).expect("it is stopped");
    let status = waitpid(thread, Some(WaitPidFlag::__WALL)).expect("a child");
    assert_eq!(status, WaitStatus::Stopped(thread, Signal::SIGSTOP));
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

/// The process that is stepped.
fn child() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
    let fixture = Fixture::load(&folder.join("jdk25-x86_64/stacks.bin"));
    let thread = fixture.threads.iter().find(|thread| thread.name == RECURSION).expect("recorded");
    if let Err(error) = ptrace::traceme() {
        println!("ptrace: {error}");
        std::process::exit(NOT_PERMITTED);
    }
    walk_often(&fixture, thread, true);
    walk_often(&fixture, thread, false);
    name_often(&fixture, thread);
}

#[test]
fn a_known_stack_takes_few_instructions() {
    if std::env::var_os(STEPPED).is_some() {
        return child();
    }
    let own = std::env::current_exe().expect("a path");
    let test = ["--exact", "a_known_stack_takes_few_instructions", "--nocapture", "--test-threads=1"];
    let mut child = Command::new(own).args(test).env(STEPPED, "1").spawn().expect("a process");
    // The thread of the child's test, or its end.
    let thread = match waitpid(None, Some(WaitPidFlag::__WALL)).expect("a child") {
        WaitStatus::Stopped(thread, Signal::SIGSTOP) => thread,
        WaitStatus::Exited(_, NOT_PERMITTED) => {
            // It has ended already.
            let _ = child.wait();
            return println!("SKIPPED: this system does not permit ptrace");
        }
        status => panic!("the child does not stop: {status:?}"),
    };
    // A test that fails leaves no stopped process behind.
    ptrace::setoptions(thread, ptrace::Options::PTRACE_O_EXITKILL).expect("it is stopped");
    let walk = steps_to_stop(thread);
    go_to_stop(thread);
    let general = steps_to_stop(thread);
    go_to_stop(thread);
    let name = steps_to_stop(thread);
    ptrace::detach(thread, None).expect("it is stopped");
    assert!(child.wait().expect("a child").success());
    let counted =
        format!("{walk} instructions for the walk, {general} without known steps, {name} for the name");
    println!("{counted}");
    assert!(walk <= MOST_OF_WALK && name <= MOST_OF_NAME, "{counted}");
    assert!(walk * 100 <= general * MOST_PERCENT, "{counted}");
}
