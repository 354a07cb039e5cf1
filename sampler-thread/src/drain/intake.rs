//! Where requests wait between their queues and the walk.
//!
//! Problem: queues are small, and what the sampler does between two looks at them may take long: a walk that reads a
//! symbol table, a file that blocks, a processor that others use, or that a host has taken away while the sampler slept.
//! Approach: emptying queues is kept apart from walking. The sampler does both; a second thread, which does nothing else,
//! empties the queues whenever nobody has for [`LATE`]. As it sleeps nearly always, a busy machine's scheduler lets it run
//! at once, and it keeps off the sampler's processor. It sleeps without a period while the program is quiet.
//! A Java thread that ends empties its own queue, if nobody is at the queues in that moment.
//! Invariant: whoever empties queues holds the lock, and what a queue held is behind everything it held before.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use queue::Request;

use crate::account::clock;
use crate::drain::pace::LONGEST;
use crate::drain::placement::{self, Placement};
use crate::drain::pool_size::PoolSize;
use crate::drain::queue_sizes::Sizes;
use crate::host::Host;
use crate::validity::unloading::Unloading;

/// Name of the second thread, as `ps -T` and `/proc` show it.
pub(crate) const THREAD_NAME: &str = "tickwalk-drain";
/// Stack of the second thread, in bytes: it calls little, and its lists are on the heap.
const THREAD_STACK: usize = 128 << 10;

/// How long the sampler may leave the queues alone: a little longer than it sleeps, and half of the time in which a thread
/// that always runs fills the smallest queue at 250 ticks a second.
const LATE: Duration = Duration::from_millis(30);
const _: () = assert!(LATE.as_millis() > LONGEST.as_millis());
/// Drains in a row without a request, a fifth of a second, after which the program is quiet: the first requests of its next
/// burst are the sampler's alone.
const QUIET: u32 = 8;
/// Requests that wait at most, 3.5 MB; beyond, they stay in their queues, which grow and then count what is lost.
const MAX_WAITING: usize = 1 << 16;

/// Requests with the slots they came from.
pub(crate) type Waiting = VecDeque<(u32, Request)>;

/// Shared by the sampler thread and the one that steps in for it.
pub(crate) struct Intake<H> {
    host: Arc<H>,
    unloading: Arc<Unloading>,
    state: Mutex<State>,
    changed: Condvar,
    /// CPU time of the second thread, in nanoseconds.
    cpu_ns: AtomicU64,
}

/// What whoever empties queues knows and changes.
pub(crate) struct State {
    waiting: Waiting,
    /// What the sizing of queues has done.
    pub(crate) sizes: Sizes,
    /// What the sizing of the pool has done.
    pub(crate) pool_size: PoolSize,
    /// How full the fullest queue was since the sampler asked last, in percent.
    fullest: u32,
    /// Requests that threads took out of their own queues as they ended.
    pub(crate) drained_at_exit: u64,
    emptied: Instant,
    /// Drains in a row that found nothing.
    empty_drains: u32,
    /// Where the sampler ran when it emptied the queues last.
    sampler_on: Option<usize>,
    /// Whether the sampler thread has ended.
    is_over: bool,
    /// Whether the second thread sleeps until it is woken.
    is_dozing: bool,
}

impl<H: Host> Intake<H> {
    /// Queues and pool of `host`.
    pub(crate) fn new(host: Arc<H>) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            sizes: Sizes::new(host.queue_sizes()),
            pool_size: PoolSize::default(),
            fullest: 0,
            drained_at_exit: 0,
            emptied: Instant::now(),
            empty_drains: 0,
            sampler_on: None,
            is_over: false,
            is_dozing: false,
        };
        let (state, unloading) = (Mutex::new(state), host.unloading());
        Self { host, unloading, state, changed: Condvar::new(), cpu_ns: AtomicU64::new(0) }
    }

    /// Empties every queue that has requests; returns how many requests wait now. For the sampler thread.
    pub(crate) fn collect(&self) -> usize {
        let mut state = self.state.lock();
        self.collect_all(&mut state);
        state.sampler_on = placement::processor();
        if state.empty_drains == 0 && std::mem::take(&mut state.is_dozing) {
            self.changed.notify_one();
        }
        state.waiting.len()
    }

    fn collect_all(&self, state: &mut State) {
        self.holding(state, |state| state.collect(&*self.host));
    }

    /// Empties the queue of one slot, ready or not.
    pub(crate) fn collect_slot(&self, slot: u32) {
        self.holding(&mut self.state.lock(), |state| state.collect_slot(&*self.host, slot));
    }

    /// Takes requests out of queues while pauses know of it.
    fn holding(&self, state: &mut State, take: impl FnOnce(&mut State)) {
        // Before the queues are empty: a pause that finds them so waits for what was in them.
        self.unloading.holds(true);
        take(state);
        self.unloading.holds(!state.waiting.is_empty());
    }

    /// The owner of the queues.
    pub(crate) fn host(&self) -> &Arc<H> {
        &self.host
    }

    /// Exchanges what waits for an empty list.
    pub(crate) fn take(&self, taken: &mut Waiting) {
        debug_assert!(taken.is_empty());
        let mut state = self.state.lock();
        std::mem::swap(&mut state.waiting, taken);
        state.pool_size.taken();
        self.unloading.holds(false);
    }

    /// All that was taken is walked; whether more waits that was collected meanwhile.
    pub(crate) fn walked(&self) -> bool {
        let mut state = self.state.lock();
        state.pool_size.walked();
        !state.waiting.is_empty()
    }

    /// How full the fullest queue was found since the last call, in percent.
    pub(crate) fn take_fullest(&self) -> u32 {
        std::mem::take(&mut self.state.lock().fullest)
    }

    /// What sizing did, and its further steps.
    pub(crate) fn with_state<T>(&self, act: impl FnOnce(&H, &mut State) -> T) -> T {
        act(&self.host, &mut self.state.lock())
    }

    /// The sampler thread is over: the second one ends.
    pub(crate) fn close(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_one();
    }

    /// CPU time of the second thread, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    /// The second thread: empties queues when the sampler is late, until [`Intake::close`].
    fn step_in(&self, mut placement: Placement) {
        let mut state = self.state.lock();
        while !state.is_over {
            let left = LATE.saturating_sub(state.emptied.elapsed());
            if left.is_zero() && state.empty_drains < QUIET {
                self.collect_all(&mut state);
            } else if state.empty_drains < QUIET {
                match state.sampler_on {
                    // Without the lock: where this thread goes it may have to wait.
                    Some(processor) if !placement.is_off(processor) => {
                        MutexGuard::unlocked(&mut state, || placement.keep_off(processor));
                    }
                    _ => _ = self.changed.wait_for(&mut state, left),
                }
            } else {
                state.is_dozing = true;
                self.changed.wait(&mut state);
                state.is_dozing = false;
            }
            self.cpu_ns.store(clock::own_cpu_nanos(), Ordering::Relaxed);
        }
    }

    /// Starts the second thread; `started` runs on it first, with its kernel thread id. Without it the sampler is alone.
    /// For the sampler thread, beside which the other runs.
    pub(crate) fn start(self: &Arc<Self>, started: impl FnOnce(i32) + Send + 'static) {
        let intake = Arc::clone(self);
        let (running, begun) = mpsc::channel::<()>();
        let placement = Placement::beside_this_thread();
        let builder = std::thread::Builder::new().name(THREAD_NAME.to_owned()).stack_size(THREAD_STACK);
        let thread = builder.spawn(move || {
            started(nix::unistd::gettid().as_raw());
            drop(running);
            intake.step_in(placement);
        });
        match thread {
            // Threads are looked for only when this one is known as ours; nothing is ever sent.
            Ok(_) => _ = begun.recv(),
            Err(error) => tracing::info!("no second thread to empty queues: {error}"),
        }
    }
}

/// What a thread does for its queue before it is gone.
pub(crate) trait LastDrain: fmt::Debug + Send + Sync {
    /// Empties the queue of `slot`, if that needs no waiting.
    fn last_drain(&self, slot: u32);
}

impl<H> fmt::Debug for Intake<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").finish_non_exhaustive()
    }
}

impl<H: Host> LastDrain for Intake<H> {
    fn last_drain(&self, slot: u32) {
        // An experiment that says when queues are emptied means it.
        if self.host.pace().is_exact() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        if !state.is_over && state.waiting.len() < MAX_WAITING {
            let before = state.waiting.len();
            self.holding(&mut state, |state| state.collect_slot(&*self.host, slot));
            state.drained_at_exit += (state.waiting.len() - before) as u64;
        }
    }
}

impl State {
    fn collect(&mut self, host: &impl Host) {
        self.emptied = Instant::now();
        if self.waiting.len() >= MAX_WAITING {
            return;
        }
        let before = self.waiting.len();
        for slot in host.ready() {
            self.collect_slot(host, slot);
        }
        let found = self.waiting.len() - before;
        self.empty_drains = if found > 0 { 0 } else { self.empty_drains.saturating_add(1) };
        self.pool_size.after_drain(host.pool(), found as u64);
    }

    fn collect_slot(&mut self, host: &impl Host, slot: u32) {
        let before = self.waiting.len();
        if let Some(mut drain) = host.queue(slot).try_drain() {
            for request in drain.by_ref() {
                self.pool_size.found(host.pool(), &request);
                self.waiting.push_back((slot, request));
            }
            if let Some(left) = drain.take_retired() {
                host.give_back_ring(left);
            }
        }
        let found = self.waiting.len() - before;
        self.fullest = self.fullest.max(self.sizes.after_drain(host, slot, found));
    }
}
