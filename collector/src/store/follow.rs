//! Passes samples on as soon as they are stored.
//!
//! A follower, such as the forwarder, gets each sample once, and must never delay the store. The writer passes on each
//! batch after its commit and after the answer to its connection; the follower looks up symbols on its own thread.

use std::fmt::Debug;
use std::ops::Range;

use profile::source::Sum;

use super::read::View;

/// Receives samples that have been stored.
pub trait Follower: Debug + Send + Sync {
    /// Receives `samples`, and may ignore them. Called on the writer thread, so it must return at once.
    fn follow(&self, samples: StoredSamples);
}

/// Samples of one session that have just become durable.
#[derive(Debug)]
pub struct StoredSamples {
    /// The partition that stores them.
    pub view: View,
    /// Id of their session.
    pub session: u64,
    /// Thread, stack in the dictionary of the view, and CPU time and number of samples.
    pub sums: Vec<(u32, u32, Sum)>,
    /// Time of the first and of the last sample, in nanoseconds since the epoch.
    pub range_ns: Range<u64>,
}
