//! Which queues may hold requests.
//!
//! Problem: draining must cost what is active, not what exists, and telling the drain must cost the handler next to
//! nothing: a locked instruction after the handler has copied a stack waits until the copy has left the store buffer.
//! Approach: one byte for each queue in a dense array. The handler stores 1, always; the consumer scans the bytes,
//! 10,000 of them in about a microsecond, and takes those that are set.
//! Invariant: a request that was pushed before its flag was set is seen by the drain that takes the flag, or by a
//! later one.
//!
//! Why the handler may not look first and store only a clear flag: its load could be answered before its push is
//! visible, by a flag that the consumer is about to take and whose queue it then finds empty; the request would wait
//! for the next push.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::sync::{AtomicU8, Fault, Ordering, ordering};

/// Flags looked at together; a run of this many idle queues costs a few instructions.
const RUN: usize = 32;

/// One flag for each queue, in memory lent by the caller; clear flags are zero bytes.
pub struct ReadySet<'m> {
    flags: &'m [AtomicU8],
}

/// # Signal Safe Methods
impl ReadySet<'_> {
    /// Notes that queue `index` has a request, which was pushed before; one plain store.
    ///
    /// A number without a flag is ignored.
    #[inline]
    pub fn mark(&self, index: u32) {
        if let Some(flag) = self.flags.get(index as usize) {
            // Release: pairs with the acquire in `take`, so that the drain sees the request.
            let order = ordering(Fault::Ready, Ordering::Release);
            // Loom 0.7 may order a store before a concurrent exchange that has not read it, which the atomicity of
            // the exchange forbids; in the model the store is an exchange.
            if cfg!(loom) {
                flag.swap(1, order);
            } else {
                flag.store(1, order);
            }
        }
    }
}

impl<'m> ReadySet<'m> {
    /// A set over `flags`, one for each queue.
    pub const fn new(flags: &'m [AtomicU8]) -> Self {
        Self { flags }
    }

    /// Takes the queues marked among the first `used`, lowest number first; each is unmarked before it is yielded, so
    /// that a push during its drain marks it again.
    pub fn take(&self, used: u32) -> ReadyIter<'m> {
        let used = self.flags.len().min(used as usize);
        ReadyIter { flags: self.flags.get(..used).unwrap_or(self.flags), next: 0 }
    }
}

/// The queues being taken from a [`ReadySet`].
pub struct ReadyIter<'m> {
    flags: &'m [AtomicU8],
    next: usize,
}

impl ReadyIter<'_> {
    /// Number of the first set flag at or after `next`.
    fn first_set(&self) -> Option<usize> {
        let mut index = self.next;
        while let Some(rest) = self.flags.get(index..) {
            let run = rest.get(..RUN.min(rest.len()))?;
            // Relaxed: a guess; a flag set meanwhile stays set for the next take.
            let any = run.iter().fold(0, |any, flag| any | flag.load(Ordering::Relaxed));
            if any != 0 {
                let inside = run.iter().position(|flag| flag.load(Ordering::Relaxed) != 0);
                return inside.map(|inside| index.wrapping_add(inside));
            }
            if run.is_empty() {
                return None;
            }
            index = index.wrapping_add(run.len());
        }
        None
    }
}

impl Iterator for ReadyIter<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let index = self.first_set()?;
        self.next = index.wrapping_add(1);
        // Acquire: pairs with the release in `mark`. An exchange and not a store: the flag that is cleared is the
        // one whose requests are seen.
        self.flags.get(index)?.swap(0, ordering(Fault::Ready, Ordering::Acquire));
        u32::try_from(index).ok()
    }
}
