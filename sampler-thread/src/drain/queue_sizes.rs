//! Grows and shrinks request queues.
//!
//! Problem: a ring must be replaced while a handler may be using it, and its memory reclaimed only when none can.
//! Approach: `queue` decides on the size (`queue::Sizer`) and hands rings over (`queue::Drain`); the process owns the
//! memory. Sizes change at a drain, on the thread that drains.
//! Invariant: a ring is free, offered or in use; the old ring of a finished hand-over is freed at once.

use queue::{Capacity, LostCause, SizeRange, Sizer};

use crate::process::Queues;

/// Memory of the queues that have held requests, in bytes.
///
/// The first ring of another queue takes none of its own: it lies in the handler's huge page, which is in memory
/// anyway, or in pages that the first request touches. A ring that was replaced is not counted, though one of the
/// first size keeps its pages for a queue that shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueBytes {
    /// Present memory.
    pub used: u64,
    /// Its maximum.
    pub most: u64,
}

impl QueueBytes {
    /// Adds `after` and subtracts the ring that it replaces, if any.
    fn replace(&mut self, before: Option<Capacity>, after: Capacity) {
        let before = before.map_or(0, Capacity::bytes);
        self.used = (self.used + after.bytes() as u64).saturating_sub(before as u64);
        self.most = self.most.max(self.used);
    }
}

/// Sizes of all queues, and counts of their changes in this session.
#[derive(Debug, Clone)]
pub struct QueueSizes {
    range: SizeRange,
    /// Times a queue got a larger ring.
    pub grown: u64,
    /// Times a queue got a smaller ring, those of ended threads included.
    pub shrunk: u64,
    /// Entries of the largest ring so far.
    pub largest: u64,
    /// Most requests found in one queue at one drain.
    pub high_water: u64,
    /// Requests refused by a full ring of a queue that had grown before.
    pub lost_after_growth: u64,
    pub bytes: QueueBytes,
    /// Slots whose rings are larger than the smallest size.
    large: Vec<u32>,
    /// Decides on the size of each slot's queue; `None` for one that has never held a request.
    sizers: Vec<Option<Sizer>>,
}

impl QueueSizes {
    /// All queues have the smallest size of `range`.
    pub fn new(range: SizeRange) -> Self {
        let largest = range.start.entries() as u64;
        Self {
            range,
            grown: 0,
            shrunk: 0,
            largest,
            high_water: 0,
            lost_after_growth: 0,
            bytes: QueueBytes::default(),
            large: Vec::new(),
            sizers: Vec::new(),
        }
    }

    /// Returns the number of entries of the smallest queue.
    pub fn smallest(&self) -> usize {
        self.range.start.entries()
    }

    /// Records that the queue of `slot` has held requests.
    pub fn has_held_requests(&mut self, slot: u32) {
        let index = slot as usize;
        if self.sizers.len() <= index {
            self.sizers.resize(index + 1, None);
        }
        if let Some(sizer @ None) = self.sizers.get_mut(index) {
            *sizer = Some(Sizer::default());
            self.bytes.replace(None, self.range.start);
        }
    }

    /// Records a drain of `slot` that found `found` requests, and grows the queue if it lost some.
    ///
    /// Returns how full the queue was, in percent.
    pub fn after_drain(&mut self, queues: &impl Queues, slot: u32, found: usize) -> u32 {
        self.high_water = self.high_water.max(found as u64);
        let queue = queues.queue(slot);
        let entries = queue.capacity_entries();
        let lost_full = queue.lost().count(LostCause::QueueFull);
        let Some(Some(sizer)) = self.sizers.get_mut(slot as usize) else { return 0 };
        self.lost_after_growth += sizer.lost_after_growth(lost_full);
        if let Some(size) = sizer.after_drain(self.range, entries, found, lost_full)
            && offer(queues, slot, size)
        {
            self.bytes.replace(Some(Capacity::at_least(entries)), size);
            self.grown += 1;
            self.largest = self.largest.max(size.entries() as u64);
            if !self.large.contains(&slot) {
                self.large.push(slot);
            }
        }
        u32::try_from(found.saturating_mul(100) / entries.max(1)).unwrap_or(u32::MAX)
    }

    /// Shrinks queues that grew and have been quiet; to be called once a second.
    pub fn after_round(&mut self, queues: &impl Queues) {
        let Self { range, sizers, shrunk, bytes, .. } = self;
        self.large.retain(|&slot| {
            let Some(Some(sizer)) = sizers.get_mut(slot as usize) else { return false };
            let entries = queues.queue(slot).capacity_entries();
            let Some(size) = sizer.after_round(*range, entries).filter(|size| offer(queues, slot, *size))
            else {
                return true;
            };
            bytes.replace(Some(Capacity::at_least(entries)), size);
            *shrunk += 1;
            size != range.start
        });
    }

    /// Shrinks the drained queue of an ended thread to the smallest size, without waiting for a push.
    pub fn after_end(&mut self, queues: &impl Queues, slot: u32) {
        let queue = queues.queue(slot);
        finish(queues, slot);
        let entries = queue.capacity_entries();
        if entries > self.range.start.entries() && offer(queues, slot, self.range.start) {
            finish(queues, slot);
            self.bytes.replace(Some(Capacity::at_least(entries)), self.range.start);
            self.shrunk += 1;
        }
        self.large.retain(|&large| large != slot);
        // The slot's counters are reset for its next owner.
        if let Some(Some(sizer)) = self.sizers.get_mut(slot as usize) {
            *sizer = Sizer::default();
        }
    }
}

/// Offers a ring of `size`; returns whether it was accepted.
fn offer(queues: &impl Queues, slot: u32, size: Capacity) -> bool {
    let Some(mut drain) = queues.queue(slot).try_drain() else { return false };
    if drain.is_handing_over() {
        return false;
    }
    let Some(ring) = queues.take_ring(size) else { return false };
    match drain.offer(ring) {
        Ok(()) => true,
        Err(ring) => {
            queues.give_back_ring(ring);
            false
        }
    }
}

/// Completes a hand-over on behalf of an ended thread.
fn finish(queues: &impl Queues, slot: u32) {
    queues.adopt_ring(slot);
    if let Some(mut drain) = queues.queue(slot).try_drain() {
        // The queue was drained before: this only follows the producer to the new ring.
        let _none = drain.next();
        if let Some(ring) = drain.take_retired() {
            queues.give_back_ring(ring);
        }
    }
}
