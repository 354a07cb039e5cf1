//! Processes and their accounts.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::error::QueryError;
use super::selection::Selection;
use crate::query::summary::NOT_RECEIVED;
use crate::session::account::{CpuTime, Distribution, Timers, Waiting, by_name};
use crate::session::sampling::Sampling;
use crate::session::warnings::Evidence;
use crate::session::{LIVE, Session};
use crate::source::{Extent, Source};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Process {
    pub process: String,
    pub service: String,
    pub host: String,
    pub pid: u32,
    pub command: String,
    pub jvm: String,
    pub jdk_major: u32,
    pub agent_version: String,
    /// Labels set for the process, as `KEY=VALUE`.
    pub labels: Vec<String>,
    pub mode: &'static str,
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
pub struct Account {
    #[serde(flatten)]
    pub process: Process,
    pub kernel_ns: u64,
    pub before_timer_ns: u64,
    pub outside_ns: u64,
    pub unfinished_ns: u64,
    pub lost_ns: BTreeMap<String, u64>,
    pub lost_samples: BTreeMap<String, u64>,
    pub stops: BTreeMap<String, u64>,
    pub requests: u64,
    pub resolved: u64,
    pub failed: BTreeMap<String, u64>,
    pub biased: Option<u64>,
    pub biased_received: u64,
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
    pub waiting: Waiting,
    pub warnings: Vec<String>,
}

/// Maximum bytes of a text of a process; a command line can have hundreds of KiB.
const LONG_TEXT: usize = 4096;

/// Rows of a list, and the number of rows left out.
pub type Listed<T> = (Vec<T>, usize);

/// Returns up to `limit` processes with a session in the selection, the latest first.
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
        // There can be any number of sessions, so the list is truncated while it grows.
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

/// Visits the accounts of the processes with a session in the selection.
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
                visit(account(source, id, session, now_ns));
            }
        })?;
        known.extend(visited);
    }
    Ok(())
}

/// Shortens a text of a process to the maximum length.
fn shown(text: &str) -> String {
    if text.len() <= LONG_TEXT {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(LONG_TEXT)])
}

fn account(source: &dyn Source, id: u64, session: &Session, now_ns: u64) -> Account {
    let statistics = session.statistics.clone().unwrap_or_default();
    let mut lost: BTreeMap<String, u64> =
        statistics.lost.iter().map(|lost| (lost.cause.clone(), lost.ns)).collect();
    let sent_ns = session.accounted_sampled_ns();
    if sent_ns > session.sampled_ns {
        lost.insert(NOT_RECEIVED.to_owned(), sent_ns - session.sampled_ns);
    }
    let cpu = CpuTime::new(session.mode(), session.kernel_ns(), session.sampled_ns, lost, &statistics);
    let queue = statistics.queue.unwrap_or_default();
    let hello = &session.hello;
    let state = session.state(now_ns);
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
            labels: hello.labels.iter().map(|label| shown(label)).collect(),
            mode: session.mode().name(),
            interval_ns: hello.interval_ns,
            first_ns: session.first_ns,
            last_ns: session.last_ns,
            state,
            end: session.goodbye.clone(),
            samples: session.samples,
            sampled_ns: session.sampled_ns,
            explained: if session.statistics.is_some() { cpu.explained() } else { 0.0 },
        },
        kernel_ns: cpu.kernel,
        before_timer_ns: cpu.before_timer,
        outside_ns: cpu.outside,
        unfinished_ns: cpu.unfinished,
        lost_samples: statistics.lost.iter().map(|lost| (lost.cause.clone(), lost.count)).collect(),
        stops: by_name(&statistics.stops),
        resolved: statistics.resolved,
        failed: by_name(&statistics.failed),
        biased: statistics.biased,
        biased_received: session.biased,
        sampling: Sampling::of(session),
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
        timers: Timers::new(&statistics),
        waiting: Waiting::new(&statistics),
        warnings: warnings(source, session, &cpu, state),
        lost_ns: cpu.lost,
    }
}

fn warnings(source: &dyn Source, session: &Session, cpu: &CpuTime, state: &str) -> Vec<String> {
    if state == LIVE && session.statistics.is_none() {
        // The first statistics come a second after the start.
        return Vec::new();
    }
    let evidence = Evidence {
        session,
        cpu,
        is_complete: state != "silent",
        cut: source.cut(),
        is_part: false,
        unknown_samples: session.unknown_samples,
    };
    evidence.warnings()
}
