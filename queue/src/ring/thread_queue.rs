//! The queue of one profiled thread.
//!
//! Problem: a thread's handler needs its ring and its counters in one object that exists before the thread is profiled
//! and outlives it, at an address that the timer can carry; and the ring must grow and shrink under a handler that may
//! run between any two instructions of the drain.
//! Approach: a plain struct that is valid as zeroed memory, so unused ones cost nothing. `push` is a few loads and
//! stores; only `install` and `try_drain` execute locked instructions.
//!
//! # Hand-over from one ring to the next
//!
//! ```text
//!   drain                                        handler (the thread's next push)
//!   offer: offered := new producer
//!          state := OFFERED   ---- release ---->  acquire: swap(producer, offered), push to the new ring
//!   next: old ring is empty                       state := entries of the new ring
//!         state is not OFFERED <---- release ---
//!         old ring is empty once more
//!         swap(consumer, next consumer); the old ring's two ends are together again: retired
//! ```
//!
//! Only the handler changes the producer's side, and it stores `state` after its last access to the old ring. The
//! second look at the old ring finds requests that arrived between the first look and the change of state, and keeps
//! requests in order.
//! An offer to a thread that gets no signal stays pending. When the thread has ended, the owner of its slot accepts the
//! offer ([`ThreadQueue::adopt`]).
//!
//! Invariants:
//! - `state` never returns to empty, so installed ends stay valid.
//! - The producer end is touched only by `push` and `adopt`, whose contract allows one caller at a time.
//! - The consumer end is touched only by the holder of `draining`.
//! - The offered producer belongs to the drain, except while `state` is offered: then it is the handler's.
//!
//! Unsafe code: the cells of the ends. A type cannot express the contract of `push`, because the producer is the
//! handler that runs on the thread.

#![allow(unsafe_code, reason = "cells of the ring ends, shared between the handler and the drain")]

use crate::fault::{Fault, is_broken, ordering};
use crate::lost::LostCounters;
use crate::ring::capacity::Capacity;
use crate::ring::request::Request;
use crate::ring::spsc::{Consumer, Producer, RingEnds};
use crate::sync::{AtomicBool, AtomicU32, Ordering, UnsafeCell, constructor};
use core::mem::MaybeUninit;

/// `state` of a queue without a ring.
const EMPTY: u32 = 0;
/// `state` while the ends are being written.
const INSTALLING: u32 = u32::MAX;
/// Bit of `state` while a ring waits for the handler. The other bits are the entries of the handler's ring.
const OFFERED: u32 = 1 << 16;

/// Returns whether a push goes straight to the ring: neither empty nor installing nor offered.
#[inline(always)]
const fn is_steady(state: u32) -> bool {
    state.wrapping_sub(1) < OFFERED.wrapping_sub(1)
}

/// Requests of one thread on their way to the sampler thread. All zero bytes are a valid queue without a ring.
///
/// No two queues share a cache line, and the drain changes the handler's line only to offer a ring.
#[repr(C, align(64))]
pub struct ThreadQueue {
    /// [`EMPTY`], [`INSTALLING`] or the entries of the ring, with [`OFFERED`] or without.
    state: AtomicU32,
    /// Initialised once `state` is installed.
    producer: UnsafeCell<MaybeUninit<Producer<'static, Request>>>,
    /// The next ring's producer while one is offered; afterwards, until the drain has taken it, that of the ring left.
    offered: UnsafeCell<MaybeUninit<Producer<'static, Request>>>,
    /// Samples of this thread that did not become requests; rarely changed, so they may lie across both lines.
    lost: LostCounters,
    /// Fields that the drain changes.
    drained: DrainSide,
}

/// The part of a queue that the drain changes.
#[repr(C)]
struct DrainSide {
    /// True while a [`Drain`] exists.
    draining: AtomicBool,
    ends: UnsafeCell<DrainEnds>,
}

/// Fields that only the holder of `draining` accesses.
#[repr(C)]
struct DrainEnds {
    /// Initialised once the queue's `state` is installed.
    consumer: MaybeUninit<Consumer<'static, Request>>,
    /// The consumer of the offered or the retired ring; see `phase`.
    other: MaybeUninit<Consumer<'static, Request>>,
    /// [`RingEnds::place`] of both rings.
    place: u32,
    other_place: u32,
    phase: Phase,
}

/// Progress of a hand-over on the drain's side. All zero bytes are `Settled`.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There is one ring.
    Settled = 0,
    /// A second one was offered.
    Offered = 1,
    /// Both sides have left the first one, and its owner has not yet taken it.
    Retired = 2,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<ThreadQueue>() == 192, "there is one for each thread");
    assert!(core::mem::offset_of!(ThreadQueue, lost) < 64, "the handler's line");
    assert!(core::mem::offset_of!(ThreadQueue, drained) > 64, "the drain's lines");
};

// SAFETY: the atomics may be shared as they are. The producer cell is reached only through `push` and `adopt`, whose
// contract forbids two at a time, the ends of the drain only through `Drain`, of which `draining` admits one; the
// offered cell belongs to the one or the other by `state`. The first ends are written only by the one `install` that
// wins the exchange of `state`. The ends themselves are `Send`.
unsafe impl Sync for ThreadQueue {}

/// # Signal Safe Methods
///
/// Wait-free; no allocation, no lock, no panic.
impl ThreadQueue {
    /// Appends `request`, to the offered ring if there is one.
    ///
    /// # Errors
    ///
    /// Returns the request if the ring is full or none is installed; the caller counts it as lost.
    ///
    /// # Safety
    ///
    /// No two calls for the same queue overlap, and each happens after the one before: one thread, whose handler cannot
    /// nest, makes them all, and a hand-over of the queue to another thread is ordered (by a lock, or by starting the
    /// thread).
    #[inline]
    pub unsafe fn push(&self, request: Request) -> Result<(), Request> {
        // Acquire: pairs with the releases in `install` and `offer`, so the ends are seen written.
        let state = self.state.load(ordering(Fault::Install, Ordering::Acquire));
        // SAFETY: no other push of this queue overlaps, by the contract of this function.
        if !is_steady(state) && !unsafe { self.take_offer(state) } {
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

    /// Moves the producer's side to an offered ring, as the next push would; for the owner of a queue whose thread
    /// pushes no more.
    ///
    /// # Safety
    ///
    /// As [`ThreadQueue::push`].
    pub unsafe fn adopt(&self) {
        // Acquire: as in `push`.
        let state = self.state.load(ordering(Fault::Offer, Ordering::Acquire));
        if !is_steady(state) {
            // SAFETY: no other push of this queue overlaps, by the contract of this function.
            unsafe { self.take_offer(state) };
        }
    }

    /// Moves to the offered ring, for a caller that found `state` not steady. Returns whether there is a ring.
    ///
    /// # Safety
    ///
    /// As [`ThreadQueue::push`].
    #[cold]
    #[inline(never)]
    unsafe fn take_offer(&self, state: u32) -> bool {
        if state == INSTALLING || state & OFFERED == 0 {
            return false;
        }
        let entries = self.producer.with_mut(|producer| {
            self.offered.with_mut(|offered| {
                // SAFETY: the producer cell is the caller's, and while a ring is offered so is the other.
                unsafe { core::ptr::swap(producer, offered) };
                // SAFETY: the swap leaves a valid pointer of the cell.
                let producer = unsafe { &*producer };
                // SAFETY: `offer` wrote the end before it published the state read by the caller.
                unsafe { producer.assume_init_ref() }.capacity()
            })
        });
        // Release: pairs with the acquire in `follow`; everything this side did in the old ring comes before.
        self.state.store(entries as u32 & (OFFERED - 1), ordering(Fault::Adopt, Ordering::Release));
        true
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

    /// Requests the ring the handler uses holds; 0 without a ring.
    #[inline]
    pub fn capacity_entries(&self) -> usize {
        // Acquire: pairs with the release at the end of `install`, so the ends are seen written.
        match self.state.load(ordering(Fault::Install, Ordering::Acquire)) {
            INSTALLING => 0,
            state => (state & (OFFERED - 1)) as usize,
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
                offered: UnsafeCell::new(MaybeUninit::uninit()),
                lost: LostCounters::new(),
                drained: DrainSide {
                    draining: AtomicBool::new(false),
                    ends: UnsafeCell::new(DrainEnds {
                        consumer: MaybeUninit::uninit(),
                        other: MaybeUninit::uninit(),
                        place: 0,
                        other_place: 0,
                        phase: Phase::Settled,
                    })
                }
            }
        }
    }

    /// Gives the queue its first ring, once.
    ///
    /// # Errors
    ///
    /// Returns the ends if a ring is installed already or `ends` are not of class `capacity`.
    pub fn install(&self, ends: RingEnds, capacity: Capacity) -> Result<(), RingEnds> {
        if ends.entries() != capacity.entries() {
            return Err(ends);
        }
        // Relaxed: it only elects the one writer of the cells, which were not written before.
        if self.state.compare_exchange(EMPTY, INSTALLING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Err(ends);
        }
        self.producer.with_mut(|producer| {
            // SAFETY: the exchange made this call the only writer, and readers wait for the state below.
            unsafe { producer.write(MaybeUninit::new(ends.producer)) }
        });
        self.drained.ends.with_mut(|drain| {
            // SAFETY: as for the producer.
            let drain = unsafe { &mut *drain };
            drain.consumer.write(ends.consumer);
            drain.place = ends.place;
        });
        // Release: pairs with the acquires in `push` and `capacity_entries`. Classes end at 2048 entries, far below
        // the flags.
        self.state.store(capacity.entries() as u32, ordering(Fault::Install, Ordering::Release));
        Ok(())
    }

    /// The exclusive right to drain, or `None` while another [`Drain`] exists or no ring is installed.
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

/// The exclusive right to take requests from a [`ThreadQueue`], and to replace its ring; given up on drop.
///
/// Iterates until the ring is empty, requests pushed meanwhile included; a later `next` may yield again.
pub struct Drain<'q> {
    queue: &'q ThreadQueue,
}

impl Drain<'_> {
    /// Offers the thread another ring, to be used from its next push on.
    ///
    /// # Errors
    ///
    /// Returns the ring while an earlier hand-over is not finished: the thread has not pushed since, or the old ring
    /// was not taken ([`Drain::take_retired`]).
    pub fn offer(&mut self, ring: RingEnds) -> Result<(), RingEnds> {
        if self.with_ends(|ends| ends.phase != Phase::Settled) {
            return Err(ring);
        }
        let RingEnds { producer, consumer, place } = ring;
        self.queue.offered.with_mut(|offered| {
            // SAFETY: nothing is offered, so the cell is the drain's, and this is the only drain.
            unsafe { offered.write(MaybeUninit::new(producer)) }
        });
        self.with_ends(|ends| {
            ends.other.write(consumer);
            ends.other_place = place;
            ends.phase = Phase::Offered;
        });
        // Relaxed load: with nothing offered only the drain changes the state. Release: pairs with the acquire in
        // `push`.
        let entries = self.queue.state.load(Ordering::Relaxed);
        self.queue.state.store(entries | OFFERED, ordering(Fault::Offer, Ordering::Release));
        Ok(())
    }

    /// The old ring of a finished hand-over: empty, and not reachable otherwise.
    pub fn take_retired(&mut self) -> Option<RingEnds> {
        if self.with_ends(|ends| ends.phase != Phase::Retired) {
            return None;
        }
        let producer = self.queue.offered.with_mut(|offered| {
            // SAFETY: the handler has given the cell back with the change of state that `follow` has seen.
            let offered = unsafe { &*offered };
            // SAFETY: it holds the producer the handler has left, and is read once: the phase changes below.
            unsafe { offered.assume_init_read() }
        });
        Some(self.with_ends(|ends| {
            ends.phase = Phase::Settled;
            // SAFETY: `follow` moved the old consumer here, and it is read once, as above.
            let consumer = unsafe { ends.other.assume_init_read() };
            RingEnds { producer, consumer, place: ends.other_place }
        }))
    }

    /// Requests the ring being drained holds.
    pub fn entries(&self) -> usize {
        self.with_ends(|ends| {
            // SAFETY: `try_drain` saw the ring installed before it made this `Drain`.
            unsafe { ends.consumer.assume_init_ref() }.capacity()
        })
    }

    /// True while a ring waits for the thread's next push, or for its owner to take it back.
    pub fn is_handing_over(&self) -> bool {
        self.with_ends(|ends| ends.phase != Phase::Settled)
    }

    #[inline]
    fn with_ends<R>(&self, access: impl FnOnce(&mut DrainEnds) -> R) -> R {
        self.queue.drained.ends.with_mut(|ends| {
            // SAFETY: this `Drain` exists, so `draining` is set by it and no other accesses the cell.
            access(unsafe { &mut *ends })
        })
    }

    #[inline]
    fn dequeue(&mut self) -> Option<Request> {
        self.with_ends(|ends| {
            // SAFETY: `try_drain` saw the ring installed before it made this `Drain`.
            unsafe { ends.consumer.assume_init_mut() }.dequeue()
        })
    }

    /// Follows the handler to the ring it has taken, once nothing is left in the old one.
    #[cold]
    fn follow(&mut self) -> Option<Request> {
        // Acquire: pairs with the release in `take_offer`: every push to the old ring is seen from here on.
        if self.queue.state.load(ordering(Fault::Adopt, Ordering::Acquire)) & OFFERED != 0 {
            return None;
        }
        // What arrived between the last look and the hand-over; left out in the model that shows it is needed.
        if !is_broken(Fault::SecondLook)
            && let Some(request) = self.dequeue()
        {
            return Some(request);
        }
        self.with_ends(|ends| {
            core::mem::swap(&mut ends.consumer, &mut ends.other);
            core::mem::swap(&mut ends.place, &mut ends.other_place);
            ends.phase = Phase::Retired;
        });
        self.dequeue()
    }
}

impl Iterator for Drain<'_> {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        let request = self.dequeue();
        if request.is_none() && self.with_ends(|ends| ends.phase == Phase::Offered) {
            return self.follow();
        }
        request
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_drain`.
        self.queue.drained.draining.store(false, ordering(Fault::Drain, Ordering::Release));
    }
}
