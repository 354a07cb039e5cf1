//! Parses the JSON that `tickwalk record --summary` writes, and checks its accounts.
//!
//! Times are signed so that tests can report a negative time, which would be a defect.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::starvation::Starvation;
use crate::tolerance::{MAX_TICK_DELAY_NS, TICK_NS};

/// The summary of one run.
#[derive(Debug, Clone, Deserialize)]
pub struct Summary {
    /// Kind of time that samples stand for: `cputime` or `wall`.
    pub mode: String,
    /// Samples in the recording.
    pub samples: u64,
    /// Requests that the handlers wrote and the sampler thread drained.
    pub requests: u64,
    /// Requests walked to their roots.
    pub resolved: u64,
    /// Requests that were not walked to their roots, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Requests whose newest Java frame is that of a later point, by the agent's count.
    pub biased: u64,
    /// The same of the samples received.
    pub biased_received: u64,
    /// The account of the whole process.
    pub cpu_ns: CpuTime,
    /// Share of the kernel's CPU time that samples represent, 0 to 1.
    pub explained: f64,
    /// Number of walks by stop reason.
    pub stops: BTreeMap<String, u64>,
    /// The account of each thread.
    pub threads: Vec<ThreadAccount>,
    /// Samples of each virtual thread.
    pub virtual_threads: Vec<VirtualThread>,
    /// Cycles of the time stamp counter spent in the signal handler.
    pub handler_cycles: Percentiles,
    /// Cost of the sampler thread.
    pub sampler: Sampler,
    /// The request queues.
    pub queue: Queue,
    /// Delivery of samples to the collector.
    pub delivery: Delivery,
    /// Timers and threads.
    pub timers: Timers,
    /// The period of the timers.
    pub sampling: Sampling,
    /// The profiled JVM.
    pub jvm: Jvm,
    /// CPU time between two expirations of a thread's timer.
    pub interval_ns: i64,
    /// CPU time of the process by its own clock, independent of the threads' accounts.
    pub process_cpu_ns: i64,
    /// True if the recording ends with its end message.
    pub complete: bool,
    /// Class unloading and names.
    pub unloading: Unloading,
    /// Results of the agent's self-tests.
    pub self_tests: Vec<SelfTest>,
    /// Scheduling delays of the machine during the run; set by the tests.
    #[serde(skip)]
    pub starvation: Starvation,
}

/// Class unloading and its effect on names.
#[derive(Debug, Clone, Deserialize)]
pub struct Unloading {
    /// How the agent detects that classes were unloaded.
    pub detector: String,
    /// Samples with a frame whose class may have been unloaded.
    pub samples: u64,
    /// By how much the agent prolonged garbage collection pauses.
    pub pause_added_ns: Percentiles,
}

/// One self-test: a comparison of the agent's results with the VM's.
#[derive(Debug, Clone, Deserialize)]
pub struct SelfTest {
    /// The capability that is tested.
    pub capability: String,
    /// `passed`, `failed` or `not_tried`.
    pub outcome: String,
    /// Explanation for users.
    pub detail: String,
}

/// CPU time of the process by its place in the account, in nanoseconds.
#[derive(Debug, Clone, Deserialize)]
pub struct CpuTime {
    /// CPU time by the kernel's clocks.
    pub kernel: i64,
    /// Represented by samples.
    pub sampled: i64,
    /// Expirations without a sample, by cause.
    pub lost: BTreeMap<String, i64>,
    /// Not yet covered by an expiration.
    pub unfinished: i64,
    /// CPU time of threads before their timers were armed.
    pub before_timer: i64,
    /// CPU time of the profiler's own threads.
    pub profiler: i64,
    /// In no thread's account.
    pub outside: i64,
}

impl CpuTime {
    /// Returns the lost time of all causes.
    pub fn lost_total(&self) -> i64 {
        self.lost.values().sum()
    }

    /// Returns the time of handlers that began while the session ended; each thread may lose one sample this way.
    pub fn lost_at_end(&self) -> i64 {
        self.lost.get("stopping").copied().unwrap_or(0)
    }

    /// Returns the time lost while the session ran.
    pub fn lost_before_end(&self) -> i64 {
        self.lost_total() - self.lost_at_end()
    }
}

/// The account of a thread.
#[derive(Debug, Clone, Deserialize)]
pub struct ThreadAccount {
    /// Kernel thread id.
    pub tid: u32,
    /// Thread name.
    pub name: String,
    /// `java`, `compiler`, `gc`, `vm` or `native`.
    pub kind: String,
    /// CPU time by the kernel since its timer was armed, plus the period it took over.
    pub kernel_ns: i64,
    /// Represented by samples.
    pub sampled_ns: i64,
    /// Expirations without a sample.
    pub lost_ns: i64,
    /// Not covered by an expiration.
    pub unfinished_ns: i64,
    /// CPU time before its timer was armed.
    pub before_timer_ns: i64,
    /// Unfinished period taken over from a thread that ended.
    pub carried_ns: i64,
    /// Unfinished period handed on to another thread at its end.
    pub handed_on_ns: i64,
    /// Covered by expirations as the handlers counted them.
    pub expired_ns: i64,
    /// Number of its samples.
    pub samples: u64,
    /// Those whose newest Java frame is that of a later point.
    pub biased: u64,
}

impl ThreadAccount {
    /// Returns the reading of the thread's CPU clock that follows from the account.
    pub fn clock_ns(&self) -> i64 {
        self.kernel_ns - self.carried_ns + self.handed_on_ns + self.before_timer_ns
    }

    /// Returns the time that the account does not explain; 0 if the account closes.
    pub fn gap_ns(&self) -> i64 {
        self.kernel_ns - self.sampled_ns - self.lost_ns - self.unfinished_ns
    }
}

/// A virtual thread; its CPU time is in the accounts of its carriers.
#[derive(Debug, Clone, Deserialize)]
pub struct VirtualThread {
    /// Thread id in Java.
    pub java_id: u64,
    /// Thread name.
    pub name: String,
    /// Names of its carrier threads.
    pub carriers: Vec<String>,
    /// Represented by samples.
    pub sampled_ns: u64,
}

/// A distribution.
#[derive(Debug, Clone, Deserialize)]
pub struct Percentiles {
    /// Number of values; absent where it equals the number of samples.
    #[serde(default)]
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
    /// Pauses that continued before all samples were named; absent in other distributions.
    #[serde(default)]
    pub cut_short: u64,
}

/// Delivery of samples to the collector.
#[derive(Debug, Clone, Deserialize)]
pub struct Delivery {
    /// Connections made.
    pub connections: u64,
    /// Messages that were sent again.
    pub resent: u64,
    /// Samples that were merged and lost their timestamps.
    pub merged_samples: u64,
    /// CPU time whose stacks were dropped.
    pub unnamed_ns: u64,
}

/// Cost of the sampler thread.
#[derive(Debug, Clone, Deserialize)]
pub struct Sampler {
    /// Its CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Time to walk and name a sample.
    pub walk_ns: Percentiles,
}

/// The request queues.
#[derive(Debug, Clone, Deserialize)]
pub struct Queue {
    /// Allocated bytes at the end.
    pub capacity_bytes: u64,
    /// How often a queue grew.
    pub grown: u64,
    /// How often one shrank.
    pub shrunk: u64,
    /// Entries of the largest queue of the run.
    pub largest: u64,
    /// Most requests in one queue at one drain.
    pub high_water: u64,
    /// Slabs added to the snapshot pool.
    pub pool_grown: u64,
    /// Slabs removed from the snapshot pool.
    pub pool_shrunk: u64,
    /// Requests that ending threads drained from their own queues.
    pub drained_at_exit: u64,
}

/// Timers and threads.
#[derive(Debug, Clone, Deserialize)]
pub struct Timers {
    /// Threads at the end.
    pub threads: u64,
    /// Threads with a timer at the end.
    pub with_timer: u64,
    /// How often a timer was passed to another thread.
    pub turns: u64,
}

/// The period of the timers.
#[derive(Debug, Clone, Deserialize)]
pub struct Sampling {
    /// CPU time between two expirations, at the end.
    pub period_ns: u64,
    /// Shortest allowed period, from the interval option or from rate and processors.
    pub shortest_ns: u64,
    /// How often the period changed.
    pub changes: u64,
    /// Timers that were replaced because of it.
    pub replaced: u64,
    /// The kernel's tick; 0 if unknown.
    pub tick_ns: u64,
    /// Processors among which the rate is divided.
    pub processors: u64,
    /// Largest allowed cost of the profiler, 0 to 1.
    pub budget: f64,
    /// Measured cost while the budget was checked, 0 to 1.
    pub cost: f64,
}

/// The profiled JVM.
#[derive(Debug, Clone, Deserialize)]
pub struct Jvm {
    /// `java.vm.version`.
    pub version: String,
    /// Process id.
    pub pid: u32,
}

impl Summary {
    /// Returns the accounts of the threads of this name.
    pub fn threads_named(&self, name: &str) -> Vec<&ThreadAccount> {
        self.threads.iter().filter(|thread| thread.name == name).collect()
    }

    /// Returns the account of the thread of this name.
    ///
    /// # Panics
    /// If there is not exactly one.
    pub fn thread(&self, name: &str) -> &ThreadAccount {
        match self.threads_named(name)[..] {
            [thread] => thread,
            ref found => panic!("{} threads '{name}' in {:?}", found.len(), self.threads),
        }
    }

    /// Returns the longest interval that can have been in effect.
    fn longest_period_ns(&self) -> i64 {
        let changed = self.sampling.changes > 0;
        if changed { self.interval_ns.max(1_000_000_000) } else { self.interval_ns }
    }

    /// Asserts that every request was resolved or failed for a counted cause, and that the time which handlers counted
    /// equals the time that was sampled or lost.
    ///
    /// # Panics
    /// If the counts differ.
    #[track_caller]
    pub fn assert_requests_are_explained(&self) {
        let failed: u64 = self.failed.values().sum();
        assert_eq!(
            self.requests,
            self.resolved + failed,
            "requests, and requests resolved or failed: {:?}",
            self.failed
        );
        assert_eq!(self.failed.get("no_thread"), None, "requests of unknown threads");
        if !self.complete || self.delivery.unnamed_ns > 0 {
            return;
        }
        assert_eq!(self.requests, self.samples, "every request is a sample, complete or cut");
        let without_request =
            ["no_timer", "signal_blocked", "handler_replaced", "not_chosen", "no_java_stack", "not_received"]
                .iter()
                .filter_map(|cause| self.cpu_ns.lost.get(*cause));
        let expired: i64 = self.threads.iter().map(|thread| thread.expired_ns).sum();
        assert_eq!(
            expired,
            self.cpu_ns.sampled + self.cpu_ns.lost_total() - without_request.sum::<i64>(),
            "time counted by handlers, and time sampled or lost with a request: {:?}",
            self.cpu_ns
        );
    }

    /// Asserts that the account of the process and of every thread closes, has no negative term, and agrees with the
    /// CPU clock of the process.
    ///
    /// # Panics
    /// If one of these does not hold.
    #[track_caller]
    pub fn assert_account_closes(&self) {
        self.assert_sums_close();
        self.assert_process_clock_agrees();
    }

    /// Asserts the same as [`assert_account_closes`](Self::assert_account_closes) except for the clock of the process.
    ///
    /// # Panics
    /// If one of these does not hold.
    #[track_caller]
    pub fn assert_sums_close(&self) {
        let cpu = &self.cpu_ns;
        let terms = [cpu.kernel, cpu.sampled, cpu.unfinished, cpu.before_timer, cpu.profiler, cpu.outside];
        assert!(terms.iter().chain(cpu.lost.values()).all(|ns| *ns >= 0), "negative time in {cpu:?}");
        assert_eq!(
            cpu.kernel,
            cpu.sampled + cpu.lost_total() + cpu.unfinished,
            "the account of the process does not close: {cpu:?}"
        );
        // One and a half intervals pass between two samples at most, a new thread begins with what it takes over, and a
        // sample waits for a tick. The wait is bounded by twice the limit for one thread: all tests together have
        // thousands of threads, and some never run for a whole tick.
        let delay_ns = 2 * MAX_TICK_DELAY_NS.max(MAX_TICK_DELAY_NS / TICK_NS * self.sampling.tick_ns);
        let bound = self.longest_period_ns() / 2 * 3
            + i64::try_from(delay_ns + self.starvation.longest_delay_ns()).expect("nanoseconds fit");
        for thread in &self.threads {
            let terms = [
                thread.kernel_ns,
                thread.sampled_ns,
                thread.lost_ns,
                thread.unfinished_ns,
                thread.before_timer_ns,
            ];
            assert!(terms.iter().all(|ns| *ns >= 0), "a negative time in {thread:?}");
            assert_eq!(thread.gap_ns(), 0, "the account of a thread does not close: {thread:?}");
            assert!(
                thread.unfinished_ns <= bound + thread.carried_ns,
                "more than an unfinished period in {thread:?}"
            );
        }
        let one_each = bound * i64::try_from(self.threads.len()).expect("a number of threads");
        assert!(cpu.lost_at_end() <= one_each, "more than one sample per thread lost at the end: {cpu:?}");
        let samples: u64 = self.threads.iter().map(|thread| thread.samples).sum();
        assert_eq!(samples, self.samples, "samples of the threads, and of the process");
        let walks: u64 = self.stops.values().sum();
        self.assert_requests_are_explained();
        assert_eq!(walks, self.samples, "walks by stop reason, and samples: {:?}", self.stops);
        assert!((0.0..=1.0).contains(&self.explained), "explained is {}", self.explained);
    }

    /// Asserts that only full queues lost samples before the end, and no more than the measured delays explain.
    ///
    /// # Panics
    /// If more was lost, or by another cause.
    #[track_caller]
    pub fn assert_losses(&self) {
        let (lost, allowed) = (self.cpu_ns.lost_before_end(), self.starvation.allowed_loss_ns());
        assert!(lost <= allowed, "{:?}, {:?}, {:?}", self.cpu_ns.lost, self.queue, self.starvation);
        let full = self.cpu_ns.lost.get("queue_full").copied().unwrap_or(0);
        assert_eq!(lost, full, "lost by another cause than a full queue: {:?}", self.cpu_ns.lost);
    }

    /// Asserts that the CPU times of the threads add up to the kernel's CPU clock of the process.
    ///
    /// The clocks are read one after the other, so this holds only if no thread burns CPU time at the end.
    #[track_caller]
    fn assert_process_clock_agrees(&self) {
        // No account holds the last moments of threads that ended, nor the shutdown of the JVM.
        let cpu = &self.cpu_ns;
        let of_threads = cpu.kernel + cpu.before_timer;
        let of_sampler = i64::try_from(self.sampler.cpu_ns).expect("a CPU time");
        let difference = (self.process_cpu_ns - of_threads - of_sampler).abs();
        // No account holds the end of a thread after its last event, when its stack is unmapped and its timer deleted.
        // This takes up to one and a half times the CPU time before its timer, on slow and on fast machines.
        let started = self.threads.iter().filter(|thread| thread.kind == "java" && thread.name != "main");
        let starts: i64 = started.map(|thread| thread.before_timer_ns).sum();
        // Time stolen from a processor may be in a clock that was read during a delay.
        let clock_error = self.starvation.clock_error_ns();
        let bound = self.process_cpu_ns / 50 + 5 * self.interval_ns + 2 * starts + clock_error;
        assert!(
            difference <= bound,
            "threads {of_threads}, sampler {of_sampler}, process {}, allowed {bound}: {:#?}",
            self.process_cpu_ns,
            self.threads
        );
    }
}
