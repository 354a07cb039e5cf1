//! The sampler thread: its loop and its state.
//!
//! Problem: work that may block, allocate or fault must happen away from the profiled threads, and its cost must depend
//! on what is active.
//! Approach: a native thread that the VM does not know, with every signal blocked, wakes periodically, makes samples of
//! the requests in the queues (`samples`), and sends batches and statistics.
//! Invariant: a dictionary entry is sent before the first sample that refers to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::v1::{self, agent_message::Body};
use stackwalk::Memory;

use crate::End;
use crate::account::accounts::Accounts;
use crate::account::timestamps::{Reading, TickClock};
use crate::account::virtual_threads::VirtualThreads;
use crate::account::waiting::Waiting;
use crate::clock;
use crate::drain::intake::{Intake, Requests};
use crate::drain::next_sweep::NextSweep;
use crate::drain::pace::Pace;
use crate::drain::traces::Traces;
use crate::hooks::Observer;
use crate::name::stacks::StackNamer;
use crate::period::aim::Clock;
use crate::period::budget::Spent;
use crate::period::interval::{self, Tuner};
use crate::period::tick::Tick;
use crate::process::{Gap, Process, ThreadFacts, ThreadKind};
use crate::proof::pause_wait::MARKER;
use crate::proof::self_test::{CompiledWalks, SelfTest};
use crate::proof::unloading::Unloading;
use crate::send::batch::Batch;
use crate::send::sink::Destinations;
use crate::send::statistics::{Extent, Schedule, Stats};
use crate::settings::Settings;
use crate::walk::stacks::StackWalker;
use crate::walk::vm::Vm;
use crate::worker::inbox::{Inbox, Woken};

mod accounts;
pub(crate) mod inbox;
mod report;
mod samples;
mod traces;
mod tune;

/// Shortest time between two searches for threads that started or ended without an event; one comes after a drain.
const DISCOVER_PERIOD: Duration = Duration::from_millis(100);
/// Time between the first two: the second one reads what would otherwise be read in the first pause of a collector.
const FIRST_DISCOVER_PERIOD: Duration = Duration::from_millis(20);
/// Time between two messages with samples, if there are enough of them.
const FLUSH_PERIOD: Duration = Duration::from_millis(250);
/// Samples that are enough for a message, which costs some 60 bytes besides its samples, acknowledgement included.
const FLUSH_SAMPLES: usize = 400;
/// Longest time that a sample waits in a batch, and shortest between two statistics.
const STATISTICS_PERIOD: Duration = Duration::from_secs(1);

/// Facts about the session, for the first message.
pub type SessionFacts = v1::Hello;

/// The state of the thread.
pub(crate) struct Worker<P: Process, M: Memory> {
    process: Arc<P>,
    intake: Arc<Intake<P>>,
    vm: Vm<M>,
    walker: StackWalker,
    namer: StackNamer,
    unloading: Arc<Unloading>,
    self_tests: Vec<SelfTest>,
    /// `Ok` if the VM's memory is read by loads, else the reason for system calls; `None` if it can only be read in one
    /// way.
    access: Option<Result<(), &'static str>>,
    compiled_walks: CompiledWalks,
    clock: TickClock,
    /// CPU time of the process that is no part of the profile, in nanoseconds.
    process_cpu_before_ns: u64,
    tuner: Tuner,
    tick: Tick,
    destinations: Destinations,
    batch: Batch,
    stats: Stats,
    pace: Pace,
    next_sweep: NextSweep,
    /// Buffer of requests that are being walked.
    requests: Requests,
    /// Requests of threads without Java, walked after the others.
    without_java: Requests,
    /// Time of the last collection.
    collected: Instant,
    accounts: Accounts,
    /// Accounts of threads that ended since the last statistics message.
    closed: Vec<v1::ThreadAccount>,
    virtual_threads: VirtualThreads,
    waiting: Waiting,
    schedule: Schedule,
    traces: Option<Arc<Traces>>,
    /// True if threads lack timers, so that these are rotated often.
    shares_timers: bool,
    /// Time of the next rotation of timers.
    next_rotation: Instant,
    /// Losses by cause in the last statistics message.
    sent_lost: Vec<v1::Lost>,
    /// True after a panic: the requests that wait are lost.
    has_failed: bool,
    /// When the profile ends by itself.
    deadline: Option<Instant>,
    observer: Option<Box<dyn Observer<M>>>,
}

impl<P: Process, M: Memory> Worker<P, M> {
    /// Measures what has to be measured on this thread, and sends the first message.
    pub fn new(
        process: Arc<P>,
        intake: Arc<Intake<P>>,
        settings: Settings<M>,
        vm: Vm<M>,
        mut hello: SessionFacts,
        destinations: Destinations,
    ) -> Self {
        let tick = Tick::at_start(&settings.tuning, |max_cpu_ns| process.measure_tick(max_cpu_ns));
        // A measured tick is more reliable than the kernel's claim.
        hello.kernel_tick_ns = if tick.ns == 0 { hello.kernel_tick_ns } else { tick.ns };
        // Perf events do not wait for it.
        let tick_ns = if settings.tuning.clock == Clock::Ticks { hello.kernel_tick_ns } else { 0 };
        let clock = TickClock::new(reading(&settings.unloading));
        let (enabled, self_tests) = (settings.examine)();
        let processors = interval::processors();
        let mut pace = Pace::new(settings.pace);
        pace.set_may_wait(settings.unloading.is_all_proven());
        let mut worker = Self {
            process,
            intake,
            vm,
            walker: StackWalker::new(
                Arc::clone(&settings.unloading),
                Arc::clone(&settings.routines),
                enabled.walks,
                settings.max_frames,
            ),
            namer: StackNamer::new(enabled, settings.routines, settings.shown),
            unloading: settings.unloading,
            self_tests,
            access: None,
            compiled_walks: CompiledWalks::default(),
            clock,
            process_cpu_before_ns: settings.process_cpu_before_ns,
            tuner: Tuner::new(settings.tuning, tick_ns, processors, Spent::default()),
            tick,
            destinations,
            batch: Batch::default(),
            stats: Stats::default(),
            pace,
            next_sweep: NextSweep::default(),
            requests: Requests::new(),
            without_java: Requests::new(),
            collected: Instant::now(),
            accounts: Accounts::default(),
            closed: Vec::new(),
            virtual_threads: VirtualThreads::default(),
            waiting: Waiting::start(settings.process_cpu_before_ns > 0),
            schedule: Schedule::default(),
            traces: settings.traces,
            shares_timers: false,
            next_rotation: Instant::now() + DISCOVER_PERIOD,
            sent_lost: Vec::new(),
            has_failed: false,
            deadline: settings.duration.map(|duration| Instant::now() + duration),
            observer: settings.observer,
        };
        worker.set_queue_time();
        if worker.observer.as_ref().is_some_and(|observer| observer.compares_walks()) {
            worker.walker.compare_walks();
        }
        worker.walker.begin_drain(&worker.vm);
        worker.destinations.send(&Body::Hello(hello));
        worker
    }

    /// Runs until a stop command, until the owner of the thread is gone or until no destination is left; sends the last
    /// messages and returns why it ended.
    ///
    /// After a panic the requests that wait count as lost.
    pub fn run(&mut self, inbox: &Inbox) -> End {
        let end = catch_unwind(AssertUnwindSafe(|| self.sample_until_end(inbox))).unwrap_or(End::Panic);
        match end {
            End::Stopped(_) => self.drain_rest(),
            End::NoDestination => return end,
            End::HandlerReplaced => {
                self.process.stop(Some(Gap::HandlerReplaced));
                self.drain_rest();
            }
            End::DescriptorsClosed => {
                self.process.stop(Some(Gap::NoTimer));
                self.drain_rest();
            }
            End::Duration => {
                self.process.stop(None);
                self.drain_rest();
            }
            End::Panic => {
                self.process.stop(None);
                self.has_failed = true;
            }
        }
        self.finish(end.reason());
        end
    }

    fn sample_until_end(&mut self, inbox: &Inbox) -> End {
        let mut due = Due::begin(Instant::now());
        // While the program begins: at the end of a short one, it would wait for that.
        self.walker.refresh_libraries(&self.vm, self.process.library_loads());
        if !self.pace.is_exact() {
            self.drain();
        }
        loop {
            let period = self.period(Instant::now());
            let woken = self.sleep(inbox, period);
            let wanted_flush = inbox.wanted_flush();
            if let Some(observer) = &mut self.observer
                && Instant::now() >= due.statistics
            {
                observer.on_second();
            }
            let is_paused = self.pace.is_paused(period);
            if !is_paused {
                self.drain();
            }
            if let Woken::End(reason) = woken {
                return End::Stopped(reason);
            }
            if let Some(number) = wanted_flush {
                self.send_statistics(true);
                inbox.flushed(number);
            }
            if !self.destinations.alive() {
                return End::NoDestination;
            }
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                return End::Duration;
            }
            if !is_paused {
                self.follow_observer(now);
            }
            if now >= due.discovery {
                if let Some(end) = self.discover(is_paused) {
                    return end;
                }
                due.discovery = now + std::mem::replace(&mut due.discover_period, DISCOVER_PERIOD);
            }
            self.rotate_timers(now);
            self.retire_ended();
            if now >= due.statistics {
                self.end_second();
                (due.statistics, due.flush) = (now + STATISTICS_PERIOD, now + FLUSH_PERIOD);
            } else if now >= due.flush {
                if self.batch.len() >= FLUSH_SAMPLES {
                    self.flush();
                }
                due.flush = now + FLUSH_PERIOD;
            }
        }
    }

    /// Returns the longest sleep from `now` on.
    fn period(&self, now: Instant) -> Duration {
        let longest = if self.shares_timers { DISCOVER_PERIOD } else { Duration::MAX };
        let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now));
        self.pace.period(now).min(longest).min(left)
    }

    /// Sets the aim of the observer, if it has another one.
    fn follow_observer(&mut self, now: Instant) {
        let shortest = self.tuner.aim(self.tuner.shortest_ns(), self.tick.ns);
        if let Some(aim) = self.observer.as_mut().and_then(|observer| observer.aim(now, shortest)) {
            self.process.aim(aim);
            self.process.retune();
        }
    }

    /// Looks for new threads and libraries; returns why the profile must end, if it must.
    fn discover(&mut self, is_paused: bool) -> Option<End> {
        if !self.process.has_handler() {
            return Some(End::HandlerReplaced);
        }
        if !self.process.has_descriptors() {
            return Some(End::DescriptorsClosed);
        }
        self.process.discover();
        if !is_paused {
            self.process.retune();
        }
        if self.walker.refresh(&self.vm, self.process.library_loads()) {
            let threads = self.process.threads();
            let is_marker = |thread: &&ThreadFacts| thread.kind == ThreadKind::Gc && *thread.name == *MARKER;
            let marker = threads.iter().find(is_marker);
            self.unloading.wait().set_marker(marker.map_or(0, |marker| marker.tid));
            self.pace.set_may_wait(self.unloading.is_all_proven());
        }
        None
    }

    /// Does what is due once a second.
    fn end_second(&mut self) {
        self.virtual_threads.refill();
        self.shrink_memory();
        self.tune();
        let connections = self.destinations.delivery().map_or(0, |delivery| delivery.connections);
        match self.schedule.after_round(self.stats.samples, connections) {
            Extent::Nothing => {
                self.read_clocks(false);
                self.flush();
            }
            extent => self.send_statistics(extent == Extent::Whole),
        }
    }

    /// Sleeps until the next drain, in `period` at the latest; looks for sweeps meanwhile.
    fn sleep(&mut self, inbox: &Inbox, period: Duration) -> Woken {
        let end = Instant::now() + period;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let woken = inbox.wait(left.min(self.pace.until_look()));
            let now = Instant::now();
            let ahead = self.unloading.ahead(&self.vm.memory);
            if woken != Woken::Late || now >= end || self.next_sweep.has_come(ahead) {
                return woken;
            }
            self.pace.set_until_look(self.next_sweep.next_look(now, ahead));
        }
    }

    /// Makes samples of everything in the queues, and adapts the pace.
    fn drain(&mut self) {
        self.access = self.vm.memory.choose_access();
        // First, so that the next look finds a sweep that begins from here on.
        let ahead = self.unloading.ahead(&self.vm.memory);
        let has_unloaded = self.walker.begin_drain(&self.vm);
        self.process.drain_begins();
        // Only a budget needs the CPU time of drains; reading a thread's clock is a system call.
        let (start, start_cpu_ns) = (Instant::now(), self.tuner.budget().map(|_| clock::own_cpu_nanos()));
        if has_unloaded {
            self.pace.shorten(start);
        }
        if self.walker.take_redefined(&self.vm) {
            self.pace.watch(start);
        }
        let (requests, bytes) = (self.stats.requests, self.stats.copied_bytes);
        self.sample_waiting();
        let (requests, bytes) = (self.stats.requests - requests, self.stats.copied_bytes - bytes);
        if requests > 0 {
            let cpu_ns = start_cpu_ns.map(|start_ns| clock::own_cpu_nanos().saturating_sub(start_ns));
            self.stats.drains_cpu_ns += cpu_ns.unwrap_or(0);
            self.stats.drain_ns.record(nanos(start.elapsed()));
            self.stats.drain_requests.record(requests);
        }
        self.pace.after_drain(requests, bytes, self.intake.take_fullest());
        self.pace.set_until_look(self.next_sweep.next_look(start, ahead));
        let is_new = self.pace.is_new(start);
        self.unloading.wait().set_new(is_new);
        self.unloading.wait().set_calm(self.pace.is_calm(start) && !is_new);
        self.intake.sampler_sleeps(self.pace.period(start));
    }

    /// Rotates timers if that is due, during and between drains.
    fn rotate_timers(&mut self, now: Instant) {
        if now >= self.next_rotation {
            self.shares_timers = self.process.rotate();
            self.next_rotation = now + DISCOVER_PERIOD;
        }
    }

    fn shrink_memory(&self) {
        self.intake.with_state(|queues, state| {
            state.pool_size.after_round(queues.pool(), |bytes| queues.release_pages(bytes));
            state.queue_sizes.after_round(queues);
        });
    }

    /// Sends pending entries and samples, entries first.
    fn flush(&mut self) {
        let names = &mut self.namer.names;
        if let Some(dictionary) = names.dictionaries.take_pending() {
            let body = Body::Dictionary(dictionary);
            self.destinations.send(&body);
            if let Body::Dictionary(sent) = body {
                names.dictionaries.reuse_memory(sent);
            }
        }
        if let Some(samples) = self.batch.take() {
            self.destinations.send(&Body::Samples(samples));
        }
        if self.destinations.take_resend_request() {
            names.dictionaries.forget();
        }
        if names.dictionaries.take_reset() {
            names.forget_ids();
            self.virtual_threads.forget_sent();
            self.accounts.iter_mut().for_each(|account| account.sent_revision = None);
        }
    }

    /// Makes samples of everything that is queued; the queues get nothing more.
    fn drain_rest(&mut self) {
        self.drain();
        // A drain has a time limit.
        while self.intake.collect() > 0 {
            self.sample_waiting();
        }
        self.retire_ended();
    }

    /// Sends the last accounts and the last message.
    fn finish(&mut self, reason: &'static str) {
        if let Some(observer) = &mut self.observer {
            self.walker.report_comparison();
            observer.on_end();
        }
        self.send_statistics(true);
        self.destinations.send(&Body::Goodbye(v1::Goodbye { reason: reason.to_owned() }));
        self.destinations.finish();
    }
}

/// Times of recurring work.
struct Due {
    discovery: Instant,
    discover_period: Duration,
    flush: Instant,
    statistics: Instant,
}

impl Due {
    fn begin(now: Instant) -> Self {
        let (flush, statistics) = (now + FLUSH_PERIOD, now + STATISTICS_PERIOD);
        Self { discovery: now, discover_period: FIRST_DISCOVER_PERIOD, flush, statistics }
    }
}

impl<P: Process, M: Memory> Drop for Worker<P, M> {
    fn drop(&mut self) {
        self.intake.close();
    }
}

/// Reads both clocks. To be called after requests were taken, which then are older.
fn reading(unloading: &Unloading) -> Reading {
    Reading { ticks: unloading.ticks(), ns: clock::monotonic_nanos() }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
