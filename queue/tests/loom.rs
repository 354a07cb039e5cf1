//! Exhaustive interleavings, up to a bound on preemptions, of every protocol between handler and drain.
//!
//! Each protocol has one model, run twice: as it is, where it must hold in all interleavings, and with each of
//! the orders it rests on weakened, where loom must find a failure.
//! Rings hold 2 requests here (see `capacity.rs`).
//!
//! The weakened runs are necessary. Loom 0.7 keeps only the last access to an atomic, so a load by one thread
//! hides an earlier load by another from the store that races with it, and a model can pass because nothing was
//! explored. For the guessed handles below this depends on which role is spawned and which stays on the main thread.

#![cfg(loom)]
#![allow(missing_docs)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU8;
use loom::thread;
use queue::{
    Capacity, Element, ElementRing, Fault, ReadySet, Request, RingEnds, RingStorage, SlabClass,
    SnapshotHandle, SnapshotPool, ThreadQueue, with_fault,
};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `model` intact, then once for each of `faults`, which must make it fail; prints how many interleavings were
/// explored.
fn check(model: fn(), faults: &[Fault]) {
    let explored = std::sync::Arc::new(AtomicU64::new(0));
    explore(model, &explored);
    let intact = explored.swap(0, Ordering::Relaxed);
    assert!(intact > 1, "nothing but one interleaving was explored");
    let mut found = Vec::new();
    for &fault in faults {
        let outcome = catch_unwind(AssertUnwindSafe(|| with_fault(fault, || explore(model, &explored))));
        assert!(outcome.is_err(), "loom accepts the model without {fault:?}");
        found.push(format!("without {fault:?} it fails in number {}", explored.swap(0, Ordering::Relaxed)));
    }
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // Written to the file descriptor: the test runner hides the output of a passing test.
    let _ = writeln!(std::io::stderr(), "{name}: holds in {intact} interleavings; {}", found.join(", "));
}

fn explore(model: fn(), explored: &std::sync::Arc<AtomicU64>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    let explored = std::sync::Arc::clone(explored);
    builder.check(move || {
        explored.fetch_add(1, Ordering::Relaxed);
        model();
    });
}

fn ring() -> RingEnds {
    Box::leak(Box::new(RingStorage::<3>::new())).split()
}

fn installed_queue() -> ThreadQueue {
    let queue = ThreadQueue::new();
    assert!(queue.install(ring(), Capacity::Entries16).is_ok());
    queue
}

fn request(pc: u64) -> Request {
    Request { pc, ..Request::default() }
}

/// The ready set and queues of one model.
struct Shared {
    ready: ReadySet<'static>,
    queues: [ThreadQueue; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        let flags = Box::leak(Box::new([AtomicU8::new(0), AtomicU8::new(0)]));
        Arc::new(Self { ready: ReadySet::new(flags), queues: [installed_queue(), installed_queue()] })
    }

    /// Pushes and marks as a handler does.
    fn push_and_mark(&self, index: u32, pc: u64) {
        // SAFETY: each model pushes to a queue from one thread only.
        unsafe { self.queues[index as usize].push(request(pc)) }
            .expect("the models do not overfill the ring");
        self.ready.mark(index);
    }

    /// Takes the set once and drains what is in it; adds the requests to `seen`.
    fn sweep(&self, seen: &mut Vec<u64>) {
        for index in self.ready.take(2) {
            let drain = self.queues[index as usize].try_drain().expect("only this thread drains");
            seen.extend(drain.map(|request| request.pc));
        }
    }
}

#[test]
fn no_request_is_left_behind() {
    fn model() {
        let shared = Shared::new();
        let handler = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.push_and_mark(0, 1);
                shared.push_and_mark(0, 2);
            })
        };
        let mut seen = Vec::new();
        shared.sweep(&mut seen);
        shared.sweep(&mut seen);
        handler.join().unwrap();
        shared.sweep(&mut seen);
        assert_eq!(seen, [1, 2], "what is not marked has been drained");
    }
    check(model, &[Fault::Ready, Fault::ReadyTake]);
}

#[test]
fn a_mark_beside_a_set_flag_counts() {
    fn model() {
        let shared = Shared::new();
        shared.push_and_mark(0, 1);
        let handler = {
            let shared = shared.clone();
            thread::spawn(move || shared.push_and_mark(0, 2))
        };
        let mut seen = Vec::new();
        shared.sweep(&mut seen);
        handler.join().unwrap();
        shared.sweep(&mut seen);
        assert_eq!(seen, [1, 2], "the first sweep leaves the request or its flag");
    }
    check(model, &[Fault::ReadyAlways, Fault::ReadyTake]);
}

#[test]
fn a_taken_flag_brings_its_request() {
    fn model() {
        let shared = Shared::new();
        let handler = {
            let shared = shared.clone();
            thread::spawn(move || shared.push_and_mark(1, 7))
        };
        // The only mark: the drain that takes it must see the request, because nothing marks it again.
        let mut seen = Vec::new();
        let taken = shared.ready.take(2).count();
        if taken == 1 {
            seen.extend(
                shared.queues[1].try_drain().expect("only this thread drains").map(|request| request.pc),
            );
            assert_eq!(seen, [7]);
        }
        handler.join().unwrap();
        shared.sweep(&mut seen);
        assert_eq!(seen, [7]);
    }
    check(model, &[Fault::Ready]);
}

#[test]
fn two_handlers_are_each_seen_once() {
    fn model() {
        let shared = Shared::new();
        let handlers = [0, 1].map(|index: u32| {
            let shared = shared.clone();
            thread::spawn(move || shared.push_and_mark(index, index.into()))
        });
        let mut seen = Vec::new();
        shared.sweep(&mut seen);
        for handler in handlers {
            handler.join().unwrap();
        }
        shared.sweep(&mut seen);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
    }
    check(model, &[Fault::Ready]);
}

#[test]
fn drains_exclude_each_other() {
    fn model() {
        let queue = Arc::new(installed_queue());
        for pc in 1..=2 {
            // SAFETY: no other thread pushes.
            unsafe { queue.push(request(pc)) }.unwrap();
        }
        let drain_one = |queue: &ThreadQueue| queue.try_drain().and_then(|mut drain| drain.next());
        let other = {
            let queue = queue.clone();
            thread::spawn(move || drain_one(&queue))
        };
        let mut seen: Vec<u64> = drain_one(&queue).into_iter().map(|request| request.pc).collect();
        seen.extend(other.join().unwrap().map(|request| request.pc));
        seen.extend(queue.try_drain().unwrap().map(|request| request.pc));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    }
    check(model, &[Fault::Drain]);
}

#[test]
fn a_full_ring_refuses_and_recovers() {
    fn model() {
        let queue = Arc::new(installed_queue());
        let drain = |queue: &ThreadQueue| -> Vec<u64> {
            queue.try_drain().expect("one drain at a time").map(|request| request.pc).collect()
        };
        let drained = {
            let queue = queue.clone();
            thread::spawn(move || drain(&queue))
        };
        // SAFETY: this thread alone pushes.
        let pushed: Vec<u64> = (1..=3).filter(|&pc| unsafe { queue.push(request(pc)) }.is_ok()).collect();
        let mut seen = drained.join().unwrap();
        seen.extend(drain(&queue));
        assert_eq!(seen, pushed);
        assert!(pushed.starts_with(&[1, 2]), "the ring holds two");
    }
    check(model, &[Fault::RingTail]);
}

#[test]
fn a_slot_is_written_again_after_it_was_read() {
    fn model() {
        let queue = Arc::new(installed_queue());
        // SAFETY: this thread alone pushes, and then the handler below.
        let push = |queue: &ThreadQueue, pc| unsafe { queue.push(request(pc)) }.is_ok();
        assert!(push(&queue, 1) && push(&queue, 2));
        let handler = {
            let queue = queue.clone();
            // The first goes to the spare slot, the second to where request 1 was.
            thread::spawn(move || (3..=4).filter(|&pc| push(&queue, pc)).count())
        };
        let mut seen: Vec<u64> = queue.try_drain().unwrap().map(|request| request.pc).collect();
        let pushed = handler.join().unwrap();
        seen.extend(queue.try_drain().unwrap().map(|request| request.pc));
        assert!(seen.starts_with(&[1, 2]) && seen.len() == 2 + pushed);
    }
    check(model, &[Fault::RingHead]);
}

#[test]
fn ends_are_installed_once_and_whole() {
    fn model() {
        let queue = Arc::new(ThreadQueue::new());
        let installer = {
            let queue = queue.clone();
            thread::spawn(move || queue.install(ring(), Capacity::Entries16).is_ok())
        };
        // SAFETY: this thread alone pushes.
        let pushed = unsafe { queue.push(request(1)) }.is_ok();
        let mine = queue.install(ring(), Capacity::Entries16).is_ok();
        assert!(installer.join().unwrap() != mine, "exactly one install succeeds");
        assert!(!(pushed && mine), "a push needs ends that were installed before");
        let drained = queue.try_drain().unwrap().count();
        assert_eq!(drained, usize::from(pushed));
    }
    check(model, &[Fault::Install]);
}

fn larger_ring() -> RingEnds {
    Box::leak(Box::new(RingStorage::<5>::new())).split()
}

#[test]
fn a_hand_over_loses_nothing_and_keeps_the_order() {
    fn model() {
        let queue = Arc::new(installed_queue());
        let drained = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut drain = queue.try_drain().expect("one drain at a time");
                assert!(drain.offer(larger_ring()).is_ok());
                drain.by_ref().map(|request| request.pc).collect::<Vec<u64>>()
            })
        };
        // SAFETY: this thread alone pushes.
        let pushed: Vec<u64> = (1..=2).filter(|&pc| unsafe { queue.push(request(pc)) }.is_ok()).collect();
        let mut seen = drained.join().unwrap();
        seen.extend(queue.try_drain().unwrap().map(|request| request.pc));
        assert_eq!(seen, pushed);
    }
    check(model, &[Fault::Offer, Fault::Adopt, Fault::SecondLook]);
}

#[test]
fn a_marked_request_is_found_across_a_hand_over() {
    fn model() {
        let shared = Shared::new();
        let handler = {
            let shared = shared.clone();
            thread::spawn(move || shared.push_and_mark(0, 1))
        };
        let mut seen = Vec::new();
        assert!(shared.queues[0].try_drain().expect("one drain at a time").offer(larger_ring()).is_ok());
        // The flag is set once: the drain that takes it must follow the handler to the ring that has the request.
        shared.sweep(&mut seen);
        shared.sweep(&mut seen);
        handler.join().unwrap();
        shared.sweep(&mut seen);
        assert_eq!(seen, [1]);
    }
    check(model, &[Fault::Offer, Fault::Ready]);
}

#[test]
fn a_retired_ring_is_unused() {
    fn model() {
        let queue = Arc::new(installed_queue());
        let drained = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut drain = queue.try_drain().expect("one drain at a time");
                assert!(drain.offer(larger_ring()).is_ok());
                let seen = drain.by_ref().count();
                if let Some(retired) = drain.take_retired() {
                    // Its next user writes every slot.
                    let other = ThreadQueue::new();
                    assert!(other.install(retired, Capacity::Entries16).is_ok());
                    for round in 0..3 {
                        // SAFETY: this queue is local.
                        assert!(unsafe { other.push(request(round)) }.is_ok());
                        assert_eq!(other.try_drain().unwrap().count(), 1);
                    }
                }
                seen
            })
        };
        // SAFETY: this thread alone pushes.
        let pushed = (1..=2).filter(|&pc| unsafe { queue.push(request(pc)) }.is_ok()).count();
        let seen = drained.join().unwrap() + queue.try_drain().unwrap().count();
        assert_eq!(seen, pushed);
    }
    check(model, &[Fault::Adopt]);
}

#[test]
fn an_offer_passes_to_the_next_owner() {
    fn model() {
        let queue = Arc::new(installed_queue());
        let handler = {
            let queue = queue.clone();
            // SAFETY: this thread alone pushes, and the one that joins it afterwards.
            thread::spawn(move || unsafe { queue.push(request(1)) }.is_ok())
        };
        assert!(queue.try_drain().expect("one drain at a time").offer(larger_ring()).is_ok());
        assert!(handler.join().unwrap());
        // SAFETY: the thread that pushed has ended.
        unsafe { queue.adopt() };
        let mut drain = queue.try_drain().unwrap();
        assert_eq!(drain.by_ref().count(), 1);
        assert_eq!(drain.take_retired().map(|ring| ring.entries()), Some(2));
        assert_eq!(drain.entries(), 4);
    }
    check(model, &[Fault::Offer]);
}

/// A pool whose slabs have shadows in loom's cells, so that loom sees who touches a slab when.
struct Shadowed {
    pool: SnapshotPool<'static>,
    shadows: Vec<UnsafeCell<u64>>,
}

// SAFETY: the cells are accessed under the pool's protocol, which loom checks here.
unsafe impl Sync for Shadowed {}

impl Shadowed {
    fn new(slabs: usize) -> Arc<Self> {
        Self::with_spare(slabs, 0)
    }

    fn with_spare(slabs: usize, spare: usize) -> Arc<Self> {
        let plan = [SlabClass { bytes: 64, count: slabs, spare }];
        let slabs = slabs + spare;
        let region = Box::leak(Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + 63));
        let shadows = (0..slabs).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { pool: SnapshotPool::new(region, &plan).unwrap(), shadows })
    }

    /// The number a handle carries in its low bits, plus one.
    fn shadow(&self, handle: SnapshotHandle) -> &UnsafeCell<u64> {
        &self.shadows[(handle.bits() & 0xf_ffff) as usize - 1]
    }

    /// Acquires a slab, writes `value` to its shadow and publishes it.
    fn fill(&self, value: u64) -> Option<SnapshotHandle> {
        let slab = self.pool.acquire(8)?;
        self.shadows[slab.number()].with_mut(|shadow| {
            // SAFETY: the slab is ours, which loom checks.
            unsafe { *shadow = value }
        });
        // SAFETY: nothing is claimed to be written.
        Some(unsafe { slab.publish(0) })
    }

    /// Reads the shadow of a published slab.
    fn read(&self, handle: SnapshotHandle) -> Option<u64> {
        let _view = self.pool.view(handle, 0)?;
        Some(self.shadow(handle).with(|shadow| {
            // SAFETY: the view is ours, which loom checks.
            unsafe { *shadow }
        }))
    }
}

#[test]
fn slabs_pass_from_reader_to_writer() {
    fn model() {
        let shared = Shadowed::new(1);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.fill(1).map(|handle| shared.read(handle)))
        };
        let mine = shared.fill(2).map(|handle| shared.read(handle));
        let theirs = other.join().unwrap();
        assert!(mine.is_some() || theirs.is_some());
        assert!(mine.is_none_or(|read| read == Some(2)) && theirs.is_none_or(|read| read == Some(1)));
        assert_eq!(shared.pool.stats().in_use(), 0);
    }
    check(model, &[Fault::FreeList]);
}

#[test]
fn a_slab_taken_out_of_service_is_unused() {
    fn model() {
        let shared = Shadowed::with_spare(1, 1);
        assert_eq!(shared.pool.grow(0, 1), 1);
        let _kept = shared.fill(9).expect("nobody else acquires");
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.fill(1).map(|handle| shared.read(handle)))
        };
        let shrunk = shared.pool.shrink(0, 1, |_| {
            // The pages of the only spare slab are returned, which counts as a write.
            shared.shadows[1].with_mut(|shadow| {
                // SAFETY: the slab is out of service, which loom checks.
                unsafe { *shadow = 0 }
            });
        });
        let read = other.join().unwrap();
        assert!(read.is_none_or(|read| read == Some(1)));
        assert!(shrunk == 1 || read.is_some(), "one of the two had it");
    }
    check(model, &[Fault::FreeList]);
}

#[test]
fn a_recycled_top_is_not_mistaken_for_an_unchanged_one() {
    fn model() {
        let shared = Shadowed::new(2);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || [shared.fill(3), shared.fill(4)])
        };
        // Takes both and returns the first: the top is the same, but the slab below it is taken.
        let first = shared.fill(1);
        let second = shared.fill(2);
        if let Some(first) = first {
            shared.pool.release(first);
        }
        let theirs = other.join().unwrap();
        let held = theirs.into_iter().chain([second]).flatten();
        let mut held: Vec<u32> = held.map(|handle| handle.bits() & 0xf_ffff).collect();
        let count = held.len();
        held.sort_unstable();
        held.dedup();
        assert_eq!(held.len(), count, "a slab was given out twice");
    }
    check(model, &[Fault::FreeListTag, Fault::FreeList]);
}

#[test]
fn a_guessed_handle_never_reads_a_slab_being_written() {
    fn model() {
        let shared = Shadowed::new(1);
        // The only slab's first generation, as its holder will get it.
        let guess = SnapshotHandle::from_bits(1 << 20 | 1);
        let thief = {
            let shared = shared.clone();
            thread::spawn(move || shared.read(guess))
        };
        let handle = shared.fill(1).expect("nobody else acquires");
        assert_eq!(handle, guess);
        let rightful = shared.read(handle);
        let stolen = thief.join().unwrap();
        assert!(stolen.is_none_or(|value| value == 1));
        assert!(stolen.is_some() != rightful.is_some(), "one of them reads it");
        assert_eq!(shared.pool.stats().in_use(), 0);
    }
    check(model, &[Fault::Filled]);
}

#[test]
fn a_guessed_release_lets_the_next_writer_wait_for_the_previous() {
    fn model() {
        let shared = Shadowed::new(1);
        let guess = SnapshotHandle::from_bits(1 << 20 | 1);
        let thief = {
            let shared = shared.clone();
            thread::spawn(move || {
                if shared.pool.release(guess) {
                    assert!(shared.fill(2).is_some(), "the released slab is free");
                }
            })
        };
        assert_eq!(shared.fill(1), Some(guess));
        thief.join().unwrap();
    }
    check(model, &[Fault::Filled]);
}

#[test]
fn a_stale_handle_is_refused_while_the_slab_is_used_again() {
    fn model() {
        let shared = Shadowed::new(1);
        let stale = shared.fill(1).expect("nobody else acquires");
        assert_eq!(shared.read(stale), Some(1));
        let holder = {
            let shared = shared.clone();
            // No exchange of the stale holder may meet the writer's plain stores.
            thread::spawn(move || {
                assert_eq!(shared.read(stale), None);
                assert!(!shared.pool.release(stale));
            })
        };
        let handle = shared.fill(2).expect("nobody else acquires");
        holder.join().unwrap();
        assert_eq!(shared.read(stale), None);
        assert_eq!(shared.read(handle), Some(2));
        assert_eq!(shared.pool.stats().in_use(), 0);
    }
    check(model, &[Fault::Generation]);
}

/// The producer changes the newest element while the consumer takes what it can: the consumer takes the changed
/// element, or the producer is refused, or the element stays.
#[test]
fn a_pinned_element_is_not_taken() {
    fn model() {
        let elements: Box<[Element]> = (0..2).map(|_| Element::default()).collect();
        let ring = Arc::new(ElementRing::new(elements));
        assert!(ring.push([1; 4], [1; 3]));
        let consumer = Arc::clone(&ring);
        let consumer = thread::spawn(move || {
            consumer.claim(false);
            consumer.first().is_some()
        });
        let is_pinned = ring.pin(-1).is_some();
        let is_taken = consumer.join().unwrap();
        assert!(!(is_pinned && is_taken), "both use the element");
    }
    check(model, &[Fault::Pin]);
}
