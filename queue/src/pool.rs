//! Preallocated slabs for copies of stacks.
//!
//! Problem: a handler needs a few kilobytes that nobody else writes, at once, without an allocator, and safe code
//! must be able to read them later although all it has is a number out of a [`crate::Request`].
//! Approach: slabs in size classes carved from one region, a lock-free stack of free slabs for each class, and a
//! state word for each slab (see `slab_head.rs`) that decides who may touch its bytes.
//!
//! Invariants:
//! - A slab is written only through the [`Slab`] that `acquire` gave out, before `publish`.
//! - A slab is read only through a [`SnapshotView`], at most one of which exists for it, and only the bytes that
//!   the writer vouched for in `publish`.
//! - Only whoever moved the state word to free pushes the slab onto its free list, so it is there once.
//!
//! Unsafe here: turning the region into heads and slabs, and reading a viewed slab.

#![allow(unsafe_code, reason = "slab memory shared between a raw writer and checked views")]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::free_list::FreeList;
use crate::pool_plan::{ClassLayout, Layout, MAX_CLASSES, PlanError, SLAB_ALIGN, SlabClass};
use crate::slab_head::{SlabHead, SnapshotHandle};
use crate::sync::{AtomicU64, Ordering};
use core::marker::PhantomData;
use core::mem::MaybeUninit;

/// One size class at work.
pub(crate) struct Class {
    pub(crate) layout: ClassLayout,
    free: FreeList,
    /// How often a request that fits here best found the class empty.
    pub(crate) exhausted: AtomicU64,
}

/// Slabs for snapshots, in memory lent by the caller for `'m`.
pub struct SnapshotPool<'m> {
    pub(crate) heads: &'m [SlabHead],
    slabs: *mut u8,
    pub(crate) classes: [Class; MAX_CLASSES],
    pub(crate) class_count: usize,
    pub(crate) reserved_bytes: usize,
    pub(crate) failed: AtomicU64,
    region: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

// SAFETY: `slabs` points into memory the pool has borrowed exclusively, and the state words let one thread at a
// time touch a slab's bytes; everything else is atomic or never changes.
unsafe impl Send for SnapshotPool<'_> {}
// SAFETY: as above.
unsafe impl Sync for SnapshotPool<'_> {}

/// # Signal Safe Methods
///
/// Lock-free: a retry means that another thread has just taken or given back a slab of the class.
impl<'m> SnapshotPool<'m> {
    /// A slab for `bytes` bytes: of the smallest class that fits; if that is empty, of a larger one; if those are
    /// empty too, of the largest smaller one, and the caller truncates (`capacity() < bytes`).
    ///
    /// `None`, counted as failed, if no class has a slab left.
    #[inline]
    pub fn acquire(&self, bytes: usize) -> Option<Slab<'_>> {
        let classes = self.classes();
        // A stack deeper than every class is best served, and counted, by the largest.
        let fitting = classes.iter().position(|class| class.layout.bytes >= bytes);
        let best = fitting.unwrap_or(classes.len().saturating_sub(1));
        let larger = classes.iter().skip(best);
        let smaller = classes.iter().take(best).rev();
        for (attempt, class) in larger.chain(smaller).enumerate() {
            if let Some(number) = class.free.pop(self.heads) {
                let generation = self.heads.get(number as usize)?.begin_writing();
                return Some(Slab { pool: self, class, number, generation });
            }
            if attempt == 0 {
                // Relaxed: statistics pair with nothing.
                class.exhausted.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Frees a published snapshot unseen, for a request that could not be queued or will not be looked at.
    ///
    /// False, and without effect, if the handle names no published snapshot.
    pub fn release(&self, handle: SnapshotHandle) -> bool {
        let Some((number, class, head)) = self.slab_of(handle) else {
            return false;
        };
        let released = head.release(handle);
        if released {
            class.free.push(number, self.heads);
        }
        released
    }

    /// The slab a handle names, current or not.
    fn slab_of(&self, handle: SnapshotHandle) -> Option<(u32, &Class, &SlabHead)> {
        let number = handle.number()?;
        let class = self.classes().iter().find(|class| class.layout.numbers.contains(&number))?;
        Some((number, class, self.heads.get(number as usize)?))
    }

    /// First byte of slab `number` of `class`.
    #[inline]
    fn slab_ptr(&self, class: &Class, number: u32) -> *mut u8 {
        // The layout was computed without overflow, and `number` is one of the class's.
        let within =
            (number.wrapping_sub(class.layout.numbers.start) as usize).wrapping_mul(class.layout.bytes);
        self.slabs.wrapping_add(class.layout.offset.wrapping_add(within))
    }

    #[inline]
    pub(crate) fn classes(&self) -> &[Class] {
        self.classes.get(..self.class_count).unwrap_or(&self.classes)
    }
}

impl<'m> SnapshotPool<'m> {
    /// Bytes a region for `plan` must have if it is aligned to [`SLAB_ALIGN`]; 0 for a plan that `new` refuses.
    pub fn bytes_needed(plan: &[SlabClass]) -> usize {
        Layout::of(plan).map_or(0, |layout| layout.total)
    }

    /// Makes a pool of the planned slabs, all free.
    ///
    /// Writes 16 bytes a slab at the start of the region and leaves the slabs themselves untouched, so that fresh
    /// pages of the region take no memory until they are used.
    ///
    /// # Errors
    ///
    /// The plan is out of range or the region too small: see [`PlanError`].
    pub fn new(region: &'m mut [MaybeUninit<u8>], plan: &[SlabClass]) -> Result<Self, PlanError> {
        let layout = Layout::of(plan)?;
        let too_small = PlanError::Region(layout.total);
        let skipped = region.as_ptr().align_offset(SLAB_ALIGN);
        let region = region.get_mut(skipped..).ok_or(too_small)?;
        let (heads, slabs) = region.split_at_mut_checked(layout.slabs_offset).ok_or(too_small)?;
        if slabs.len() < layout.total.saturating_sub(layout.slabs_offset) {
            return Err(too_small);
        }

        let heads_ptr = heads.as_mut_ptr().cast::<SlabHead>();
        let mut classes = core::array::from_fn(|_| Class {
            layout: ClassLayout::default(),
            free: FreeList::new(0),
            exhausted: AtomicU64::new(0),
        });
        for (class, planned) in classes.iter_mut().zip(layout.classes).take(plan.len()) {
            for number in planned.numbers.clone() {
                // Each slab lies above its successor, stored plus one, and the last one above nothing.
                let successor = number.saturating_add(1);
                let below = if successor == planned.numbers.end { 0 } else { successor.saturating_add(1) };
                let head = heads_ptr.wrapping_add(number as usize);
                // SAFETY: `heads` has room for `layout.slabs` heads from an address aligned to `SLAB_ALIGN`, and
                // the numbers of all classes together stay below that.
                unsafe { head.write(SlabHead::new(below)) };
            }
            class.free = FreeList::new(planned.numbers.start.saturating_add(1));
            class.layout = planned;
        }
        // SAFETY: the loop wrote all `layout.slabs` heads, in memory borrowed exclusively for 'm that is from here
        // on reached only through this slice.
        let heads: &'m [SlabHead] = unsafe { core::slice::from_raw_parts(heads_ptr, layout.slabs as usize) };
        Ok(Self {
            heads,
            slabs: slabs.as_mut_ptr().cast(),
            classes,
            class_count: plan.len(),
            reserved_bytes: layout.total,
            failed: AtomicU64::new(0),
            region: PhantomData,
        })
    }

    /// The first `len` bytes of a published snapshot, or all of it if fewer were published.
    ///
    /// `None` if the handle names no published snapshot: it is [`SnapshotHandle::NONE`], stale, invented, or
    /// someone else has taken it.
    /// The slab is freed when the view is dropped.
    pub fn view(&self, handle: SnapshotHandle, len: usize) -> Option<SnapshotView<'_>> {
        let (number, class, head) = self.slab_of(handle)?;
        let published = head.begin_view(handle)?;
        let len = len.min(published as usize).min(class.layout.bytes);
        Some(SnapshotView { pool: self, handle, start: self.slab_ptr(class, number), len })
    }
}

/// A slab that its holder alone may write.
///
/// Dropping it without [`Slab::publish`] frees it.
pub struct Slab<'p> {
    pool: &'p SnapshotPool<'p>,
    class: &'p Class,
    number: u32,
    generation: u32,
}

/// # Signal Safe Methods
impl Slab<'_> {
    /// Bytes the slab has room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.class.layout.bytes
    }

    /// Position among the pool's slabs, for models that shadow each slab with an instrumented cell.
    #[cfg(loom)]
    pub fn number(&self) -> usize {
        self.number as usize
    }

    /// Where to write: valid for [`Slab::capacity`] bytes until the slab is published or dropped, and aligned to
    /// [`SLAB_ALIGN`].
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pool.slab_ptr(self.class, self.number)
    }

    /// Makes the first `len` bytes readable for whoever presents the returned handle to the pool.
    ///
    /// The slab then stays in use until the handle is viewed or released.
    ///
    /// # Safety
    ///
    /// The first `len` bytes have been written, `len` is at most [`Slab::capacity`], and nothing is written
    /// through the pointer any more.
    #[inline]
    pub unsafe fn publish(self, len: usize) -> SnapshotHandle {
        // The contract bounds `len` by a capacity that the plan has bounded by `u32`.
        let len = u32::try_from(len.min(self.capacity())).unwrap_or(0);
        if let Some(head) = self.pool.heads.get(self.number as usize) {
            head.publish(self.generation, len);
        }
        let handle = SnapshotHandle::new(self.number, self.generation);
        core::mem::forget(self);
        handle
    }
}

impl Drop for Slab<'_> {
    fn drop(&mut self) {
        if let Some(head) = self.pool.heads.get(self.number as usize) {
            head.abandon(self.generation);
            self.class.free.push(self.number, self.pool.heads);
        }
    }
}

/// One snapshot in the hands of its reader; frees the slab on drop.
pub struct SnapshotView<'p> {
    pool: &'p SnapshotPool<'p>,
    handle: SnapshotHandle,
    // A pointer and not a slice: a reference here would still count as live while `drop` gives the slab away.
    start: *const u8,
    len: usize,
}

// SAFETY: the view is the only access to bytes that nobody writes, and may be read and ended on any thread.
unsafe impl Send for SnapshotView<'_> {}
// SAFETY: as above; shared, it only reads.
unsafe impl Sync for SnapshotView<'_> {}

impl SnapshotView<'_> {
    /// The snapshot, lowest address first, aligned to [`SLAB_ALIGN`].
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `view` bounded `len` by the slab and by what its writer vouched for in `publish`; the exchange
        // in `begin_view` acquired those writes and made this the only access until `end_view`.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for SnapshotView<'_> {
    fn drop(&mut self) {
        if let Some((number, class, head)) = self.pool.slab_of(self.handle) {
            head.end_view(self.handle);
            class.free.push(number, self.pool.heads);
        }
    }
}
