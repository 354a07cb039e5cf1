//! A `Method*` that is freed and used again must not keep, or lend, a name.
//!
//! The stack of a real JVM, recorded by `stackwalk`, is resolved over memory in which one method's address is given
//! to another method at a chosen moment.

#![allow(missing_docs)]

#[path = "../../stackwalk/tests/support/fixture.rs"]
mod fixture;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fixture::{Fixture, Thread};
use proto::v1::Dictionary;
use sampler_thread::intern::Dictionaries;
use sampler_thread::resolve::{Resolved, Resolver};
use sampler_thread::self_test::Trust;
use sampler_thread::snapshot::Snapshot;
use sampler_thread::unloading::{Detector, Unloading};
use stackwalk::{Frame, Limits, Memory, Method, ScopeCache, Unreadable, Walker};

/// Bytes of a `Method` that tell its name: up to and including the pointer to its `ConstMethod`.
const METHOD_HEAD: u64 = 16;

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
    /// Set: the VM collects garbage and replaces the method as soon as it is read.
    ambush: Cell<bool>,
    unloading: Arc<Unloading>,
}

impl Process {
    fn collect(&self) {
        self.unloading.pause_begins(|| false, || {});
        self.replaced.set(true);
        self.unloading.pause_ends(&self.fixture);
    }
}

impl Memory for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let in_old = address >= self.old.0 && address < self.old.0 + METHOD_HEAD;
        if in_old && self.ambush.take() {
            self.fixture.read(address, into)?;
            self.collect();
            return Ok(());
        }
        let moved = if in_old && self.replaced.get() { address - self.old.0 + self.new.0 } else { address };
        self.fixture.read(moved, into)
    }
}

/// A process, the stack of one thread, a resolver and its dictionaries.
struct Scene {
    process: &'static Process,
    resolver: Resolver<&'static Process>,
    dictionaries: Dictionaries,
    sent: Dictionary,
    thread: Thread,
}

impl Scene {
    /// The method of the oldest frame will be replaced by that of another frame.
    fn new() -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
        let mut fixture = Fixture::load(&fixtures.join("jdk21-x86_64/stacks.bin"));
        let place = fixture.threads.iter().position(|thread| thread.name == "quiet-recursion");
        let thread = fixture.threads.swap_remove(place.expect("recorded"));
        let hotspot = fixture.hotspot();
        let mut cache = Box::new(ScopeCache::new());
        let mut walker = Walker::new(&hotspot, &fixture, &mut cache, Limits::default());
        let frames = walker.frames(&thread.capture, &thread.stack);
        let methods: Vec<Method> = frames.filter_map(|frame: Frame| frame.method()).collect();
        let old = *methods.last().expect("frames");
        let new = *methods.iter().find(|method| **method != old).expect("two methods");
        let unloading = Arc::new(Unloading::new(Detector::Pauses, Duration::ZERO, now, Vec::new()));
        let (replaced, ambush) = (Cell::new(false), Cell::new(false));
        let process = Process { fixture, old, new, replaced, ambush, unloading: Arc::clone(&unloading) };
        let process: &'static Process = Box::leak(Box::new(process));
        let mut resolver = Resolver::new(Arc::new(hotspot), process, unloading, Trust::ALL);
        resolver.begin_drain();
        let (dictionaries, sent) = (Dictionaries::default(), Dictionary::default());
        Self { process, resolver, dictionaries, sent, thread }
    }

    fn resolve(&mut self, ticks: u64) -> Resolved {
        let Thread { capture, stack, .. } = &self.thread;
        let snapshot = Snapshot { stack, ..Snapshot::of_registers(*capture) };
        let resolved = self.resolver.resolve(&snapshot, ticks, None, &mut self.dictionaries);
        if let Some(more) = self.dictionaries.take_pending() {
            self.sent.strings.extend(more.strings);
            self.sent.methods.extend(more.methods);
            self.sent.frames.extend(more.frames);
            self.sent.stacks.extend(more.stacks);
        }
        resolved
    }

    fn resolve_now(&mut self) -> Resolved {
        self.resolve(now())
    }

    /// Name of the oldest frame, the one of the method that is replaced.
    fn root(&self, resolved: Resolved) -> String {
        let text = |id: u64| {
            let entry = self.sent.strings.iter().find(|entry| entry.id == id);
            entry.map_or(String::new(), |entry| entry.text.clone())
        };
        let stack = self.sent.stacks.iter().find(|stack| stack.id == resolved.stack).expect("sent");
        let name = |id: &u64| {
            let frame = self.sent.frames.iter().find(|frame| frame.id == *id).expect("sent");
            match self.sent.methods.iter().find(|method| method.id == frame.method) {
                Some(method) => format!("{}.{}", text(method.class_name), text(method.name)),
                None => text(frame.symbol),
            }
        };
        // Below lie the C frames that called Java, of which the recording holds no libraries.
        let is_java = |name: &String| name == "[unloaded]" || name.contains('.');
        stack.frames.iter().rev().map(name).find(is_java).unwrap_or_default()
    }
}

#[test]
fn a_reused_address_gets_its_new_name() {
    let mut scene = Scene::new();
    let before = scene.resolve_now();
    let old_name = scene.root(before);
    assert!(old_name.contains('.') && before.unloaded == 0, "{old_name}");
    let again = scene.resolve_now();
    assert_eq!(scene.root(again), old_name, "the name is remembered");

    let queued = now();
    scene.process.collect();
    let late = scene.resolve(queued);
    assert_eq!(scene.root(late), "[unloaded]", "a sample from before the collection is not guessed");
    assert!(late.unloaded > 0);

    let after = scene.resolve_now();
    assert_eq!(after.unloaded, 0);
    let new_name = scene.root(after);
    assert!(new_name.contains('.') && new_name != old_name, "{new_name} in place of {old_name}");
}

#[test]
fn a_method_that_is_replaced_while_its_name_is_read_has_none() {
    let mut scene = Scene::new();
    scene.process.ambush.set(true);
    let torn = scene.resolve_now();
    assert!(scene.process.replaced.get(), "the name was being read");
    assert_eq!(scene.root(torn), "[unloaded]");
    let after = scene.resolve_now();
    assert_eq!(after.unloaded, 0, "nothing of the torn reading was kept");
    assert!(scene.root(after).contains('.'));
}
