//! The state of one slab of the snapshot pool, and the handle that identifies it.
//!
//! Problem: a handle is part of a [`crate::Request`], which safe code may copy, forge or keep too long, while a handler
//! writes the slab through a raw pointer.
//! Approach: each slab has a control word with its state, a generation and the published length.
//!
//! ```text
//!   FREE --acquire--> WRITING --publish--> FILLED --view--> VIEWED --drop--> FREE
//!                        |                    |
//!                        +--drop the slab     +--release a handle--> FREE
//! ```
//!
//! Invariant: bytes are written only in WRITING and read only in VIEWED, and only a compare-and-swap from FILLED with
//! the right generation leads to VIEWED. A stale, duplicate or forged handle is refused or, at worst, takes a filled
//! slab meant for another reader. No reader sees bytes that are being written, or were never written.
//!
//! The other changes are plain stores, so taking a slab costs one locked instruction and publishing it none. Each state
//! but FILLED has one owner: FREE is left only by the caller that popped the slab, WRITING only by the holder of the
//! [`crate::Slab`], VIEWED only by the holder of the view. `claim` changes the word only by an exchange that expects
//! FILLED, and so fails whenever a store may happen.
//! A claim that was preempted before its exchange while the slab went through all 4096 generations succeeds, like one
//! with a guessed handle, and gets published bytes.

use crate::fault::{Fault, is_broken, ordering};
use crate::sync::{AtomicU32, AtomicU64, Ordering, constructor};

/// Bits of slab numbers in a handle: a million slabs are 2 GB even at 2 KB each.
const NUMBER_BITS: u32 = 20;
/// The other 12 bits hold the generation: a stale handle is current with a chance of 1 in 4096.
const GENERATION_MASK: u32 = 0xfff;
/// The largest number of slabs of all classes together; number plus one must fit its bits.
pub(crate) const MAX_SLABS: u32 = (1 << NUMBER_BITS) - 1;

/// Identifies a published snapshot in the pool; [`crate::SnapshotPool::view`] checks it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotHandle(u32);

impl SnapshotHandle {
    /// No snapshot.
    pub const NONE: Self = Self(0);

    /// True for [`SnapshotHandle::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The raw bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A handle of any bits; the pool refuses those that identify no published snapshot.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The handle of slab `number` in `generation`.
    pub(crate) const fn new(number: u32, generation: u32) -> Self {
        // Numbers stay below MAX_SLABS, so neither part reaches into the other.
        Self((generation & GENERATION_MASK) << NUMBER_BITS | number.wrapping_add(1) & MAX_SLABS)
    }

    /// The slab number, unless this is no handle.
    pub(crate) const fn number(self) -> Option<u32> {
        (self.0 & MAX_SLABS).checked_sub(1)
    }

    const fn generation(self) -> u32 {
        self.0 >> NUMBER_BITS
    }
}

/// States of a slab, the low bits of its control word.
const FREE: u64 = 0;
const WRITING: u64 = 1;
const FILLED: u64 = 2;
const VIEWED: u64 = 3;

/// Control word: length in the high half, then the generation, then two bits of state.
const fn control(generation: u32, state: u64, len: u32) -> u64 {
    (len as u64) << 32 | ((generation & GENERATION_MASK) as u64) << 2 | state
}

const fn generation_of(control: u64) -> u32 {
    (control >> 2) as u32 & GENERATION_MASK
}

/// State and links of a slab, kept apart from its bytes.
#[repr(C, align(16))]
pub(crate) struct SlabHeader {
    control: AtomicU64,
    /// The free slab below this one, plus one; meaningful while the slab is free, kept by the free list.
    pub(crate) next: AtomicU32,
    /// Offset of the slab's bytes from the first slab, in units of `SLAB_ALIGN`; constant. It lies here because the
    /// caller that takes the slab has loaded this line.
    pub(crate) place: u32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlabHeader>() == 16, "a header never crosses a cache line");

impl SlabHeader {
    constructor! {
        /// A free slab at `place` above slab `next` (stored plus one).
        pub(crate) fn new(next: u32, place: u32) -> Self {
            Self { control: AtomicU64::new(FREE), next: AtomicU32::new(next), place }
        }
    }

    /// FREE to WRITING in the next generation, which is returned; only for the caller that popped the slab.
    #[inline]
    pub(crate) fn begin_writing(&self) -> u32 {
        // Relaxed: the pop made the slab this caller's; others only compare the word and are refused.
        let step = if is_broken(Fault::Generation) { 0 } else { 1 };
        let generation =
            generation_of(self.control.load(Ordering::Relaxed)).wrapping_add(step) & GENERATION_MASK;
        self.control.store(control(generation, WRITING, 0), Ordering::Relaxed);
        generation
    }

    /// WRITING to FILLED with `len` bytes; for the writer.
    #[inline]
    pub(crate) fn publish(&self, generation: u32, len: u32) {
        // Release: pairs with the acquire in `claim`, so that every holder of the handle sees the bytes.
        self.control.store(control(generation, FILLED, len), ordering(Fault::Filled, Ordering::Release));
    }

    /// WRITING to FREE; for the writer, before it pushes the slab.
    #[inline]
    pub(crate) fn abandon(&self, generation: u32) {
        // Relaxed: the push that follows publishes it.
        self.control.store(control(generation, FREE, 0), Ordering::Relaxed);
    }

    /// FILLED to `VIEWED`, or to FREE to release unseen: the published length, if `handle` is current.
    fn claim(&self, handle: SnapshotHandle, to: u64) -> Option<u32> {
        // Relaxed: the exchange verifies the value.
        let current = self.control.load(Ordering::Relaxed);
        let len = (current >> 32) as u32;
        let generation = handle.generation();
        if current != control(generation, FILLED, len) {
            return None;
        }
        // Acquire: pairs with the release in `publish`; also needed to release unseen, so that the next writer
        // comes after the previous one.
        self.control
            .compare_exchange(
                current,
                control(generation, to, 0),
                ordering(Fault::Filled, Ordering::Acquire),
                Ordering::Relaxed,
            )
            .is_ok()
            .then_some(len)
    }

    /// FILLED to VIEWED: the published length, if `handle` is current and not yet claimed.
    pub(crate) fn begin_view(&self, handle: SnapshotHandle) -> Option<u32> {
        self.claim(handle, VIEWED)
    }

    /// VIEWED to FREE; for the viewer, before it pushes the slab.
    pub(crate) fn end_view(&self, handle: SnapshotHandle) {
        // Relaxed: the push that follows publishes it, with the end of the reads.
        self.control.store(control(handle.generation(), FREE, 0), Ordering::Relaxed);
    }

    /// FILLED to FREE, if `handle` is current; the caller then pushes the slab.
    pub(crate) fn release(&self, handle: SnapshotHandle) -> bool {
        self.claim(handle, FREE).is_some()
    }

    /// True unless the slab is free; a statistic.
    pub(crate) fn in_use(&self) -> bool {
        // Relaxed: pairs with nothing.
        self.control.load(Ordering::Relaxed) & VIEWED != FREE
    }
}
