//! Who is profiled: one entry per live thread, its timer, and its slot.
//!
//! Problem: Java threads announce themselves, all other threads (GC, compilers, native pools) do not, and a thread can
//! change from one to the other.
//! Approach: a registry keyed by kernel thread id. ThreadStart and ThreadEnd events feed it on the thread itself; a look
//! through `/proc/self/task` finds the rest. Both paths are idempotent.
//! Invariant: a slot has at most one timer; a slot is freed only after the sampler retired its former owner.
//! Sources: proc(5), timer_create(2) (EAGAIN when RLIMIT_SIGPENDING is used up), JVMTI ThreadStart/ThreadEnd.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use queue::Capacity;
use sampler_thread::account::clock::thread_cpu_nanos;
use sampler_thread::host::{Coverage, ThreadFacts, ThreadKind};

use crate::arena::{self, Shared, ThreadSlot};
use crate::rings::RingMemory;
use crate::tasks;
use crate::timer::Timer;

mod discovery;
mod periods;
mod rotation;
mod sampled_process;
mod timers;

use discovery::Discovery;
use periods::Periods;
use rotation::{Rotation, Turn};
pub use sampled_process::SampledProcess;

/// What a Java thread tells about itself.
#[derive(Debug, Clone)]
pub struct JavaThread {
    /// Address of the VM's JavaThread.
    pub address: u64,
    /// Lowest address of its stack.
    pub stack_low: u64,
    /// One past the highest address of its stack.
    pub stack_high: u64,
    /// Name at this moment.
    pub name: String,
}

struct Entry {
    facts: ThreadFacts,
    timer: Option<Timer>,
    turn: Turn,
    /// CPU time that the expirations of former timers have covered.
    expired_ns: u64,
    /// Periods that had expired when the thread's unfinished part was found too large for the period it should get.
    held_back: Option<u64>,
    /// How often the bounds of its stack were looked for.
    stack_looks: u8,
    /// Value of `Inner::looks` when the entry was made; younger entries cannot be missing from an older listing.
    made_at: u64,
}

/// A thread about to be profiled.
struct Newcomer<'a> {
    tid: i32,
    name: Arc<str>,
    kind: ThreadKind,
    /// CPU time of it that was profiled before, when it was another kind of thread.
    known_ns: u64,
    java: Option<&'a JavaThread>,
}

/// A thread that ended as a Java thread but may live on as a native one.
struct Left {
    clock_ns: u64,
    looks: u32,
}

#[derive(Default)]
struct Inner {
    rings: RingMemory,
    by_tid: HashMap<i32, u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    ended: Vec<u32>,
    left: HashMap<i32, Left>,
    /// CPU time of threads before the agent was attached, in nanoseconds; until they are registered.
    past: HashMap<i32, u64>,
    own_tids: Vec<i32>,
    next_id: u32,
    looks: u64,
    discovery: Discovery,
    carry_ns: u64,
    rotation: Rotation,
    periods: Periods,
    /// Timers replaced by one with another period.
    replaced: u64,
    stopped: bool,
    /// Whether the kernel has refused a timer, so that threads take turns.
    is_short: bool,
    warned: bool,
}

/// All profiled threads.
pub struct Registry {
    shared: &'static Shared,
    signal: i32,
    inner: Mutex<Inner>,
}

impl Registry {
    /// An empty registry.
    pub fn new(shared: &'static Shared, rings: RingMemory, signal: i32) -> Self {
        let inner = Inner { rings, ..Inner::default() };
        Self { shared, signal, inner: Mutex::new(inner) }
    }

    /// Leaves a thread of ours out of the profile.
    pub fn exclude(&self, tid: i32) {
        self.inner.lock().own_tids.push(tid);
    }

    /// The agent was attached: what threads burnt until now is no part of the profile, and not missing from it.
    pub fn begin_now(&self) {
        let clocks = tasks::list().into_iter().filter_map(|tid| Some((tid, thread_cpu_nanos(tid).ok()?)));
        self.inner.lock().past = clocks.collect();
    }

    /// The calling Java thread has started.
    pub fn java_started(&self, tid: i32, thread: &JavaThread) {
        self.begin_java(&mut self.inner.lock(), tid, thread);
    }

    /// A Java thread was found running, by another one: it may have ended since, and its `JavaThread` be gone.
    pub fn java_found(&self, tid: i32, thread: &JavaThread) {
        let mut inner = self.inner.lock();
        if !inner.left.contains_key(&tid) {
            self.begin_java(&mut inner, tid, thread);
        }
    }

    fn begin_java(&self, inner: &mut Inner, tid: i32, thread: &JavaThread) {
        if inner.stopped {
            return;
        }
        // A thread that detached and comes back (the launcher's main thread, as DestroyJavaVM) was profiled before.
        let known_ns = inner.left.remove(&tid).map_or(0, |left| left.clock_ns);
        let name = Arc::from(thread.name.as_str());
        match inner.by_tid.get(&tid).copied() {
            None => {
                let newcomer = Newcomer { tid, name, kind: ThreadKind::Java, known_ns, java: Some(thread) };
                self.open(inner, newcomer);
            }
            Some(slot) => {
                if let Some(entry) = inner.entries.get_mut(slot as usize).and_then(Option::as_mut) {
                    entry.facts.name = name;
                    entry.facts.kind = ThreadKind::Java;
                    entry.facts.revision += 1;
                }
                if let Some(slot) = self.slot(slot) {
                    announce(slot, thread);
                }
            }
        }
    }

    /// The calling Java thread is about to end, or to detach from the VM; its slot, if its queue holds requests.
    pub fn java_ended(&self, tid: i32) -> Option<u32> {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.by_tid.remove(&tid) else {
            // Nothing of it was profiled; whoever is about to register it must learn that it has ended.
            inner.left.insert(tid, Left { clock_ns: 0, looks: 0 });
            return None;
        };
        if let Some(slot) = self.slot(slot) {
            slot.java_thread.store(0, Ordering::Release);
        }
        self.close(&mut inner, slot, None);
        let clock_ns = thread_cpu_nanos(tid).unwrap_or(0);
        inner.left.insert(tid, Left { clock_ns, looks: 0 });
        if let Some(entry) = inner.entries.get_mut(slot as usize).and_then(Option::as_mut) {
            entry.facts.ended_ns = Some(clock_ns);
        }
        self.shared.ready.is_marked(slot).then_some(slot)
    }

    /// Whether a handler runs on any thread, as far as its stores are visible.
    pub fn any_busy(&self) -> bool {
        let used = self.inner.lock().entries.len();
        self.shared.slots.iter().take(used).any(|slot| slot.busy.load(Ordering::Acquire))
    }

    /// Whether a queue holds requests, as far as that can be told without waiting.
    pub fn is_anything_pending(&self) -> bool {
        self.inner.try_lock().is_none_or(|inner| {
            self.shared.ready.is_any_marked(u32::try_from(inner.entries.len()).unwrap_or(u32::MAX))
        })
    }

    /// Deletes every timer; threads that start from now on are not profiled.
    pub fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.stopped = true;
        for entry in inner.entries.iter_mut().flatten() {
            entry.timer = None;
            // A thread that burns on is no longer profiled; its account ends here.
            if entry.facts.ended_ns.is_none() {
                entry.facts.ended_ns = thread_cpu_nanos(entry.facts.tid).ok();
            }
        }
    }

    /// What is known of a thread now.
    fn facts(&self, entry: &Entry) -> ThreadFacts {
        let expired_ns = self.slot(entry.facts.slot).map(|slot| entry.expired_ns(self.shared, slot));
        ThreadFacts { expired_ns: expired_ns.unwrap_or(0), ..entry.facts.clone() }
    }

    fn slot(&self, slot: u32) -> Option<&'static ThreadSlot> {
        self.shared.slots.get(slot as usize)
    }

    /// Makes an entry with a running timer; `None` if the thread has ended or no slot is left.
    fn open(&self, inner: &mut Inner, newcomer: Newcomer<'_>) -> Option<u32> {
        let Newcomer { tid, name, kind, known_ns, java } = newcomer;
        let index = self.take_slot(inner)?;
        let slot = self.slot(index)?;
        if let Some(java) = java {
            announce(slot, java);
        }
        let number = inner.periods.target();
        let carried_ns = inner.carry_ns.min(timers::largest_part(self.shared.period_ns(number)));
        // What a former owner's timer left is not this thread's.
        slot.grid.switch(slot.grid.key().next(number));
        let armed = self.arm(tid, slot, |_| carried_ns.cast_signed());
        let (timer, armed_ns) = match armed {
            Ok((timer, armed_ns)) => (Some(timer), armed_ns),
            Err(error) => {
                let Ok(armed_ns) = thread_cpu_nanos(tid) else {
                    inner.free.push(index);
                    return None;
                };
                self.warn_once(inner, &error);
                (None, armed_ns)
            }
        };
        let mut coverage = Coverage::default();
        if timer.is_none() {
            coverage.begin_gap(armed_ns);
        }
        let carried_ns = if timer.is_some() { carried_ns } else { 0 };
        inner.carry_ns -= carried_ns;
        inner.next_id += 1;
        let known_ns = known_ns.max(inner.past.remove(&tid).unwrap_or(0));
        let facts = ThreadFacts {
            slot: index,
            id: inner.next_id,
            revision: 0,
            tid,
            name,
            kind,
            armed_ns,
            carried_ns,
            before_timer_ns: armed_ns.saturating_sub(known_ns),
            coverage,
            expired_ns: 0,
            ended_ns: None,
        };
        let made_at = inner.looks;
        if let Some(place) = inner.entries.get_mut(index as usize) {
            let (turn, expired_ns, held_back, stack_looks) = (Turn::default(), 0, None, 0);
            *place = Some(Entry { facts, timer, turn, expired_ns, held_back, stack_looks, made_at });
        }
        inner.periods.enter(number);
        inner.by_tid.insert(tid, index);
        Some(index)
    }

    fn take_slot(&self, inner: &mut Inner) -> Option<u32> {
        let index = match inner.free.pop() {
            Some(index) => index,
            None if inner.entries.len() >= arena::MAX_THREADS as usize => {
                inner.rotation.without_slot += 1;
                if inner.rotation.without_slot == 1 {
                    tracing::warn!(
                        "more than {} threads at once: the others are not profiled",
                        arena::MAX_THREADS
                    );
                }
                return None;
            }
            None => {
                inner.entries.push(None);
                u32::try_from(inner.entries.len() - 1).ok()?
            }
        };
        let slot = self.slot(index)?;
        slot.java_thread.store(0, Ordering::Relaxed);
        slot.stack_low.store(0, Ordering::Relaxed);
        slot.stack_high.store(0, Ordering::Relaxed);
        slot.last_cycles.store(0, Ordering::Relaxed);
        slot.virtual_thread.store(0, Ordering::Relaxed);
        slot.queue.lost().reset();
        if !slot.queue.is_installed() {
            // Both outcomes leave a usable slot: without a queue every request is counted as lost.
            if let Some(ring) = inner.rings.first() {
                let capacity = Capacity::at_least(ring.entries());
                let _already_installed = slot.queue.install(ring, capacity);
            }
        }
        Some(index)
    }

    fn warn_once(&self, inner: &mut Inner, error: &io::Error) {
        inner.is_short = true;
        if !std::mem::replace(&mut inner.warned, true) {
            tracing::warn!(
                "fewer timers than threads ({error}): threads take turns, and what they burn in between is reported as \
                 lost.no_timer; raise `ulimit -i` to profile it"
            );
        }
    }

    /// Ends an entry: no timer, listed for the sampler.
    fn close(&self, inner: &mut Inner, slot: u32, ended_ns: Option<u64>) {
        if let Some(entry) = inner.entries.get_mut(slot as usize).and_then(Option::as_mut) {
            entry.timer = None;
            entry.facts.ended_ns = ended_ns;
        }
        inner.ended.push(slot);
    }

    /// Closes the entries of threads that are not in `alive`, a listing begun after look number `look`.
    fn close_vanished(&self, inner: &mut Inner, alive: &[i32], look: u64) {
        let gone: Vec<(i32, u32)> = inner
            .by_tid
            .iter()
            .filter(|(tid, slot)| {
                let entry = inner.entries.get(**slot as usize).and_then(Option::as_ref);
                alive.binary_search(tid).is_err() && entry.is_some_and(|entry| entry.made_at < look)
            })
            .map(|(tid, slot)| (*tid, *slot))
            .collect();
        for (tid, slot) in gone {
            inner.by_tid.remove(&tid);
            if let Some(slot) = self.slot(slot) {
                slot.java_thread.store(0, Ordering::Release);
            }
            // Its clock is gone with it; the sampler keeps the last reading and what expirations prove.
            self.close(inner, slot, Some(0));
        }
        inner.left.retain(|tid, _| alive.binary_search(tid).is_ok());
    }

    fn open_found(&self, inner: &mut Inner, alive: &[i32]) {
        for &tid in alive {
            if inner.by_tid.contains_key(&tid) || inner.own_tids.contains(&tid) {
                continue;
            }
            let mut known_ns = 0;
            if let Some(left) = inner.left.get_mut(&tid) {
                left.looks += 1;
                // A thread that has said goodbye to the VM usually dies at once; one that stays is a native thread now.
                if left.looks < 3 {
                    continue;
                }
                known_ns = left.clock_ns;
                inner.left.remove(&tid);
            }
            let Some(name) = tasks::name_of(tid) else { continue };
            let kind = tasks::kind_of(&name);
            self.open(inner, Newcomer { tid, name: Arc::from(name.as_str()), kind, known_ns, java: None });
        }
    }
}

/// Tells the handler where a Java thread keeps its state.
fn announce(slot: &ThreadSlot, thread: &JavaThread) {
    slot.stack_low.store(thread.stack_low, Ordering::Relaxed);
    slot.stack_high.store(thread.stack_high, Ordering::Relaxed);
    // Release: the handler that sees the thread sees its stack bounds.
    slot.java_thread.store(thread.address, Ordering::Release);
}
