//! The queue of one profiled thread.
//!
//! Problem: a thread's handler needs its ring and its counters in one object that
//! exists before the thread is profiled and outlives it, at an address the timer can carry.
//! Approach: a plain struct that is valid as zeroed memory, so that an arena of them costs nothing until used.
//! The ring ends are installed once and stay for the next thread that uses the slot.
//! `push` is a few loads and stores; the two locked instructions here are those of `install` and `try_drain`.
//!
//! Invariants:
//! - `state` moves from empty to installing to installed and never back, so ends that were seen installed stay.
//! - The producer end is touched only by `push`, whose contract allows one caller at a time.
//! - The consumer end is touched only by the holder of `draining`.
//!
//! Unsafe here: the cells of the two ends. The contract of `push` cannot be expressed as a type, because the
//! producer is "whatever handler runs on that thread".

#![allow(unsafe_code, reason = "cells of the ring ends, shared between the handler and the drain")]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::ring::{Consumer, Producer};
use crate::sync::{AtomicBool, AtomicU32, Fault, Ordering, UnsafeCell, constructor, ordering};
use crate::{Capacity, LostCounters, Request, RingEnds};
use core::mem::MaybeUninit;

/// `state` of a queue without a ring.
const EMPTY: u32 = 0;
/// `state` while the ends are being written. Any other value is the number of entries of the installed ring.
const INSTALLING: u32 = u32::MAX;

/// Requests of one thread on their way to the sampler thread.
///
/// All zero bytes are a valid queue without a ring.
///
/// The line the handler reads at each tick is not changed by the drain, and no two queues share a line.
#[repr(C, align(64))]
pub struct ThreadQueue {
    /// [`EMPTY`], [`INSTALLING`] or the entries of the ring.
    state: AtomicU32,
    /// Initialised once `state` is installed.
    producer: UnsafeCell<MaybeUninit<Producer<'static, Request>>>,
    /// Samples of this thread that did not become requests; rarely changed, so they may lie across both lines.
    lost: LostCounters,
    /// What the drain changes.
    drained: DrainSide,
}

/// The part of a queue that the drain changes.
#[repr(C)]
struct DrainSide {
    /// True while a [`Drain`] exists.
    draining: AtomicBool,
    /// Initialised once the queue's `state` is installed.
    consumer: UnsafeCell<MaybeUninit<Consumer<'static, Request>>>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<ThreadQueue>() == 128, "there is one for each thread");
    assert!(
        core::mem::offset_of!(ThreadQueue, lost) < 64 && core::mem::offset_of!(ThreadQueue, drained) > 64
    );
};

// SAFETY: the atomics may be shared as they are. The producer cell is reached only through `push`, whose contract
// forbids two at a time, the consumer cell only through `Drain`, of which `draining` admits one, and both are
// written only by the one `install` that wins the exchange of `state`. The ends themselves are `Send`.
unsafe impl Sync for ThreadQueue {}

/// # Signal Safe Methods
///
/// Wait-free; no allocation, no lock, no panic.
impl ThreadQueue {
    /// Appends `request`.
    ///
    /// # Errors
    ///
    /// Gives the request back if the ring is full or none is installed; the caller counts it as lost.
    ///
    /// # Safety
    ///
    /// No two calls for the same queue overlap, and each call happens after the one before it: all are made by
    /// one thread whose handler cannot nest, and when the queue passes to another thread, that hand-over is
    /// ordered (by a lock, or by starting the thread).
    #[inline]
    pub unsafe fn push(&self, request: Request) -> Result<(), Request> {
        if !self.is_installed() {
            return Err(request);
        }
        self.producer.with_mut(|producer| {
            // SAFETY: the pointer is the cell's own, and the caller guarantees that no other `push` overlaps,
            // which is the only other access after the installation seen above.
            let producer = unsafe { &mut *producer };
            // SAFETY: `install` wrote the end before it published the state read above.
            let producer = unsafe { producer.assume_init_mut() };
            producer.enqueue(request)
        })
    }

    /// Counters of this thread's lost samples.
    #[inline]
    pub fn lost(&self) -> &LostCounters {
        &self.lost
    }

    /// True once a ring is installed.
    #[inline]
    pub fn is_installed(&self) -> bool {
        self.capacity_entries() != 0
    }

    /// Requests the installed ring holds; 0 without a ring.
    #[inline]
    pub fn capacity_entries(&self) -> usize {
        // Acquire: pairs with the release at the end of `install`, so the ends are seen written.
        match self.state.load(ordering(Fault::Install, Ordering::Acquire)) {
            INSTALLING => 0,
            entries => entries as usize,
        }
    }
}

impl ThreadQueue {
    constructor! {
        /// A queue without a ring.
        pub fn new() -> Self {
            Self {
                state: AtomicU32::new(EMPTY),
                producer: UnsafeCell::new(MaybeUninit::uninit()),
                lost: LostCounters::new(),
                drained: DrainSide {
                    draining: AtomicBool::new(false),
                    consumer: UnsafeCell::new(MaybeUninit::uninit())
                }
            }
        }
    }

    /// Gives the queue its ring, once; it stays for every thread that uses the queue later.
    ///
    /// # Errors
    ///
    /// Gives the ends back if a ring is installed already or `ends` are not of class `capacity`.
    pub fn install(&self, ends: RingEnds, capacity: Capacity) -> Result<(), RingEnds> {
        if ends.entries() != capacity.entries() {
            return Err(ends);
        }
        // Classes end at 2048 entries, so the conversion cannot fail nor meet `INSTALLING`.
        let Ok(installed) = u32::try_from(capacity.entries()) else {
            return Err(ends);
        };
        // Relaxed: it only elects the one writer of the cells, which nobody has written before.
        if self.state.compare_exchange(EMPTY, INSTALLING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Err(ends);
        }
        self.producer.with_mut(|producer| {
            // SAFETY: the exchange made this call the only writer, and readers wait for the state below.
            unsafe { producer.write(MaybeUninit::new(ends.producer)) }
        });
        self.drained.consumer.with_mut(|consumer| {
            // SAFETY: as for the producer.
            unsafe { consumer.write(MaybeUninit::new(ends.consumer)) }
        });
        // Release: pairs with the acquire in `capacity_entries`.
        self.state.store(installed, ordering(Fault::Install, Ordering::Release));
        Ok(())
    }

    /// The right to drain, or `None` while someone else has it or no ring is installed.
    pub fn try_drain(&self) -> Option<Drain<'_>> {
        if !self.is_installed() {
            return None;
        }
        // Acquire: pairs with the release when the previous drain was dropped, whose changes to the consumer end
        // and the ring's head are thereby seen.
        self.drained
            .draining
            .compare_exchange(false, true, ordering(Fault::Drain, Ordering::Acquire), Ordering::Relaxed)
            .ok()
            .map(|_| Drain { queue: self })
    }
}

impl Default for ThreadQueue {
    fn default() -> Self {
        Self::new()
    }
}

/// The exclusive right to take requests from a [`ThreadQueue`]; given up on drop.
///
/// Iterates until the ring is empty, requests pushed meanwhile included; a later `next` may yield again.
pub struct Drain<'q> {
    queue: &'q ThreadQueue,
}

impl Iterator for Drain<'_> {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        self.queue.drained.consumer.with_mut(|consumer| {
            // SAFETY: this `Drain` exists, so `draining` is set by it and no other accesses the cell.
            let consumer = unsafe { &mut *consumer };
            // SAFETY: `try_drain` saw the ring installed before it made this `Drain`.
            let consumer = unsafe { consumer.assume_init_mut() };
            consumer.dequeue()
        })
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_drain`.
        self.queue.drained.draining.store(false, ordering(Fault::Drain, Ordering::Release));
    }
}
