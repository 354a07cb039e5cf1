//! Virtual threads beyond a bound, which are counted for their carriers.
//!
//! Problem: a program can start a virtual thread for each request. A hundred programs with fifty a second fill the
//! memory of a partition in minutes, and partitions of minutes use up the store's files in days.
//! Approach: the first [`MOST_VIRTUAL`] of a session in a partition have rows and names of their own. Samples of later
//! ones are stored for their carriers, which have the accounts anyway.
//! Invariant: CPU time and number of samples stay the same, by session, by stack and by account.

use std::collections::BTreeMap;

use proto::v1::{Thread, ThreadKind};

/// Virtual threads of a session with rows of their own in a partition: 1 MB, so 256 sessions leave a partition its day.
pub(super) const MOST_VIRTUAL: usize = 4096;

/// Virtual threads whose carriers are known. Agents number threads in order of appearance and virtual threads are
/// short, so samples belong to the newest ones; older ones appear as an unknown thread.
const MOST_FOLDED: usize = 16_384;

/// Approximate memory of one of them.
const FOLDED_BYTES: usize = 16;

/// The virtual threads of a session in a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Folding {
    introduced: usize,
    /// Carriers of those that have no row.
    carriers: BTreeMap<u32, u32>,
}

impl Folding {
    /// Returns whether `thread` gets no row of its own; `is_known` is true if it has one already.
    pub(super) fn fold(&mut self, thread: &Thread, is_known: bool) -> bool {
        if thread.kind() != ThreadKind::Virtual || thread.carrier == 0 || is_known {
            return false;
        }
        if self.introduced < MOST_VIRTUAL && !self.carriers.contains_key(&thread.id) {
            self.introduced += 1;
            return false;
        }
        self.carriers.insert(thread.id, thread.carrier);
        if self.carriers.len() > MOST_FOLDED {
            self.carriers.pop_first();
        }
        true
    }

    /// Returns the thread for which samples of `thread` are stored.
    pub(super) fn owner(&self, thread: u32) -> u32 {
        self.carriers.get(&thread).copied().unwrap_or(thread)
    }

    pub(super) fn bytes(&self) -> usize {
        self.carriers.len() * FOLDED_BYTES
    }

    /// Returns the state with which the session continues in the next partition.
    pub(super) fn for_next_partition(&self) -> Folding {
        Folding { introduced: 0, carriers: self.carriers.clone() }
    }
}
