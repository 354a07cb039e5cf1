//! The account of CPU time of one session, as JSON and as a sentence.
//!
//! For the process: kernel = sampled + lost + unfinished, where kernel is the CPU time of all threads by the kernel's
//! clocks since their timers ran. CPU time before that is separate. `explained` is the share of all this CPU time that
//! samples represent.

use std::collections::BTreeMap;

use proto::histogram::quantile;
use proto::v1::{Histogram, ThreadAccount};
use serde::Serialize;

use crate::delivery::Delivery;
use crate::process::ProcessProfile;
use crate::quantity;
use crate::query::threads::{ThreadRow, VirtualThreadRow, threads, virtual_threads};
use crate::sampling::{self, Sampling};
use crate::trust::{SelfTest, Unloading};
use crate::warnings::Evidence;

/// Cause of losses between agent and recording: the agent counted these samples as sent, but none arrived.
pub const NOT_RECEIVED: &str = "not_received";

/// The JSON of `tickwalk record --summary`; `collector/API.md` describes the fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "described once, for users of the JSON, in collector/API.md")]
#[non_exhaustive]
pub struct Summary {
    pub samples: u64,
    pub requests: u64,
    pub resolved: u64,
    pub failed: BTreeMap<String, u64>,
    pub cpu_ns: CpuTime,
    pub explained: f64,
    pub stops: BTreeMap<String, u64>,
    pub threads: Vec<ThreadRow>,
    pub virtual_threads: Vec<VirtualThreadRow>,
    pub handler_cycles: HandlerCycles,
    pub sampler: Sampler,
    pub queue: Queue,
    pub delivery: Delivery,
    pub timers: Timers,
    pub sampling: Sampling,
    pub jvm: Jvm,
    pub interval_ns: u64,
    pub process_cpu_ns: u64,
    pub complete: bool,
    pub unloading: Unloading,
    pub self_tests: Vec<SelfTest>,
    /// Whether statistics were received.
    #[serde(skip)]
    pub accounted: bool,
}

/// CPU time of the process: sampled, lost by cause, unfinished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as Summary")]
#[non_exhaustive]
pub struct CpuTime {
    pub kernel: u64,
    pub sampled: u64,
    pub lost: BTreeMap<String, u64>,
    pub unfinished: u64,
    pub before_timer: u64,
}

impl CpuTime {
    /// Returns the sum of all losses.
    pub fn lost_ns(&self) -> u64 {
        self.lost.values().fold(0, |sum, &ns| sum.saturating_add(ns))
    }
}

/// Cost of the signal handler in cycles of the time stamp counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as Summary")]
#[non_exhaustive]
pub struct HandlerCycles {
    pub count: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// Cost of the sampler thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as Summary")]
#[non_exhaustive]
pub struct Sampler {
    pub cpu_ns: u64,
    pub walk_ns: Quantiles,
    /// Frames of all samples.
    pub frames: u64,
    /// Frames that were taken over from the thread's previous sample instead of being walked.
    pub reused_frames: u64,
}

/// Distribution of a duration in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as Summary")]
#[non_exhaustive]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// Request queues and snapshot pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as Summary")]
#[non_exhaustive]
pub struct Queue {
    pub capacity_bytes: u64,
    pub grown: u64,
    pub shrunk: u64,
    pub largest: u64,
    pub high_water: u64,
    pub pool_bytes: u64,
    pub pool_exhausted: u64,
    pub pool_grown: u64,
    pub pool_shrunk: u64,
    pub pool_high_water: u64,
    pub most_bytes: u64,
    pub lost_after_growth: u64,
    pub drained_at_exit: u64,
    pub drain_ns: Quantiles,
}

/// Timers and threads. Threads share timers if there are fewer timers than threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as Summary")]
pub struct Timers {
    pub threads: u64,
    pub with_timer: u64,
    pub turns: u64,
    pub without_slot: u64,
}

/// The JVM that was profiled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as Summary")]
#[non_exhaustive]
pub struct Jvm {
    pub version: String,
    pub name: String,
    pub major: u32,
    pub pid: u32,
}

impl Summary {
    /// Computes the account of `profile`.
    ///
    /// Without statistics, as after a crash, kernel time is unknown: the account has only samples, and `explained` is 0.
    pub fn new(profile: &ProcessProfile) -> Self {
        let threads = threads(profile);
        let statistics = profile.session().statistics.clone().unwrap_or_default();
        let cpu_ns = cpu_time(profile, &threads);
        let whole = cpu_ns.kernel.saturating_add(cpu_ns.before_timer);
        let explained = match profile.session().statistics {
            Some(_) => quantity::share(cpu_ns.sampled, whole).clamp(0.0, 1.0),
            None => 0.0,
        };
        let (unloading, self_tests) = (Unloading::new(&statistics), SelfTest::all(&statistics));
        let samples = profile.session().samples;
        let stops: BTreeMap<String, u64> =
            statistics.stops.iter().map(|stop| (stop.name.clone(), stop.count)).collect();
        let delivery = Delivery::new(&statistics);
        let (failed, sampling) = (sampling::failed(&statistics), Sampling::new(&statistics));
        let drain = statistics.drain_ns.unwrap_or_default();
        let handler = statistics.handler_cycles.unwrap_or_default();
        let walk = statistics.walk_ns.unwrap_or_default();
        let queue = statistics.queue.unwrap_or_default();
        let timers = statistics.timers.unwrap_or_default();
        let hello = profile.hello();
        Summary {
            samples,
            requests: statistics.requests.max(samples),
            resolved: statistics.resolved,
            failed,
            cpu_ns,
            explained,
            stops: if stops.is_empty() { profile.stops() } else { stops },
            threads,
            virtual_threads: virtual_threads(profile),
            handler_cycles: HandlerCycles {
                count: handler.count,
                p50: quantile(&handler, 0.5),
                p99: quantile(&handler, 0.99),
                max: handler.max,
            },
            sampler: Sampler {
                cpu_ns: statistics.sampler_cpu_ns,
                walk_ns: quantiles(&walk),
                frames: statistics.frames,
                reused_frames: statistics.reused_frames,
            },
            queue: Queue {
                capacity_bytes: queue.capacity_bytes,
                grown: queue.grown,
                shrunk: queue.shrunk,
                largest: queue.largest,
                high_water: queue.high_water,
                pool_grown: queue.pool_grown,
                pool_shrunk: queue.pool_shrunk,
                pool_high_water: queue.pool_high_water,
                most_bytes: queue.most_bytes,
                lost_after_growth: queue.lost_after_growth,
                drained_at_exit: queue.drained_at_exit,
                pool_bytes: queue.pool_bytes,
                pool_exhausted: queue.pool_exhausted,
                drain_ns: quantiles(&drain),
            },
            delivery,
            timers: Timers {
                threads: timers.threads,
                with_timer: timers.with_timer,
                turns: timers.rotations,
                without_slot: timers.without_slot,
            },
            sampling,
            jvm: Jvm {
                version: hello.jvm_version.clone(),
                name: hello.jvm_name.clone(),
                major: hello.jdk_major,
                pid: hello.pid,
            },
            interval_ns: hello.interval_ns,
            process_cpu_ns: statistics.process_cpu_ns,
            complete: profile.session().goodbye.is_some(),
            unloading,
            self_tests,
            accounted: profile.session().statistics.is_some(),
        }
    }

    /// Returns the warnings about `profile`, which must be the profile of this account.
    pub fn warnings(&self, profile: &ProcessProfile) -> Vec<String> {
        let evidence = Evidence {
            is_complete: self.complete,
            cut: profile.cut().map(|cut| cut.to_string()),
            missing_messages: profile.session().missing_messages,
            unknown_samples: 0,
            samples: self.samples,
            is_part: profile.is_part(),
            is_accounted: self.accounted,
            explained: self.explained,
            before_timer_ns: self.cpu_ns.before_timer,
            lost_ns: self.cpu_ns.lost_ns(),
            unfinished_ns: self.cpu_ns.unfinished,
            delivery: self.delivery.clone(),
            self_tests: self.self_tests.clone(),
            timer_handovers: self.timers.turns,
        };
        evidence.warnings()
    }

    /// Returns the account in one line of text.
    pub fn sentence(&self) -> String {
        let lost = self.cpu_ns.lost_ns();
        format!(
            "{} samples, {} CPU time, {} of CPU time explained, lost {}{}",
            quantity::count(self.samples),
            quantity::duration(self.cpu_ns.sampled),
            quantity::percent(self.explained),
            quantity::duration(lost),
            if self.complete { "" } else { ", recording incomplete" }
        )
    }
}

fn cpu_time(profile: &ProcessProfile, threads: &[ThreadRow]) -> CpuTime {
    let accounts: Vec<&ThreadAccount> =
        threads.iter().filter_map(|row| profile.session().account(row.id)).collect();
    let mut of_threads: BTreeMap<String, u64> = BTreeMap::new();
    for lost in accounts.iter().flat_map(|account| &account.lost) {
        let sum = of_threads.entry(lost.cause.clone()).or_default();
        *sum = sum.saturating_add(lost.ns);
    }
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for entry in profile.session().statistics.iter().flat_map(|statistics| &statistics.lost) {
        let sum = lost.entry(entry.cause.clone()).or_default();
        *sum = sum.saturating_add(entry.ns);
    }
    // The process's list includes losses without a thread. Causes that only threads report are added.
    for (cause, ns) in of_threads {
        let sum = lost.entry(cause).or_default();
        *sum = ns.max(*sum);
    }
    let not_received = threads.iter().fold(0u64, |sum, row| sum.saturating_add(row.not_received_ns));
    if not_received > 0 {
        let sum = lost.entry(NOT_RECEIVED.to_owned()).or_default();
        *sum = sum.saturating_add(not_received);
    }
    let sampled = profile.session().sampled_ns;
    let accounted = lost.values().fold(sampled, |sum, &ns| sum.saturating_add(ns));
    // An unfinished period that a new thread took over is CPU time of the ended thread.
    let kernel = threads.iter().fold(0u64, |sum, row| {
        let account = profile.session().account(row.id);
        let (carried_ns, handed_on_ns) =
            account.map_or((0, 0), |account| (account.carried_ns, account.handed_on_ns));
        sum.saturating_add(row.kernel_ns.saturating_add(handed_on_ns).saturating_sub(carried_ns))
    });
    // Losses without a thread are in the process's list only.
    let kernel = kernel.max(profile.session().kernel_ns()).max(accounted);
    let of_process = profile.session().statistics.as_ref().map_or(0, |statistics| statistics.before_timer_ns);
    let before_timer = accounts.iter().fold(0u64, |sum, account| sum.saturating_add(account.before_timer_ns));
    CpuTime {
        kernel,
        sampled,
        lost,
        unfinished: kernel - accounted,
        before_timer: of_process.max(before_timer),
    }
}

fn quantiles(histogram: &Histogram) -> Quantiles {
    Quantiles { p50: quantile(histogram, 0.5), p99: quantile(histogram, 0.99), max: histogram.max }
}
