//! The mounted virtual thread of the interrupted thread: its id, its name, and its frames in the heap.
//!
//! Problem: a virtual thread is an object in the heap, and its carrier also runs native code and code of the VM.
//! Approach: the id is read from the `JavaThread`, where the VM stores it. The name and the frozen frames are read from
//! the heap while the thread runs Java code, under the conditions of [`super::frozen`].
//! A name costs four cache misses, so it is copied with the first sample of a virtual thread on a carrier and with every
//! sixteenth after it, in case the first was lost.
//! Invariant: no load here can fault, see [`name`]; at most [`MAX_NAME_BYTES`] are copied.
//! Sources: `jfr/support/jfrThreadLocal.hpp`, `java.lang.{Thread,String}`, `oops/arrayOop.hpp`, JDK 21 and 25.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::Ordering;

use sampler_thread::walk::snapshot::{FrozenExtent, padded};
use stackwalk::{Capture, FrozenOffsets, NameOffsets, ThreadOffsets};

use super::frozen::{self, FrozenFrames, class_word, in_heap, reference};
use super::ucontext::{copy_padded, load};
use crate::arena::{Shared, ThreadSlot};

/// Most bytes of a name that are copied; longer names are cut.
const MAX_NAME_BYTES: usize = 256;

/// A name is copied with each sample whose count on its carrier has none of these bits.
const REPEAT_MASK: u64 = 15;

/// A mounted virtual thread.
#[derive(Clone, Copy)]
pub struct MountedThread {
    /// Its `tid`; 0 if there is none, or it could not be read.
    pub thread_id: u64,
    /// Its name, if it was read and is not empty.
    pub name: Option<Name>,
    /// Its frames in the heap.
    pub frozen: FrozenFrames,
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
    const NONE: Self = Self { thread_id: 0, name: None, frozen: FrozenFrames::NONE };

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
        // SAFETY: by the caller's promise; nothing has changed since it was found.
        let frozen = self.frozen.offsets().map(|offsets| unsafe { frozen::find(capture, offsets, capacity) });
        Self { name: None, frozen: frozen.unwrap_or(self.frozen), ..self }
    }

    /// Copies frames and name; returns the number of bytes written.
    ///
    /// # Safety
    /// It was found in this run of the handler; `to` is writable for `self.bytes()` bytes and aligned to 16.
    pub unsafe fn copy(&self, to: *mut u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { frozen::copy(&self.frozen, to) };
        let mut at = self.frozen.bytes;
        if let Some(name) = self.name {
            // SAFETY: found in this run: nothing has moved; the caller's memory has space behind the frames.
            unsafe { copy_padded(name.from as *const u8, to.wrapping_add(at), name.bytes) };
            at = at.saturating_add(padded(name.bytes));
        }
        at
    }
}

/// Finds the mounted virtual thread of the running thread.
///
/// # Safety
/// `capture` was taken on the calling thread by this handler run, `capture.thread` is its `JavaThread`, `slot` its slot.
#[inline(always)]
pub unsafe fn of(capture: &Capture, shared: &Shared, slot: &ThreadSlot, stack_bytes: usize) -> MountedThread {
    if capture.cont_entry == 0 {
        return MountedThread::NONE;
    }
    let capacity = shared.max_stack.saturating_sub(stack_bytes as u64) as usize;
    // SAFETY: the caller's promise.
    unsafe { find(capture, shared, slot, capacity) }
}

/// # Safety
/// As for [`of`].
#[cold]
unsafe fn find(capture: &Capture, shared: &Shared, slot: &ThreadSlot, capacity: usize) -> MountedThread {
    let offsets = &shared.offsets;
    // In native code the thread may be at a safepoint, where its objects are moved.
    let heap = shared.frozen.filter(|frozen| {
        let state = capture.thread_state;
        state == u64::from(offsets.in_java) || frozen.in_vm.is_some_and(|in_vm| state == u64::from(in_vm))
    });
    // SAFETY: the running thread's `JavaThread`.
    let stored_id = unsafe { stored_id(capture.thread, offsets) };
    let Some(heap) = heap else {
        return MountedThread { thread_id: stored_id.unwrap_or(0), ..MountedThread::NONE };
    };
    // SAFETY: the caller's promise, and the thread is in Java code.
    let frozen = unsafe { frozen::find(capture, heap, capacity) };
    // SAFETY: as above.
    let object = unsafe { thread_object(capture.thread, offsets, heap) };
    // SAFETY: a live java.lang.Thread.
    let own_id = object.map_or(0, |object| unsafe { load(object, heap.class.thread_id) });
    let thread_id = stored_id.unwrap_or(own_id);
    let mut mounted = MountedThread { thread_id, name: None, frozen };
    if let (Some(object), Some(offsets)) = (object, &heap.name)
        && thread_id != 0
        && thread_id == own_id
        && needs_name(slot, thread_id)
    {
        // SAFETY: a live java.lang.Thread, in Java code.
        mounted.name = unsafe { name(object, offsets, heap) };
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
    // SAFETY: as above.
    let id = unsafe { load(thread, mounted.id) };
    Some(if is_mounted == 0 { 0 } else { id })
}

/// Returns the mounted virtual thread's object; `None` while none is mounted.
///
/// # Safety
/// `thread` is the running thread's `JavaThread`, in Java code.
unsafe fn thread_object(thread: u64, offsets: &ThreadOffsets, heap: &FrozenOffsets) -> Option<u64> {
    let (virtual_thread, carrier) = (offsets.vthread?, offsets.thread_object?);
    // SAFETY: a handle that the VM made with the thread and frees after it.
    let virtual_thread = unsafe { handle(thread, virtual_thread) };
    // SAFETY: as above.
    let carrier = unsafe { handle(thread, carrier) };
    (virtual_thread != carrier && in_heap(virtual_thread, heap)).then_some(virtual_thread)
}

/// Returns the object of a handle in the `JavaThread`.
///
/// # Safety
/// `offset` is that of an `OopHandle`.
unsafe fn handle(thread: u64, offset: u32) -> u64 {
    // SAFETY: the field lies inside the JavaThread.
    let slot: u64 = unsafe { load(thread, offset) };
    if slot == 0 {
        return 0;
    }
    // SAFETY: the handle's slot lives as long as the handle.
    unsafe { load(slot, 0) }
}

/// Returns the bytes of a thread's name.
///
/// Why no load faults: a thread's `name` and a string's `value` are references that the VM keeps current, and no
/// garbage collector for which `heap` exists moves objects now. Each must lie in the heap and have its class before its
/// fields are read; the elements of an array, by its length, lie before the end of the heap.
///
/// # Safety
/// `thread` is a live java.lang.Thread; the running thread is in Java code.
unsafe fn name(thread: u64, offsets: &NameOffsets, heap: &FrozenOffsets) -> Option<Name> {
    let class = &offsets.class;
    // SAFETY: the object has the field.
    let string = unsafe { reference(thread, class.name, heap) };
    // SAFETY: `reference` gives objects, or 0.
    if string == 0 || unsafe { class_word(string, heap) } != offsets.string_word {
        return None;
    }
    // SAFETY: it is a String.
    let value = unsafe { reference(string, class.value, heap) };
    // SAFETY: as for the string.
    if value == 0 || unsafe { class_word(value, heap) } != offsets.bytes_word {
        return None;
    }
    // SAFETY: it is a String.
    let coder = unsafe { load::<u8>(string, class.coder) } & 1;
    // SAFETY: it is a byte[].
    let length = unsafe { load::<i32>(value, offsets.length) };
    let length = u64::try_from(length).ok().filter(|&length| length > 0)?;
    let from = value.checked_add(u64::from(class.first_byte))?;
    let fits = from.checked_add(length)? <= heap.heap.1;
    let bytes = usize::try_from(length).ok()?.min(MAX_NAME_BYTES);
    fits.then_some(Name { from, bytes, coder })
}
