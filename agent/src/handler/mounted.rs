//! The mounted virtual thread of the interrupted thread: its id, its name, and its frames in the heap.
//!
//! Problem: a virtual thread is an object in the heap, and its carrier also runs native code and code of the VM.
//! Approach: the id is read from the `JavaThread`, where the VM stores it, name and frozen frames from the heap, under
//! the conditions of [`super::heap`]. A name costs four cache misses or eight checked reads, so it is copied with the
//! first sample of a virtual thread on a carrier and with every sixteenth after it, in case the first was lost.
//! Invariant: no load can fault, see [`name`]; at most [`MAX_NAME_BYTES`] are copied.
//! Sources: `jfr/support/jfrThreadLocal.hpp`, `java.lang.{Thread,String}`, `oops/arrayOop.hpp`, JDK 21 and 25.

use core::sync::atomic::Ordering;

use sampler_thread::walk::snapshot::{FrozenExtent, padded};
use stackwalk::{Capture, NameOffsets, ThreadOffsets};

use super::frozen::{self, FrozenFrames};
use super::heap::{Heap, Reference};
use super::ucontext::load;
use crate::handler::slots::{Shared, ThreadSlot};

/// Most bytes of a name that are copied; longer names are cut.
const MAX_NAME_BYTES: usize = 256;

/// A name is copied with each sample whose number on its carrier has none of these bits.
const REPEAT_MASK: u64 = 15;

#[derive(Clone, Copy)]
pub struct MountedThread {
    /// Its `tid`; 0 if there is none, or it could not be read.
    pub thread_id: u64,
    /// Its name, if it was read and is not empty.
    pub name: Option<Name>,
    /// Its frames in the heap.
    pub frozen: FrozenFrames,
    /// The heap they were found in.
    heap: Option<Heap>,
    /// Its `tid` by the `JavaThread`, 0 if that is unknown.
    stored_id: u64,
}

/// Bytes of a `java.lang.String`.
#[derive(Clone, Copy)]
pub struct Name {
    from: u64,
    /// Their number, at least 1.
    pub bytes: usize,
    /// 0 for one byte per character, 1 for two.
    pub coder: u8,
}

impl MountedThread {
    /// No virtual thread.
    pub const NONE: Self =
        Self { thread_id: 0, name: None, frozen: FrozenFrames::NONE, heap: None, stored_id: 0 };

    /// Bytes that [`copy`](Self::copy) writes.
    pub fn bytes(&self) -> usize {
        let name = self.name.map_or(0, |name| padded(name.bytes));
        self.frozen.bytes.saturating_add(name)
    }

    /// Returns whether frames did not fit.
    pub fn is_cut(&self) -> bool {
        self.frozen.extent == FrozenExtent::NoRoom
    }

    /// Returns the same without the name, and with no more frames than fit into `capacity` bytes.
    ///
    /// # Safety
    /// It was found in this run of the handler, for `capture`.
    #[cold]
    pub unsafe fn within(self, capture: &Capture, capacity: usize) -> Self {
        // SAFETY: `capture` and heap are those of this handler run.
        let frozen = self.heap.map(|heap| unsafe { frozen::find(capture, &heap, capacity) });
        Self { name: None, frozen: frozen.unwrap_or(self.frozen), ..self }
    }

    /// Copies frames and name. Returns what was copied: the same, or a thread without data from the heap if its objects
    /// may have been moved.
    ///
    /// # Safety
    /// It was found in this run of the handler; `to` is writable for `self.bytes()` bytes and aligned to 16.
    pub unsafe fn copy(&self, to: *mut u8) -> Self {
        let Some(heap) = &self.heap else { return *self };
        // SAFETY: found in this run; `to` has room for the frames.
        let mut is_copied = unsafe { frozen::copy(&self.frozen, heap, to) };
        if let Some(name) = self.name {
            let to = to.wrapping_add(self.frozen.bytes);
            // SAFETY: found in this run; the caller's memory has space behind the frames.
            is_copied &= unsafe { heap.copy(name.from, to, name.bytes) };
        }
        if is_copied && heap.is_unchanged() { *self } else { self.without_heap() }
    }

    #[cold]
    fn without_heap(&self) -> Self {
        let frozen = FrozenFrames::not_found(FrozenExtent::Changed);
        Self { thread_id: self.stored_id, stored_id: self.stored_id, frozen, ..Self::NONE }
    }
}

/// Finds the mounted virtual thread of the running thread.
///
/// # Safety
/// `capture` was taken on the calling thread by this handler run, `capture.thread` is its `JavaThread`, `slot` its
/// slot.
#[inline(always)]
pub unsafe fn of(
    capture: &Capture,
    shared: &'static Shared,
    slot: &ThreadSlot,
    stack_bytes: usize,
) -> MountedThread {
    if capture.cont_entry == 0 {
        return MountedThread::NONE;
    }
    let capacity = shared.max_stack.saturating_sub(stack_bytes as u64) as usize;
    // SAFETY: capture and slot are the running thread's.
    unsafe { find(capture, shared, slot, capacity) }
}

/// # Safety
/// As for [`of`].
#[cold]
unsafe fn find(
    capture: &Capture,
    shared: &'static Shared,
    slot: &ThreadSlot,
    capacity: usize,
) -> MountedThread {
    let offsets = &shared.offsets;
    // SAFETY: the running thread's `JavaThread`.
    let stored_id = unsafe { stored_id(capture.thread, offsets) };
    let mut mounted = MountedThread {
        thread_id: stored_id.unwrap_or(0),
        stored_id: stored_id.unwrap_or(0),
        ..MountedThread::NONE
    };
    let Some(heap) = Heap::of(capture, shared) else { return mounted };
    mounted.heap = Some(heap);
    // SAFETY: the caller's promise, and the heap is that of this thread.
    mounted.frozen = unsafe { frozen::find(capture, &heap, capacity) };
    if stored_id.is_some_and(|id| id == 0 || !needs_name(slot, id)) {
        return mounted;
    }
    // SAFETY: the running thread's `JavaThread`.
    let Some(object) = (unsafe { thread_object(capture.thread, offsets, &heap) }) else { return mounted };
    // SAFETY: a live java.lang.Thread.
    let own_id = unsafe { heap.read(object, heap.offsets.class.thread_id) }.unwrap_or(0);
    mounted.thread_id = stored_id.unwrap_or(own_id);
    let needs_name = mounted.thread_id == own_id && (stored_id.is_some() || needs_name(slot, own_id));
    if let Some(offsets) = heap.offsets.name.as_ref().filter(|_| needs_name && own_id != 0) {
        // SAFETY: a live java.lang.Thread.
        mounted.name = unsafe { name(object, offsets, &heap) };
    }
    mounted
}

/// Counts this sample; returns whether the name is to be copied with it.
fn needs_name(slot: &ThreadSlot, thread_id: u64) -> bool {
    let samples = match slot.virtual_thread.load(Ordering::Relaxed) {
        last if last == thread_id => slot.virtual_samples.load(Ordering::Relaxed).wrapping_add(1),
        _ => 0,
    };
    slot.virtual_thread.store(thread_id, Ordering::Relaxed);
    slot.virtual_samples.store(samples, Ordering::Relaxed);
    samples & REPEAT_MASK == 0
}

/// Returns the id that the `JavaThread` stores, 0 for no virtual thread; `None` if its offset is unknown.
///
/// # Safety
/// `thread` is the running thread's `JavaThread`.
unsafe fn stored_id(thread: u64, offsets: &ThreadOffsets) -> Option<u64> {
    let mounted = offsets.mounted?;
    // SAFETY: the field lies inside the `JavaThread`.
    let is_mounted: u8 = unsafe { load(thread, mounted.is_mounted) };
    // SAFETY: the field lies inside the `JavaThread`.
    let id = unsafe { load(thread, mounted.id) };
    Some(if is_mounted == 0 { 0 } else { id })
}

/// Returns the mounted virtual thread's object; `None` while none is mounted.
///
/// # Safety
/// `thread` is the running thread's `JavaThread`.
unsafe fn thread_object(thread: u64, offsets: &ThreadOffsets, heap: &Heap) -> Option<u64> {
    let (virtual_thread, carrier) = (offsets.vthread?, offsets.thread_object?);
    // SAFETY: a handle that the VM made with the thread and frees after it.
    let virtual_thread = unsafe { handle(thread, virtual_thread, heap) }.object()?;
    // SAFETY: as for the virtual thread.
    let carrier = unsafe { handle(thread, carrier, heap) }.object()?;
    (virtual_thread != carrier).then_some(virtual_thread)
}

/// Returns the object of a handle in the `JavaThread`.
///
/// # Safety
/// `offset` is that of an `OopHandle`.
unsafe fn handle(thread: u64, offset: u32, heap: &Heap) -> Reference {
    // SAFETY: the field lies inside the JavaThread.
    let slot: u64 = unsafe { load(thread, offset) };
    if slot == 0 {
        return Reference::Null;
    }
    // SAFETY: the handle's slot lives as long as the handle.
    unsafe { heap.of_handle(slot) }
}

/// Returns the bytes of a thread's name.
///
/// Why no load faults: a thread's `name` and a string's `value` are references that the VM keeps current, and [`Heap`]
/// follows them only to objects that stay in place. Each must have its class before its fields are read, and an array
/// ends before the end of the heap.
///
/// # Safety
/// [`Heap`] has returned `thread`, a live java.lang.Thread.
unsafe fn name(thread: u64, offsets: &NameOffsets, heap: &Heap) -> Option<Name> {
    let class = &offsets.class;
    // SAFETY: the object has the field.
    let string = unsafe { heap.reference(thread, class.name) }.object()?;
    // SAFETY: an object of the heap.
    if unsafe { heap.class_word(string) }? != offsets.string_word {
        return None;
    }
    // SAFETY: it is a String.
    let value = unsafe { heap.reference(string, class.value) }.object()?;
    // SAFETY: as for the string.
    if unsafe { heap.class_word(value) }? != offsets.bytes_word {
        return None;
    }
    // SAFETY: it is a String.
    let coder = unsafe { heap.read::<u8>(string, class.coder) }? & 1;
    // SAFETY: it is a byte[].
    let length = unsafe { heap.read::<i32>(value, offsets.length) }?;
    let length = u64::try_from(length).ok().filter(|&length| length > 0)?;
    let from = value.checked_add(u64::from(class.first_byte))?;
    let fits = from.checked_add(length)? <= heap.offsets.heap.1;
    let bytes = usize::try_from(length).ok()?.min(MAX_NAME_BYTES);
    fits.then_some(Name { from, bytes, coder })
}
