//! The account of CPU time of one session, as JSON and as a sentence.
//!
//! kernel = sampled + lost + unfinished, where kernel is the CPU time of all threads by the kernel's clocks since their
//! timers started. The CPU time of the process also includes the time before the timers started, that of the profiler's
//! threads, and time outside of all accounts. `explained` is the share of it that samples represent.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::query::kinds::Kinds;
use crate::query::process::ProcessProfile;
use crate::query::threads::{ThreadRow, VirtualThreadRow, threads, virtual_threads};
use crate::session::Session;
use crate::session::account::{Distribution, Quantiles, Timers, Waiting, by_name};
use crate::session::delivery::Delivery;
use crate::session::sampling::Sampling;
use crate::session::trust::{SelfTest, Unloading};
use crate::session::warnings::Evidence;
use crate::text::quantity::{self, total};

pub use crate::session::account::CpuTime;

/// Cause of losses between agent and recording: the agent counted these samples as sent, but they did not arrive.
pub const NOT_RECEIVED: &str = "not_received";

/// Least share of biased samples that the sentence states.
const NOTED: f64 = 0.01;

/// The JSON of `tickwalk record --summary`; `docs/formats.md` describes the fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    pub mode: &'static str,
    pub samples: u64,
    pub requests: u64,
    pub resolved: u64,
    pub failed: BTreeMap<String, u64>,
    pub biased: Option<u64>,
    pub biased_received: u64,
    pub cpu_ns: CpuTime,
    pub explained: f64,
    pub kinds: Kinds,
    pub stops: BTreeMap<String, u64>,
    pub threads: Vec<ThreadRow>,
    pub virtual_threads: Vec<VirtualThreadRow>,
    pub handler_cycles: Distribution,
    pub sampler: Sampler,
    pub queue: Queue,
    pub delivery: Delivery,
    pub timers: Timers,
    pub waiting: Waiting,
    pub sampling: Sampling,
    pub jvm: Jvm,
    pub interval_ns: u64,
    pub process_cpu_ns: u64,
    pub complete: bool,
    pub unloading: Unloading,
    pub self_tests: Vec<SelfTest>,
    /// Quantity that its samples measure, in words.
    #[serde(skip)]
    pub time: &'static str,
    /// True if the agent sent statistics.
    #[serde(skip)]
    pub accounted: bool,
    /// True if the session continues, so that its end is not missing.
    #[serde(skip)]
    pub goes_on: bool,
}

/// Cost of the sampler thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sampler {
    pub cpu_ns: u64,
    pub walk_ns: Quantiles,
    pub frames: u64,
}

/// Request queues and snapshot pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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

/// The JVM that was profiled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// Without statistics, as after a crash, kernel time is unknown: the account has only samples, and `explained` is
    /// 0.
    pub fn new(profile: &ProcessProfile) -> Self {
        let session = profile.session();
        let threads = threads(profile);
        let statistics = session.statistics.clone().unwrap_or_default();
        let cpu_ns = cpu_time(session, &threads);
        let stops = by_name(&statistics.stops);
        let queue = statistics.queue.unwrap_or_default();
        let hello = profile.hello();
        Summary {
            mode: session.mode().name(),
            time: session.mode().time(),
            samples: session.samples,
            requests: statistics.requests.max(session.samples),
            resolved: statistics.resolved,
            failed: by_name(&statistics.failed),
            biased: statistics.biased,
            biased_received: session.biased,
            explained: if session.statistics.is_some() { cpu_ns.explained() } else { 0.0 },
            cpu_ns,
            kinds: Kinds::of(profile),
            stops: if stops.is_empty() { profile.stops() } else { stops },
            threads,
            virtual_threads: virtual_threads(profile),
            handler_cycles: Distribution::of(statistics.handler_cycles.as_ref()),
            sampler: Sampler {
                cpu_ns: statistics.sampler_cpu_ns,
                walk_ns: Quantiles::of(statistics.walk_ns.as_ref()),
                frames: statistics.frames,
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
                drain_ns: Quantiles::of(statistics.drain_ns.as_ref()),
            },
            delivery: Delivery::new(&statistics),
            timers: Timers::new(&statistics),
            waiting: Waiting::new(&statistics),
            sampling: Sampling::of(session),
            jvm: Jvm {
                version: hello.jvm_version.clone(),
                name: hello.jvm_name.clone(),
                major: hello.jdk_major,
                pid: hello.pid,
            },
            interval_ns: hello.interval_ns,
            process_cpu_ns: statistics.process_cpu_ns,
            complete: session.goodbye.is_some(),
            unloading: Unloading::new(&statistics),
            self_tests: SelfTest::all(&statistics),
            accounted: session.statistics.is_some(),
            goes_on: profile.goes_on(),
        }
    }

    /// Returns the warnings about `profile`, which must be the profile of this account.
    pub fn warnings(&self, profile: &ProcessProfile) -> Vec<String> {
        self.evidence(profile).warnings()
    }

    /// Returns what explains the figures of `profile` although nothing is wrong, as [`warnings`](Self::warnings).
    pub fn notes(&self, profile: &ProcessProfile) -> Vec<String> {
        self.evidence(profile).notes()
    }

    fn evidence<'s>(&'s self, profile: &'s ProcessProfile) -> Evidence<'s> {
        Evidence {
            session: profile.session(),
            cpu: &self.cpu_ns,
            is_complete: self.complete || self.goes_on,
            cut: profile.cut(),
            is_part: profile.is_part(),
            unknown_samples: 0,
        }
    }

    /// Returns the account in one line of text.
    pub fn sentence(&self) -> String {
        let (cpu, time) = (&self.cpu_ns, self.time);
        let not_chosen = match cpu.not_chosen_ns() {
            0 => String::new(),
            ns => format!(", {} of threads that were not chosen", quantity::duration(ns)),
        };
        let biased = self.biased.map_or(0.0, |biased| quantity::share(biased, self.requests));
        let biased = (biased >= NOTED)
            .then(|| format!(", biased {} (shown at a later line)", quantity::percent(biased)));
        format!(
            "{} samples, {} {time}, {} of {time} explained, lost {}{not_chosen}{}{}",
            quantity::count(self.samples),
            quantity::duration(cpu.sampled),
            quantity::percent(self.explained),
            quantity::duration(cpu.missed_ns()),
            biased.unwrap_or_default(),
            match (self.complete, self.goes_on) {
                (true, _) => "",
                (false, true) => ", so far",
                (false, false) => ", recording incomplete",
            }
        )
    }
}

fn cpu_time(session: &Session, threads: &[ThreadRow]) -> CpuTime {
    let accounts = || threads.iter().filter_map(|row| session.account(row.id));
    let mut of_threads: BTreeMap<&str, u64> = BTreeMap::new();
    for lost in accounts().flat_map(|account| &account.lost) {
        let sum = of_threads.entry(&lost.cause).or_default();
        *sum = sum.saturating_add(lost.ns);
    }
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for entry in session.statistics.iter().flat_map(|statistics| &statistics.lost) {
        let sum = lost.entry(entry.cause.clone()).or_default();
        *sum = sum.saturating_add(entry.ns);
    }
    // The process's list includes losses without a thread; causes that only threads report are added.
    for (cause, ns) in of_threads {
        let sum = lost.entry(cause.to_owned()).or_default();
        *sum = ns.max(*sum);
    }
    let of_process = session.accounted_sampled_ns().saturating_sub(session.sampled_ns);
    let not_received = total(threads.iter().map(|row| row.not_received_ns)).max(of_process);
    if not_received > 0 {
        let sum = lost.entry(NOT_RECEIVED.to_owned()).or_default();
        *sum = sum.saturating_add(not_received);
    }
    // An unfinished period that a new thread took over is CPU time of the ended thread.
    let kernel = total(threads.iter().map(|row| {
        let handed_on = session.account(row.id).map_or((0, 0), |own| (own.carried_ns, own.handed_on_ns));
        row.kernel_ns.saturating_add(handed_on.1).saturating_sub(handed_on.0)
    }));
    let mut statistics = session.statistics.clone().unwrap_or_default();
    let of_threads = total(accounts().map(|account| account.before_timer_ns));
    statistics.before_timer_ns = statistics.before_timer_ns.max(of_threads);
    // Losses without a thread are in the process's list only.
    CpuTime::new(session.mode(), kernel.max(session.kernel_ns()), session.sampled_ns, lost, &statistics)
}
