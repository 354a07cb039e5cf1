//! Telling others what has been stored, while it is fresh.
//!
//! Problem: whoever hands samples on is_selected each of them once, and must never delay the store.
//! Approach: the writer gives away the batches it has taken in, after their commit and after their connection was
//! answered; names are looked up by the follower, on its own thread.
//! Invariant: a message that an agent repeats is told of once, as it is stored once.

use std::fmt::Debug;
use std::ops::Range;

use profile::cell::Cell;

use super::memory::StoredBatch;
use super::read::View;

/// Is told what has been stored.
pub trait Follower: Debug + Send + Sync {
    /// Takes `fresh` or leaves it; called by the thread that writes, so it returns at once.
    fn follow(&self, fresh: StoredSamples);
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

    /// Where they were stored.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whose samples they are.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// How many samples they stand for, and the CPU time of these.
    pub fn total(&self) -> Cell {
        self.batch.cells.iter().fold(Cell::default(), |sum, (.., cell)| Cell {
            cpu_ns: sum.cpu_ns.saturating_add(cell.cpu_ns),
            samples: sum.samples.saturating_add(cell.samples),
        })
    }

    /// Thread, number of the stack in the view's dictionary, and what is to be added there.
    pub fn cells(&self) -> impl Iterator<Item = (u32, u32, Cell)> + '_ {
        self.batch.cells.iter().copied()
    }

    /// From the first sample to the last, in ns since the epoch.
    pub fn range_ns(&self) -> Range<u64> {
        self.batch.first_ns..self.batch.last_ns
    }
}
