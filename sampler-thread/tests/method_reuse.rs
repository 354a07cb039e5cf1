//! A frame is never shown with the name of another method whose `Method*` has the same address.
//!
//! Walks a recorded stack of a real JVM over memory in which another method replaces one at a chosen moment.

#[path = "../../stackwalk/tests/support/fixture.rs"]
mod fixture;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fixture::{Fixture, Thread};
use proto::v1::Dictionary;
use sampler_thread::name::dictionaries::append;
use sampler_thread::name::shown::Shown;
use sampler_thread::name::stacks::{NamedStack, StackNamer};
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::self_test::Capabilities;
use sampler_thread::proof::unloading::{Detector, Unloading};
use sampler_thread::walk::snapshot::Snapshot;
use sampler_thread::walk::stacks::StackWalker;
use sampler_thread::walk::vm::Vm;
use stackwalk::{Frame, Limits, Memory, Method, ScopeCache, Unreadable, Walker};

/// Bytes of a `Method` that determine its name: up to and including the pointer to its `ConstMethod`.
const NAME_BYTES: u64 = 16;

/// Bytes from the slot of the bytecode pointer to the frame pointer of an interpreted frame.
const BCP_BYTES: u64 = 64;

fn now() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(1);
    TICKS.fetch_add(1, Ordering::SeqCst)
}

/// A recorded process in which `old` becomes `new` when `replaced` is set.
struct Process {
    fixture: Fixture,
    old: Method,
    new: Method,
    replaced: Cell<bool>,
    /// True if the VM collects garbage and replaces the method at the next read of it.
    collects_at_read: Cell<bool>,
    unloading: Arc<Unloading>,
}

impl Process {
    fn collect(&self) {
        self.unloading.pause_begins(&self.fixture, || false, || {});
        self.replaced.set(true);
        self.unloading.pause_ends(&self.fixture);
    }
}

impl Memory for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.fixture.read(address, into)?;
        let shared =
            |at: u64| at.checked_sub(address).map(|offset| offset as usize).filter(|&at| at < into.len());
        let places: Vec<(usize, u64)> = (0..NAME_BYTES)
            .filter_map(|byte| Some((shared(self.old.0 + byte)?, self.new.0 + byte)))
            .collect();
        if places.is_empty() {
            return Ok(());
        }
        if self.replaced.get() {
            for (place, source) in places {
                into[place] = self.fixture.read_u8(source)?;
            }
        }
        if self.collects_at_read.take() {
            self.collect();
        }
        Ok(())
    }
}

/// A process, the stack of one thread, a walker and a namer.
struct Scene {
    process: &'static Process,
    vm: Vm<&'static Process>,
    walker: StackWalker,
    namer: StackNamer,
    sent: Dictionary,
    thread: Thread,
    /// Address of the oldest frame's bytecode pointer.
    bcp: u64,
}

impl Scene {
    /// Prepares the replacement of the oldest frame's method by that of another frame.
    fn new() -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
        let mut fixture = Fixture::load(&fixtures.join("jdk21-x86_64/stacks.bin"));
        let place = fixture.threads.iter().position(|thread| thread.name == "quiet-recursion");
        let thread = fixture.threads.swap_remove(place.expect("recorded"));
        let hotspot = fixture.hotspot();
        let mut cache = Box::new(ScopeCache::new());
        let mut walker = Walker::new(&hotspot, &fixture, &mut cache, Limits::default());
        let frames: Vec<Frame> = walker.frames(&thread.capture, &thread.stack).collect();
        let interpreted = |frame: &Frame| matches!(frame, Frame::Interpreted { .. });
        let bcp =
            frames.iter().rfind(|frame| interpreted(frame)).expect("interpreted").place().fp - BCP_BYTES;
        let methods: Vec<Method> = frames.iter().filter_map(Frame::method).collect();
        let old = *methods.last().expect("frames");
        let new = *methods.iter().find(|method| **method != old).expect("two methods");
        let unloading = Arc::new(Unloading::new(
            Detector::Pauses,
            CodeFreeing::default(),
            sampler_thread::proof::redefinition::Redefinition::default(),
            Duration::ZERO,
            now,
            Vec::new(),
        ));
        let (replaced, collects_at_read) = (Cell::new(false), Cell::new(false));
        let process =
            Process { fixture, old, new, replaced, collects_at_read, unloading: Arc::clone(&unloading) };
        let process: &'static Process = Box::leak(Box::new(process));
        let vm = Vm { hotspot: Arc::new(hotspot), memory: process };
        let mut walker = StackWalker::new(unloading, Arc::default(), true, 2048);
        walker.begin_drain(&vm);
        Self {
            process,
            vm,
            walker,
            namer: StackNamer::new(Capabilities::ALL, Arc::default(), Shown::default()),
            sent: Dictionary::default(),
            thread,
            bcp,
        }
    }

    /// Moves the oldest frame to its next bytecode.
    fn step_bytecode(&mut self) {
        let slot = usize::try_from(self.bcp - self.thread.capture.stack_low).expect("copied");
        self.thread.stack[slot] += 1;
    }

    /// Walks and names the stack for a sample at `ticks`.
    fn sample(&mut self, ticks: u64) -> NamedStack {
        let Thread { capture, stack, .. } = &self.thread;
        let snapshot = Snapshot { stack, ..Snapshot::of_registers(*capture) };
        self.walker.begin_group();
        let walk = self.walker.walk(&self.vm, &snapshot, ticks);
        let named = self.namer.name(&self.vm, &mut self.walker, &walk, &snapshot, None, None);
        self.take_sent();
        named
    }

    /// Walks the stack twice, lets the VM collect garbage, and only then names both.
    fn sample_group_over_a_collection(&mut self) -> [NamedStack; 2] {
        let Thread { capture, stack, .. } = &self.thread;
        let snapshot = Snapshot { stack, ..Snapshot::of_registers(*capture) };
        self.walker.begin_group();
        let walks = [now(), now()].map(|ticks| self.walker.walk(&self.vm, &snapshot, ticks));
        self.process.collect();
        let named =
            walks.map(|walk| self.namer.name(&self.vm, &mut self.walker, &walk, &snapshot, None, None));
        self.take_sent();
        named
    }

    fn take_sent(&mut self) {
        if let Some(more) = self.namer.names.dictionaries.take_pending() {
            assert_eq!(append(&mut self.sent, more), None, "ids are consecutive");
        }
    }

    fn sample_now(&mut self) -> NamedStack {
        self.sample(now())
    }

    /// Returns the name of the oldest frame, whose method is replaced.
    fn root(&self, named: NamedStack) -> String {
        let sent = self.sent.entries.as_ref().expect("entries");
        let place = |number: u32, first: u32| number.checked_sub(first).map(|place| place as usize);
        let text = |number: u32| {
            let text = place(number, sent.first_string).and_then(|place| sent.string.get(place));
            text.cloned().unwrap_or_default()
        };
        let name = |number: u32| {
            let frame = place(number, sent.first_frame).expect("sent");
            match place(sent.frame_method[frame], sent.first_method) {
                Some(method) => {
                    format!("{}.{}", text(sent.method_class[method]), text(sent.method_name[method]))
                }
                None => text(sent.frame_symbol[frame]),
            }
        };
        let mut frames = Vec::new();
        let mut node = place(u32::try_from(named.id).expect("a number"), sent.first_node).expect("sent");
        while sent.node_parent[node] != 0 {
            frames.push(sent.node_frame[node]);
            node -= sent.node_parent[node] as usize;
        }
        // Older frames are C frames that called Java; the recording has no libraries for them.
        let is_java = |name: &String| name == "[unloaded]" || name.contains('.');
        frames.into_iter().rev().map(name).find(is_java).unwrap_or_default()
    }
}

#[test]
fn a_reused_address_gets_its_new_name() {
    let mut scene = Scene::new();
    let before = scene.sample_now();
    let old_name = scene.root(before);
    assert!(old_name.contains('.') && before.unloaded == 0, "{old_name}");
    let again = scene.sample_now();
    assert_eq!(scene.root(again), old_name, "the name is cached");

    let queued = now();
    scene.process.collect();
    let late = scene.sample(queued);
    assert_eq!(
        scene.root(late),
        "[unloaded]",
        "the name of a sample from before the collection is not guessed"
    );
    assert!(late.unloaded > 0);

    let after = scene.sample_now();
    assert_eq!(after.unloaded, 0);
    let new_name = scene.root(after);
    assert!(new_name.contains('.') && new_name != old_name, "{new_name} in place of {old_name}");
}

#[test]
fn a_method_replaced_while_its_name_is_read_is_unloaded() {
    let mut scene = Scene::new();
    scene.process.collects_at_read.set(true);
    let during = scene.sample_now();
    assert!(scene.process.replaced.get(), "the name was being read");
    assert_eq!(scene.root(during), "[unloaded]");
    let after = scene.sample_now();
    assert_eq!(after.unloaded, 0, "nothing of the inconsistent read is kept");
    assert!(scene.root(after).contains('.'));
}

/// The line of a bytecode that is met for the first time, in a method whose name is known.
#[test]
fn a_method_replaced_while_its_line_is_read_is_unloaded() {
    let mut scene = Scene::new();
    let before = scene.sample_now();
    assert!(scene.root(before).contains('.') && before.unloaded == 0);
    scene.step_bytecode();
    // The walk reads the method as well, but its bytecodes are known.
    scene.process.collects_at_read.set(true);
    let during = scene.sample_now();
    assert!(scene.process.replaced.get(), "the line was being read");
    assert_eq!(scene.root(during), "[unloaded]", "the line may be another method's");
}

#[test]
fn a_stack_walked_before_a_collection_and_named_after_it_lacks_only_names() {
    let mut scene = Scene::new();
    for late in scene.sample_group_over_a_collection() {
        assert_eq!(scene.root(late), "[unloaded]", "no name is guessed");
        assert!(late.complete && late.is_late, "the walk is whole: {late:?}");
    }
    // A walk after the collection is cut.
    let queued = now();
    scene.process.collect();
    let too_late = scene.sample(queued);
    assert!(!too_late.complete && too_late.is_late, "{too_late:?}");
}

#[test]
fn a_stack_walked_before_a_collection_keeps_names_known_then() {
    let mut scene = Scene::new();
    let before = scene.sample_now();
    let old_name = scene.root(before);
    for late in scene.sample_group_over_a_collection() {
        assert_eq!(scene.root(late), old_name);
        assert!(late.complete && late.unloaded == 0, "{late:?}");
    }
    let after = scene.sample_now();
    assert_ne!(scene.root(after), old_name, "the address means another method now");
}
