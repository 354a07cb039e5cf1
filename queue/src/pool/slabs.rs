//! Preallocated slabs for copies of stacks.
//!
//! Problem: a handler needs a few kilobytes for its exclusive use, without an allocator, and safe code must be able to
//! read them later by a number from a [`crate::Request`].
//! Approach: slabs in size classes carved from one region, a lock-free stack of free slabs for each class, and a state
//! word for each slab (`slab_header.rs`) that decides who may access its bytes.
//!
//! Invariants:
//! - A slab is written only through the [`Slab`] that `acquire` returned, before `publish`.
//! - A slab is read only through a [`SnapshotView`], of which at most one exists, and only the bytes that `publish`
//!   declared.
//! - Only the caller that set the state word to free pushes the slab onto its free list.
//!
//! A class that runs out grows by spare slabs, whose free list handlers use only when the first list is empty, so that
//! they usually use the same few slabs, in cache and in one huge page. Spare slabs out of service are in a third list.
//! Growing and shrinking are pops and pushes, beside running handlers.
//!
//! Unsafe code: turning the region into headers and slabs, reading a viewed slab.

#![allow(unsafe_code, reason = "slab memory shared between a raw writer and checked views")]

use crate::pool::free_list::FreeList;
use crate::pool::plan::{Layout, MAX_CLASSES, PlanError, SLAB_ALIGN, SlabClass};
use crate::pool::prefetch::{prefetch_for_reading, prefetch_for_writing};
use crate::pool::slab_header::{SlabHeader, SnapshotHandle};
use crate::sync::{AtomicU32, AtomicU64, Ordering, array_of};
use core::marker::PhantomData;
use core::mem::MaybeUninit;

/// Most bytes of a snapshot that are prefetched: half of a usual first-level cache.
const PREFETCHED_BYTES: usize = 16 << 10;

/// Slabs for snapshots, in memory lent by the caller for `'m`.
///
/// The handler comes with cold caches and other processors change the pool, so its fields are grouped by line: one that
/// never changes, one with all that `acquire` changes, and the rest.
#[repr(C, align(64))]
pub struct SnapshotPool<'m> {
    pub(crate) headers: &'m [SlabHeader],
    slabs: *mut u8,
    /// Bytes of each class's slabs, ascending.
    sizes: [u32; MAX_CLASSES],
    pub(crate) class_count: u32,
    /// The free slabs of each class.
    free: Line<[FreeList; MAX_CLASSES]>,
    /// One past the number of each class's last slab.
    pub(crate) ends: [u32; MAX_CLASSES],
    /// Number of times a request that fits a class best found it empty, spare slabs in service included.
    pub(crate) exhausted: [AtomicU64; MAX_CLASSES],
    pub(crate) failed: AtomicU64,
    pub(crate) reserved_bytes: usize,
    /// Free spare slabs in service.
    spare: [FreeList; MAX_CLASSES],
    /// One past the number of each class's last spare slab.
    pub(crate) spare_ends: [u32; MAX_CLASSES],
    /// Spare slabs out of service.
    parked: [FreeList; MAX_CLASSES],
    /// Spare slabs in service, free or not, of each class.
    pub(crate) in_service: [AtomicU32; MAX_CLASSES],
    /// Slabs that are there from the start.
    pub(crate) fixed: u32,
    region: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

/// A value at the start of a cache line.
#[repr(align(64))]
struct Line<T>(T);

#[cfg(not(loom))]
const _: () = {
    assert!(core::mem::offset_of!(SnapshotPool<'_>, free) == 64, "one line is read");
    assert!(core::mem::offset_of!(SnapshotPool<'_>, ends) == 128, "one line is changed");
};

// SAFETY: `slabs` points into memory the pool has borrowed exclusively, and the state words let one thread at a
// time touch a slab's bytes; everything else is atomic or never changes.
unsafe impl Send for SnapshotPool<'_> {}
// SAFETY: the state words let one thread at a time touch a slab's bytes; the rest is atomic or constant.
unsafe impl Sync for SnapshotPool<'_> {}

/// # Signal Safe Methods
///
/// Lock-free: a retry means that another thread has just taken or returned a slab of the class.
impl<'m> SnapshotPool<'m> {
    /// A slab for `bytes` bytes: of the smallest class that fits, else of a larger one, else of the largest smaller
    /// one, and the caller truncates (`capacity() < bytes`).
    ///
    /// `None`, counted as failed, if no class has a slab left.
    #[inline]
    pub fn acquire(&self, bytes: usize) -> Option<Slab<'_>> {
        let best = self.best_class(bytes);
        // The rest is out of line: the handler's code is as cold as its data.
        self.take(best).or_else(|| self.acquire_elsewhere(best))
    }

    /// A spare slab of `best`, else a slab of a larger class, or of the largest smaller one.
    #[cold]
    #[inline(never)]
    fn acquire_elsewhere(&self, best: usize) -> Option<Slab<'_>> {
        let spare = self.take_from(best, &self.spare);
        if spare.is_some() {
            return spare;
        }
        if let Some(exhausted) = self.exhausted.get(best) {
            // Relaxed: statistics pair with nothing.
            exhausted.fetch_add(1, Ordering::Relaxed);
        }
        let larger = best.saturating_add(1)..self.class_count as usize;
        let slab = larger.chain((0..best).rev()).find_map(|class| self.take_any(class));
        if slab.is_none() {
            // Relaxed: as above.
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        slab
    }

    /// The top slab of `class`.
    #[inline]
    fn take(&self, class: usize) -> Option<Slab<'_>> {
        self.take_from(class, &self.free.0)
    }

    /// A slab of `class`, a spare one if need be.
    fn take_any(&self, class: usize) -> Option<Slab<'_>> {
        self.take(class).or_else(|| self.take_from(class, &self.spare))
    }

    /// The top slab of `class` in one of the sets of lists.
    #[inline]
    fn take_from(&self, class: usize, lists: &[FreeList; MAX_CLASSES]) -> Option<Slab<'_>> {
        let number = lists.get(class)?.pop(self.headers)?;
        let header = self.headers.get(number as usize)?;
        let generation = header.begin_writing();
        Some(Slab { pool: self, header, class, number, generation })
    }

    /// Prefetches the line that `acquire` changes; a hint that costs one instruction and does not wait.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch_for_writing(&self.free);
    }

    /// Prefetches a snapshot of `len` bytes that will be viewed soon; a hint, without effect for a handle that
    /// identifies none.
    ///
    /// Handlers write past the caches, so without it a read waits for memory at every line.
    pub fn prefetch_snapshot(&self, handle: SnapshotHandle, len: usize) {
        let Some((_, class, header)) = self.slab_of(handle) else { return };
        prefetch_for_writing(header);
        let start = self.slab_ptr(header);
        for offset in (0..len.min(self.size(class)).min(PREFETCHED_BYTES)).step_by(SLAB_ALIGN) {
            prefetch_for_reading(start.wrapping_add(offset));
        }
    }

    /// The smallest class that fits, or the largest one.
    #[inline]
    fn best_class(&self, bytes: usize) -> usize {
        let sizes = self.sizes.iter().take(self.class_count as usize);
        // Sizes ascend, so as many are too small as come before the one that fits.
        let too_small = sizes.filter(|&&size| (size as usize) < bytes).count();
        too_small.min((self.class_count as usize).saturating_sub(1))
    }

    /// Frees a published snapshot unread, for a request that could not be queued or will not be read.
    ///
    /// Returns false, without effect, if the handle identifies no published snapshot.
    pub fn release(&self, handle: SnapshotHandle) -> bool {
        let Some((number, class, header)) = self.slab_of(handle) else {
            return false;
        };
        let released = header.release(handle);
        if released {
            self.push(class, number);
        }
        released
    }

    /// The slab of a handle, current or not, and its class.
    fn slab_of(&self, handle: SnapshotHandle) -> Option<(u32, usize, &SlabHeader)> {
        let number = handle.number()?;
        let ends = if number < self.fixed { &self.ends } else { &self.spare_ends };
        let class = ends.iter().take(self.class_count as usize).position(|&end| number < end)?;
        Some((number, class, self.headers.get(number as usize)?))
    }

    /// First byte of the slab with this header.
    #[inline]
    fn slab_ptr(&self, header: &SlabHeader) -> *mut u8 {
        // The layout was computed without overflow.
        self.slabs.wrapping_add((header.place as usize).wrapping_mul(SLAB_ALIGN))
    }

    /// Bytes of the slabs of `class`.
    #[inline]
    pub(crate) fn size(&self, class: usize) -> usize {
        self.sizes.get(class).map_or(0, |&size| size as usize)
    }

    /// Frees slab `number` of `class`; only for the caller that set its state to free.
    #[inline]
    fn push(&self, class: usize, number: u32) {
        let lists = if number < self.fixed { &self.free.0 } else { &self.spare };
        if let Some(free) = lists.get(class) {
            free.push(number, self.headers);
        }
    }
}

impl<'m> SnapshotPool<'m> {
    /// Bytes a region for `plan` must have if it is aligned to [`SLAB_ALIGN`]; 0 for a plan that `new` refuses.
    pub fn bytes_needed(plan: &[SlabClass]) -> usize {
        Layout::of(plan).map_or(0, |layout| layout.total)
    }

    /// Makes a pool of the planned slabs, all free.
    ///
    /// Writes 16 bytes a slab at the start of the region and does not touch the slabs, so fresh pages take no memory
    /// until used.
    ///
    /// # Errors
    ///
    /// The plan is out of range or the region too small: see [`PlanError`].
    pub fn new(region: &'m mut [MaybeUninit<u8>], plan: &[SlabClass]) -> Result<Self, PlanError> {
        let layout = Layout::of(plan)?;
        let too_small = PlanError::Region(layout.total);
        let skipped = region.as_ptr().align_offset(SLAB_ALIGN);
        let region = region.get_mut(skipped..).ok_or(too_small)?;
        let (headers, slabs) = region.split_at_mut_checked(layout.slabs_offset).ok_or(too_small)?;
        if slabs.len() < layout.total.saturating_sub(layout.slabs_offset) {
            return Err(too_small);
        }

        let headers_ptr = headers.as_mut_ptr().cast::<SlabHeader>();
        let mut sizes = [0; MAX_CLASSES];
        let (mut free, mut parked) = ([const { None }; MAX_CLASSES], [const { None }; MAX_CLASSES]);
        for (class, planned) in layout.classes.iter().enumerate().take(plan.len()) {
            if let Some(size) = sizes.get_mut(class) {
                // Checked by the plan: it fits.
                *size = planned.bytes as u32;
            }
            let parts = [
                (&planned.numbers, planned.offset, free.get_mut(class)),
                (&planned.spare, planned.spare_offset, parked.get_mut(class)),
            ];
            for (numbers, offset, list) in parts {
                let mut place = (offset / SLAB_ALIGN) as u32;
                for number in numbers.clone() {
                    // Each slab lies above its successor, stored plus one, and the last one above nothing.
                    let successor = number.saturating_add(1);
                    let below = if successor == numbers.end { 0 } else { successor.saturating_add(1) };
                    let header = headers_ptr.wrapping_add(number as usize);
                    // SAFETY: `headers` has room for `layout.slabs` headers from an address aligned to `SLAB_ALIGN`,
                    // and all numbers are below that.
                    unsafe { header.write(SlabHeader::new(below, place)) };
                    place = place.wrapping_add((planned.bytes / SLAB_ALIGN) as u32);
                }
                if let Some(list) = list {
                    let top = if numbers.is_empty() { 0 } else { numbers.start.saturating_add(1) };
                    *list = Some(FreeList::new(top));
                }
            }
        }
        // SAFETY: the loop wrote all `layout.slabs` headers, in memory borrowed exclusively for 'm that is from here
        // on reached only through this slice.
        let headers: &'m [SlabHeader] =
            unsafe { core::slice::from_raw_parts(headers_ptr, layout.slabs as usize) };
        Ok(Self {
            headers,
            slabs: slabs.as_mut_ptr().cast(),
            sizes,
            class_count: plan.len() as u32,
            free: Line(free.map(|free| free.unwrap_or(FreeList::new(0)))),
            ends: layout.classes.each_ref().map(|class| class.numbers.end),
            exhausted: array_of!(AtomicU64::new(0)),
            failed: AtomicU64::new(0),
            reserved_bytes: layout.total,
            spare: array_of!(FreeList::new(0)),
            spare_ends: layout.classes.map(|class| class.spare.end),
            parked: parked.map(|parked| parked.unwrap_or(FreeList::new(0))),
            in_service: array_of!(AtomicU32::new(0)),
            fixed: layout.fixed,
            region: PhantomData,
        })
    }

    /// Puts up to `count` spare slabs of `class` into service; returns how many there were.
    ///
    /// Any thread may call this, beside handlers.
    pub fn grow(&self, class: usize, count: usize) -> usize {
        let (Some(spare), Some(parked)) = (self.spare.get(class), self.parked.get(class)) else { return 0 };
        let mut grown = 0usize;
        while grown < count
            && let Some(number) = parked.pop(self.headers)
        {
            spare.push(number, self.headers);
            grown = grown.saturating_add(1);
        }
        if let Some(in_service) = self.in_service.get(class) {
            // Relaxed: statistics pair with nothing.
            in_service.fetch_add(grown as u32, Ordering::Relaxed);
        }
        grown
    }

    /// Takes up to `count` free spare slabs of `class` out of service; returns how many there were.
    ///
    /// `released` is called with the bytes of each, whose content is not needed. Any thread may call this, beside
    /// handlers.
    pub fn shrink(
        &self,
        class: usize,
        count: usize,
        mut released: impl FnMut(&mut [MaybeUninit<u8>]),
    ) -> usize {
        let mut shrunk = 0usize;
        while shrunk < count
            && let Some(mut slab) = self.take_from(class, &self.spare)
        {
            let (start, bytes) = (slab.as_mut_ptr().cast::<MaybeUninit<u8>>(), slab.capacity());
            // SAFETY: the slab is ours until it is parked, and as long as its class says.
            released(unsafe { core::slice::from_raw_parts_mut(start, bytes) });
            slab.park();
            shrunk = shrunk.saturating_add(1);
        }
        if let Some(in_service) = self.in_service.get(class) {
            // Relaxed: as above.
            in_service.fetch_sub(shrunk as u32, Ordering::Relaxed);
        }
        shrunk
    }

    /// The class of the slab of a handle, current or not; `None` if there is no such slab.
    pub fn class_of(&self, handle: SnapshotHandle) -> Option<usize> {
        self.slab_of(handle).map(|(_, class, _)| class)
    }

    /// The first `len` bytes of a published snapshot, or all of it if fewer were published. The slab is freed when the
    /// view is dropped.
    ///
    /// `None` if the handle identifies no published snapshot: [`SnapshotHandle::NONE`], stale, forged, or viewed or
    /// released already.
    pub fn view(&self, handle: SnapshotHandle, len: usize) -> Option<SnapshotView<'_>> {
        let (_, class, header) = self.slab_of(handle)?;
        let published = header.begin_view(handle)?;
        let len = len.min(published as usize).min(self.size(class));
        Some(SnapshotView { pool: self, handle, start: self.slab_ptr(header), len })
    }
}

/// A slab for the exclusive use of its holder.
///
/// Dropping it without [`Slab::publish`] frees it.
pub struct Slab<'p> {
    pool: &'p SnapshotPool<'p>,
    header: &'p SlabHeader,
    class: usize,
    number: u32,
    generation: u32,
}

/// # Signal Safe Methods
impl Slab<'_> {
    /// Bytes the slab has room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.pool.size(self.class)
    }

    /// Position among the pool's slabs, for models that shadow each slab with an instrumented cell.
    #[cfg(loom)]
    pub fn number(&self) -> usize {
        self.number as usize
    }

    /// The slab's bytes: valid for [`Slab::capacity`] bytes until the slab is published or dropped, and aligned to
    /// [`SLAB_ALIGN`].
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pool.slab_ptr(self.header)
    }

    /// Makes the first `len` bytes readable through the returned handle. The slab stays in use until the handle is
    /// viewed or released.
    ///
    /// # Safety
    ///
    /// The first `len` bytes have been written, `len` is at most [`Slab::capacity`], and nothing is written through the
    /// pointer from then on. A store fence follows streaming (non-temporal) stores, which no release store orders.
    #[inline]
    pub unsafe fn publish(self, len: usize) -> SnapshotHandle {
        // The contract bounds `len` by a capacity that the plan has bounded by `u32`.
        let len = u32::try_from(len.min(self.capacity())).unwrap_or(0);
        self.header.publish(self.generation, len);
        let handle = SnapshotHandle::new(self.number, self.generation);
        core::mem::forget(self);
        handle
    }

    /// Publishes the slab without a readable byte.
    pub fn publish_empty(self) -> SnapshotHandle {
        // SAFETY: no byte is declared written.
        unsafe { self.publish(0) }
    }
}

impl Slab<'_> {
    /// Takes the slab out of service.
    fn park(self) {
        self.header.abandon(self.generation);
        if let Some(parked) = self.pool.parked.get(self.class) {
            parked.push(self.number, self.pool.headers);
        }
        core::mem::forget(self);
    }
}

impl Drop for Slab<'_> {
    fn drop(&mut self) {
        self.header.abandon(self.generation);
        self.pool.push(self.class, self.number);
    }
}

/// Access to one snapshot for its reader; frees the slab on drop.
pub struct SnapshotView<'p> {
    pool: &'p SnapshotPool<'p>,
    handle: SnapshotHandle,
    // A pointer and not a slice: a reference here would still count as live while `drop` frees the slab.
    start: *const u8,
    len: usize,
}

// SAFETY: the view is the only access to bytes that are not written any more, and may be read and ended on any thread.
unsafe impl Send for SnapshotView<'_> {}
// SAFETY: as above; shared, it only reads.
unsafe impl Sync for SnapshotView<'_> {}

impl SnapshotView<'_> {
    /// The snapshot, lowest address first, aligned to [`SLAB_ALIGN`].
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `view` bounded `len` by the slab and by the length its writer passed to `publish`; the exchange
        // in `begin_view` acquired those writes and made this the only access until `end_view`.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for SnapshotView<'_> {
    fn drop(&mut self) {
        if let Some((number, class, header)) = self.pool.slab_of(self.handle) {
            header.end_view(self.handle);
            self.pool.push(class, number);
        }
    }
}
