//! From requests to samples: walk, name, account.
//!
//! Problem: a pause that begins waits for a short time only, and may free code and classes that requests refer to. A
//! stack that is walked too late lacks everything below that code, one that is named too late lacks a name.
//! Approach: what waits is walked in groups, and a group is named when all of it is walked.
//! Invariant: every request that was taken becomes a sample, or is counted as failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use queue::{Request, RequestFlags, SnapshotView};
use stackwalk::{Capture, Memory};

use super::{BATCH_SAMPLES, NO_THREAD, PENDING_ENTRIES, Worker, nanos};
use crate::account::clock;
use crate::account::virtual_threads::Seen;
use crate::host::{Host, UnboundedStack};
use crate::probe;
use crate::send::batch::{FLAG_INCOMPLETE, FLAG_TRUNCATED, Sample};
use crate::walk::resolve::{Resolved, Walked};
use crate::walk::snapshot::Snapshot;

/// Stacks walked before the first is named: more than wait at the beginning of nearly every pause, and few enough that
/// their copies can wait with them.
const GROUP: usize = 32;

/// A request whose stack was walked.
struct Pending<'p> {
    slot: u32,
    request: Request,
    view: Option<SnapshotView<'p>>,
    walked: Walked,
    took: Duration,
}

impl<H: Host, M: Memory> Worker<H, M> {
    /// Empties the queues, walks what Java threads left there and puts the rest aside; a pause goes on after this.
    pub(super) fn resolve_java(&mut self) {
        let asked = self.unloading.drain_begins();
        if self.intake.collect() > 0 {
            let mut taken = std::mem::take(&mut self.taken);
            self.intake.take(&mut taken);
            let host = Arc::clone(&self.host);
            let mut group = Vec::with_capacity(GROUP.min(taken.len()));
            let mut collected = Instant::now();
            for (slot, request) in taken.drain(..) {
                if !request.flags.contains(RequestFlags::IN_JAVA_THREAD) {
                    self.later.push_back((slot, request));
                    continue;
                }
                group.push(self.walk(&host, slot, request));
                if group.len() >= GROUP || self.resolver.is_group_full() {
                    self.name_group(&mut group, &mut collected);
                }
                self.keep_up(&mut collected);
            }
            self.name_group(&mut group, &mut collected);
            self.taken = taken;
        }
        self.unloading.drained(asked);
    }

    /// Makes a sample of one request.
    pub(super) fn resolve(&mut self, slot: u32, request: Request) {
        let host = Arc::clone(&self.host);
        let pending = self.walk(&host, slot, request);
        self.name(pending);
        self.resolver.begin_group();
    }

    /// Walks the stack of a request, which joins the group.
    fn walk<'p>(&mut self, host: &'p Arc<H>, slot: u32, request: Request) -> Pending<'p> {
        let start = Instant::now();
        self.open_account(slot);
        self.stats.requests += 1;
        let view = host.pool().view(request.snapshot, request.snapshot_len as usize);
        let snapshot = snapshot_of(view.as_ref(), &request);
        if snapshot.head.previous_cycles != 0 {
            self.stats.handler_cycles.record(snapshot.head.previous_cycles);
            self.stats.handler_ticks += snapshot.head.previous_cycles;
        }
        let capture = &snapshot.head.capture;
        if let Some(account) = self.accounts.get(slot as usize).and_then(Option::as_ref)
            && snapshot.is_copy
            && snapshot.stack.is_empty()
            && capture.thread == 0
        {
            let Capture { sp, stack_high: thread_pointer, .. } = *capture;
            self.unbounded.push(UnboundedStack { slot, thread: account.facts.id, sp, thread_pointer });
        }
        let walked = self.resolver.walk(&snapshot, request.ticks);
        Pending { slot, request, view, walked, took: start.elapsed() }
    }

    /// Makes samples of a group, which is empty then.
    fn name_group(&mut self, group: &mut Vec<Pending<'_>>, collected: &mut Instant) {
        for pending in group.drain(..) {
            self.name(pending);
            self.keep_up(collected);
        }
        self.resolver.begin_group();
    }

    /// Names a stack and makes a sample of it.
    fn name(&mut self, Pending { slot, request, view, walked, took }: Pending<'_>) {
        let start = Instant::now();
        let snapshot = snapshot_of(view.as_ref(), &request);
        let (resolved, virtual_thread) = self.name_stack(slot, &request, &snapshot, &walked);
        self.stats.walk_ns.record(nanos(took + start.elapsed()));
        if resolved.is_late {
            self.pace.hurry(start);
        }
        self.count(slot, &request, resolved, virtual_thread);
    }

    /// The stack of a sample, and the number of its virtual thread if it has one.
    fn name_stack(
        &mut self,
        slot: u32,
        request: &Request,
        snapshot: &Snapshot<'_>,
        walked: &Walked,
    ) -> (Resolved, Option<u32>) {
        let thread = self.accounts.get(slot as usize).and_then(Option::as_ref).map(|account| &account.facts);
        let resolved = self.resolver.name(walked, snapshot, request.ticks, thread, &mut self.dictionaries);
        if let Some(probing) = &mut self.probing {
            let waited = clock::monotonic_nanos().saturating_sub(self.clock.nanos(request.ticks));
            if waited < probe::PATIENCE_NS {
                self.resolver.probe(probing, snapshot);
            }
        }
        if self.compares_walks && snapshot.head.capture.thread != 0 {
            let (frames, stop) = self.resolver.frames(walked);
            self.host.walked(slot, request.ticks, snapshot, frames, stop);
        }
        let virtual_thread = thread.filter(|_| snapshot.head.virtual_thread != 0).map(|carrier| {
            let (java_id, name) = (snapshot.head.virtual_thread, snapshot.virtual_thread_name());
            let seen = Seen { java_id, name, carrier };
            self.virtual_threads.number(seen, &mut self.dictionaries, || self.host.next_thread_id())
        });
        (resolved, virtual_thread)
    }

    /// Adds a sample to its account and to the batch.
    fn count(&mut self, slot: u32, request: &Request, resolved: Resolved, virtual_thread: Option<u32>) {
        self.stats.count_stop(resolved.stop);
        self.stats.count_unloaded(resolved.unloaded);
        if let Some(inlined) = resolved.compiled {
            self.compiled_walks.count(resolved.stop, inlined);
        }
        let time_ns = self.clock.nanos(request.ticks);
        let cpu_ns = request.cpu_ns(self.host.period_ns(request.flags.period()));
        let Some(account) = self.accounts.get_mut(slot as usize).and_then(Option::as_mut) else {
            self.stats.count_failed(NO_THREAD);
            return;
        };
        self.stats.samples += 1;
        match resolved.complete {
            true => self.stats.resolved += 1,
            false => self.stats.count_failed(resolved.stop),
        }
        account.add_sample(cpu_ns);
        let mut flags = 0;
        if request.flags.contains(RequestFlags::TRUNCATED) {
            flags |= FLAG_TRUNCATED;
        }
        if !resolved.complete {
            flags |= FLAG_INCOMPLETE;
        }
        let thread = virtual_thread.unwrap_or(account.facts.id);
        self.batch.push(Sample { time_ns, thread, stack: resolved.stack, cpu_ns, flags, count: 1 });
        if self.batch.len() >= BATCH_SAMPLES || self.dictionaries.pending_len() >= PENDING_ENTRIES {
            self.flush();
        }
    }
}

/// What the handler wrote, or what the request itself says.
fn snapshot_of<'a>(view: Option<&'a SnapshotView<'_>>, request: &Request) -> Snapshot<'a> {
    view.and_then(|view| Snapshot::read(view.bytes())).unwrap_or_else(|| Snapshot::of_request(request))
}
