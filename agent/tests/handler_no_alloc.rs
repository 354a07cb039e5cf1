//! The handler under real signals, without a JVM: it allocates nothing, keeps errno, counts every loss, copies the
//! interrupted stack, and forwards foreign signals.
//!
//! One test in this file, because it installs a process-wide handler and replaces malloc.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "short sequences of system calls on the test's own memory"
)]

mod support;

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use queue::{Capacity, Lost, LostCause, RingEnds, SlabClass};
use sampler_thread::clock::ThreadClock;
use sampler_thread::walk::snapshot::{Snapshot, SnapshotHead};
use support::send;
use tickwalk::clock::grid::Key;
use tickwalk::clock::timer::Timer;
use tickwalk::handler::install;
use tickwalk::handler::slots::{self, Shared};

static CALLS: AtomicU64 = AtomicU64::new(0);
static IN_HANDLER_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static TICKING: AtomicI32 = AtomicI32::new(0);
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn gettid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// Counts a call of an allocator.
fn count() {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let busy = slots::shared().is_some_and(|shared| shared.slots[SLOT].busy.load(Ordering::Relaxed));
    // While the handler runs on the ticking thread, an allocation there is the handler's; other threads of the test
    // harness allocate at any time.
    if busy && gettid() == TICKING.load(Ordering::Relaxed) {
        IN_HANDLER_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
}

// The program's functions of these names are called instead of glibc's, by glibc as well. The agent's allocator
// maps large blocks itself, by mmap(2).

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: by the caller's promise, as below.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above.
    unsafe { __libc_calloc(number, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above.
    unsafe { __libc_realloc(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    count();
    // SAFETY: as above.
    unsafe { __libc_free(block) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: i32,
    flags: i32,
    file: i32,
    offset: i64,
) -> *mut c_void {
    count();
    // SAFETY: as above; mmap(3) is this system call.
    unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, file, offset) as *mut c_void }
}

extern "C" fn foreign(_signal: i32) {
    FOREIGN.fetch_add(1, Ordering::Relaxed);
}

const SLOT: usize = 3;
const INTERVAL_NS: u64 = 4_000_000;

fn publish(signal: i32) -> &'static Shared {
    let plan = [SlabClass::fixed(512, 8), SlabClass::fixed(256 << 10, 64)];
    slots::publish(support::shared(signal, &plan, |number| (number + 1) * INTERVAL_NS, None))
}

/// Bounds of the calling thread's stack.
fn own_stack() -> std::ops::Range<u64> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut size) = (std::ptr::null_mut(), 0_usize);
    // SAFETY: the attributes are filled for the calling thread before they are read.
    unsafe {
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()), 0);
        assert_eq!(libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size), 0);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    low as u64..low as u64 + size as u64
}

#[derive(Default)]
struct Drained {
    requests: u64,
    periods: u64,
    period: u8,
    markers: u64,
}

/// Drains everything that is ready, and counts copies with `marker`.
fn drain(shared: &'static Shared, marker: u64, drained: &mut Drained) {
    let ready: Vec<u32> = shared.ready.take(SLOT as u32 + 1).collect();
    for slot in ready {
        let Some(requests) = shared.slots[slot as usize].queue.try_drain() else {
            continue;
        };
        for request in requests {
            drained.requests += 1;
            drained.periods += request.periods();
            drained.period = request.flags.period();
            let view = shared.pool.view(request.snapshot, request.snapshot_len as usize).expect("a snapshot");
            let Snapshot { head, stack, .. } = Snapshot::read(view.bytes()).expect("a head");
            let SnapshotHead { capture, previous_cycles, .. } = head;
            assert_eq!(
                previous_cycles == 0,
                drained.requests == 1,
                "every run but the first has the cycles of the one before"
            );
            assert_eq!((capture.pc, capture.sp, capture.fp), (request.pc, request.sp, request.fp));
            assert_eq!(capture.stack_low, capture.sp);
            let words =
                stack.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
            drained.markers += u64::from(words.into_iter().any(|word| word == marker));
        }
    }
}

fn own_cpu_ns() -> u64 {
    sampler_thread::clock::own_cpu_nanos()
}

#[test]
fn real_ticks_neither_allocate_nor_get_lost() {
    let signal = install::choose(None, install::Sender::Timers).expect("a free signal");
    TICKING.store(gettid(), Ordering::Relaxed);
    // SAFETY: a handler with one argument, installed before ours.
    let previous = unsafe { libc::signal(signal, foreign as *const () as usize) };
    assert_eq!(previous, libc::SIG_DFL);
    let shared = publish(signal);
    install::install(signal).expect("installed");

    let slot = &shared.slots[SLOT];
    let region =
        Box::leak(vec![MaybeUninit::<u8>::uninit(); Capacity::Entries32.bytes() + 64].into_boxed_slice());
    let skip = region.as_ptr().align_offset(8);
    let ends = RingEnds::in_region(Capacity::Entries32, &mut region[skip..]).expect("room");
    assert!(slot.queue.install(ends, Capacity::Entries32).is_ok());
    let stack = own_stack();
    slot.stack_low.store(stack.start, Ordering::Relaxed);
    slot.stack_high.store(stack.end, Ordering::Relaxed);
    let slot_address: *const libc::c_void = std::ptr::from_ref(slot).cast();

    // A word that is on this stack, and never in a register for long.
    let marker = std::hint::black_box([0x7157_a1c4_0000_0000_u64 | u64::from(std::process::id()), 1, 2, 3]);
    let mut drained = Drained::default();

    // Thousands of timer signals, some of which find the queue full.
    const SENT: u64 = 5_000;
    for i in 0..SENT {
        // SAFETY: errno of the calling thread.
        unsafe { *libc::__errno_location() = 1234 };
        send(signal, libc::SI_TIMER, slot_address);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 1234);
        if i % 40 == 0 {
            drain(shared, marker[0], &mut drained);
        }
    }
    drain(shared, marker[0], &mut drained);
    let lost = |cause: LostCause| slot.queue.lost().snapshot()[cause.index()];
    let full = lost(LostCause::QueueFull);
    assert!(full.count > 0, "the queue of 32 overflows between drains of 40");
    assert_eq!(drained.requests + full.count, SENT);
    assert_eq!(full.nanos, full.count * INTERVAL_NS);
    assert_eq!(drained.markers, drained.requests, "every copy holds the interrupted frames");

    // Real ticks of a real timer: expirations account for all CPU time.
    let before = (drained.requests, own_cpu_ns());
    let timer = Timer::create(ThreadClock::Cpu, gettid(), signal, slot_address.cast_mut()).expect("a timer");
    let armed = own_cpu_ns();
    timer.start(Duration::from_nanos(INTERVAL_NS), Duration::from_nanos(INTERVAL_NS)).expect("started");
    let periods_before = drained.periods;
    // The ticks of a second on any kernel; more time where the clock advances while the machine is stopped.
    while own_cpu_ns() < armed + 1_000_000_000
        || (drained.requests < before.0 + 50 && own_cpu_ns() < armed + 60_000_000_000)
    {
        drain(shared, marker[0], &mut drained);
    }
    let used_at_least = own_cpu_ns() - armed;
    drop(timer);
    let used = own_cpu_ns() - armed;
    drain(shared, marker[0], &mut drained);
    let sampled = (drained.periods - periods_before) * INTERVAL_NS;
    assert!(drained.requests >= before.0 + 50, "a second of CPU time brings at least 50 ticks on any kernel");
    // One period is open, and an expiration waits for a tick: of a thread that runs in bursts shorter than the
    // usual one of 4 ms, 15 of them are exceeded once in 3 million times.
    assert!(
        sampled <= used && sampled + INTERVAL_NS + 60_000_000 > used_at_least,
        "sampled {sampled} of {used_at_least} to {used} ns"
    );

    // With distances between samples, what is passed over joins the weight of the next one.
    const DISTANCE: u64 = 10;
    const PASSED: u64 = 4_000;
    let before = (drained.requests, drained.periods);
    shared.distance_ns.store(DISTANCE * INTERVAL_NS, Ordering::Relaxed);
    slot.draw.begin(0, 0x9e37_79b9_7f4a_7c15, 0);
    for i in 0..PASSED {
        send(signal, libc::SI_TIMER, slot_address);
        if i % 40 == 0 {
            drain(shared, marker[0], &mut drained);
        }
    }
    drain(shared, marker[0], &mut drained);
    let (requests, periods) = (drained.requests - before.0, drained.periods - before.1);
    assert!(
        requests.abs_diff(PASSED / DISTANCE) <= 30,
        "{requests} samples, 400 with a deviation of 6 expected"
    );
    assert!((PASSED - DISTANCE * 3 / 2..=PASSED).contains(&periods), "{periods} of {PASSED} periods");
    shared.distance_ns.store(0, Ordering::Relaxed);

    // The timer is replaced by one with another period: signals of the old one come too late and count for nothing.
    let next = Key::default().next(2);
    let expired = slot.grid.switch(next);
    assert_eq!(expired, SENT + drained.periods - periods_before, "every expiration was claimed once");
    let before = drained.requests;
    send(signal, libc::SI_TIMER, slot_address);
    assert_eq!(lost(LostCause::Overtaken), Lost { cause: LostCause::Overtaken, count: 1, nanos: 0 });
    send(signal, libc::SI_TIMER, slot.signal_value(next));
    drain(shared, marker[0], &mut drained);
    assert_eq!(
        (drained.requests, drained.period),
        (before + 1, 2),
        "the request has the index of the period"
    );

    // A key is used again by another timer: a late signal of the earlier one, whose number differs, counts for nothing.
    let before = drained.requests;
    slot.timer.store(2, Ordering::Relaxed);
    send(signal, libc::SI_TIMER, slot.signal_value(next));
    drain(shared, marker[0], &mut drained);
    assert_eq!((drained.requests, lost(LostCause::Overtaken).count), (before, 2));
    slot.timer.store(1, Ordering::Relaxed);

    // Foreign signals go to their handler.
    assert_eq!(FOREIGN.load(Ordering::Relaxed), 0);
    send(signal, libc::SI_QUEUE, slot_address);
    send(signal, libc::SI_TIMER, std::ptr::null());
    send(signal, libc::SI_TIMER, slot_address.wrapping_byte_add(64));
    send(signal, libc::SI_TIMER, std::ptr::from_ref(&marker).cast());
    assert_eq!(FOREIGN.load(Ordering::Relaxed), 4);

    // After the end, a late signal is counted and captures nothing.
    shared.stopping.store(true, Ordering::Release);
    send(signal, libc::SI_TIMER, slot.signal_value(next));
    assert_eq!(lost(LostCause::Stopping).count, 1);

    assert_eq!(shared.pool.stats().in_use(), 0, "every slab was returned");
    assert_ne!(CALLS.load(Ordering::Relaxed), 0, "allocations are counted");
    assert_eq!(IN_HANDLER_ALLOCATIONS.load(Ordering::Relaxed), 0);
}
