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
use stackwalk::{HotSpot, Memory};

use crate::account::Account;
use crate::account::clock;
use crate::account::timestamps::{Reading, TickClock};
use crate::account::virtual_threads::VirtualThreads;
use crate::drain::intake::{Intake, Waiting};
use crate::drain::pace::Pace;
use crate::host::{Host, UnboundedStack};
use crate::name::dictionaries::Dictionaries;
use crate::period::budget::Spent;
use crate::period::interval::Tuner;
use crate::probe::Probing;
use crate::send::batch::Batch;
use crate::send::sink::Destinations;
use crate::send::statistics::{Due, StatisticsDue, Stats};
use crate::validity::self_test::{CompiledWalks, SelfTest};
use crate::validity::unloading::Unloading;
use crate::walk::resolve::Resolver;

mod accounts;
mod report;
mod stacks;
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
            let period = self.pace.period(Instant::now());
            let command = commands.recv_timeout(period);
            if Instant::now() >= next_statistics {
                self.pace.oversleep();
            }
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
        let unloads = self.resolver.begin_drain();
        self.host.drain_begins();
        let (start, start_cpu_ns) = (Instant::now(), clock::own_cpu_nanos());
        if unloads {
            self.pace.hurry(start);
        }
        let before = self.stats.requests;
        self.resolve_waiting(start);
        let requests = self.stats.requests - before;
        if requests > 0 {
            self.stats.drains_cpu_ns += clock::own_cpu_nanos().saturating_sub(start_cpu_ns);
            self.stats.drain_ns.record(nanos(start.elapsed()));
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
            self.resolve(slot, request);
            if self.unloading.is_asked() {
                self.resolve_java();
            } else {
                self.keep_up(&mut collected);
            }
        }
    }

    /// What cannot wait for the end of a long drain: full queues, and threads that wait for their turn with a timer; if
    /// [`COLLECT_PERIOD`] is over since `collected`.
    fn keep_up(&mut self, collected: &mut Instant) {
        let now = Instant::now();
        if now - *collected >= COLLECT_PERIOD {
            self.intake.collect();
            self.rotate_timers(now);
            *collected = now;
        }
    }

    /// Passes timers on where their turns are over, in and between drains.
    fn rotate_timers(&mut self, now: Instant) {
        if now >= self.next_rotation {
            self.host.rotate_timers();
            self.next_rotation = now + DISCOVER_PERIOD;
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

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
