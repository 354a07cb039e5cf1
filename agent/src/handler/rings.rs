//! Memory of request queues.
//!
//! Problem: ten thousand idle threads must cost almost no memory, and queues that grow and shrink must not leak memory
//! that handlers can reach.
//! Approach: each slot's first ring lies in zeroed memory that takes a page when its first request is written, and the
//! first slots' rings in the huge page that each tick touches. Larger rings come from a range of addresses that is
//! mapped once. A free ring is kept for the next queue of its size; the whole pages of one from that range go back to
//! the kernel.
//! Invariant: nothing is unmapped, and a ring is in one queue or in one free list.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "not called by handlers")]

use std::io;
use std::mem::MaybeUninit;

use queue::{Capacity, RingEnds};

use crate::guest::mappings::{self, PAGE};
use crate::handler::slots::MAX_THREADS;

/// First rings in the huge page.
const NEAR: usize = 128;
/// Addresses for grown rings: 2,600 of the largest.
const GROWN_BYTES: usize = 256 << 20;

#[derive(Default)]
pub struct RingMemory {
    start: Option<Capacity>,
    near: &'static mut [MaybeUninit<u8>],
    far: &'static mut [MaybeUninit<u8>],
    grown: &'static mut [MaybeUninit<u8>],
    /// Addresses and sizes of grown rings; [`RingEnds::place`] is the index here plus one.
    places: Vec<(usize, usize)>,
    free: [Vec<RingEnds>; Capacity::ALL.len()],
}

/// Returns the distance from one first ring to the next, in bytes; a multiple of a cache line.
fn stride(capacity: Capacity) -> usize {
    capacity.bytes().next_multiple_of(64)
}

impl RingMemory {
    /// Returns the bytes for first rings of this size in the huge page, at most a fourth of it.
    pub fn near_bytes(start: Capacity) -> usize {
        stride(start) * NEAR.min((512 << 10) / stride(start))
    }

    /// Memory for rings that start with `start` entries; `near` is aligned to 64.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(start: Capacity, near: &'static mut [MaybeUninit<u8>]) -> io::Result<Self> {
        // The kernel has zeroed this memory, but its type cannot say so. Its pages are in memory already.
        near.iter_mut().for_each(|byte| {
            byte.write(0);
        });
        Ok(Self {
            start: Some(start),
            near,
            far: mappings::map_forever(MAX_THREADS as usize * stride(start))?,
            grown: mappings::map_forever(GROWN_BYTES)?,
            ..Self::default()
        })
    }

    /// Returns the first ring of a slot; `None` once all are in use.
    pub fn first(&mut self) -> Option<RingEnds> {
        let start = self.start?;
        let memory = if self.near.is_empty() { &mut self.far } else { &mut self.near };
        let (ring, rest) = std::mem::take(memory).split_at_mut_checked(stride(start))?;
        *memory = rest;
        // SAFETY: `new` has zeroed near memory, the kernel far memory, and each part is returned once.
        unsafe { RingEnds::in_zeroed(start, ring) }
    }

    /// Returns a ring of this size for a queue that is resized; `None` once the addresses are used up.
    pub fn take(&mut self, capacity: Capacity) -> Option<RingEnds> {
        self.free[capacity as usize].pop().or_else(|| self.make(capacity))
    }

    fn make(&mut self, capacity: Capacity) -> Option<RingEnds> {
        let align = if capacity.bytes() < PAGE { 64 } else { PAGE };
        let skip = self.grown.as_ptr().align_offset(align);
        let bytes = stride(capacity);
        let grown = std::mem::take(&mut self.grown);
        let (_, grown) = grown.split_at_mut_checked(skip)?;
        let (ring, rest) = grown.split_at_mut_checked(bytes)?;
        self.grown = rest;
        self.places.push((ring.as_ptr() as usize, bytes));
        let place = u32::try_from(self.places.len()).ok()?;
        Some(RingEnds::in_region(capacity, ring)?.with_place(place))
    }

    /// Takes back a ring that no queue uses.
    pub fn give_back(&mut self, ring: RingEnds) {
        let capacity = Capacity::at_least(ring.entries());
        let place = (ring.place() as usize).checked_sub(1).and_then(|index| self.places.get(index));
        if let Some(&(address, bytes)) = place
            && bytes >= PAGE
        {
            // SAFETY: the pages hold only this ring, which nothing else uses, and a ring of zero bytes is an empty one.
            // The pages stay mapped and read as zero. A refusal changes nothing.
            unsafe { libc::madvise(address as *mut libc::c_void, bytes / PAGE * PAGE, libc::MADV_DONTNEED) };
        }
        self.free[capacity as usize].push(ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_one_and_drain(ring: RingEnds) -> RingEnds {
        let capacity = Capacity::at_least(ring.entries());
        let queue: &'static queue::ThreadQueue = Box::leak(Box::default());
        assert!(queue.install(ring, capacity).is_ok());
        let mut drain = queue.try_drain().expect("installed");
        let spare = RingEnds::in_region(Capacity::Entries16, mappings::map_forever(PAGE).expect("mapped"));
        for pc in 0..capacity.entries() as u64 {
            // SAFETY: no other thread has this queue.
            let pushed = unsafe { queue.push(queue::Request { pc, ..Default::default() }) };
            assert!(pushed.is_ok());
        }
        assert_eq!(drain.by_ref().count(), capacity.entries());
        assert!(drain.offer(spare.expect("aligned")).is_ok());
        // SAFETY: no other thread has this queue.
        unsafe { queue.adopt() };
        assert!(drain.next().is_none());
        drain.take_retired().expect("left")
    }

    #[test]
    fn returned_rings_are_used_again() {
        let start = Capacity::Entries16;
        let near = mappings::map_forever(RingMemory::near_bytes(start)).expect("mapped");
        let mut memory = RingMemory::new(start, near).expect("mapped");
        for _ in 0..NEAR + 3 {
            let ring = memory.first().expect("room");
            assert_eq!((ring.entries(), ring.place()), (16, 0));
        }
        for _ in 0..3 {
            let ring = memory.take(Capacity::Entries512).expect("room");
            assert_eq!((ring.entries(), ring.place()), (512, 1), "the same one each time");
            memory.give_back(push_one_and_drain(ring));
        }
    }
}
