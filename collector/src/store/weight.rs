//! What sessions take in memory, as far as their bound needs it.
//!
//! Invariant: estimates follow what is kept, so that what is sent compactly does not count as less than it takes.

use prost::Message as _;
use proto::v1::{Statistics, ThreadAccount};

/// Rough memory of a thread or an account beside its texts.
const ENTRY_BYTES: usize = 192;

/// Rough memory of a session beside what is counted apart: its row, and its places in maps.
pub(super) const SESSION_BYTES: usize = 2048;

/// Memory of a cause with its counts, and what the allocator adds to its name.
const CAUSE_BYTES: usize = 80;

/// Rough memory of an entry: what it says, its row, and its place in a map.
pub(super) fn weight(entry: &impl prost::Message) -> usize {
    entry.encoded_len() + ENTRY_BYTES
}

/// The same of an account; what it lost can be said in two bytes each.
pub(super) fn account_weight(account: &ThreadAccount) -> usize {
    weight(account) + account.lost.len() * CAUSE_BYTES
}

/// Rough memory of statistics without accounts.
pub(super) fn statistics_bytes(statistics: &Statistics) -> usize {
    let causes = statistics.stops.len() + statistics.lost.len() + statistics.failed.len();
    let added = statistics.unloading.as_ref().and_then(|unloading| unloading.pause_added_ns.as_ref());
    let histograms = [
        statistics.handler_cycles.as_ref(),
        statistics.walk_ns.as_ref(),
        statistics.drain_ns.as_ref(),
        statistics.drain_requests.as_ref(),
        added,
    ];
    // A number of a histogram is a byte as it is sent, and eight in memory.
    let numbers = histograms.into_iter().flatten().map(|one| one.bucket.len() + one.bucket_count.len());
    statistics.encoded_len()
        + causes * CAUSE_BYTES
        + statistics.self_tests.len() * 2 * CAUSE_BYTES
        + numbers.sum::<usize>() * size_of::<u64>()
}
