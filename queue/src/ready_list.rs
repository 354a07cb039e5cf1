//! The list of queues that have requests.
//!
//! Problem: the sampler thread must find the queues worth draining without looking at every thread that exists.
//! Approach: an intrusive stack of queue numbers.
//! Handlers of many threads push with compare-and-swap; the sampler takes the whole list with one swap, so no
//! number can be recycled between its read and its swap and the push needs no ABA tag: if the head is the same
//! number again, that queue is again on top.
//!
//! Invariants:
//! - A queue is on the list at most once: whoever turns its `linked` flag from false to true links it.
//! - No wake-up is lost. The taker clears `linked` before the queue is drained, and both sides change the flag
//!   with a read-modify-write. Those are totally ordered: a handler that finds the flag still set precedes the
//!   taker's clearing swap, which reads from it and therefore sees its request; a handler that comes later
//!   finds the flag clear and links the queue again. A plain store by the taker would break this.
//! - All zero bytes are a valid empty list (numbers are stored plus one).
//!
//! Source: R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::ThreadQueue;
use crate::sync::{AtomicBool, AtomicU32, Fault, Ordering, constructor, ordering};

/// The end of the list; queue numbers are stored plus one.
const END: u32 = 0;

/// What a queue contributes to the list it may be on.
#[repr(C)]
pub(crate) struct Link {
    /// The number below this one, plus one; owned by whoever set `linked`, then by the taker.
    next: AtomicU32,
    /// True from linking until the taker gets here.
    linked: AtomicBool,
}

impl Link {
    constructor! {
        /// Not on a list.
        pub(crate) fn new() -> Self {
            Self { next: AtomicU32::new(END), linked: AtomicBool::new(false) }
        }
    }
}

/// The queues that received requests since the list was last taken.
#[repr(transparent)]
pub struct ReadyList {
    head: AtomicU32,
}

/// # Signal Safe Methods
///
/// Lock-free: a retry means that another thread has just succeeded in linking.
impl ReadyList {
    /// Links queue number `index`, unless it is linked already; to be called after a successful push.
    ///
    /// True if the queue was not on the list, which makes the caller the one to count it as woken.
    /// `index` must be below `u32::MAX`, and always the same for the same queue; `u32::MAX` is ignored.
    #[inline]
    pub fn link(&self, index: u32, queue: &ThreadQueue) -> bool {
        let Some(stored) = index.checked_add(1) else {
            return false;
        };
        let link = queue.ready_link();
        // Release: pairs with the acquire of the taker's swap, which thereby sees the request just pushed.
        // Acquire: pairs with the release of the taker's swap, which has read `next` before we overwrite it.
        if link.linked.swap(true, ordering(Fault::Link, Ordering::AcqRel)) {
            return false;
        }
        // Relaxed: only a value to compare; nothing is read through it.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange below.
            link.next.store(head, Ordering::Relaxed);
            // Release: pairs with the acquire of the taker's swap of the head.
            match self.head.compare_exchange_weak(
                head,
                stored,
                ordering(Fault::ReadyHead, Ordering::Release),
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(current) => head = current,
            }
        }
    }
}

impl ReadyList {
    constructor! {
        /// An empty list.
        pub fn new() -> Self {
            Self { head: AtomicU32::new(END) }
        }
    }

    /// True if nothing is linked at this moment; a hint, as a handler may link right after.
    pub fn is_empty(&self) -> bool {
        // Relaxed: whoever acts on it swaps the head.
        self.head.load(Ordering::Relaxed) == END
    }

    /// Takes all linked queues; the iterator yields the number of each once, newest first.
    ///
    /// `queue_of` maps a number to its queue and must be right for every number that was linked.
    /// A queue is off the list when its number is yielded and before it is drained, so a push during the drain
    /// links it again.
    /// An iterator dropped early links the rest again.
    pub fn take_all<'a, F>(&self, queue_of: F) -> ReadyIter<'_, 'a, F>
    where
        F: Fn(u32) -> &'a ThreadQueue,
    {
        // Acquire: pairs with the release of each push. All pushes are read-modify-writes, so the newest one
        // continues the release sequences of those below it and all `next` links are visible.
        let first = self.head.swap(END, ordering(Fault::ReadyHead, Ordering::Acquire));
        ReadyIter {
            list: self,
            next: first,
            queue_of,
            queues: core::marker::PhantomData,
        }
    }
}

impl Default for ReadyList {
    fn default() -> Self {
        Self::new()
    }
}

/// The queues taken from a [`ReadyList`].
pub struct ReadyIter<'l, 'a, F>
where
    F: Fn(u32) -> &'a ThreadQueue,
{
    list: &'l ReadyList,
    /// The next number to yield, plus one.
    next: u32,
    queue_of: F,
    queues: core::marker::PhantomData<&'a ThreadQueue>,
}

impl<'a, F> ReadyIter<'_, 'a, F>
where
    F: Fn(u32) -> &'a ThreadQueue,
{
    /// Unlinks the next queue.
    fn unlink_next(&mut self) -> Option<(u32, &'a ThreadQueue)> {
        let index = self.next.checked_sub(1)?;
        let queue = (self.queue_of)(index);
        let link = queue.ready_link();
        // Relaxed: made visible by the acquire in `take_all`; read before the swap gives the link away.
        self.next = link.next.load(Ordering::Relaxed);
        // Acquire: pairs with the release of the swap in `link`, so every request whose handler found the queue
        // linked is visible to the drain that follows.
        // Release: pairs with the acquire of the swap in `link`, which may overwrite `next` from here on.
        link.linked.swap(false, ordering(Fault::Link, Ordering::AcqRel));
        Some((index, queue))
    }
}

impl<'a, F> Iterator for ReadyIter<'_, 'a, F>
where
    F: Fn(u32) -> &'a ThreadQueue,
{
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.unlink_next().map(|(index, _)| index)
    }
}

impl<'a, F> Drop for ReadyIter<'_, 'a, F>
where
    F: Fn(u32) -> &'a ThreadQueue,
{
    fn drop(&mut self) {
        while let Some((index, queue)) = self.unlink_next() {
            self.list.link(index, queue);
        }
    }
}
