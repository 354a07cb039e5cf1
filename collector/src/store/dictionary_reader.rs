//! Reads the dictionaries of unloaded partitions for queries, one at a time.
//!
//! Problem: such a dictionary can take a hundred MiB, and any number of queries may need several at the same time.
//! Approach: a query reads one dictionary, uses it, and frees it before the next one. Other queries wait in a fair
//! queue, so a query about one partition runs between two dictionaries of a query about many.
//! Invariant: at most one such dictionary is in memory in a whole store. A query that waits holds no lock and no open
//! read transaction, and never requests a second dictionary while it has one.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::FairMutex;

use super::error::StoreError;
use super::partition::Partition;
use profile::dictionary::Dictionary;

/// Permits one query at a time to read a dictionary.
#[derive(Debug, Default)]
pub(super) struct DictionaryReader {
    lock: FairMutex<()>,
    read_count: AtomicU64,
}

impl DictionaryReader {
    /// Calls `read` with the dictionary of `partition`, which is read from its file.
    pub(super) fn read(
        &self,
        partition: &Partition,
        read: &mut dyn FnMut(&Dictionary),
    ) -> Result<(), StoreError> {
        let _guard = self.lock.lock();
        // Relaxed: a statistics counter.
        self.read_count.fetch_add(1, Ordering::Relaxed);
        read(&partition.read_dictionary()?);
        Ok(())
    }

    /// Returns the number of dictionaries read so far.
    pub(super) fn read_count(&self) -> u64 {
        self.read_count.load(Ordering::Relaxed)
    }
}
