//! Passes samples on as soon as they are stored.
//!
//! Problem: a follower, such as the forwarder, needs each sample once, and must never delay the store.
//! Approach: the writer passes on each batch after its commit and after the answer to its connection. The follower
//! looks up symbols on its own thread.
//! Invariant: a message that an agent repeats is passed on once, just as it is stored once.

use std::fmt::Debug;
use std::ops::Range;

use profile::source::cell::Cell;

use super::memory::StoredBatch;
use super::read::View;

/// Receives samples that have been stored.
pub trait Follower: Debug + Send + Sync {
    /// Receives `samples`, and may ignore them. Called on the writer thread, so it must return at once.
    fn follow(&self, samples: StoredSamples);
}

/// Samples of one session that have just become durable.
#[derive(Debug)]
pub struct StoredSamples {
    view: View,
    session: u64,
    batch: StoredBatch,
}

impl StoredSamples {
    pub(super) fn new(view: &View, session: u64, batch: StoredBatch) -> StoredSamples {
        StoredSamples { view: view.clone(), session, batch }
    }

    /// Returns the view of the partition that stores them.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the id of their session.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Returns the number of samples and their CPU time.
    pub fn total(&self) -> Cell {
        let mut total = Cell::default();
        self.batch.cells.iter().for_each(|&(.., cell)| total.add(cell));
        total
    }

    /// Returns thread, stack in the dictionary of the view, and CPU time and samples to add.
    pub fn cells(&self) -> impl Iterator<Item = (u32, u32, Cell)> + '_ {
        self.batch.cells.iter().copied()
    }

    /// Returns the time from the first sample to the last, in nanoseconds since the epoch.
    pub fn range_ns(&self) -> Range<u64> {
        self.batch.first_ns..self.batch.last_ns
    }
}
