//! Threads and their accounts of CPU time.

use std::collections::BTreeSet;

use proto::v1::{Thread, ThreadKind};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::dictionary::stop::UNKNOWN;
use crate::query::process::ProcessProfile;
use crate::session::thread::{default_name, kind_text};
use crate::source::Sum;

/// CPU time of one thread. `kernel_ns = sampled_ns + lost_ns + unfinished_ns`, always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ThreadRow {
    /// Kernel thread id, 0 if unknown.
    pub tid: u32,
    /// Name, [`UNKNOWN`] if the thread was never introduced.
    pub name: String,
    /// `java`, `compiler`, `gc`, `vm` or `native`; `virtual` for a virtual thread with unknown carrier (other virtual
    /// threads are part of their carrier's account).
    pub kind: &'static str,
    /// CPU time by the thread's CPU clock since its timer started, with the unfinished period that it took over from
    /// another thread and without the one that it left to another.
    pub kernel_ns: u64,
    /// CPU time of the received samples, including those of virtual threads on this thread.
    pub sampled_ns: u64,
    /// CPU time whose samples were lost, including losses on the way from the agent.
    pub lost_ns: u64,
    /// CPU time since the last expiration of the timer.
    pub unfinished_ns: u64,
    /// CPU time before the timer ran.
    pub before_timer_ns: u64,
    /// Part of `kernel_ns` that was used by an ended thread.
    pub carried_ns: u64,
    /// CPU time that this thread left to another one; not in `kernel_ns`.
    pub handed_on_ns: u64,
    /// CPU time covered by timer expirations, as counted by the signal handlers.
    pub expired_ns: u64,
    /// Time in which the thread was ready to run but had no processor; not in `kernel_ns`. `None` if it is not
    /// reported or was not read.
    pub run_delay_ns: Option<u64>,
    /// Samples received.
    pub samples: u64,
    /// Samples whose newest Java frame is that of a later point, by the agent's count.
    pub biased: u64,
    /// Part of `lost_ns` whose samples were sent but never received.
    #[serde(skip)]
    pub not_received_ns: u64,
    /// Number of the thread in the session.
    #[serde(skip)]
    pub id: u32,
}

/// CPU time of one virtual thread on all its carriers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VirtualThreadRow {
    /// `java.lang.Thread.threadId()`; 0 for the virtual threads of one carrier that have no number.
    pub java_id: i64,
    /// Name, or `virtual thread #ID`.
    pub name: String,
    /// Names of its carriers, in alphabetical order.
    pub carriers: Vec<String>,
    /// CPU time of the samples received.
    pub sampled_ns: u64,
    /// Samples received.
    pub samples: u64,
    /// Numbers of the thread in the session, one for each carrier.
    #[serde(skip)]
    pub ids: Vec<u32>,
}

/// Returns all threads with their own CPU clock, the busiest first.
pub fn threads(profile: &ProcessProfile) -> Vec<ThreadRow> {
    let owner = |id: u32| profile.account_owner(id);
    let own = profile.session_by_thread();
    let mut sampled: FxHashMap<u32, Sum> = FxHashMap::default();
    for (&thread, &cell) in own {
        sampled.entry(owner(thread)).or_default().add(cell);
    }
    let ids: BTreeSet<u32> = thread_ids(profile).map(owner).collect();
    let mut rows: Vec<ThreadRow> =
        ids.into_iter().map(|id| row(profile, id, sampled.get(&id).copied().unwrap_or_default())).collect();
    rows.sort_by(|a, b| b.kernel_ns.cmp(&a.kernel_ns).then(a.tid.cmp(&b.tid)).then(a.id.cmp(&b.id)));
    rows
}

/// Returns the numbers of all threads that were introduced, sampled or have an account.
fn thread_ids(profile: &ProcessProfile) -> impl Iterator<Item = u32> {
    let session = profile.session();
    let accounted = session.accounts().map(|account| account.thread);
    session
        .threads()
        .map(|thread| thread.id)
        .chain(accounted)
        .chain(profile.session_by_thread().keys().copied())
}

/// Returns all sampled virtual threads, the busiest first.
pub fn virtual_threads(profile: &ProcessProfile) -> Vec<VirtualThreadRow> {
    let sampled = profile.session_by_thread();
    let mut threads: Vec<(&Thread, Sum)> = sampled
        .iter()
        .filter_map(|(&id, &cell)| Some((profile.thread(id)?, cell)))
        .filter(|(thread, _)| thread.kind() == ThreadKind::Virtual)
        .collect();
    threads.sort_unstable_by_key(|(thread, _)| thread.id);
    let mut rows: FxHashMap<(i64, u32), VirtualThreadRow> = FxHashMap::default();
    for (thread, cell) in threads {
        // Virtual threads without a number have one row per carrier.
        let key = (thread.java_id, if thread.java_id == 0 { thread.id } else { 0 });
        let row = rows.entry(key).or_insert_with(|| VirtualThreadRow {
            java_id: thread.java_id,
            name: String::new(),
            carriers: Vec::new(),
            sampled_ns: 0,
            samples: 0,
            ids: Vec::new(),
        });
        // The latest introduction with a name counts: the agent may have read the name late, on another carrier.
        if row.name.is_empty() || thread.name != default_name(thread.java_id) {
            row.name.clone_from(&thread.name);
        }
        row.sampled_ns = row.sampled_ns.saturating_add(cell.cpu_ns);
        row.samples = row.samples.saturating_add(cell.samples);
        row.ids.push(thread.id);
        let carrier = profile.thread(thread.carrier).map_or(UNKNOWN, |carrier| &carrier.name);
        row.carriers.push(carrier.to_owned());
    }
    let mut rows: Vec<VirtualThreadRow> = rows.into_values().collect();
    for row in &mut rows {
        row.carriers.sort_unstable();
    }
    rows.sort_by(|a, b| {
        b.sampled_ns.cmp(&a.sampled_ns).then(a.java_id.cmp(&b.java_id)).then_with(|| a.ids.cmp(&b.ids))
    });
    rows
}

fn row(profile: &ProcessProfile, id: u32, received: Sum) -> ThreadRow {
    let thread = profile.thread(id);
    let account = profile.session().account(id).cloned().unwrap_or_default();
    let not_received_ns = account.sampled_ns.saturating_sub(received.cpu_ns);
    let lost_ns = account.lost.iter().fold(not_received_ns, |sum, lost| sum.saturating_add(lost.ns));
    let accounted = received.cpu_ns.saturating_add(lost_ns);
    // If the session was cut off, samples can be newer than the latest account, which then uses their sum.
    let kernel_ns = account.kernel_ns.saturating_sub(account.handed_on_ns).max(accounted);
    ThreadRow {
        tid: thread.map_or(0, |thread| thread.tid),
        name: thread.map_or_else(|| UNKNOWN.to_owned(), |thread| thread.name.clone()),
        kind: kind_text(thread.map_or(ThreadKind::Unspecified, |thread| thread.kind())),
        kernel_ns,
        sampled_ns: received.cpu_ns,
        lost_ns,
        unfinished_ns: kernel_ns - accounted,
        before_timer_ns: account.before_timer_ns,
        carried_ns: account.carried_ns,
        handed_on_ns: account.handed_on_ns,
        expired_ns: account.expired_ns,
        run_delay_ns: account.run_delay_ns,
        samples: received.samples,
        biased: account.biased,
        not_received_ns,
        id,
    }
}
