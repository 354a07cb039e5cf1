//! Threads and their accounts of CPU time.

use proto::v1::ThreadKind;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::profile::{Cell, Profile, UNKNOWN};

/// CPU time of one thread. `kernel_ns = sampled_ns + lost_ns + unfinished_ns`, always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ThreadRow {
    /// Kernel thread id, 0 if unknown.
    pub tid: u32,
    /// Name, [`UNKNOWN`] if the thread was never introduced.
    pub name: String,
    /// `java`, `compiler`, `gc`, `vm` or `native`.
    pub kind: &'static str,
    /// CPU time this thread answers for: by its CPU clock since its timer ran, with the unfinished period it
    /// took over and without the one it left to another thread.
    pub kernel_ns: u64,
    /// CPU time of the samples received.
    pub sampled_ns: u64,
    /// CPU time whose samples were lost, on the way from the agent included.
    pub lost_ns: u64,
    /// CPU time since the last expiration of the timer.
    pub unfinished_ns: u64,
    /// CPU time before the timer ran.
    pub before_timer_ns: u64,
    /// Part of `kernel_ns` that an ended thread burnt and this one took over.
    pub carried_ns: u64,
    /// CPU time this thread burnt and left to another one; not in `kernel_ns`.
    pub handed_on_ns: u64,
    /// CPU time that expirations have covered, as the handlers counted it.
    pub expired_ns: u64,
    /// Samples received.
    pub samples: u64,
    /// Part of `lost_ns` that the agent sent but that was never received.
    #[serde(skip)]
    pub not_received_ns: u64,
    /// Number of the thread in the session.
    #[serde(skip)]
    pub id: u32,
}

/// All threads, the busiest first.
pub fn threads(profile: &Profile) -> Vec<ThreadRow> {
    let mut sampled: FxHashMap<u32, Cell> = FxHashMap::default();
    for (thread, _, cell) in profile.cells() {
        let sum = sampled.entry(thread).or_default();
        sum.cpu_ns = sum.cpu_ns.saturating_add(cell.cpu_ns);
        sum.samples = sum.samples.saturating_add(cell.samples);
    }
    let mut rows: Vec<ThreadRow> = profile
        .thread_ids()
        .into_iter()
        .map(|id| row(profile, id, sampled.get(&id).copied().unwrap_or_default()))
        .collect();
    rows.sort_by(|a, b| b.kernel_ns.cmp(&a.kernel_ns).then(a.tid.cmp(&b.tid)).then(a.id.cmp(&b.id)));
    rows
}

fn row(profile: &Profile, id: u32, received: Cell) -> ThreadRow {
    let thread = profile.thread(id);
    let account = profile.account(id).cloned().unwrap_or_default();
    let not_received_ns = account.sampled_ns.saturating_sub(received.cpu_ns);
    let lost_ns = account.lost.iter().fold(not_received_ns, |sum, lost| sum.saturating_add(lost.ns));
    let accounted = received.cpu_ns.saturating_add(lost_ns);
    // Samples can be newer than the latest account, if the session broke off: then they are what is known.
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
        samples: received.samples,
        not_received_ns,
        id,
    }
}

pub(super) fn kind_text(kind: ThreadKind) -> &'static str {
    match kind {
        ThreadKind::Java => "java",
        ThreadKind::Compiler => "compiler",
        ThreadKind::Gc => "gc",
        ThreadKind::Vm => "vm",
        // A thread of unknown kind is at least a thread of the process.
        ThreadKind::Native | ThreadKind::Unspecified => "native",
    }
}
