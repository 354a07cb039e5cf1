//! Processes and their accounts.

use std::collections::BTreeMap;

use proto::histogram::quantile;
use proto::v1::Histogram;
use rustc_hash::FxHashSet;
use serde::Serialize;

use super::error::QueryError;
use super::selection::Selection;
use crate::delivery::Delivery;
use crate::quantity::{self, total};
use crate::sampling::{self, Sampling};
use crate::session::Session;
use crate::source::{Extent, Source};
use crate::summary::Timers;
use crate::trust::SelfTest;
use crate::warnings::Evidence;

/// A profiled process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct Process {
    pub process: String,
    pub service: String,
    pub host: String,
    pub pid: u32,
    pub command: String,
    pub jvm: String,
    pub jdk_major: u32,
    pub agent_version: String,
    pub interval_ns: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// `live`, `silent` (nothing for a minute), or `ended`.
    pub state: &'static str,
    pub end: Option<String>,
    pub samples: u64,
    pub sampled_ns: u64,
    pub explained: f64,
}

/// The account of a process since the start of its session, and the cost of profiling.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct Account {
    #[serde(flatten)]
    pub process: Process,
    pub kernel_ns: u64,
    pub before_timer_ns: u64,
    pub unfinished_ns: u64,
    pub lost_ns: BTreeMap<String, u64>,
    pub lost_samples: BTreeMap<String, u64>,
    pub stops: BTreeMap<String, u64>,
    pub requests: u64,
    pub resolved: u64,
    pub failed: BTreeMap<String, u64>,
    pub sampling: Sampling,
    pub unknown_samples: u64,
    pub missing_messages: u64,
    pub uneven_batches: u64,
    pub process_cpu_ns: u64,
    pub sampler_cpu_ns: u64,
    pub handler_cycles: Distribution,
    pub walk_ns: Distribution,
    pub drain_ns: Distribution,
    pub queue_bytes: u64,
    pub queue_grown: u64,
    pub queue_high_water: u64,
    pub pool_bytes: u64,
    pub pool_exhausted: u64,
    pub timers: Timers,
    /// Warnings, as sentences without capital and full stop.
    pub warnings: Vec<String>,
}

/// Quantiles of a histogram, exact to 1/16; `max` is exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct Distribution {
    pub count: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl Distribution {
    fn of(histogram: Option<&Histogram>) -> Distribution {
        histogram.map_or(Distribution::default(), |histogram| Distribution {
            count: histogram.count,
            p50: quantile(histogram, 0.5),
            p99: quantile(histogram, 0.99),
            max: histogram.max,
        })
    }
}

/// Maximum length in bytes of a text of a process; a command line can have hundreds of KiB.
const LONG_TEXT: usize = 4096;

/// A process without messages for this time is silent; agents send heartbeats far more often.
const SILENT_NS: u64 = 60_000_000_000;

/// Rows of a list, and the number of rows left out.
pub type Listed<T> = (Vec<T>, usize);

/// Returns up to `limit` processes with a session in the selection, the latest first.
///
/// # Errors
/// If the source cannot be read.
pub fn processes(
    source: &dyn Source,
    selection: &Selection,
    limit: usize,
    now_ns: u64,
) -> Result<Listed<Process>, QueryError> {
    let (accounts, left_out) = accounts(source, selection, limit, now_ns)?;
    Ok((accounts.into_iter().map(|account| account.process).collect(), left_out))
}

/// Returns the accounts of up to `limit` processes with a session in the selection, the latest first.
///
/// # Errors
/// If the source cannot be read.
pub fn accounts(
    source: &dyn Source,
    selection: &Selection,
    limit: usize,
    now_ns: u64,
) -> Result<Listed<Account>, QueryError> {
    let (mut latest, mut all) = (Vec::new(), 0);
    each_account(source, selection, now_ns, |account| {
        all += 1;
        latest.push(account);
        // The number of sessions is unbounded, so the list is truncated while it grows.
        if latest.len() >= limit.saturating_mul(2).max(16) {
            keep_latest(&mut latest, limit);
        }
    })?;
    keep_latest(&mut latest, limit);
    let left_out = all - latest.len();
    Ok((latest, left_out))
}

fn keep_latest(accounts: &mut Vec<Account>, limit: usize) {
    accounts.sort_by(|a, b| {
        (b.process.last_ns, &a.process.process).cmp(&(a.process.last_ns, &b.process.process))
    });
    accounts.truncate(limit);
}

/// Visits the accounts of the processes with a session in the selection, one after the other.
///
/// # Errors
/// If the source cannot be read.
pub fn each_account(
    source: &dyn Source,
    selection: &Selection,
    now_ns: u64,
    mut visit: impl FnMut(Account),
) -> Result<(), QueryError> {
    let span = selection.span(source, now_ns);
    let mut known: FxHashSet<u64> = FxHashSet::default();
    // The last partition of a session has its complete account.
    for part in source.parts().iter().rev() {
        let mut visited = Vec::new();
        part.sessions(Extent::Account, &|id| !known.contains(&id), &mut |id, session| {
            if selection.is_during(session, &span) && selection.matches_session(id, session) {
                visited.push(id);
                let mut account = account(id, session, now_ns);
                account.warnings = warnings(source, session, &account);
                visit(account);
            }
        })?;
        known.extend(visited);
    }
    Ok(())
}

/// Returns a text of a process, shortened to the maximum length.
fn shown(text: &str) -> String {
    if text.len() <= LONG_TEXT {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(LONG_TEXT)])
}

fn account(id: u64, session: &Session, now_ns: u64) -> Account {
    let statistics = session.statistics.clone().unwrap_or_default();
    let lost_ns: BTreeMap<String, u64> =
        statistics.lost.iter().map(|lost| (lost.cause.clone(), lost.ns)).collect();
    let sent_ns = session.accounted_sampled_ns();
    let mut lost_ns = lost_ns;
    if sent_ns > session.sampled_ns {
        lost_ns.insert(crate::summary::NOT_RECEIVED.to_owned(), sent_ns - session.sampled_ns);
    }
    let lost: u64 = lost_ns.values().fold(0, |sum, &ns| sum.saturating_add(ns));
    let known_ns = session.sampled_ns.saturating_add(lost);
    let kernel_ns = session.kernel_ns().max(known_ns);
    let before_timer_ns = statistics.before_timer_ns;
    let explained = match session.statistics {
        Some(_) => quantity::share(session.sampled_ns, kernel_ns.saturating_add(before_timer_ns)),
        None => 0.0,
    };
    let queue = statistics.queue.unwrap_or_default();
    let timers = statistics.timers.unwrap_or_default();
    let hello = &session.hello;
    let state = match (&session.goodbye, now_ns.saturating_sub(session.last_ns) > SILENT_NS) {
        (Some(_), _) => "ended",
        (None, true) => "silent",
        (None, false) => "live",
    };
    Account {
        process: Process {
            process: format!("{id:016x}"),
            service: shown(session.service()),
            host: shown(&hello.host),
            pid: hello.pid,
            command: shown(&hello.command),
            jvm: shown(&hello.jvm_version),
            jdk_major: hello.jdk_major,
            agent_version: shown(&hello.agent_version),
            interval_ns: hello.interval_ns,
            first_ns: session.first_ns,
            last_ns: session.last_ns,
            state,
            end: session.goodbye.clone(),
            samples: session.samples,
            sampled_ns: session.sampled_ns,
            explained,
        },
        kernel_ns,
        before_timer_ns,
        unfinished_ns: kernel_ns - known_ns,
        lost_ns,
        lost_samples: statistics.lost.iter().map(|lost| (lost.cause.clone(), lost.count)).collect(),
        stops: statistics.stops.iter().map(|stop| (stop.name.clone(), stop.count)).collect(),
        resolved: statistics.resolved,
        failed: sampling::failed(&statistics),
        sampling: Sampling::new(&statistics),
        requests: statistics.requests,
        unknown_samples: session.unknown_samples,
        missing_messages: session.missing_messages,
        uneven_batches: session.uneven_batches,
        process_cpu_ns: statistics.process_cpu_ns,
        sampler_cpu_ns: statistics.sampler_cpu_ns,
        handler_cycles: Distribution::of(statistics.handler_cycles.as_ref()),
        walk_ns: Distribution::of(statistics.walk_ns.as_ref()),
        drain_ns: Distribution::of(statistics.drain_ns.as_ref()),
        queue_bytes: queue.capacity_bytes,
        queue_grown: queue.grown,
        queue_high_water: queue.high_water,
        pool_bytes: queue.pool_bytes,
        pool_exhausted: queue.pool_exhausted,
        timers: Timers {
            threads: timers.threads,
            with_timer: timers.with_timer,
            turns: timers.rotations,
            without_slot: timers.without_slot,
        },
        warnings: Vec::new(),
    }
}

/// Returns the warnings of one session. A live session in a store has no warning about its missing end.
fn warnings(source: &dyn Source, session: &Session, account: &Account) -> Vec<String> {
    if account.process.state == "live" && session.statistics.is_none() {
        // The first statistics come a second after the start.
        return Vec::new();
    }
    let statistics = session.statistics.clone().unwrap_or_default();
    let evidence = Evidence {
        is_complete: account.process.state != "silent",
        cut: source.cut().map(|cut| cut.to_string()),
        missing_messages: account.missing_messages,
        unknown_samples: account.unknown_samples,
        samples: account.process.samples,
        is_part: false,
        is_accounted: session.statistics.is_some(),
        explained: account.process.explained,
        before_timer_ns: account.before_timer_ns,
        lost_ns: total(account.lost_ns.values().copied()),
        unfinished_ns: account.unfinished_ns,
        delivery: Delivery::new(&statistics),
        self_tests: SelfTest::all(&statistics),
        timer_handovers: account.timers.turns,
    };
    evidence.warnings()
}
