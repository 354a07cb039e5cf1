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
use crate::budget::Spent;
use crate::clock;
use crate::host::{Host, ThreadFacts, UnboundedStack};
use crate::intake::{Intake, Waiting};
use crate::intern::Dictionaries;
use crate::pace::Pace;
use crate::probe::Probing;
use crate::resolve::{Resolved, Resolver};
use crate::self_test::{CompiledWalks, SelfTest};
use crate::sink::Destinations;
use crate::snapshot::Snapshot;
use crate::stats::{Due, StatisticsDue, Stats};
use crate::ticks::{Reading, TickClock};
use crate::tuning::Tuner;
use crate::unloading::Unloading;
use crate::virtual_threads::{Seen, VirtualThreads};

mod report;
mod tune;

use tune::Tick;

/// How often threads that did not tell us are looked for.
const DISCOVER_PERIOD: Duration = Duration::from_millis(100);
/// How often samples are sent if there are enough of them for a message.
const FLUSH_PERIOD: Duration = Duration::from_millis(250);
/// Enough: a message costs some 60 bytes beside its samples, acknowledgement included.
const FLUSH_SAMPLES: usize = 40;
/// Longest time a sample waits in a batch, and how often statistics may be sent.
const STATISTICS_PERIOD: Duration = Duration::from_secs(1);
/// How long walking may keep the queues from being emptied.
const COLLECT_PERIOD: Duration = Duration::from_millis(4);
/// How long a drain takes in more requests; what it has by then it finishes.
const LONGEST_DRAIN: Duration = Duration::from_millis(100);
/// Samples per message: at about 8 bytes each, well below a packet train of 64 KiB.
const BATCH_SAMPLES: usize = 2_000;
/// Waiting dictionary entries that force a flush: some 5 bytes a node and 50 a string or method, 0.5 MB in all.
const PENDING_ENTRIES: usize = 20_000;

/// Cause of a request that cannot be a sample: nobody knows its thread.
const NO_THREAD: &str = "no_thread";

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
    host: Arc<H>,
    intake: Arc<Intake<H>>,
    resolver: Resolver<M>,
    unloading: Arc<Unloading>,
    self_tests: Vec<SelfTest>,
    compiled_walks: CompiledWalks,
    clock: TickClock,
    tuner: Tuner,
    tick: Tick,
    destinations: Destinations,
    dictionaries: Dictionaries,
    batch: Batch,
    stats: Stats,
    pace: Pace,
    /// Requests that are being walked.
    taken: Waiting,
    /// Requests without Java, walked behind the others.
    later: Waiting,
    accounts: Vec<Option<Account>>,
    /// Accounts of threads that ended since the last statistics message.
    closed: Vec<v1::ThreadAccount>,
    /// Threads met in this drain whose stacks could not be copied.
    unbounded: Vec<UnboundedStack>,
    virtual_threads: VirtualThreads,
    due: StatisticsDue,
    /// When timers pass on next.
    next_rotation: Instant,
    /// Losses by cause as they were sent last.
    sent_lost: Vec<v1::Lost>,
    probing: Option<Probing>,
    compares_walks: bool,
}

impl<H: Host, M: Memory> Worker<H, M> {
    pub fn new(
        intake: Arc<Intake<H>>,
        hotspot: Arc<HotSpot>,
        memory: M,
        mut hello: SessionFacts,
        destinations: Destinations,
        started: impl FnOnce(i32) + Send + 'static,
    ) -> Self {
        let host = Arc::clone(intake.host());
        // An experiment that says when queues are emptied means it.
        if !host.pace().is_exact() {
            intake.start(started);
        }
        let tick = Tick::look(&*host);
        // What was measured beats what the kernel says of itself.
        hello.kernel_tick_ns = if tick.ns == 0 { hello.kernel_tick_ns } else { tick.ns };
        let clock = TickClock::new(now(&*host));
        let unloading = host.unloading();
        let (trust, self_tests) = host.self_tests();
        let tuner = Tuner::new(host.tuning(), hello.kernel_tick_ns, host.processors(), Spent::default());
        let mut worker = Self {
            intake,
            pace: Pace::new(host.pace()),
            taken: Waiting::new(),
            later: Waiting::new(),
            clock,
            probing: Probing::new(host.probe()),
            compares_walks: host.compares_walks(),
            host,
            resolver: Resolver::new(hotspot, memory, Arc::clone(&unloading), trust),
            unloading,
            self_tests,
            compiled_walks: CompiledWalks::default(),
            tuner,
            tick,
            destinations,
            dictionaries: Dictionaries::default(),
            batch: Batch::default(),
            stats: Stats::default(),
            accounts: Vec::new(),
            closed: Vec::new(),
            unbounded: Vec::new(),
            virtual_threads: VirtualThreads::default(),
            due: StatisticsDue::default(),
            next_rotation: Instant::now() + DISCOVER_PERIOD,
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
        let mut next_hook = self.tuner.hook().map(|period| Instant::now() + period);
        loop {
            self.intake.work_ends();
            let period = self.pace.period(Instant::now());
            let command = commands.recv_timeout(period);
            let is_paused = self.pace.is_paused(period);
            if !is_paused {
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
            if next_hook.is_some_and(|hook| now >= hook) && !is_paused {
                let period_ns = self.tuner.hooked();
                self.host.aim_period(period_ns);
                self.host.retune_timers();
                next_hook = self.tuner.hook().map(|period| now + period);
            }
            if now >= next_discover {
                self.host.discover();
                if !is_paused {
                    self.host.retune_timers();
                }
                self.resolver.refresh();
                next_discover = now + DISCOVER_PERIOD;
            }
            self.rotate_timers(now);
            self.retire_ended();
            if now >= next_statistics {
                self.intake.work_begins();
                self.pace.stall();
                self.virtual_threads.refill();
                self.shrink_memory();
                self.tune();
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

    /// Empties every queue that has requests, then walks what they held.
    fn drain(&mut self) {
        self.clock.read(now(&*self.host));
        self.resolver.begin_drain();
        self.host.drain_begins();
        let (start, start_cpu_ns) = (Instant::now(), clock::own_cpu_nanos());
        let before = self.stats.requests;
        self.resolve_waiting(start);
        let requests = self.stats.requests - before;
        if requests > 0 {
            self.stats.drains_cpu_ns += clock::own_cpu_nanos().saturating_sub(start_cpu_ns);
            self.stats.drain_ns.record(elapsed_ns(start));
            self.stats.drain_requests.record(requests);
        }
        self.pace.after_drain(self.intake.take_fullest());
        if !self.unbounded.is_empty() {
            self.host.bound_stacks(&self.unbounded);
            self.unbounded.clear();
        }
    }

    /// Walks the stacks of the requests that wait, and of those that come meanwhile, up to [`LONGEST_DRAIN`].
    ///
    /// What waited at the start is walked in any case. Queues are emptied in between: a walk that has to read a symbol
    /// table first must not make small ones overflow. Stacks without Java come last: a pause frees nothing on them but
    /// what a compiler's label names, and naming native code takes longest.
    fn resolve_waiting(&mut self, start: Instant) {
        self.resolve_java();
        let mut collected = start;
        loop {
            let Some((slot, request)) = self.later.pop_front() else {
                let is_more_waiting = self.intake.walked();
                if !is_more_waiting || start.elapsed() >= LONGEST_DRAIN {
                    return;
                }
                self.resolve_java();
                continue;
            };
            self.open_account(slot);
            self.take(slot, &request);
            let now = Instant::now();
            if self.unloading.is_asked() {
                self.resolve_java();
            } else if now - collected >= COLLECT_PERIOD {
                self.keep_up(now);
                collected = now;
            }
        }
    }

    /// What cannot wait for the end of a long drain: full queues, and threads that wait for their turn with a timer.
    fn keep_up(&mut self, now: Instant) {
        self.intake.collect();
        self.rotate_timers(now);
    }

    /// Passes timers on where their turns are over, in and between drains.
    fn rotate_timers(&mut self, now: Instant) {
        if now >= self.next_rotation {
            self.host.rotate_timers();
            self.next_rotation = now + DISCOVER_PERIOD;
        }
    }

    /// Empties the queues, walks what Java threads left there and puts the rest aside; a pause goes on after this.
    fn resolve_java(&mut self) {
        let asked = self.unloading.drain_begins();
        if self.intake.collect() > 0 {
            self.intake.work_begins();
            let mut taken = std::mem::take(&mut self.taken);
            self.intake.take(&mut taken);
            let mut collected = Instant::now();
            for (slot, request) in taken.drain(..) {
                if !request.flags.contains(RequestFlags::IN_JAVA_THREAD) {
                    self.later.push_back((slot, request));
                    continue;
                }
                self.open_account(slot);
                self.take(slot, &request);
                let now = Instant::now();
                if now - collected >= COLLECT_PERIOD {
                    self.keep_up(now);
                    collected = now;
                }
            }
            self.taken = taken;
        }
        self.unloading.drained(asked);
    }

    fn take(&mut self, slot: u32, request: &Request) {
        let start = Instant::now();
        self.stats.requests += 1;
        let (resolved, virtual_thread) = self.walk(slot, request);
        let time_ns = self.clock.nanos(request.ticks);
        self.stats.walk_ns.record(elapsed_ns(start));
        self.stats.count_stop(resolved.stop);
        self.stats.count_unloaded(resolved.unloaded);
        if resolved.is_late {
            self.pace.hurry(start);
        }
        if let Some(inlined) = resolved.compiled {
            self.compiled_walks.count(resolved.stop, inlined);
        }
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

    /// The stack of a sample, and the number of its virtual thread if it has one.
    fn walk(&mut self, slot: u32, request: &Request) -> (Resolved, Option<u32>) {
        let thread = self.accounts.get(slot as usize).and_then(Option::as_ref).map(|account| &account.facts);
        let view = self.host.pool().view(request.snapshot, request.snapshot_len as usize);
        let snapshot = view.as_ref().map(|view| view.bytes()).and_then(Snapshot::read);
        let snapshot = snapshot.unwrap_or_else(|| Snapshot::of_request(request));
        if snapshot.head.previous_cycles != 0 {
            self.stats.handler_cycles.record(snapshot.head.previous_cycles);
            self.stats.handler_ticks += snapshot.head.previous_cycles;
        }
        let capture = &snapshot.head.capture;
        if let Some(thread) = thread
            && snapshot.is_copy
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
            self.host.walked(slot, request.ticks, &snapshot, frames, stop);
        }
        let virtual_thread = thread.filter(|_| snapshot.head.virtual_thread != 0).map(|carrier| {
            let (java_id, name) = (snapshot.head.virtual_thread, snapshot.virtual_thread_name());
            let seen = Seen { java_id, name, carrier };
            self.virtual_threads.number(seen, &mut self.dictionaries, || self.host.next_thread_id())
        });
        (resolved, virtual_thread)
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
        account.facts.expired_ns = facts.expired_ns;
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
                carrier: 0,
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
            self.intake.collect_slot(slot);
            self.resolve_waiting(Instant::now());
            self.intake.with_state(|host, state| state.sizes.after_end(host, slot));
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

    fn shrink_memory(&self) {
        self.intake.with_state(|host, state| {
            state.pool_size.after_round(host);
            state.sizes.after_round(host);
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
            self.virtual_threads.forget_sent();
            for account in self.accounts.iter_mut().flatten() {
                account.sent_revision = None;
            }
        }
    }

    /// The orderly end: everything that is queued, the last accounts, goodbye.
    fn finish(&mut self, reason: &'static str) {
        self.drain();
        while self.intake.collect() > 0 {
            self.resolve_waiting(Instant::now());
        }
        self.retire_ended();
        if let Some(probing) = &self.probing {
            probing.report();
        }
        self.send_statistics(true);
        self.destinations.send(&Body::Goodbye(v1::Goodbye { reason: reason.to_owned() }));
        self.destinations.finish();
    }
}

impl<H: Host, M: Memory> Drop for Worker<H, M> {
    fn drop(&mut self) {
        self.intake.close();
    }
}

fn now(host: &impl Host) -> Reading {
    Reading { ticks: host.ticks(), ns: clock::monotonic_nanos() }
}

fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
