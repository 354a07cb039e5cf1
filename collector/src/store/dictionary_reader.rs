//! Dictionaries of partitions whose memory was given back, read again for questions: one at a time.
//!
//! Problem: such a dictionary can be a hundred MiB, and any number of questions may want some at the same time.
//! Approach: a question reads one, uses it, and lets it go before the next; whoever else is_selected one waits for it, in the
//! order of asking, so that a question about one partition comes between two of a question about many.
//! Invariant: there is one at most in all of a store. Nobody waits here who holds a lock or reads a file, nor asks for
//! a second one while it has the first.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::FairMutex;

use super::error::StoreError;
use super::partition::Partition;
use profile::dictionary::Dictionary;

/// Who is next to read a dictionary.
#[derive(Debug, Default)]
pub(super) struct DictionaryReader {
    lock: FairMutex<()>,
    read_count: AtomicU64,
}

impl DictionaryReader {
    /// Calls `read` with the dictionary of `partition`, read from its file.
    pub(super) fn read<R>(
        &self,
        partition: &Partition,
        read: impl FnOnce(&Dictionary) -> R,
    ) -> Result<R, StoreError> {
        let _guard = self.lock.lock();
        // Relaxed: a counter for people.
        self.read_count.fetch_add(1, Ordering::Relaxed);
        Ok(read(&partition.read_dictionary()?))
    }

    /// Dictionaries that were read.
    pub(super) fn read_count(&self) -> u64 {
        self.read_count.load(Ordering::Relaxed)
    }
}
