//! The queues that may hold requests.
//!
//! Problem: draining must cost in proportion to the active queues, and a mark almost nothing: after the copy of a
//! stack, a locked instruction waits until the copy has left the store buffer.
//! Approach: one byte for each queue in a dense array. The handler always stores 1; the consumer scans the bytes,
//! 10,000 in about a microsecond, and swaps those that are set for 0 before it drains their queues.
//!
//! Invariant: no request is left behind. The handler stores the ring's tail first and then the flag, both with release.
//! - A swap that reads this store, or a later one to the same flag, acquires the tail, so the following drain finds the
//!   request. The first swap after the store is such a swap.
//! - It happens, because the flag stays set until then and each `take` scans it. A store that one scan misses is found
//!   by the next.
//!
//! The flag is cleared by an exchange, because between a load and a clearing store another mark could be wiped out
//! without its request having been acquired.
//!
//! The handler must not store only if the flag is clear. Its load may be answered while its store of the tail still
//! waits in the store buffer: it finds the flag set, the consumer swaps it and finds the ring without the request, and
//! nothing sets the flag before the thread's next push, which may never come. Only a full fence would prevent that, at
//! the cost to be avoided. An unconditional store follows the tail through the same buffer.

use crate::fault::{Fault, is_broken, ordering};
use crate::sync::{AtomicU8, Ordering};

/// Flags scanned together: two vector registers of the x86-64 baseline, so a run of idle queues costs a few
/// instructions and one branch.
const RUN: usize = 32;

/// One flag for each queue, in memory lent by the caller; clear flags are zero bytes.
pub struct ReadySet<'m> {
    flags: &'m [AtomicU8],
}

/// # Signal Safe Methods
impl ReadySet<'_> {
    /// Marks queue `index` as having a request, which was pushed before; one plain store.
    ///
    /// A number without a flag is ignored.
    #[inline]
    pub fn mark(&self, index: u32) {
        if let Some(flag) = self.flags.get(index as usize) {
            // The fault that the module documentation describes, for a model.
            if is_broken(Fault::ReadyAlways) && flag.load(Ordering::Relaxed) != 0 {
                return;
            }
            // Release: pairs with the acquire in `take`, so that the drain sees the request.
            let order = ordering(Fault::Ready, Ordering::Release);
            // Loom 0.7 may order a store before a concurrent exchange that has not read it, against the atomicity of
            // the exchange; so the model has an exchange here.
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

    /// Returns whether one of the first `used` queues is marked; a concurrent push may be overlooked.
    pub fn is_any_marked(&self, used: u32) -> bool {
        let used = self.flags.len().min(used as usize);
        ReadyIter { flags: self.flags.get(..used).unwrap_or(self.flags), next: 0 }.first_set().is_some()
    }

    /// Returns whether queue `index` is marked; a concurrent push may be overlooked.
    pub fn is_marked(&self, index: u32) -> bool {
        // Relaxed: pairs with nothing, as in `first_set`.
        self.flags.get(index as usize).is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
    }

    /// Takes the marked queues among the first `used`, lowest number first. Each is unmarked before it is yielded, so a
    /// push during its drain marks it again.
    ///
    /// An iterator dropped early leaves the rest marked.
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
        let rest = self.flags.get(self.next..)?;
        // Relaxed: a guess; a flag set meanwhile stays set for the next take.
        let is_set = |flag: &AtomicU8| flag.load(Ordering::Relaxed) != 0;
        let mut before = self.next;
        for run in rest.chunks(RUN) {
            // Without a branch for each flag.
            let any = run.iter().fold(0, |any, flag| any | flag.load(Ordering::Relaxed));
            if any != 0
                && let Some(inside) = run.iter().position(is_set)
            {
                return Some(before.wrapping_add(inside));
            }
            before = before.wrapping_add(run.len());
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
        let flag = self.flags.get(index)?;
        if is_broken(Fault::ReadyTake) {
            flag.load(Ordering::Acquire);
            flag.store(0, Ordering::Relaxed);
        } else {
            // Acquire: pairs with the release in `mark`. An exchange, so that all requests of the cleared flag are
            // seen.
            flag.swap(0, ordering(Fault::Ready, Ordering::Acquire));
        }
        u32::try_from(index).ok()
    }
}
