//! The free slabs of one size class.
//!
//! Problem: handlers on many threads take slabs and the sampler returns them without locks, and a slab just used should
//! be used again soon, while it is in cache.
//! Approach: a Treiber stack of slab numbers, last in first out, linked through the slab headers.
//! Invariant: a popped number has one owner until it is pushed again.
//! The word carries a tag that every change increments. A handler preempted between reading the word and exchanging it
//! fails even if the same slab is on top again with another one below it (ABA), unless exactly a multiple of 2^32
//! changes came between.
//!
//! Source: R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986.

use crate::fault::{Fault, is_broken, ordering};
use crate::pool::slab_header::SlabHeader;
use crate::sync::{AtomicU64, Ordering, constructor};

/// A stack of free slab numbers.
pub(crate) struct FreeList {
    /// Tag in the high half, number of the top slab plus one in the low half, 0 there if empty.
    word: AtomicU64,
}

/// The word that follows `word`, with `top` (stored plus one) on top.
fn retagged(word: u64, top: u32) -> u64 {
    let tag = (word >> 32) as u32;
    let tag = if is_broken(Fault::FreeListTag) { tag } else { tag.wrapping_add(1) };
    (tag as u64) << 32 | top as u64
}

impl FreeList {
    constructor! {
        /// A list whose top is `top` (stored plus one); 0 for an empty one.
        pub(crate) fn new(top: u32) -> Self {
            Self { word: AtomicU64::new(top as u64) }
        }
    }

    /// Takes the top slab.
    #[inline]
    pub(crate) fn pop(&self, slabs: &[SlabHeader]) -> Option<u32> {
        let order = ordering(Fault::FreeList, Ordering::Acquire);
        // Acquire, here and when the exchange fails: pairs with the release in `push`, which wrote `next`.
        let mut word = self.word.load(order);
        loop {
            let number = (word as u32).checked_sub(1)?;
            // Relaxed: the value may be stale, but then the tag has changed and the exchange fails.
            let next = slabs.get(number as usize)?.next.load(Ordering::Relaxed);
            // Acquire: pairs with the release in `push`, so that our writes come after the last reader's reads.
            match self.word.compare_exchange_weak(word, retagged(word, next), order, order) {
                Ok(_) => return Some(number),
                Err(current) => word = current,
            }
        }
    }

    /// Puts slab `number` on top; for whoever owns it.
    #[inline]
    pub(crate) fn push(&self, number: u32, slabs: &[SlabHeader]) {
        let (Some(slab), Some(top)) = (slabs.get(number as usize), number.checked_add(1)) else {
            return;
        };
        // Relaxed: only a value to compare.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange below.
            slab.next.store(word as u32, Ordering::Relaxed);
            // Release: pairs with the acquires in `pop`.
            match self.word.compare_exchange_weak(
                word,
                retagged(word, top),
                ordering(Fault::FreeList, Ordering::Release),
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(current) => word = current,
            }
        }
    }
}
