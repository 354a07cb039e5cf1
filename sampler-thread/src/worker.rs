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
use crate::pace::Pace;
use crate::pool_size::PoolSize;
use crate::probe::Probing;
use crate::resolve::{Resolved, Resolver};
use crate::self_test::{CompiledWalks, SelfTest};
use crate::sink::Destinations;
use crate::sizes::Sizes;
use crate::snapshot::Snapshot;
use crate::stats::{Due, StatisticsDue, Stats, histogram_message};
use crate::ticks::{Reading, TickClock};
use crate::unloading::Unloading;

/// How often threads that did not tell us are looked for.
const DISCOVER_PERIOD: Duration = Duration::from_millis(100);
/// How often samples are sent if there are enough of them for a message.
const FLUSH_PERIOD: Duration = Duration::from_millis(250);
/// Enough: a message costs some 60 bytes beside its samples, acknowledgement included.
const FLUSH_SAMPLES: usize = 40;
/// Longest time a sample waits in a batch, and how often statistics may be sent.
const STATISTICS_PERIOD: Duration = Duration::from_secs(1);
/// Samples per message: at about 8 bytes each, well below a packet train of 64 KiB.
const BATCH_SAMPLES: usize = 2_000;
/// Waiting dictionary entries that force a flush: some 5 bytes a node and 50 a string or method, 0.5 MB in all.
const PENDING_ENTRIES: usize = 20_000;

/// What the session is, for the first message.
pub type SessionFacts = v1::Hello;

/// Requests to the sampler thread.
pub(crate) enum Command {
    /// Drain all, send the last messages, answer, end.
    Stop { reason: &'static str, done: Sender<()> },
    /// Drain now: the VM is about to collect garbage.
    Drain,
}

/// The state of the thread.
pub(crate) struct Worker<H: Host, M: Memory> {
    host: H,
    resolver: Resolver<M>,
    unloading: Arc<Unloading>,
    self_tests: Vec<SelfTest>,
    compiled_walks: CompiledWalks,
    clock: TickClock,
    interval_ns: u64,
    destinations: Destinations,
    dictionaries: Dictionaries,
    batch: Batch,
    stats: Stats,
    sizes: Sizes,
    pool_size: PoolSize,
    pace: Pace,
    accounts: Vec<Option<Account>>,
    /// Accounts of threads that ended since the last statistics message.
    closed: Vec<v1::ThreadAccount>,
    /// Threads met in this drain whose stacks could not be copied.
    unbounded: Vec<UnboundedStack>,
    due: StatisticsDue,
    /// Losses by cause as they were sent last.
    sent_lost: Vec<v1::Lost>,
    probing: Option<Probing>,
    compares_walks: bool,
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
        let unloading = host.unloading();
        let (trust, self_tests) = host.self_tests();
        let mut worker = Self {
            sizes: Sizes::new(host.queue_sizes()),
            pool_size: PoolSize::default(),
            pace: Pace::new(host.pace()),
            clock,
            probing: Probing::new(host.probe()),
            compares_walks: host.compares_walks(),
            host,
            resolver: Resolver::new(hotspot, memory, Arc::clone(&unloading), trust),
            unloading,
            self_tests,
            compiled_walks: CompiledWalks::default(),
            interval_ns: hello.interval_ns,
            destinations,
            dictionaries: Dictionaries::default(),
            batch: Batch::default(),
            stats: Stats::default(),
            accounts: Vec::new(),
            closed: Vec::new(),
            unbounded: Vec::new(),
            due: StatisticsDue::default(),
            sent_lost: Vec::new(),
        };
        worker.resolver.begin_drain();
        worker.destinations.send(&Body::Hello(hello));
        worker
    }

    /// Runs until it is told to stop, or until its owner is gone.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut next_discover = Instant::now();
        let mut next_flush = Instant::now() + FLUSH_PERIOD;
        let mut next_statistics = Instant::now() + STATISTICS_PERIOD;
        loop {
            let command = commands.recv_timeout(self.pace.period());
            if !self.pace.is_paused(self.pace.period()) {
                self.drain();
            }
            match command {
                Ok(Command::Stop { reason, done }) => {
                    self.finish(reason);
                    // The owner may have stopped waiting; there is nothing to tell anybody then.
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return self.finish("agent_gone"),
                Ok(Command::Drain) | Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if now >= next_discover {
                self.host.discover();
                self.rotate_timers();
                self.resolver.refresh();
                next_discover = now + DISCOVER_PERIOD;
            }
            self.retire_ended();
            if now >= next_statistics {
                self.shrink_memory();
                match self.due.after_round(self.stats.samples) {
                    Due::Nothing => self.flush(),
                    due => self.send_statistics(due == Due::Whole),
                }
                next_statistics = now + STATISTICS_PERIOD;
                next_flush = now + FLUSH_PERIOD;
            } else if now >= next_flush {
                if self.batch.len() >= FLUSH_SAMPLES {
                    self.flush();
                }
                next_flush = now + FLUSH_PERIOD;
            }
        }
    }

    /// Empties every queue that has requests.
    fn drain(&mut self) {
        self.clock.read(now(&self.host));
        let asked = self.unloading.drain_begins();
        let slots = self.host.ready();
        self.resolver.begin_drain();
        if slots.is_empty() {
            self.pace.after_drain(0);
        } else {
            let start = Instant::now();
            let before = self.stats.requests;
            let fullest = slots.into_iter().map(|slot| self.drain_slot(slot)).max();
            self.pace.after_drain(fullest.unwrap_or(0));
            self.pool_size.after_drain(self.host.pool(), self.stats.requests - before);
            self.stats.drain_ns.record(elapsed_ns(start));
            self.stats.drain_requests.record(self.stats.requests - before);
        }
        if !self.unbounded.is_empty() {
            self.host.bound_stacks(&self.unbounded);
            self.unbounded.clear();
        }
        self.unloading.drained(asked);
    }

    /// Empties the queue of `slot`; returns how full it was, in percent.
    fn drain_slot(&mut self, slot: u32) -> u32 {
        self.open_account(slot);
        let mut found = 0;
        while let Some(request) = self.next_request(slot) {
            found += 1;
            self.take(slot, &request);
        }
        match self.accounts.get_mut(slot as usize).and_then(Option::as_mut) {
            Some(account) => self.sizes.after_drain(&self.host, slot, &mut account.sizer, found),
            None => 0,
        }
    }

    /// One request at a time, so that the queue is not held while a stack is walked.
    fn next_request(&self, slot: u32) -> Option<Request> {
        let mut drain = self.host.queue(slot).try_drain()?;
        let request = drain.next();
        if request.is_none()
            && let Some(left) = drain.take_retired()
        {
            self.host.give_back_ring(left);
        }
        request
    }

    fn take(&mut self, slot: u32, request: &Request) {
        self.stats.requests += 1;
        let start = Instant::now();
        let resolved = self.walk(slot, request);
        let time_ns = self.clock.nanos(request.ticks);
        self.stats.walk_ns.record(elapsed_ns(start));
        self.stats.count_stop(resolved.stop);
        self.stats.count_unloaded(resolved.unloaded);
        if let Some(inlined) = resolved.compiled {
            self.compiled_walks.count(resolved.stop, inlined);
        }
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
        self.batch.push(Sample { time_ns, thread, stack: resolved.stack, cpu_ns, flags, count: 1 });
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
        let resolved = self.resolver.resolve(&snapshot, request.ticks, thread, &mut self.dictionaries);
        if let Some(probing) = &mut self.probing {
            self.resolver.probe(probing, &snapshot);
        }
        if self.compares_walks && snapshot.head.capture.thread != 0 {
            let (frames, stop) = self.resolver.frames();
            self.host.walked(slot, request.ticks, frames, stop);
        }
        resolved
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
        let account = self.accounts[slot].get_or_insert_with(|| Account::open(facts.clone()));
        account.facts.coverage = facts.coverage;
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
            self.sizes.after_end(&self.host, slot);
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

    fn shrink_memory(&mut self) {
        self.pool_size.after_round(&self.host);
        for slot in self.sizes.large() {
            if let Some(account) = self.accounts.get_mut(slot as usize).and_then(Option::as_mut) {
                self.sizes.after_round(&self.host, slot, &mut account.sizer);
            }
        }
    }

    fn rotate_timers(&self) {
        self.host.rotate_timers(&|slot| {
            let account = self.accounts.get(slot as usize).and_then(Option::as_ref);
            let counters = self.host.queue(slot).lost();
            account.map_or_else(|| counters.total_nanos(), |account| account.expired_ns(counters))
        });
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

    /// Sends statistics: all of them if `whole`, else without what a reader may carry over.
    fn send_statistics(&mut self, whole: bool) {
        let mut lost = self.stats.lost.clone();
        let mut before_timer_ns = self.stats.before_timer_ns;
        for facts in self.host.threads() {
            let account = self.account_for(&facts);
            // A thread that ends now keeps its last reading; its own callback or discovery brings the final one.
            if whole || account.dirty {
                let clock_ns = facts.ended_ns.or_else(|| clock::thread_cpu_nanos(facts.tid).ok());
                account.read_clock(clock_ns.unwrap_or(0));
            }
        }
        let mut threads = std::mem::take(&mut self.closed);
        for account in self.accounts.iter_mut().flatten() {
            let counters = self.host.queue(account.facts.slot).lost();
            add_lost(&mut lost, &account.lost(counters));
            before_timer_ns += account.facts.before_timer_ns;
            if account.take_due(whole) {
                threads.push(account.message(counters, None));
            }
        }
        self.flush();
        let mut statistics = self.statistics(threads, before_timer_ns);
        if whole || self.sent_lost != lost {
            self.sent_lost.clone_from(&lost);
            statistics.lost = lost;
        }
        if whole {
            self.complete(&mut statistics);
        }
        self.destinations.send(&Body::Statistics(statistics));
    }

    fn statistics(&self, threads: Vec<v1::ThreadAccount>, before_timer_ns: u64) -> v1::Statistics {
        v1::Statistics {
            time_ns: clock::monotonic_nanos(),
            threads,
            requests: self.stats.requests,
            samples: self.stats.samples,
            sampler_cpu_ns: clock::own_cpu_nanos() + self.destinations.cpu_ns(),
            process_cpu_ns: clock::process_cpu_nanos(),
            before_timer_ns,
            delivery: self.destinations.delivery(),
            ..v1::Statistics::default()
        }
    }

    /// Adds what is not sent every time.
    fn complete(&self, statistics: &mut v1::Statistics) {
        let pool = self.host.pool().stats();
        let timers = self.host.timers();
        statistics.stops = self.stats.stops();
        statistics.handler_cycles = Some(histogram_message(&self.stats.handler_cycles));
        statistics.walk_ns = Some(histogram_message(&self.stats.walk_ns));
        statistics.drain_ns = Some(histogram_message(&self.stats.drain_ns));
        statistics.drain_requests = Some(histogram_message(&self.stats.drain_requests));
        statistics.queue = Some(v1::QueueStatistics {
            capacity_bytes: self.host.queue_bytes(),
            grown: self.sizes.grown,
            pool_bytes: pool.service_bytes() as u64,
            pool_exhausted: pool.exhausted(),
            pool_grown: self.pool_size.grown,
            pool_shrunk: self.pool_size.shrunk,
            pool_high_water: self.pool_size.high_water,
            high_water: self.sizes.high_water,
            shrunk: self.sizes.shrunk,
            largest: self.sizes.largest,
        });
        statistics.unloading = Some(self.stats.unloading(&self.unloading));
        statistics.self_tests =
            self.self_tests.iter().cloned().chain([self.compiled_walks.result()]).collect();
        statistics.timers = Some(v1::TimerStatistics {
            threads: timers.threads,
            with_timer: timers.with_timer,
            turns: timers.turns,
            without_slot: timers.without_slot,
        });
    }

    /// The orderly end: everything that is queued, the last accounts, goodbye.
    fn finish(&mut self, reason: &'static str) {
        self.drain();
        self.retire_ended();
        if let Some(probing) = &self.probing {
            probing.report();
        }
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
