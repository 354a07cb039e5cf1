//! The iterator generation: queues of captured stacks, the part for signal handlers
//! (`agent/include/iterator/profile2.h`).
//!
//! Problem: the proposal handles queued elements in their own thread at its next safepoint, where a stock VM
//! calls no agent.
//! Approach: [`enqueue`] finds the first frame with bytecodes and copies the stack into a slab, like the profiler's
//! handler; a thread walks the copies and calls the client's functions ([`super::queue_drain`]).
//! Invariant: a [`Queue`] lives as long as the process. Every function that uses its ring holds the queue ([`Held`]),
//! and the ring is freed only once the queue is closed and not held.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use queue::SnapshotPool;
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::unloading::Detector;
use stackwalk::LiveMemory;

use super::api::api;
use super::elements::Ring;
use super::entry::{Caller, with_caller};
use super::iterator::{ApiIterator, QueueElement, enqueuable};
use super::subject::{Start, Subject, address_of};
use crate::handler::errno::KeptErrno;
use crate::handler::mounted::MountedThread;
use crate::handler::snapshot::{HEAD_BYTES, Snapshot, padded};
use crate::handler::ucontext::thread_pointer;

const ENQUEUED: i32 = 1;
const NO_QUEUE: i32 = -5;
const FULL_QUEUE: i32 = -6;
const OTHER_ERROR: i32 = -7;

/// Bit of `ASGST_Capabilities`.
const REGISTER_QUEUE: i32 = 1;

/// `ASGST_Handler`.
pub type Handler = unsafe extern "C" fn(*mut ApiIterator, *mut c_void, *mut c_void);

/// Most elements of a queue: 56 bytes each.
pub const MAX_ELEMENTS: u32 = 1 << 20;

/// `ASGST_Queue`.
pub struct Queue {
    /// The `JavaThread` that enqueues.
    pub owner: u64,
    /// `ASGST_Options`.
    pub options: i32,
    /// Called with each element.
    pub handler: Handler,
    pub argument: AtomicPtr<c_void>,
    /// Null after it was freed.
    pub ring: AtomicPtr<Ring>,
    /// A ring of another size, for the owner to take when the present one is empty; null if there is none.
    pub offered: AtomicPtr<Ring>,
    /// Requested capacity of the ring.
    pub wanted: AtomicU32,
    /// Calls of `ASGST_Enqueue` since the last drain.
    pub attempts: AtomicU32,
    /// Set when the thread has ended or the queue was deregistered.
    pub is_closed: AtomicBool,
    /// True while a function of the owner uses the ring.
    is_held: AtomicBool,
}

impl Queue {
    /// A queue with this ring; the caller sets [`Queue::wanted`] to its capacity.
    pub fn new(owner: u64, ring: *mut Ring, options: i32, handler: Handler, argument: *mut c_void) -> Self {
        Self {
            owner,
            options,
            handler,
            argument: AtomicPtr::new(argument),
            ring: AtomicPtr::new(ring),
            offered: AtomicPtr::new(core::ptr::null_mut()),
            wanted: AtomicU32::new(0),
            attempts: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
        }
    }

    /// Holds the queue; `None` if it is held, or closed.
    pub fn hold(&self) -> Option<Held<'_>> {
        // SeqCst, like the flag below: a queue that was closed and then seen free has no user.
        let taken = self.is_held.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed);
        let held = taken.is_ok().then_some(Held(self))?;
        (!self.is_closed.load(Ordering::SeqCst)).then_some(held)
    }

    /// Returns whether no function of the owner uses the ring.
    pub fn is_free(&self) -> bool {
        !self.is_held.load(Ordering::SeqCst)
    }

    /// The ring, for the holder of the queue and for the drain.
    pub fn present(&self) -> Option<&Ring> {
        // SAFETY: only the drain frees it, after the queue was closed and seen free.
        unsafe { self.ring.load(Ordering::Acquire).as_ref() }
    }
}

/// Use of a queue by its owner, until dropped.
pub struct Held<'q>(&'q Queue);

/// # Signal Safe Methods
impl<'q> Held<'q> {
    /// Returns the ring; the offered one if the present one is empty.
    fn ring(&self) -> Option<&'q Ring> {
        let queue = self.0;
        let present = queue.present()?;
        let offered = queue.offered.load(Ordering::Acquire);
        if offered.is_null() || !present.is_empty() {
            return Some(present);
        }
        // Release: a drain that sees the new ring sees that the old one is empty.
        queue.ring.store(offered, Ordering::Release);
        queue.offered.store(core::ptr::null_mut(), Ordering::Release);
        queue.present()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::SeqCst);
    }
}

/// State of all queues, made for the first one.
pub struct Queues {
    /// Memory for copies of stacks.
    pub pool: SnapshotPool<'static>,
    /// Counts unloaded classes.
    pub detector: Detector,
    /// Changes before code is freed.
    pub freeing: CodeFreeing,
    /// The thread pointer of the thread that drains; 0 while none does.
    pub drain: AtomicU64,
}

/// Release by [`publish`], Acquire by [`queues`].
static QUEUES: AtomicPtr<Queues> = AtomicPtr::new(core::ptr::null_mut());

/// Publishes the state of queues, which lives as long as the process.
pub fn publish(queues: &'static Queues) {
    QUEUES.store(core::ptr::from_ref(queues).cast_mut(), Ordering::Release);
}

/// Returns the published state. Signal safe.
pub fn queues() -> Option<&'static Queues> {
    // SAFETY: null, or what `publish` stored, which is never freed or borrowed mutably.
    unsafe { QUEUES.load(Ordering::Acquire).as_ref() }
}

/// # Signal Safe Methods
impl Queues {
    /// Returns numbers that change when the VM unloads classes or frees code; zeros without counters.
    pub fn marks(&self, memory: &LiveMemory) -> [u64; 2] {
        let classes = match self.detector {
            Detector::Counters(counters) => counters
                .iter()
                .try_fold(0_u64, |sum, counter| Some(sum.wrapping_add(counter.read(memory).ok()?))),
            Detector::Pauses | Detector::Nothing => None,
        };
        [classes.unwrap_or(0), self.freeing.mark(memory).unwrap_or(0)]
    }

    pub fn is_draining(&self) -> bool {
        self.drain.load(Ordering::Relaxed) == thread_pointer()
    }
}

/// Returns `ASGST_REGISTER_QUEUE` once the API is ready; frame marks are not available. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_Capabilities() -> i32 {
    if api().is_some() { REGISTER_QUEUE } else { 0 }
}

with_caller! {
    /// Captures the calling thread's stack; returns 1, or a code. Signal safe.
    ///
    /// # Safety
    /// `queue` is null or was returned by `ASGST_RegisterQueue`; `ucontext` is null or a context of the calling thread.
    fn ASGST_Enqueue(queue: *const Queue, ucontext: *const c_void, argument: *mut c_void) -> i32
        = enqueue, 3
}

unsafe extern "C" fn enqueue(
    queue: *const Queue,
    ucontext: *const c_void,
    argument: *mut c_void,
    caller: &Caller,
) -> i32 {
    // SAFETY: null, or a queue, which is never freed.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return NO_QUEUE };
    let (Some(api), Some(queues)) = (api(), queues()) else { return NO_QUEUE };
    let _errno = KeptErrno::new();
    // Relaxed: a statistic.
    queue.attempts.fetch_add(1, Ordering::Relaxed);
    if api.threads.current(api.memory) != queue.owner {
        return OTHER_ERROR;
    }
    let Some(held) = queue.hold() else { return OTHER_ERROR };
    let Some(ring) = held.ring() else { return OTHER_ERROR };
    ring.unpin();
    if ring.is_full() {
        return FULL_QUEUE;
    }
    // SAFETY: a context of this thread; the stack is used only until this returns.
    let subject = unsafe { Subject::of(api, Start::of(ucontext, caller), address_of(caller)) };
    let element = match enqueuable(api, &subject) {
        Ok(element) => element,
        Err(code) => return code,
    };
    // Read before the copy, so that a later change shows.
    let [classes, code] = queues.marks(api.memory);
    // SAFETY: the stack was found in this call.
    let Some(snapshot) = (unsafe { copied(&queues.pool, &subject) }) else { return OTHER_ERROR };
    if ring.push(element.words(argument as u64), [snapshot, classes, code]) { ENQUEUED } else { FULL_QUEUE }
}

/// Copies a stack; returns handle and length in one word, `None` if no slab is free.
///
/// # Safety
/// The subject was found by the exported function that is running.
unsafe fn copied(pool: &'static SnapshotPool<'static>, subject: &Subject) -> Option<u64> {
    let bytes = HEAD_BYTES.saturating_add(padded(subject.stack.len()));
    let mut slab = pool.acquire(bytes)?;
    let room = slab.capacity().saturating_sub(HEAD_BYTES) & !15;
    let snapshot = Snapshot {
        capture: subject.capture,
        compiled_method: 0,
        previous_cycles: 0,
        stack_bytes: subject.stack.len().min(room),
        mounted: MountedThread::NONE,
    };
    // SAFETY: the slab has room for the head and the padded bytes, and slabs are aligned to 64; the stack is mapped.
    let length = unsafe { snapshot.write(slab.as_mut_ptr()) };
    // SAFETY: so many bytes were written.
    let handle = unsafe { slab.publish(length) };
    Some(u64::from(handle.bits()) << 32 | length as u64)
}

/// Returns an element that waits, 0 the oldest, -1 the newest, or null. Signal safe.
///
/// # Safety
/// `queue` is null or was returned by `ASGST_RegisterQueue`; called by its thread, or by a function that drains it.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_GetQueueElement(queue: *const Queue, n: i32) -> *mut QueueElement {
    let none = core::ptr::null_mut();
    // SAFETY: null, or a queue, which is never freed.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return none };
    let Some(queues) = queues() else { return none };
    let element = if queues.is_draining() {
        queue.present().and_then(|ring| ring.peek(n.into()))
    } else {
        let Some(held) = queue.hold() else { return none };
        held.ring().and_then(|ring| ring.pin(n.into()))
    };
    element.map_or(none, |element| element.shown().as_ptr().cast_mut().cast())
}

/// `ASGST_QueueSizeInfo`.
#[repr(C)]
#[derive(Default)]
pub struct QueueSizeInfo {
    size: i32,
    capacity: i32,
    attempts: i32,
}

/// Returns the number of elements, the queue's capacity, and the calls of `ASGST_Enqueue` since the last drain. Signal
/// safe.
///
/// # Safety
/// As [`ASGST_GetQueueElement`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_GetQueueSizeInfo(queue: *const Queue) -> QueueSizeInfo {
    // SAFETY: null, or a queue, which is never freed.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return QueueSizeInfo::default() };
    let held = queue.hold();
    let is_draining = queues().is_some_and(Queues::is_draining);
    let ring = if is_draining { queue.present() } else { held.as_ref().and_then(Held::ring) };
    let Some(ring) = ring else { return QueueSizeInfo::default() };
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    QueueSizeInfo {
        size: number(ring.len()),
        capacity: number(ring.capacity()),
        attempts: number(queue.attempts.load(Ordering::Relaxed) as usize),
    }
}

/// Returns the number of elements that wait. Signal safe.
///
/// # Safety
/// As [`ASGST_GetQueueElement`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_QueueSize(queue: *const Queue) -> i32 {
    // SAFETY: null, or a queue, which is never freed.
    unsafe { ASGST_GetQueueSizeInfo(queue) }.size
}

/// Changes the queue's capacity at the end of the next drain. Signal safe.
///
/// # Safety
/// As [`ASGST_GetQueueElement`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_ResizeQueue(queue: *const Queue, size: i32) {
    // SAFETY: null, or a queue, which is never freed.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return };
    if let Ok(size) = u32::try_from(size)
        && size > 0
    {
        queue.wanted.store(size.min(MAX_ELEMENTS), Ordering::Relaxed);
    }
}
