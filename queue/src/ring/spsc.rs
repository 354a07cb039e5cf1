//! Rings of requests with one producer and one consumer.
//!
//! Problem: a handler must hand over a request without waiting, and a consumer on another thread must see it whole.
//! Approach: `heapless::spsc::Queue`, whose producer owns `tail` and whose consumer owns `head`. A ring of `N` slots
//! holds `N - 1` requests. The size is erased (`QueueView`), so all rings have the same ends. A full ring refuses the
//! request.
//! Invariant: a ring has at most one producer end and one consumer end, by type: splitting borrows the storage for its
//! whole life.
//!
//! Under `cfg(loom)` a ring with the same algorithm and orders replaces it, because heapless does not use loom's
//! atomics.
//!
//! Source: `heapless` 0.9, `src/spsc.rs`.

#![allow(unsafe_code, reason = "placing a ring in caller memory; raw cells of the modelled ring")]

use crate::ring::capacity::Capacity;
use crate::ring::request::Request;
use crate::sync::constructor;
#[cfg(not(loom))]
use core::mem::MaybeUninit;

#[cfg(not(loom))]
pub(crate) use heapless::spsc::{Consumer, Producer, Queue};
#[cfg(loom)]
pub(crate) use modelled::{Consumer, Producer, Queue};

/// Memory of one ring with `N` slots, which holds `N - 1` requests.
pub struct RingStorage<const N: usize> {
    queue: Queue<Request, N>,
}

impl<const N: usize> RingStorage<N> {
    /// Requests the ring holds.
    pub const ENTRIES: usize = N.saturating_sub(1);

    constructor! {
        /// An empty ring.
        pub fn new() -> Self {
            Self { queue: Queue::new() }
        }
    }

    /// The two ends of the ring, with its size erased.
    pub fn split(&'static mut self) -> RingEnds {
        let (producer, consumer) = self.queue.as_mut_view().split();
        RingEnds { producer, consumer, place: 0 }
    }
}

impl Capacity {
    /// Bytes of memory a ring of this class takes, spare slot and indices included.
    pub const fn bytes(self) -> usize {
        let further = self.entries().saturating_sub(1).saturating_mul(size_of::<Request>());
        size_of::<RingStorage<2>>().saturating_add(further)
    }
}

impl<const N: usize> Default for RingStorage<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Both ends of one ring.
pub struct RingEnds {
    pub(crate) producer: Producer<'static, Request>,
    pub(crate) consumer: Consumer<'static, Request>,
    pub(crate) place: u32,
}

impl RingEnds {
    /// Requests the ring holds.
    pub fn entries(&self) -> usize {
        self.producer.capacity()
    }

    /// A number that the owner of the ring's memory sets, 0 at first; [`crate::Drain::take_retired`] returns it.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// The same ring with another such number.
    #[must_use]
    pub fn with_place(self, place: u32) -> Self {
        Self { place, ..self }
    }

    /// Makes a ring like [`RingEnds::in_region`] in zero memory; writes nothing, so fresh pages take no memory until
    /// the first request.
    ///
    /// # Safety
    ///
    /// All bytes of `region` are zero.
    #[cfg(not(loom))]
    pub unsafe fn in_zeroed(capacity: Capacity, region: &'static mut [MaybeUninit<u8>]) -> Option<Self> {
        // A ring of zero bytes is empty: both indices are 0, and slots need no content.
        // Model tests compare these rings with those of `in_region`.
        Self::made(capacity, region, false)
    }

    /// Makes an empty ring of the given class at the start of `region`, for callers that choose at run time.
    ///
    /// `None` if the region is shorter than [`Capacity::bytes`] or not aligned to 8 bytes.
    #[cfg(not(loom))]
    pub fn in_region(capacity: Capacity, region: &'static mut [MaybeUninit<u8>]) -> Option<Self> {
        Self::made(capacity, region, true)
    }

    #[cfg(not(loom))]
    fn made(capacity: Capacity, region: &'static mut [MaybeUninit<u8>], write: bool) -> Option<Self> {
        match capacity {
            Capacity::Entries16 => place::<17>(region, write),
            Capacity::Entries32 => place::<33>(region, write),
            Capacity::Entries64 => place::<65>(region, write),
            Capacity::Entries128 => place::<129>(region, write),
            Capacity::Entries256 => place::<257>(region, write),
            Capacity::Entries512 => place::<513>(region, write),
            Capacity::Entries1024 => place::<1025>(region, write),
            Capacity::Entries2048 => place::<2049>(region, write),
        }
    }
}

/// Makes a ring of `N` slots at the start of `region`, which is all zero unless `write`.
#[cfg(not(loom))]
fn place<const N: usize>(region: &'static mut [MaybeUninit<u8>], write: bool) -> Option<RingEnds> {
    let storage = region.as_mut_ptr().cast::<RingStorage<N>>();
    if region.len() < size_of::<RingStorage<N>>() || !storage.is_aligned() {
        return None;
    }
    if write {
        // SAFETY: `storage` is aligned and has room, both checked above, and `region` is borrowed exclusively.
        unsafe { storage.write(RingStorage::new()) };
    }
    // SAFETY: the value was written just above, or is all zero, which is valid too. The exclusive borrow of `region`
    // never ends.
    let storage: &'static mut RingStorage<N> = unsafe { &mut *storage };
    Some(storage.split())
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<RingStorage<17>>() == Capacity::Entries16.bytes());
    assert!(size_of::<RingStorage<2049>>() == Capacity::Entries2048.bytes());
    assert!(RingStorage::<17>::ENTRIES == Capacity::Entries16.entries());
};

/// The ring of `heapless::spsc` over loom's atomics and cells: same interface, same algorithm, same orders.
#[cfg(loom)]
mod modelled {
    use crate::fault::{Fault, ordering};
    use crate::sync::{AtomicU32, Ordering, UnsafeCell};
    use core::mem::MaybeUninit;

    pub(crate) struct Queue<T, const N: usize> {
        view: QueueView<T>,
    }

    pub(crate) struct QueueView<T> {
        head: AtomicU32,
        tail: AtomicU32,
        slots: std::vec::Vec<UnsafeCell<MaybeUninit<T>>>,
    }

    impl<T, const N: usize> Queue<T, N> {
        pub(crate) fn new() -> Self {
            let slots = (0..N).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
            Self { view: QueueView { head: AtomicU32::new(0), tail: AtomicU32::new(0), slots } }
        }

        pub(crate) fn as_mut_view(&mut self) -> &mut QueueView<T> {
            &mut self.view
        }
    }

    impl<T> QueueView<T> {
        pub(crate) fn split(&mut self) -> (Producer<'_, T>, Consumer<'_, T>) {
            (Producer { ring: self }, Consumer { ring: self })
        }

        fn after(&self, index: u32) -> u32 {
            let next = index.wrapping_add(1);
            if next as usize == self.slots.len() { 0 } else { next }
        }
    }

    pub(crate) struct Producer<'a, T> {
        ring: &'a QueueView<T>,
    }

    pub(crate) struct Consumer<'a, T> {
        ring: &'a QueueView<T>,
    }

    impl<T: Copy> Producer<'_, T> {
        pub(crate) fn capacity(&self) -> usize {
            self.ring.slots.len().saturating_sub(1)
        }

        pub(crate) fn enqueue(&mut self, item: T) -> Result<(), T> {
            // Relaxed: the producer owns the tail.
            let tail = self.ring.tail.load(Ordering::Relaxed);
            let next = self.ring.after(tail);
            // Acquire: pairs with the consumer's release of the head, which frees the slot.
            if next == self.ring.head.load(ordering(Fault::RingHead, Ordering::Acquire)) {
                return Err(item);
            }
            let Some(slot) = self.ring.slots.get(tail as usize) else {
                return Err(item);
            };
            slot.with_mut(|slot| {
                // SAFETY: the slot at the tail belongs to the producer until the tail moves; loom checks it.
                unsafe { slot.write(MaybeUninit::new(item)) }
            });
            // Release: pairs with the consumer's acquire of the tail, which reads the slot.
            self.ring.tail.store(next, ordering(Fault::RingTail, Ordering::Release));
            Ok(())
        }
    }

    impl<T: Copy> Consumer<'_, T> {
        pub(crate) fn capacity(&self) -> usize {
            self.ring.slots.len().saturating_sub(1)
        }

        pub(crate) fn dequeue(&mut self) -> Option<T> {
            // Relaxed: the consumer owns the head.
            let head = self.ring.head.load(Ordering::Relaxed);
            // Acquire: pairs with the producer's release of the tail.
            if head == self.ring.tail.load(ordering(Fault::RingTail, Ordering::Acquire)) {
                return None;
            }
            let item = self.ring.slots.get(head as usize)?.with(|slot| {
                // SAFETY: the slot at the head belongs to the consumer until the head moves; loom checks it.
                let item = unsafe { slot.read() };
                // SAFETY: the producer wrote the slot before it moved the tail past it.
                unsafe { item.assume_init() }
            });
            // Release: pairs with the producer's acquire of the head.
            self.ring.head.store(self.ring.after(head), ordering(Fault::RingHead, Ordering::Release));
            Some(item)
        }
    }
}
