//! Estimates of the memory of sessions, for their limit.
//!
//! Invariant: estimates follow the decoded form, which can be much larger than the encoded one.

use prost::Message as _;
use proto::v1::{Statistics, ThreadAccount};

/// Approximate memory of a thread or an account without its texts.
const ENTRY_BYTES: usize = 192;

/// Approximate memory of a session's row and its places in maps.
pub(super) const SESSION_BYTES: usize = 2048;

/// Memory of a cause with its counts and the allocation of its name.
const CAUSE_BYTES: usize = 80;

/// Returns the approximate memory of an entry: its texts, its row, and its place in a map.
pub(super) fn weight(entry: &impl prost::Message) -> usize {
    entry.encoded_len() + ENTRY_BYTES
}

/// As [`weight`], for an account; an encoded loss may have only two bytes.
pub(super) fn account_weight(account: &ThreadAccount) -> usize {
    weight(account) + account.lost.len() * CAUSE_BYTES
}

/// Returns the approximate memory of statistics without accounts.
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
    // A number of a histogram may have one byte encoded, and has eight in memory.
    let numbers = histograms.into_iter().flatten().map(|one| one.bucket.len() + one.bucket_count.len());
    statistics.encoded_len()
        + causes * CAUSE_BYTES
        + statistics.self_tests.len() * 2 * CAUSE_BYTES
        + numbers.sum::<usize>() * size_of::<u64>()
}
