//! Request queues that size themselves.
//!
//! Problem: a ring must be replaced while a handler may be using it, and its memory given back only when none can.
//! Approach: `queue` decides how large (`queue::Sizer`) and carries out the hand-over (`queue::Drain`); the host owns the
//! memory. Here the three meet, at drain time, in whichever thread drains.
//! Invariant: a ring is with the host, offered or in use; what a finished hand-over leaves goes back to the host at once.

use queue::{Capacity, LostCause, SizeRange, Sizer};

use crate::host::Host;

/// What the sizing of queues has done in this session.
#[derive(Debug, Clone)]
pub struct Sizes {
    range: SizeRange,
    /// Queues that were given a larger ring.
    pub grown: u64,
    /// Queues that were given a smaller ring, those of ended threads included.
    pub shrunk: u64,
    /// Entries of the largest ring there was.
    pub largest: u64,
    /// Most requests found in one queue at one drain.
    pub high_water: u64,
    /// Requests that a full ring refused although its queue had grown before.
    pub lost_after_growth: u64,
    /// Slots whose rings were grown and not yet brought back to the smallest size.
    large: Vec<u32>,
    /// What decides about the size of each slot's queue.
    sizers: Vec<Sizer>,
}

impl Sizes {
    /// Sizing within `range`.
    pub fn new(range: SizeRange) -> Self {
        let largest = range.start.entries() as u64;
        Self {
            range,
            grown: 0,
            shrunk: 0,
            largest,
            high_water: 0,
            lost_after_growth: 0,
            large: Vec::new(),
            sizers: Vec::new(),
        }
    }

    /// Takes note of a drain of `slot` that found `found` requests, and grows the queue if it lost some.
    ///
    /// Returns how full the queue was found, in percent.
    pub fn after_drain(&mut self, host: &impl Host, slot: u32, found: usize) -> u32 {
        self.high_water = self.high_water.max(found as u64);
        let queue = host.queue(slot);
        let entries = queue.capacity_entries();
        let lost_full = queue.lost().count(LostCause::QueueFull);
        let index = slot as usize;
        if self.sizers.len() <= index {
            self.sizers.resize_with(index + 1, Sizer::default);
        }
        let Some(sizer) = self.sizers.get_mut(index) else { return 0 };
        self.lost_after_growth += sizer.lost_after_growth(lost_full);
        if let Some(size) = sizer.after_drain(self.range, entries, found, lost_full)
            && offer(host, slot, size)
        {
            self.grown += 1;
            self.largest = self.largest.max(size.entries() as u64);
            if !self.large.contains(&slot) {
                self.large.push(slot);
            }
        }
        u32::try_from(found.saturating_mul(100) / entries.max(1)).unwrap_or(u32::MAX)
    }

    /// Once a round: shrinks queues that are larger than they began and have been quiet.
    pub fn after_round(&mut self, host: &impl Host) {
        let Self { range, sizers, shrunk, .. } = self;
        self.large.retain(|&slot| {
            let Some(sizer) = sizers.get_mut(slot as usize) else { return false };
            let size = sizer.after_round(*range, host.queue(slot).capacity_entries());
            let is_smaller = size.is_some_and(|size| offer(host, slot, size));
            *shrunk += u64::from(is_smaller);
            !(is_smaller && size == Some(range.start))
        });
    }

    /// Brings the drained queue of an ended thread back to the smallest size, without waiting for a push.
    pub fn after_end(&mut self, host: &impl Host, slot: u32) {
        let queue = host.queue(slot);
        finish(host, slot);
        if queue.capacity_entries() > self.range.start.entries() && offer(host, slot, self.range.start) {
            finish(host, slot);
            self.shrunk += 1;
        }
        self.large.retain(|&large| large != slot);
        // The slot's counters begin anew with its next owner.
        if let Some(sizer) = self.sizers.get_mut(slot as usize) {
            *sizer = Sizer::default();
        }
    }
}

/// Offers a ring of `size`; whether it was accepted.
fn offer(host: &impl Host, slot: u32, size: Capacity) -> bool {
    let Some(mut drain) = host.queue(slot).try_drain() else { return false };
    if drain.is_handing_over() {
        return false;
    }
    let Some(ring) = host.take_ring(size) else { return false };
    match drain.offer(ring) {
        Ok(()) => true,
        Err(ring) => {
            host.give_back_ring(ring);
            false
        }
    }
}

/// Completes a hand-over on behalf of a thread that pushes no more.
fn finish(host: &impl Host, slot: u32) {
    host.adopt_ring(slot);
    if let Some(mut drain) = host.queue(slot).try_drain() {
        // The queue was drained before: this only follows the producer to the new ring.
        let _none = drain.next();
        if let Some(ring) = drain.take_retired() {
            host.give_back_ring(ring);
        }
    }
}
