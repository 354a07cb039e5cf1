//! The sampler thread: drain, walk, name, account, send.
//!
//! Problem: everything that may block, allocate or fault must happen away from the profiled threads, and its cost must
//! follow what is active.
//! Approach: one native thread, unknown to the VM, with every signal blocked; it wakes on a period, takes the ready
//! list, drains those queues, and sends batches and statistics.
//! Invariant: a dictionary entry leaves before the first sample that names it; an ended thread's account is sent after its
//! last request was drained.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use proto::v1::{self, agent_message::Body};
use queue::{Request, RequestFlags};
use stackwalk::{Capture, HotSpot, Memory};

use crate::account::{Account, add_lost};
use crate::batch::{Batch, FLAG_INCOMPLETE, FLAG_TRUNCATED, Sample};
use crate::clock;
use crate::host::{Host, ThreadFacts, UnboundedStack};
use crate::intern::Dictionaries;
use crate::resolve::{Resolved, Resolver};
use crate::sink::Destinations;
use crate::snapshot::Snapshot;
use crate::stats::{Stats, histogram_message};
use crate::ticks::{Reading, TickClock};

/// How often queues are drained.
///
/// At the shortest true period of a CPU timer (one tick, 4 ms at 250 Hz) a thread leaves 7 requests in this time; its
/// queue holds 63.
pub const DRAIN_PERIOD: Duration = Duration::from_millis(25);
/// How often threads that did not tell us are looked for.
const DISCOVER_PERIOD: Duration = Duration::from_millis(100);
/// Longest time a sample waits in a batch.
const FLUSH_PERIOD: Duration = Duration::from_millis(250);
/// How often accounts of active threads are sent; those of all threads every tenth time.
const STATISTICS_PERIOD: Duration = Duration::from_secs(1);
/// Samples per message: at about 20 bytes each, well below a packet train of 64 KiB.
const BATCH_SAMPLES: usize = 2_000;
/// Waiting dictionary entries that force a flush: 100,000 stack frames are 0.8 MB, below the message limit of 4 MiB.
const PENDING_ENTRIES: usize = 100_000;

/// What the session is, for the first message.
pub type SessionFacts = v1::Hello;

/// Requests to the sampler thread.
pub(crate) enum Command {
    /// Drain all, send the last messages, answer, end.
    Stop { reason: &'static str, done: Sender<()> },
}

/// The state of the thread.
pub(crate) struct Worker<H: Host, M: Memory> {
    host: H,
    resolver: Resolver<M>,
    clock: TickClock,
    interval_ns: u64,
    destinations: Destinations,
    dictionaries: Dictionaries,
    batch: Batch,
    stats: Stats,
    accounts: Vec<Option<Account>>,
    /// Accounts of threads that ended since the last statistics message.
    closed: Vec<v1::ThreadAccount>,
    /// Threads met in this drain whose stacks could not be copied.
    unbounded: Vec<UnboundedStack>,
    rounds: u64,
}

impl<H: Host, M: Memory> Worker<H, M> {
    pub fn new(
        host: H,
        hotspot: Arc<HotSpot>,
        memory: M,
        hello: SessionFacts,
        destinations: Destinations,
    ) -> Self {
        let clock = TickClock::new(now(&host));
        let mut worker = Self {
            clock,
            host,
            resolver: Resolver::new(hotspot, memory),
            interval_ns: hello.interval_ns,
            destinations,
            dictionaries: Dictionaries::default(),
            batch: Batch::default(),
            stats: Stats::default(),
            accounts: Vec::new(),
            closed: Vec::new(),
            unbounded: Vec::new(),
            rounds: 0,
        };
        worker.destinations.send(&Body::Hello(hello));
        worker
    }

    /// Runs until it is told to stop, or until its owner is gone.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut next_discover = Instant::now();
        let mut next_flush = Instant::now() + FLUSH_PERIOD;
        let mut next_statistics = Instant::now() + STATISTICS_PERIOD;
        loop {
            let command = commands.recv_timeout(DRAIN_PERIOD);
            self.drain();
            match command {
                Ok(Command::Stop { reason, done }) => {
                    self.finish(reason);
                    // The owner may have stopped waiting; there is nothing to tell anybody then.
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return self.finish("agent_gone"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if now >= next_discover {
                self.host.discover();
                self.resolver.refresh();
                next_discover = now + DISCOVER_PERIOD;
            }
            self.retire_ended();
            if now >= next_statistics {
                self.rounds += 1;
                self.send_statistics(self.rounds.is_multiple_of(10));
                next_statistics = now + STATISTICS_PERIOD;
                next_flush = now + FLUSH_PERIOD;
            } else if now >= next_flush {
                self.flush();
                next_flush = now + FLUSH_PERIOD;
            }
        }
    }

    /// Empties every queue that has requests.
    fn drain(&mut self) {
        self.clock.read(now(&self.host));
        let slots = self.host.ready();
        if slots.is_empty() {
            return;
        }
        let start = Instant::now();
        for slot in slots {
            self.drain_slot(slot);
        }
        if !self.unbounded.is_empty() {
            self.host.bound_stacks(&self.unbounded);
            self.unbounded.clear();
        }
        self.stats.drain_ns.record(elapsed_ns(start));
    }

    fn drain_slot(&mut self, slot: u32) {
        self.open_account(slot);
        let mut found = 0;
        while let Some(request) = self.next_request(slot) {
            found += 1;
            self.take(slot, &request);
        }
        self.stats.high_water = self.stats.high_water.max(found);
    }

    /// One request at a time, so that the queue is not held while a stack is walked.
    fn next_request(&self, slot: u32) -> Option<Request> {
        self.host.queue(slot).try_drain()?.next()
    }

    fn take(&mut self, slot: u32, request: &Request) {
        self.stats.requests += 1;
        let start = Instant::now();
        let resolved = self.walk(slot, request);
        let time_ns = self.clock.nanos(request.ticks);
        self.stats.walk_ns.record(elapsed_ns(start));
        self.stats.count_stop(resolved.stop);
        self.stats.samples += 1;
        let cpu_ns = request.cpu_ns(self.interval_ns);
        let Some(account) = self.accounts.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        account.add_sample(cpu_ns);
        let mut flags = 0;
        if request.flags.contains(RequestFlags::TRUNCATED) {
            flags |= FLAG_TRUNCATED;
        }
        if !resolved.complete {
            flags |= FLAG_INCOMPLETE;
        }
        let thread = account.facts.id;
        self.batch.push(Sample { time_ns, thread, stack: resolved.stack, cpu_ns, flags });
        if self.batch.len() >= BATCH_SAMPLES || self.dictionaries.pending_len() >= PENDING_ENTRIES {
            self.flush();
        }
    }

    fn walk(&mut self, slot: u32, request: &Request) -> Resolved {
        let thread = self.accounts.get(slot as usize).and_then(Option::as_ref).map(|account| &account.facts);
        let view = self.host.pool().view(request.snapshot, request.snapshot_len as usize);
        let snapshot = view.as_ref().map(|view| view.bytes()).and_then(Snapshot::read).unwrap_or_else(|| {
            let capture = Capture { pc: request.pc, sp: request.sp, fp: request.fp, ..Capture::default() };
            Snapshot::of_registers(capture)
        });
        if snapshot.head.previous_cycles != 0 {
            self.stats.handler_cycles.record(snapshot.head.previous_cycles);
        }
        let capture = &snapshot.head.capture;
        if let Some(thread) = thread
            && snapshot.stack.is_empty()
            && capture.thread == 0
        {
            let Capture { sp, stack_high: thread_pointer, .. } = *capture;
            self.unbounded.push(UnboundedStack { slot, thread: thread.id, sp, thread_pointer });
        }
        self.resolver.resolve(&snapshot, thread, &mut self.dictionaries)
    }

    /// Makes sure the slot's present owner has an account, and that its description was sent.
    fn open_account(&mut self, slot: u32) {
        if self.accounts.get(slot as usize).is_some_and(Option::is_some) {
            return;
        }
        if let Some(facts) = self.host.thread(slot) {
            self.account_for(&facts);
        }
    }

    /// The account of a thread, opened or brought up to date.
    fn account_for(&mut self, facts: &ThreadFacts) -> &mut Account {
        let slot = facts.slot as usize;
        if self.accounts.len() <= slot {
            self.accounts.resize_with(slot + 1, || None);
        }
        let counters = self.host.queue(facts.slot).lost();
        let account = self.accounts[slot].get_or_insert_with(|| Account::open(facts.clone(), counters));
        if account.facts.revision != facts.revision {
            account.facts = facts.clone();
        }
        if account.sent_revision != Some(account.facts.revision) {
            account.sent_revision = Some(account.facts.revision);
            self.dictionaries.thread(v1::Thread {
                id: facts.id,
                tid: facts.tid.cast_unsigned(),
                name: facts.name.to_string(),
                kind: facts.kind.into(),
                java_id: 0,
            });
        }
        account
    }

    /// Closes the accounts of ended threads and gives their slots back.
    fn retire_ended(&mut self) {
        for facts in self.host.ended() {
            let slot = facts.slot;
            self.account_for(&facts);
            // The thread pushed its last request before it was listed as ended.
            self.drain_slot(slot);
            let Some(mut account) = self.accounts.get_mut(slot as usize).and_then(Option::take) else {
                continue;
            };
            if let Some(clock_ns) = facts.ended_ns {
                account.read_clock(clock_ns);
            }
            let counters = self.host.queue(slot).lost();
            account.settle(counters);
            let handed_on_ns = account.unfinished_ns(counters);
            add_lost(&mut self.stats.lost, &account.lost(counters));
            self.stats.before_timer_ns += account.facts.before_timer_ns;
            self.closed.push(account.message(counters, Some(handed_on_ns)));
            self.host.retire(slot, handed_on_ns);
        }
    }

    /// Sends what waits: dictionary first, then samples.
    fn flush(&mut self) {
        if let Some(dictionary) = self.dictionaries.take_pending() {
            self.destinations.send(&Body::Dictionary(dictionary));
        }
        if let Some(samples) = self.batch.take() {
            self.destinations.send(&Body::Samples(samples));
        }
        if self.destinations.take_forgotten() {
            self.dictionaries.forget();
        }
        if self.dictionaries.take_forgotten() {
            self.resolver.forget();
            for account in self.accounts.iter_mut().flatten() {
                account.sent_revision = None;
            }
        }
    }

    fn send_statistics(&mut self, of_all: bool) {
        let mut lost = self.stats.lost.clone();
        let mut before_timer_ns = self.stats.before_timer_ns;
        for facts in self.host.threads() {
            let account = self.account_for(&facts);
            // A thread that ends now keeps its last reading; its own callback or discovery brings the final one.
            if of_all || account.dirty {
                let clock_ns = facts.ended_ns.or_else(|| clock::thread_cpu_nanos(facts.tid).ok());
                account.read_clock(clock_ns.unwrap_or(0));
            }
        }
        let mut threads = std::mem::take(&mut self.closed);
        for account in self.accounts.iter_mut().flatten() {
            let counters = self.host.queue(account.facts.slot).lost();
            add_lost(&mut lost, &account.lost(counters));
            before_timer_ns += account.facts.before_timer_ns;
            if std::mem::take(&mut account.dirty) {
                threads.push(account.message(counters, None));
            }
        }
        self.flush();
        let statistics = self.statistics(threads, lost, before_timer_ns);
        self.destinations.send(&Body::Statistics(statistics));
    }

    fn statistics(
        &self,
        threads: Vec<v1::ThreadAccount>,
        lost: Vec<v1::Lost>,
        before_timer_ns: u64,
    ) -> v1::Statistics {
        let pool = self.host.pool().stats();
        v1::Statistics {
            time_ns: clock::monotonic_nanos(),
            threads,
            requests: self.stats.requests,
            samples: self.stats.samples,
            stops: self.stats.stops(),
            handler_cycles: Some(histogram_message(&self.stats.handler_cycles)),
            walk_ns: Some(histogram_message(&self.stats.walk_ns)),
            drain_ns: Some(histogram_message(&self.stats.drain_ns)),
            sampler_cpu_ns: clock::own_cpu_nanos() + self.destinations.cpu_ns(),
            queue: Some(v1::QueueStatistics {
                capacity_bytes: self.host.queue_bytes(),
                grown: 0,
                pool_bytes: pool.reserved_bytes as u64,
                pool_exhausted: pool.exhausted(),
                high_water: self.stats.high_water,
            }),
            process_cpu_ns: clock::process_cpu_nanos(),
            before_timer_ns,
            lost,
            delivery: self.destinations.delivery(),
        }
    }

    /// The orderly end: everything that is queued, the last accounts, goodbye.
    fn finish(&mut self, reason: &'static str) {
        self.drain();
        self.retire_ended();
        self.send_statistics(true);
        self.destinations.send(&Body::Goodbye(v1::Goodbye { reason: reason.to_owned() }));
        self.destinations.finish();
    }
}

fn now(host: &impl Host) -> Reading {
    Reading { ticks: host.ticks(), ns: clock::monotonic_nanos() }
}

fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
