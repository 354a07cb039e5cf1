//! Collects requests from their queues until they are walked.
//!
//! Problem: queues are small, and the sampler may not empty them for long: a walk reads a symbol table, a file blocks,
//! other threads use the processor, or the hypervisor takes it away.
//! Approach: queues are emptied independently of walking. The sampler does both; a second thread only empties queues,
//! whenever they were not emptied for [`LATE`] or a little longer than the sampler sleeps. It sleeps until that time,
//! and without an end while the program is quiet, so that the scheduler of a busy machine runs it at once.
//! A Java thread that ends empties its own queue if it gets the lock without waiting.
//! Invariant: queues are emptied under the lock, and the requests of a queue stay in order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use queue::{Request, SizeRange};

use crate::clock;
use crate::drain::pace::WATCHFUL;
use crate::drain::pool_size::PoolSize;
use crate::drain::queue_sizes::QueueSizes;
use crate::process::Queues;
use crate::proof::unloading::Unloading;

/// Name of the second thread, as `ps -T` and `/proc` show it.
pub(crate) const THREAD_NAME: &str = "tickwalk-drain";
/// Stack of the second thread, in bytes: it calls little, and its lists are on the heap.
const THREAD_STACK: usize = 128 << 10;

/// Shortest time between two drains after which the second thread drains: a little longer than the sampler sleeps.
/// Longer where the sampler sleeps for longer.
const LATE: Duration = WATCHFUL.saturating_add(GRACE);
/// Time by which the sampler may wake late.
const GRACE: Duration = Duration::from_millis(5);
/// Consecutive drains without a request, at least a fifth of a second, after which the program counts as quiet; only
/// the sampler drains the first requests after that.
const QUIET: u32 = 8;
/// Most requests that wait, 3.5 MB; further ones stay in their queues, which grow and then count lost samples.
const MAX_WAITING: usize = 1 << 16;

/// Requests with the slots they came from.
pub(crate) type Requests = VecDeque<(u32, Request)>;

/// Shared by the sampler thread and the second thread.
pub(crate) struct Intake<Q> {
    queues: Arc<Q>,
    /// True if only the sampler may empty queues.
    is_exact: bool,
    unloading: Arc<Unloading>,
    state: Mutex<State>,
    /// Notified at the end of a quiet time and of the session.
    second_wakes: Condvar,
    /// CPU time of the second thread, in nanoseconds.
    cpu_ns: AtomicU64,
    /// The second thread, once it runs.
    second: Mutex<Option<JoinHandle<()>>>,
}

/// Everything that changes when queues are emptied.
pub(crate) struct State {
    waiting: Requests,
    pub(crate) queue_sizes: QueueSizes,
    pub(crate) pool_size: PoolSize,
    /// Fill of the fullest queue since [`Intake::take_fullest`], in percent.
    fullest: u32,
    /// Requests that ending threads took from their own queues.
    pub(crate) drained_at_exit: u64,
    drained: Instant,
    /// Time after a drain at which the next one is late.
    late: Duration,
    /// Consecutive drains that found nothing.
    empty_drains: u32,
    /// True if the sampler thread has ended.
    is_over: bool,
}

impl<Q: Queues> Intake<Q> {
    /// No requests wait; if `is_exact`, only the sampler empties queues.
    pub(crate) fn new(
        queues: Arc<Q>,
        unloading: Arc<Unloading>,
        queue_sizes: SizeRange,
        is_exact: bool,
    ) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            queue_sizes: QueueSizes::new(queue_sizes),
            pool_size: PoolSize::new(queues.pool()),
            fullest: 0,
            drained_at_exit: 0,
            drained: Instant::now(),
            late: LATE,
            empty_drains: 0,
            is_over: false,
        };
        Self {
            queues,
            is_exact,
            unloading,
            state: Mutex::new(state),
            second_wakes: Condvar::new(),
            cpu_ns: AtomicU64::new(0),
            second: Mutex::new(None),
        }
    }

    /// Empties every queue that has requests; returns how many requests wait. For the sampler thread.
    pub(crate) fn collect(&self) -> usize {
        let mut state = self.state.lock();
        let was_quiet = state.is_quiet();
        self.collect_all(&mut state);
        if was_quiet && !state.is_quiet() {
            self.second_wakes.notify_one();
        }
        state.waiting.len()
    }

    fn collect_all(&self, state: &mut State) {
        self.announced(state, |state| state.collect(&*self.queues));
    }

    /// Empties the queue of one slot, ready or not.
    pub(crate) fn collect_slot(&self, slot: u32) {
        self.announced(&mut self.state.lock(), |state| state.collect_slot(&*self.queues, slot));
    }

    /// Takes requests from queues, announced to pauses.
    fn announced(&self, state: &mut State, take: impl FnOnce(&mut State)) {
        // Before the queues are empty: a pause that finds them empty waits for the requests that were in them.
        self.unloading.wait().set_has_requests(true);
        take(state);
        self.unloading.wait().set_has_requests(!state.waiting.is_empty());
    }

    /// Exchanges the waiting requests for an empty list.
    pub(crate) fn take(&self, requests: &mut Requests) {
        debug_assert!(requests.is_empty());
        let mut state = self.state.lock();
        std::mem::swap(&mut state.waiting, requests);
        state.pool_size.requests_taken();
        self.unloading.wait().set_has_requests(false);
    }

    /// Notes that all taken requests are walked; returns whether more wait.
    pub(crate) fn requests_walked(&self) -> bool {
        let mut state = self.state.lock();
        state.pool_size.requests_walked();
        !state.waiting.is_empty()
    }

    /// Returns the fill of the fullest queue since the last call, in percent.
    pub(crate) fn take_fullest(&self) -> u32 {
        std::mem::take(&mut self.state.lock().fullest)
    }

    /// Notes that the sampler sleeps for `period` from here on.
    pub(crate) fn sampler_sleeps(&self, period: Duration) {
        self.state.lock().late = LATE.max(period + GRACE);
    }

    /// Runs `act` under the lock.
    pub(crate) fn with_state<T>(&self, act: impl FnOnce(&Q, &mut State) -> T) -> T {
        act(&self.queues, &mut self.state.lock())
    }

    /// Ends the second thread.
    pub(crate) fn close(&self) {
        self.state.lock().is_over = true;
        self.second_wakes.notify_one();
    }

    /// Waits until the second thread has ended, after [`Intake::close`].
    pub(crate) fn join(&self) {
        if let Some(thread) = self.second.lock().take() {
            // A panic of this thread was reported when it occurred.
            let _ = thread.join();
        }
    }

    /// Returns the CPU time of the second thread, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    /// Empties queues when the sampler is late, until [`Intake::close`]; runs on the second thread.
    fn drain_when_late(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            let left = state.late.saturating_sub(state.drained.elapsed());
            if state.is_quiet() {
                self.second_wakes.wait(&mut state);
            } else if left.is_zero() {
                self.collect_all(&mut state);
            } else {
                self.second_wakes.wait_for(&mut state, left);
            }
            self.cpu_ns.store(clock::own_cpu_nanos(), Ordering::Relaxed);
        }
    }

    /// Starts the second thread, unless only the sampler may empty queues; `started` runs on it first, with its kernel
    /// thread id. For the sampler thread.
    pub(crate) fn start(self: &Arc<Self>, started: impl FnOnce(i32) + Send + 'static) {
        if self.is_exact {
            return;
        }
        let intake = Arc::clone(self);
        let (running, begun) = mpsc::channel::<()>();
        let builder = std::thread::Builder::new().name(THREAD_NAME.to_owned()).stack_size(THREAD_STACK);
        let thread = builder.spawn(move || {
            started(nix::unistd::gettid().as_raw());
            drop(running);
            intake.drain_when_late();
        });
        match thread {
            // Threads are discovered only after this one is excluded; nothing is ever sent.
            Ok(thread) => {
                *self.second.lock() = Some(thread);
                _ = begun.recv();
            }
            Err(error) => tracing::info!("cannot start the second thread that empties queues: {error}"),
        }
    }

    /// Empties the queue of `slot` for a thread that ends, unless that requires waiting.
    pub(crate) fn last_drain(&self, slot: u32) {
        if self.is_exact {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        if !state.is_over && state.waiting.len() < MAX_WAITING {
            let before = state.waiting.len();
            // The queue of a thread that ends needs no other size.
            self.announced(&mut state, |state| _ = state.take_requests(&*self.queues, slot));
            state.drained_at_exit += (state.waiting.len() - before) as u64;
        }
    }
}

impl State {
    /// Returns whether the program has used no CPU time lately.
    fn is_quiet(&self) -> bool {
        self.empty_drains >= QUIET
    }

    fn collect(&mut self, queues: &impl Queues) {
        self.drained = Instant::now();
        if self.waiting.len() >= MAX_WAITING {
            return;
        }
        let before = self.waiting.len();
        for slot in queues.ready() {
            self.collect_slot(queues, slot);
        }
        let found = self.waiting.len() - before;
        self.empty_drains = if found > 0 { 0 } else { self.empty_drains.saturating_add(1) };
        self.pool_size.after_drain(queues.pool(), found as u64);
    }

    fn collect_slot(&mut self, queues: &impl Queues, slot: u32) {
        let found = self.take_requests(queues, slot);
        self.fullest = self.fullest.max(self.queue_sizes.after_drain(queues, slot, found));
    }

    /// Empties the queue of a slot; returns the number of its requests.
    fn take_requests(&mut self, queues: &impl Queues, slot: u32) -> usize {
        let before = self.waiting.len();
        if let Some(mut drain) = queues.queue(slot).try_drain() {
            for request in drain.by_ref() {
                self.pool_size.request_found(queues.pool(), &request);
                self.waiting.push_back((slot, request));
            }
            if let Some(left) = drain.take_retired() {
                queues.give_back_ring(left);
            }
        }
        let found = self.waiting.len() - before;
        if found > 0 {
            self.queue_sizes.has_held_requests(slot);
        }
        found
    }
}
