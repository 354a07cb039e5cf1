//! The JSON that `tickwalk record --summary` writes, typed.
//!
//! Times are signed here although none may be negative: a test that finds one must be able to say so.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::starvation::Starved;
use crate::tolerance::{LATE_NS, TICK_NS};

/// One run in figures.
#[derive(Debug, Clone, Deserialize)]
pub struct Summary {
    /// Samples in the recording.
    pub samples: u64,
    /// Requests the handlers left and the sampler thread drained.
    pub requests: u64,
    /// Requests walked to their roots.
    pub resolved: u64,
    /// The others, by cause.
    pub failed: BTreeMap<String, u64>,
    /// The account of the whole process.
    pub cpu_ns: CpuTime,
    /// Share of the kernel's CPU time that samples stand for, 0 to 1.
    pub explained: f64,
    /// Walks by the reason they ended for.
    pub stops: BTreeMap<String, u64>,
    /// The account of each thread.
    pub threads: Vec<ThreadAccount>,
    /// Samples of each virtual thread.
    pub virtual_threads: Vec<VirtualThread>,
    /// Time stamp counter cycles inside the signal handler.
    pub handler_cycles: Percentiles,
    /// The sampler thread's own cost.
    pub sampler: Sampler,
    /// The request queues.
    pub queue: Queue,
    /// How the samples came to their collector.
    pub delivery: Delivery,
    /// Timers and threads.
    pub timers: Timers,
    /// The period of the timers.
    pub sampling: Sampling,
    /// The profiled JVM.
    pub jvm: Jvm,
    /// CPU time between two expirations of a thread's timer.
    pub interval_ns: i64,
    /// CPU time of the whole process by its own clock, measured apart from the threads' accounts.
    pub process_cpu_ns: i64,
    /// Whether the recording has its orderly end.
    pub complete: bool,
    /// Class unloading and names.
    pub unloading: Unloading,
    /// What the agent found out about itself.
    pub self_tests: Vec<SelfTest>,
    /// How the machine kept it from running, as the tests saw it.
    #[serde(skip)]
    pub starved: Starved,
}

/// How names held against class unloading.
#[derive(Debug, Clone, Deserialize)]
pub struct Unloading {
    /// What tells that classes were unloaded.
    pub detector: String,
    /// Samples with a frame that may have been unloaded.
    pub samples: u64,
    /// By how much pauses were prolonged.
    pub pause_added_ns: Percentiles,
}

/// One comparison of the agent with the VM.
#[derive(Debug, Clone, Deserialize)]
pub struct SelfTest {
    /// What was tried.
    pub capability: String,
    /// `passed`, `failed` or `not_tried`.
    pub outcome: String,
    /// For people.
    pub detail: String,
}

/// CPU time of the process, by what became of it.
#[derive(Debug, Clone, Deserialize)]
pub struct CpuTime {
    /// By the kernel.
    pub kernel: i64,
    /// Samples stand for it.
    pub sampled: i64,
    /// Expirations without a sample, by cause.
    pub lost: BTreeMap<String, i64>,
    /// No expiration has covered it yet.
    pub unfinished: i64,
    /// Burnt by threads before their timer ran.
    pub before_timer: i64,
}

impl CpuTime {
    /// Sum over the causes.
    pub fn lost_total(&self) -> i64 {
        self.lost.values().sum()
    }

    /// Lost because the thread's handler began as the session ended; any thread may lose one sample so.
    pub fn lost_at_end(&self) -> i64 {
        self.lost.get("stopping").copied().unwrap_or(0)
    }

    /// Lost while the session ran.
    pub fn lost_before_end(&self) -> i64 {
        self.lost_total() - self.lost_at_end()
    }
}

/// The account of one thread.
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
    /// Samples stand for it.
    pub sampled_ns: i64,
    /// Expirations without a sample.
    pub lost_ns: i64,
    /// No expiration has covered it.
    pub unfinished_ns: i64,
    /// Burnt before its timer ran.
    pub before_timer_ns: i64,
    /// Burnt by an ended thread whose unfinished period it took over.
    pub carried_ns: i64,
    /// Left to another thread at its end.
    pub handed_on_ns: i64,
    /// Covered by expirations as the handlers counted them.
    pub expired_ns: i64,
    /// Number of its samples.
    pub samples: u64,
}

impl ThreadAccount {
    /// What the thread's own clock reads by the account.
    pub fn clock_ns(&self) -> i64 {
        self.kernel_ns - self.carried_ns + self.handed_on_ns + self.before_timer_ns
    }

    /// What the account misses: 0 when it closes.
    pub fn gap_ns(&self) -> i64 {
        self.kernel_ns - self.sampled_ns - self.lost_ns - self.unfinished_ns
    }
}

/// Samples of one virtual thread; its CPU time is in the accounts of its carriers.
#[derive(Debug, Clone, Deserialize)]
pub struct VirtualThread {
    /// Its number in Java.
    pub java_id: u64,
    /// Thread name.
    pub name: String,
    /// Names of the threads it ran on.
    pub carriers: Vec<String>,
    /// Samples stand for it.
    pub sampled_ns: u64,
}

/// A distribution.
#[derive(Debug, Clone, Deserialize)]
pub struct Percentiles {
    /// Number of values; absent where it equals the samples.
    #[serde(default)]
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Pauses that went on before all was named; absent in other distributions.
    #[serde(default)]
    pub cut_short: u64,
}

/// How samples came to their collector.
#[derive(Debug, Clone, Deserialize)]
pub struct Delivery {
    /// Connections made.
    pub connections: u64,
    /// Messages sent again.
    pub resent: u64,
    /// Samples that gave up their own time.
    pub merged_samples: u64,
    /// CPU time whose stacks were given up.
    pub unnamed_ns: u64,
}

/// The sampler thread's own cost.
#[derive(Debug, Clone, Deserialize)]
pub struct Sampler {
    /// Its CPU time.
    pub cpu_ns: u64,
    /// Per walked and named sample.
    pub walk_ns: Percentiles,
}

/// The request queues.
#[derive(Debug, Clone, Deserialize)]
pub struct Queue {
    /// Allocated at the end.
    pub capacity_bytes: u64,
    /// How often a queue grew.
    pub grown: u64,
    /// How often one shrank.
    pub shrunk: u64,
    /// Entries of the largest queue there was.
    pub largest: u64,
    /// Most requests found in one queue at one drain.
    pub high_water: u64,
    /// Slabs added to the snapshot pool.
    pub pool_grown: u64,
    /// Slabs taken out again.
    pub pool_shrunk: u64,
    /// Requests that threads took out of their own queues as they ended.
    pub drained_at_exit: u64,
}

/// Timers and threads.
#[derive(Debug, Clone, Deserialize)]
pub struct Timers {
    /// Threads at the end.
    pub threads: u64,
    /// How many of them had a timer.
    pub with_timer: u64,
    /// How often a timer passed on.
    pub turns: u64,
}

/// The period of the timers.
#[derive(Debug, Clone, Deserialize)]
pub struct Sampling {
    /// CPU time between two expirations, at the end.
    pub period_ns: u64,
    /// The shortest it may be, as configured or as rate and processors make it.
    pub shortest_ns: u64,
    /// How often it changed.
    pub changes: u64,
    /// Timers replaced for that.
    pub replaced: u64,
    /// The kernel's tick, 0 if it was not found out.
    pub tick_ns: u64,
    /// Processors that share a rate.
    pub processors: u64,
    /// Most that the profiler may take, 0 to 1.
    pub budget: f64,
    /// What it took while the budget was watched.
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
    /// The accounts of threads of this name.
    pub fn threads_named(&self, name: &str) -> Vec<&ThreadAccount> {
        self.threads.iter().filter(|thread| thread.name == name).collect()
    }

    /// The account of the only thread of this name.
    ///
    /// # Panics
    /// If there is none or more than one.
    pub fn thread(&self, name: &str) -> &ThreadAccount {
        match self.threads_named(name)[..] {
            [thread] => thread,
            ref found => panic!("{} threads '{name}' in {:?}", found.len(), self.threads),
        }
    }

    /// The longest period timers can have had.
    fn longest_period_ns(&self) -> i64 {
        let changed = self.sampling.changes > 0;
        if changed { self.interval_ns.max(1_000_000_000) } else { self.interval_ns }
    }

    /// Asserts that every request became a whole stack or failed for a cause, and that what the handlers counted is what
    /// was sampled or lost.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_requests_are_explained(&self) {
        let failed: u64 = self.failed.values().sum();
        assert_eq!(
            self.requests,
            self.resolved + failed,
            "requests and what became of them: {:?}",
            self.failed
        );
        assert_eq!(self.failed.get("no_thread"), None, "requests of threads that nobody knows");
        if !self.complete || self.delivery.unnamed_ns > 0 {
            return;
        }
        assert_eq!(self.requests, self.samples, "every request is a sample, whole or not");
        let late = ["no_timer", "not_received"].iter().filter_map(|cause| self.cpu_ns.lost.get(*cause));
        let expired: i64 = self.threads.iter().map(|thread| thread.expired_ns).sum();
        assert_eq!(
            expired,
            self.cpu_ns.sampled + self.cpu_ns.lost_total() - late.sum::<i64>(),
            "what the handlers counted, and what was sampled or lost with a request: {:?}",
            self.cpu_ns
        );
    }

    /// Asserts that the account of the process and of every thread closes, holds nothing negative, and holds what the
    /// process burnt.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn assert_account_closes(&self) {
        self.assert_sums_close();
        self.assert_process_clock_agrees();
    }

    /// Asserts all of that but what the process burnt.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn assert_sums_close(&self) {
        let cpu = &self.cpu_ns;
        let terms = [cpu.kernel, cpu.sampled, cpu.unfinished, cpu.before_timer];
        assert!(terms.iter().chain(cpu.lost.values()).all(|ns| *ns >= 0), "a negative time in {cpu:?}");
        assert_eq!(
            cpu.kernel,
            cpu.sampled + cpu.lost_total() + cpu.unfinished,
            "the process account is open: {cpu:?}"
        );
        // Less than one interval is open at any time, and an expiration waits for a tick: twice as long as for a single
        // thread, for there are thousands in all tests, and some never run from one tick to the next.
        let late_ns = 2 * LATE_NS.max(LATE_NS / TICK_NS * self.sampling.tick_ns);
        let bound =
            self.longest_period_ns() + i64::try_from(late_ns + self.starved.longest_ns()).expect("a time");
        for thread in &self.threads {
            let terms = [
                thread.kernel_ns,
                thread.sampled_ns,
                thread.lost_ns,
                thread.unfinished_ns,
                thread.before_timer_ns,
            ];
            assert!(terms.iter().all(|ns| *ns >= 0), "a negative time in {thread:?}");
            assert_eq!(thread.gap_ns(), 0, "the account of a thread is open: {thread:?}");
            assert!(thread.unfinished_ns <= bound, "more than an unfinished period in {thread:?}");
        }
        let one_each = bound * i64::try_from(self.threads.len()).expect("a number of threads");
        assert!(cpu.lost_at_end() <= one_each, "more than a sample a thread: {cpu:?}");
        let samples: u64 = self.threads.iter().map(|thread| thread.samples).sum();
        assert_eq!(samples, self.samples, "samples of the threads and of the process");
        let walks: u64 = self.stops.values().sum();
        self.assert_requests_are_explained();
        assert_eq!(walks, self.samples, "every sample's walk ended for one counted reason: {:?}", self.stops);
        assert!((0.0..=1.0).contains(&self.explained), "explained is {}", self.explained);
    }

    /// Asserts that nothing was lost before the end but what queues could not hold while the machine kept the profiler from
    /// running.
    ///
    /// # Panics
    /// If there was.
    #[track_caller]
    pub fn assert_losses(&self) {
        let (lost, excused) = (self.cpu_ns.lost_before_end(), self.starved.excused_ns());
        assert!(lost <= excused, "{:?}, {:?}, {:?}", self.cpu_ns.lost, self.queue, self.starved);
        let full = self.cpu_ns.lost.get("queue_full").copied().unwrap_or(0);
        assert_eq!(lost, full, "lost by another cause than a full queue: {:?}", self.cpu_ns.lost);
    }

    /// Asserts that the threads burnt what the kernel's clock of the process, a witness of its own, says.
    ///
    /// It is read right after those of the threads: only where none of them burns at the end do they tell of one moment.
    #[track_caller]
    fn assert_process_clock_agrees(&self) {
        // What no thread's account holds is at most the last moments of threads that ended, and the JVM's teardown.
        let cpu = &self.cpu_ns;
        let of_threads = cpu.kernel + cpu.before_timer;
        let of_sampler = i64::try_from(self.sampler.cpu_ns).expect("a CPU time");
        let difference = (self.process_cpu_ns - of_threads - of_sampler).abs();
        // Nor is the end of a thread after its last event in any account: its stack is unmapped, its timer deleted. That
        // is up to one and a half of what it burns before its timer runs, on slow machines as on fast.
        let started = self.threads.iter().filter(|thread| thread.kind == "java" && thread.name != "main");
        let starts: i64 = started.map(|thread| thread.before_timer_ns).sum();
        // And each processor may have been away while the clocks were read.
        let away = self.starved.all_away_ns();
        let bound = self.process_cpu_ns / 50 + 5 * self.interval_ns + 2 * starts + away;
        assert!(
            difference <= bound,
            "threads {of_threads}, sampler {of_sampler}, process {}, allowed {bound}: {:#?}",
            self.process_cpu_ns,
            self.threads
        );
    }
}
