//! The iterator generation: queues, the part outside of signal handlers.
//!
//! Approach: registering the first queue maps memory for stack copies and starts a thread. Every few milliseconds it
//! takes the elements of all queues and calls the client's functions with an iterator over each copy. (The proposal
//! calls them in the queue's own thread at a safepoint; the header states the differences.)
//! Invariants: client functions are called by one thread at a time, and none for a queue after `ASGST_DeregisterQueue`
//! has returned. An element captured before the VM unloaded classes or freed code has no frames, because they may be
//! wrong.
//! Sources: JVMTI 1.2 (ThreadEnd, VMDeath).

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "not called by handlers")]

use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use jvmti_sys::jvmtiEvent;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use parking_lot::{Condvar, Mutex};
use queue::{Element, SlabClass, SnapshotHandle, SnapshotPool};
use sampler_thread::native::variables::HiddenSymbols;
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::unloading::Detector;
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::Stop;

use super::api::{Api, api};
use super::elements::{Ring, free, new_ring};
use super::iterator::{ApiIterator, INCLUDE_NON_JAVA_FRAMES};
use super::queues::{self, Handler, MAX_ELEMENTS, Queue, Queues, queues};
use super::subject::Subject;
use super::walk::LiveWalk;
use crate::guest::{log, mappings};
use crate::handler::ucontext::thread_pointer;
use crate::jvmti::guard;

const THREAD_NAME: &str = "tickwalk-queues";

/// Time between two drains, and after a second without elements.
const PERIOD: Duration = Duration::from_millis(10);
const IDLE_PERIOD: Duration = Duration::from_millis(50);
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Time after which an element that a client has pinned may be taken: far longer than a signal handler runs.
const PIN_LASTS: Duration = Duration::from_millis(200);

/// Longest time that the end of the VM waits for the last drain.
const LAST_DRAIN: Duration = Duration::from_secs(2);

/// Slabs for stack copies: enough for 20 ms of sixteen threads that enqueue a thousand stacks a second. Unused pages
/// take no memory.
const SLABS: [SlabClass; 4] = [
    SlabClass::fixed(8 << 10, 1024),
    SlabClass::fixed(32 << 10, 256),
    SlabClass::fixed(160 << 10, 64),
    SlabClass::fixed((1 << 20) + 4096, 8),
];

/// `ASGST_OnQueueSafepointHandler`.
type Hook = unsafe extern "C" fn(*const Queue, *mut ApiIterator, *mut c_void);

/// A queue, with the state of its drain.
struct Registered {
    queue: &'static Queue,
    before: Option<(Hook, AtomicPtr<c_void>)>,
    end: Option<(Hook, AtomicPtr<c_void>)>,
    /// Number of pins, and when it last changed.
    pins: (u64, Instant),
    /// Rings that the owner has replaced, and when.
    left: Vec<(AtomicPtr<Ring>, Instant)>,
    /// The ring at the last drain.
    ring: AtomicPtr<Ring>,
    is_deregistered: bool,
}

/// All queues. Client functions are called without this lock.
static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
/// Held while client functions are called.
static HANDLING: Mutex<()> = Mutex::new(());
static DRAIN: Mutex<Option<Thread>> = Mutex::new(None);
/// Number of drains.
static ROUNDS: Mutex<Rounds> = Mutex::new(Rounds { ended: 0, requested: 0 });
static ROUND_ENDED: Condvar = Condvar::new();

struct Rounds {
    ended: u64,
    requested: u64,
}

/// Called in each round.
static ALSO: OnceLock<fn()> = OnceLock::new();

/// Starts the thread and has it call `work` in each round, like the functions of queues; only the first call has an
/// effect.
///
/// # Errors
/// No memory, or no thread.
pub fn also(api: &'static Api, work: fn()) -> io::Result<()> {
    let _ = ALSO.set(work);
    open(api).map(drop)
}

/// Waits until no client function runs, unless the caller is one.
pub fn await_functions() {
    if !queues().is_some_and(Queues::is_draining) {
        drop(HANDLING.lock());
    }
}

// ---------------------------------------------------------------- registration

/// Makes the memory of queues and starts the thread, once.
fn open(api: &'static Api) -> io::Result<&'static Queues> {
    let mut drain = DRAIN.lock();
    if let (Some(queues), Some(_)) = (queues(), drain.as_ref()) {
        return Ok(queues);
    }
    let region = mappings::map_forever(SnapshotPool::bytes_needed(&SLABS) + queue::SLAB_ALIGN)?;
    let pool = SnapshotPool::new(region, &SLABS).map_err(|error| io::Error::other(error.to_string()))?;
    let symbols = api.vm.library().map_or_else(HiddenSymbols::default, |library| {
        let (path, bias) = library.origin();
        HiddenSymbols::new(path, bias)
    });
    let detector = Detector::choose_without_events(&api.hotspot, api.memory, &symbols);
    let freeing = CodeFreeing::choose(&api.hotspot, api.memory, Arc::new(symbols));
    let queues: &'static Queues =
        Box::leak(Box::new(Queues { pool, detector, freeing, drain: AtomicU64::new(0) }));
    let mut before = SigSet::empty();
    // The new thread inherits the mask, so it handles no signal of the program.
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
    let body = move || {
        queues.drain.store(thread_pointer(), Ordering::Relaxed);
        guard::callback(|| run(api, queues));
    };
    let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    *drain = Some(thread?.thread().clone());
    drop(drain);
    queues::publish(queues);
    for event in [jvmtiEvent::JVMTI_EVENT_THREAD_END, jvmtiEvent::JVMTI_EVENT_VM_DEATH] {
        if let Err(error) = api.jvmti.enable(event) {
            tracing::info!("queues of threads that have ended remain: {error}");
        }
    }
    Ok(queues)
}

/// Returns the `JavaThread` of a JNI environment, or the calling one; `None` if the VM does not list it.
fn owner_of(api: &'static Api, environment: *const c_void) -> Option<u64> {
    let thread = if environment.is_null() {
        api.threads.current(api.memory)
    } else {
        api.threads.of_environment(environment as u64)
    };
    api.hotspot.java_threads(api.memory).any(|listed| listed == thread).then_some(thread)
}

/// Registers a queue of `size` elements for the thread of `environment`, or for the calling one if that is null.
/// Returns null if the VM does not know the thread, `size` is not positive, or there is no memory.
///
/// # Safety
/// `handler` is null or valid, returns and does not unwind.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_RegisterQueue(
    environment: *const c_void,
    size: i32,
    options: i32,
    handler: Option<Handler>,
    argument: *mut c_void,
) -> *const Queue {
    guard::entry_point(core::ptr::null(), || {
        let (Some(api), Some(handler)) = (api(), handler) else { return core::ptr::null() };
        let elements = u32::try_from(size).unwrap_or(0).min(MAX_ELEMENTS);
        let Some(owner) = owner_of(api, environment).filter(|_| elements > 0) else {
            return core::ptr::null();
        };
        if let Err(error) = open(api) {
            log::print(&format!("no queue for stacks: {error}; clients walk in their signal handlers"));
            return core::ptr::null();
        }
        let queue = Queue::new(owner, new_ring(elements), options, handler, argument);
        queue.wanted.store(elements, Ordering::Relaxed);
        let queue: &'static Queue = Box::leak(Box::new(queue));
        REGISTERED.lock().push(Registered {
            queue,
            before: None,
            end: None,
            pins: (0, Instant::now()),
            left: Vec::new(),
            ring: AtomicPtr::new(queue.ring.load(Ordering::Relaxed)),
            is_deregistered: false,
        });
        queue
    })
}

/// Ends a queue and drops its elements; returns whether it was registered. Waits for a running client function, unless
/// that is the caller.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_DeregisterQueue(_environment: *const c_void, queue: *const Queue) -> bool {
    guard::entry_point(false, || {
        let was_registered = with_registered(queue, |registered| {
            registered.queue.is_closed.store(true, Ordering::SeqCst);
            !std::mem::replace(&mut registered.is_deregistered, true)
        });
        await_functions();
        was_registered.unwrap_or(false)
    })
}

fn with_registered<R>(queue: *const Queue, change: impl FnOnce(&mut Registered) -> R) -> Option<R> {
    let mut all = REGISTERED.lock();
    all.iter_mut().find(|registered| std::ptr::eq(registered.queue, queue)).map(change)
}

/// Sets the function that is called before the elements of a drain; null removes it. It gets no iterator.
///
/// # Safety
/// `before` is null or valid, returns and does not unwind.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_SetOnQueueProcessingStart(
    queue: *const Queue,
    _options: i32,
    _offer_iterator: bool,
    before: Option<Hook>,
    argument: *mut c_void,
) {
    let hook = before.map(|hook| (hook, AtomicPtr::new(argument)));
    guard::entry_point((), || {
        with_registered(queue, |registered| registered.before = hook);
    });
}

/// Sets the function that is called after the elements of a drain; null removes it. It gets no iterator.
///
/// # Safety
/// As [`ASGST_SetOnQueueProcessingStart`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_SetOnQueueProcessingEnd(
    queue: *const Queue,
    _options: i32,
    _offer_iterator: bool,
    end: Option<Hook>,
    argument: *mut c_void,
) {
    let hook = end.map(|hook| (hook, AtomicPtr::new(argument)));
    guard::entry_point((), || {
        with_registered(queue, |registered| registered.end = hook);
    });
}

/// Closes the queues of a thread that ends; their elements are still handled.
pub fn thread_ends(thread: u64) {
    for registered in REGISTERED.lock().iter().filter(|registered| registered.queue.owner == thread) {
        registered.queue.is_closed.store(true, Ordering::SeqCst);
    }
}

/// Handles everything enqueued so far; for the end of the VM.
pub fn drain_now() {
    let Some(drain) = DRAIN.lock().clone() else { return };
    let mut rounds = ROUNDS.lock();
    // The current round may have passed some queues.
    let awaited = rounds.ended + 2;
    rounds.requested = awaited;
    let deadline = Instant::now() + LAST_DRAIN;
    while rounds.ended < awaited {
        drain.unpark();
        if ROUND_ENDED.wait_until(&mut rounds, deadline).timed_out() {
            return;
        }
    }
}

// ---------------------------------------------------------------- the thread

fn run(api: &'static Api, queues: &'static Queues) {
    let mut last = Instant::now();
    loop {
        let is_requested = {
            let rounds = ROUNDS.lock();
            rounds.ended < rounds.requested
        };
        if !is_requested {
            std::thread::park_timeout(if last.elapsed() < IDLE_AFTER { PERIOD } else { IDLE_PERIOD });
        }
        if round(api, queues, is_requested) > 0 {
            last = Instant::now();
        }
        ROUNDS.lock().ended += 1;
        ROUND_ENDED.notify_all();
    }
}

/// Drains all queues; returns the number of elements.
fn round(api: &'static Api, queues: &'static Queues, is_last: bool) -> usize {
    if let Some(work) = ALSO.get() {
        let _handling = HANDLING.lock();
        work();
    }
    let all: Vec<&'static Queue> = REGISTERED.lock().iter().map(|registered| registered.queue).collect();
    let drained = all.into_iter().map(|queue| drain(api, queues, queue, is_last)).sum();
    REGISTERED.lock().retain_mut(|registered| !tidy(queues, registered));
    drained
}

/// Handles the elements of a queue; returns their number.
fn drain(api: &'static Api, queues: &'static Queues, queue: &'static Queue, is_last: bool) -> usize {
    let lapsed = |registered: &mut Registered, ring: &Ring| {
        if registered.pins.0 != ring.pins() {
            registered.pins = (ring.pins(), Instant::now());
        }
        is_last || queue.is_closed.load(Ordering::Relaxed) || registered.pins.1.elapsed() > PIN_LASTS
    };
    let handling = HANDLING.lock();
    let Some(ring) = queue.present() else { return 0 };
    let Some(overrides_pins) = with_registered(queue, |registered| lapsed(registered, ring)) else {
        return 0;
    };
    let count = ring.claim(overrides_pins);
    let is_deregistered = || with_registered(queue, |registered| registered.is_deregistered) != Some(false);
    if count > 0 && !is_deregistered() {
        let [before, end] = with_registered(queue, |registered| {
            [&registered.before, &registered.end]
                .map(|hook| hook.as_ref().map(|(hook, argument)| (*hook, argument.load(Ordering::Relaxed))))
        })
        .unwrap_or_default();
        call(before, queue);
        while let Some(element) = ring.first().filter(|_| !is_deregistered()) {
            handle(api, queues, queue, element);
            ring.release();
        }
        queue.attempts.store(0, Ordering::Relaxed);
        call(end, queue);
    }
    drop(handling);
    count
}

fn call(hook: Option<(Hook, *mut c_void)>, queue: &'static Queue) {
    if let Some((hook, argument)) = hook {
        // SAFETY: the client's function and its argument, for a queue that is registered.
        unsafe { hook(queue, core::ptr::null_mut(), argument) };
    }
}

/// Calls the client's function with one element.
fn handle(api: &'static Api, queues: &'static Queues, queue: &'static Queue, element: &Element) {
    let [snapshot, classes, code] = element.kept();
    let handle = SnapshotHandle::from_bits((snapshot >> 32) as u32);
    let Some(view) = queues.pool.view(handle, snapshot as u32 as usize) else { return };
    let Some(read) = Snapshot::read(view.bytes()) else { return };
    // SAFETY: the bytes are used only by the iterator below, which is dropped before the view.
    let stack: &'static [u8] = unsafe { std::slice::from_raw_parts(read.stack.as_ptr(), read.stack.len()) };
    let subject = Subject { capture: read.head.capture, stack, is_exiting: false };
    let wanted = queue.options & INCLUDE_NON_JAVA_FRAMES != 0;
    // Handlers may have taken all memos for a moment.
    let walk = loop {
        match LiveWalk::new(api, &subject, wanted) {
            Some(walk) => break walk,
            None => std::thread::yield_now(),
        }
    };
    let is_certain = queues.marks(api.memory) == [classes, code];
    let refused = (!is_certain).then_some(Stop::CodeReplaced(read.head.capture.pc));
    let mut iterator = ApiIterator::over_copy(walk, queue.options, refused);
    let argument = element.shown()[3].load(Ordering::Acquire) as *mut c_void;
    // SAFETY: the client's function and its arguments; the iterator is used by nothing else meanwhile.
    unsafe { (queue.handler)(&raw mut iterator, queue.argument.load(Ordering::Relaxed), argument) };
    drop(iterator);
    drop(view);
}

/// Resizes a queue and frees its unused rings; returns whether the queue is gone.
fn tidy(queues: &'static Queues, registered: &mut Registered) -> bool {
    let queue = registered.queue;
    let present = queue.ring.load(Ordering::Acquire);
    let former = registered.ring.swap(present, Ordering::Relaxed);
    if former != present {
        registered.left.push((AtomicPtr::new(former), Instant::now()));
    }
    // A client may still change an element of the former ring.
    registered.left.retain(|(ring, since)| {
        let is_used = since.elapsed() < PIN_LASTS && !registered.is_deregistered;
        if !is_used {
            // SAFETY: the owner uses another ring, and only this thread drains.
            unsafe { free(ring.load(Ordering::Relaxed)) };
        }
        is_used
    });
    let Some(ring) = queue.present() else { return true };
    if queue.is_closed.load(Ordering::SeqCst) {
        let is_done = registered.is_deregistered || ring.is_empty();
        return is_done && queue.is_free() && close(queues, registered);
    }
    let wanted = queue.wanted.load(Ordering::Relaxed);
    if ring.capacity() != wanted as usize && queue.offered.load(Ordering::Acquire).is_null() {
        queue.offered.store(new_ring(wanted), Ordering::Release);
    }
    false
}

/// Frees the rings and slabs of a queue that is closed and free; returns true.
fn close(queues: &'static Queues, registered: &mut Registered) -> bool {
    let queue = registered.queue;
    if let Some(ring) = queue.present() {
        ring.claim(true);
        while let Some(element) = ring.first() {
            let [snapshot, ..] = element.kept();
            queues.pool.release(SnapshotHandle::from_bits((snapshot >> 32) as u32));
            ring.release();
        }
    }
    let rings = [&queue.ring, &queue.offered].map(|ring| ring.swap(std::ptr::null_mut(), Ordering::AcqRel));
    let left = registered.left.drain(..).map(|(ring, _)| ring.into_inner());
    for ring in rings.into_iter().chain(left).filter(|ring| !ring.is_null()) {
        // SAFETY: the queue is closed and free, so nothing uses it.
        unsafe { free(ring) };
    }
    true
}
