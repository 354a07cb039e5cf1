//! The way of a sample: collect, walk, name, count.
//!
//! Problem: a pause waits for a short time only, and may free code and classes that requests refer to. A stack that is
//! walked too late lacks everything below that code; one that is named too late lacks a name.
//! Approach: requests are walked in groups, and a group is named after all of it is walked. Stacks without Java come
//! last: a pause frees nothing on them but what a compiler's label names, and naming native code takes longest.
//! Queues are collected in between, so that none overflows during a long walk.
//! Invariant: every collected request becomes a sample or is counted as failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::ThreadState;
use queue::{Request, RequestFlags, SnapshotView};
use stackwalk::Memory;

use super::{Worker, nanos, reading};
use crate::clock::{ThreadClock, monotonic_nanos};
use crate::hooks::ObservedWalk;
use crate::name::stacks::NamedStack;
use crate::process::Process;
use crate::send::batch::{FLAG_BIASED, FLAG_INCOMPLETE, FLAG_TRUNCATED, Sample};
use crate::walk::snapshot::Snapshot;
use crate::walk::stacks::Walk;

/// Longest time between two collections.
const COLLECT_PERIOD: Duration = Duration::from_millis(4);
/// Longest time for which a drain collects further requests; those it has by then are finished.
const LONGEST_DRAIN: Duration = Duration::from_millis(100);
/// Stacks walked before the first is named: more than wait at the start of nearly every pause, and few enough that the
/// pool can hold their copies meanwhile.
const GROUP: usize = 32;
/// Samples per message: at about 8 bytes each, well below 64 KiB.
const BATCH_SAMPLES: usize = 2_000;
/// Dictionary entries that force a flush: some 5 bytes a node and 50 a string or method, 0.5 MB in all.
const PENDING_ENTRIES: usize = 20_000;

/// Cause of a request that cannot become a sample because its thread is unknown.
pub(super) const NO_THREAD: &str = "no_thread";

/// A request whose stack was walked.
struct WalkedRequest<'p> {
    slot: u32,
    request: Request,
    view: Option<SnapshotView<'p>>,
    walk: Walk,
}

impl<P: Process, M: Memory> Worker<P, M> {
    /// Makes samples of all waiting requests, and of those that arrive within [`LONGEST_DRAIN`].
    pub(super) fn sample_waiting(&mut self) {
        let start = Instant::now();
        self.sample_traces();
        self.sample_java_threads();
        loop {
            while let Some(request) = self.without_java.pop_front() {
                if let Some((_, next)) = self.without_java.front() {
                    prefetch(&*self.process, next);
                }
                self.sample([request]);
                if self.unloading.wait().does_pause_wait() {
                    self.sample_java_threads();
                }
            }
            let is_more_waiting = self.intake.requests_walked();
            if !is_more_waiting || start.elapsed() >= LONGEST_DRAIN {
                return;
            }
            self.sample_java_threads();
        }
    }

    /// Collects requests, makes samples of those of Java threads and keeps the others; then a waiting pause continues.
    fn sample_java_threads(&mut self) {
        let pauses = self.unloading.wait().begin_drain();
        self.collect();
        let mut requests = std::mem::take(&mut self.requests);
        self.intake.take(&mut requests);
        self.clock.read(reading(&self.unloading));
        requests.retain(|&(slot, request)| {
            let is_java = request.flags.contains(RequestFlags::IN_JAVA_THREAD);
            if !is_java {
                self.without_java.push_back((slot, request));
            }
            is_java
        });
        self.sample(requests.drain(..));
        self.requests = requests;
        self.unloading.wait().end_drain(pauses);
    }

    /// Makes samples of requests: walks the stacks of a group, then names and counts each of them.
    fn sample(&mut self, requests: impl IntoIterator<Item = (u32, Request)>) {
        let process = Arc::clone(&self.process);
        let mut requests = requests.into_iter().peekable();
        let mut group = Vec::new();
        // Each time is the end of one step and the begin of the next: reading the clock is a hundredth of a short walk.
        let mut now = Instant::now();
        while requests.peek().is_some() {
            while group.len() < GROUP
                && !self.walker.is_full()
                && let Some((slot, request)) = requests.next()
            {
                if let Some((_, next)) = requests.peek() {
                    prefetch(&*process, next);
                }
                let walked = self.walk(&*process, slot, request);
                let walked_at = Instant::now();
                group.push((walked, walked_at - now));
                now = self.collect_if_due(walked_at);
            }
            for (walked, walk_time) in group.drain(..) {
                let (stack, thread) = self.name(&walked, now);
                self.stats.walk_ns.record(nanos(walk_time + now.elapsed()));
                self.count(&walked, stack, thread);
                now = self.collect_if_due(Instant::now());
            }
            self.walker.begin_group();
        }
    }

    /// Moves the requests of all queues to the intake.
    pub(super) fn collect(&mut self) {
        self.intake.collect();
        self.collected = Instant::now();
    }

    /// Collects, and rotates timers, if the last collection was [`COLLECT_PERIOD`] ago; returns the time after that.
    fn collect_if_due(&mut self, now: Instant) -> Instant {
        if now - self.collected < COLLECT_PERIOD {
            return now;
        }
        self.collect();
        self.rotate_timers(now);
        Instant::now()
    }

    /// Walks the stack of a request; its frames stay in the walker until the next group.
    fn walk<'p>(&mut self, process: &'p P, slot: u32, request: Request) -> WalkedRequest<'p> {
        self.accounts.open_slot(slot, process, &mut self.namer.names.dictionaries);
        self.stats.requests += 1;
        self.stats.copied_bytes += u64::from(request.snapshot_len);
        let view = process.pool().view(request.snapshot, request.snapshot_len as usize);
        let snapshot = snapshot_of(view.as_ref(), &request);
        if snapshot.head.previous_cycles != 0 {
            self.stats.handler_cycles.record(snapshot.head.previous_cycles);
            self.stats.handler_ticks += snapshot.head.previous_cycles;
        }
        let walk = self.walker.walk(&self.vm, &snapshot, request.ticks);
        WalkedRequest { slot, request, view, walk }
    }

    /// Names a walked stack; returns it with the id of its virtual thread, if it has one.
    fn name(&mut self, walked: &WalkedRequest<'_>, now: Instant) -> (NamedStack, Option<u32>) {
        let WalkedRequest { slot, request, view, walk } = walked;
        let snapshot = snapshot_of(view.as_ref(), request);
        let thread = self.accounts.get(*slot).map(|account| &account.facts);
        // A timer on a CPU clock finds threads running only. Without a snapshot, the result of a call is unknown.
        let has_state = self.tuner.clock().of_threads() == ThreadClock::Wall && snapshot.is_copy;
        let state = has_state.then(|| match snapshot.head.capture.is_in_system_call(&self.vm.memory) {
            true => ThreadState::Waiting,
            false => ThreadState::Running,
        });
        let stack = self.namer.name(&self.vm, &mut self.walker, walk, &snapshot, thread, state);
        let virtual_thread = thread.filter(|_| snapshot.head.virtual_thread != 0).map(|carrier| {
            let (java_id, name) = (snapshot.head.virtual_thread, snapshot.virtual_thread_name());
            let dictionaries = &mut self.namer.names.dictionaries;
            let next_id = || self.process.next_thread_id();
            self.virtual_threads.id(java_id, name, carrier, dictionaries, next_id)
        });
        if let Some(observer) = &mut self.observer {
            let (frames, _, libraries) = self.walker.found(walk);
            observer.on_walk(ObservedWalk {
                vm: &self.vm,
                slot: *slot,
                ticks: request.ticks,
                age_ns: monotonic_nanos().saturating_sub(self.clock.nanos(request.ticks)),
                snapshot: &snapshot,
                frames,
                stop: walk.stop,
                native: &mut libraries.reading(&self.vm.memory),
            });
        }
        if stack.is_late {
            self.pace.shorten(now);
        } else if walk.may_be_late() && request.flags.contains(RequestFlags::IN_JAVA_THREAD) {
            self.pace.watch(now);
        }
        (stack, virtual_thread)
    }

    /// Adds a sample to the account of its thread and to the batch.
    fn count(&mut self, walked: &WalkedRequest<'_>, stack: NamedStack, virtual_thread: Option<u32>) {
        let WalkedRequest { slot, request, .. } = walked;
        self.stats.count_stop(stack.stop);
        self.stats.count_unloaded(stack.unloaded);
        if let Some(code) = stack.compiled {
            self.compiled_walks.count(stack.stop, code);
        }
        let time_ns = self.clock.nanos(request.ticks);
        let cpu_ns = request.cpu_ns(self.process.period_ns(request.flags.period()));
        let Some(account) = self.accounts.get_mut(*slot) else {
            self.stats.count_failed(NO_THREAD);
            return;
        };
        self.stats.samples += 1;
        self.tick.note(time_ns);
        match stack.complete {
            true => self.stats.resolved += 1,
            false => self.stats.count_failed(stack.stop),
        }
        self.stats.biased += u64::from(stack.is_biased);
        account.add_sample(cpu_ns, stack.is_biased);
        let mut flags = 0;
        if request.flags.contains(RequestFlags::TRUNCATED) {
            flags |= FLAG_TRUNCATED;
        }
        if !stack.complete {
            flags |= FLAG_INCOMPLETE;
        }
        if stack.is_biased {
            flags |= FLAG_BIASED;
        }
        let thread = virtual_thread.unwrap_or(account.facts.id);
        self.send(Sample { time_ns, thread, stack: stack.id, cpu_ns, flags, count: 1 });
    }

    /// Adds a sample to the batch, which is sent when it is full.
    pub(super) fn send(&mut self, sample: Sample) {
        self.batch.push(sample);
        let pending = self.namer.names.dictionaries.pending_len();
        if self.batch.len() >= BATCH_SAMPLES || pending >= PENDING_ENTRIES {
            self.flush();
        }
    }
}

/// Brings the copy of a request that is walked next into the cache, while another one is walked.
fn prefetch<P: Process>(process: &P, next: &Request) {
    process.pool().prefetch_snapshot(next.snapshot, next.snapshot_len as usize);
}

/// Returns what the handler wrote, or what the request itself contains.
fn snapshot_of<'a>(view: Option<&'a SnapshotView<'_>>, request: &Request) -> Snapshot<'a> {
    view.and_then(|view| Snapshot::read(view.bytes())).unwrap_or_else(|| Snapshot::of_request(request))
}
