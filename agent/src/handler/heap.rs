//! Reads objects of the Java heap from the signal handler.
//!
//! Problem: collectors move and free objects, in pauses or beside Java code, and the handler must neither fault nor
//! take one object for another.
//! Approach: a pause waits for every thread in Java code, and so for its handler: such a thread uses plain loads, after
//! the test of references in compiled code. Otherwise a pause may run beside the handler, which then reads
//! by `process_vm_readv`, or through `/proc/self/mem` where that is not available; both report a bad address instead of
//! faulting.
//! Before a read, the address is looked up in the collector's own account of its committed memory; without that account
//! all threads use the system call. The pauses and colours before the first and after the last read are compared; if
//! they differ, nothing that was read is used.
//! Invariant: `design/signal-safety.md`, "Reading the heap"; the system call is made in no other case.

use core::sync::atomic::{Ordering, fence};

use stackwalk::{CHUNK_FIELD_BYTES, COLOUR_BITS, Capture, Colours, FORWARDED, FrozenOffsets, Objects};

use super::ucontext::{clear_padding, copy_padded, load};
use crate::handler::slots::Shared;

/// The heap as the interrupted thread may read it, for one run of the handler.
#[derive(Clone, Copy)]
pub struct Heap {
    /// Offsets of the objects' fields.
    pub offsets: &'static FrozenOffsets,
    shared: &'static Shared,
    /// True if the kernel checks each address: a pause may run beside the handler, or the committed memory is unknown.
    is_checked: bool,
    /// The state before the first read.
    before: State,
}

/// Counts that change when objects may have been moved.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    /// [`Shared::pauses`].
    pauses: u64,
    /// The VM's number of collections.
    collections: u32,
    good_mask: u64,
}

/// A reference that was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// To no object.
    Null,
    /// To the object at this address.
    Object(u64),
    /// To an object that the collector may be moving.
    Moving,
    /// The read failed, or the address lies outside of the reserved heap.
    Invalid,
}

impl Reference {
    pub const fn object(self) -> Option<u64> {
        match self {
            Self::Object(address) => Some(address),
            _ => None,
        }
    }
}

/// The first words of a chunk: its header and its fields.
pub struct ChunkWords([u64; (CHUNK_FIELD_BYTES / 8) as usize]);

impl ChunkWords {
    /// Returns the 8 bytes at a multiple of 8, or the 4 bytes at a multiple of 4.
    fn word(&self, offset: u32) -> u64 {
        self.0.get((offset / 8) as usize).copied().unwrap_or(0).wrapping_shr((offset & 4).wrapping_mul(8))
    }

    pub fn int(&self, offset: u32) -> i32 {
        self.word(offset) as i32
    }

    pub fn class_word(&self, offsets: &FrozenOffsets) -> u64 {
        self.word(offsets.klass) & offsets.klass_mask
    }
}

impl Heap {
    /// The heap for the thread of `capture`; `None` if nothing may be read there.
    pub fn of(capture: &Capture, shared: &'static Shared) -> Option<Self> {
        let offsets = shared.frozen?;
        let is_in_java = capture.thread_state == u64::from(shared.offsets.in_java);
        let is_beside_pauses = !(is_in_java && offsets.holds_pauses_off);
        let is_checked = is_beside_pauses || offsets.committed.is_none();
        let before = State::now(shared, &offsets.objects);
        // Odd: a pause is in progress, or pauses are not reported.
        let may_read = !is_beside_pauses || before.pauses & 1 == 0;
        may_read.then_some(Self { offsets, shared, is_checked, before })
    }

    /// Returns whether no object was moved since [`Heap::of`], so that everything read belongs together.
    pub fn is_unchanged(&self) -> bool {
        fence(Ordering::Acquire);
        State::now_reversed(self.shared, &self.offsets.objects) == self.before
    }

    /// Returns the object of the reference at `address` on the running thread's own stack, outside of its frames.
    ///
    /// # Safety
    /// There is such a reference; `thread` is the running thread's `JavaThread`.
    pub unsafe fn of_own_stack(&self, address: u64, thread: u64) -> Reference {
        if let Objects::Coloured(Colours { shifted: Some(shifted), good_mask, .. }) = self.offsets.objects {
            // SAFETY: a field of the running thread's `JavaThread`.
            let corrected_for: u64 = unsafe { load(thread, shifted.thread_good_mask) };
            // SAFETY: a variable of libjvm.
            let good: u64 = unsafe { load(good_mask, 0) };
            if corrected_for != good {
                return Reference::Moving;
            }
            // Read after the mask: whoever corrects the reference stores the mask afterwards.
            fence(Ordering::Acquire);
            // SAFETY: the caller's promise; without colours.
            return self.within(unsafe { load(address, 0) });
        }
        // SAFETY: the caller names a reference that stays mapped.
        let word = unsafe { load(address, 0) };
        // SAFETY: a reference that the VM keeps for the running thread.
        unsafe { self.target(word) }
    }

    /// Returns the object of the reference of full width at `address`, outside of the heap.
    ///
    /// # Safety
    /// There is such a reference, in memory that is not freed while the thread lives.
    pub unsafe fn of_handle(&self, address: u64) -> Reference {
        // SAFETY: the caller names a reference that stays mapped.
        let word = unsafe { load(address, 0) };
        // SAFETY: a reference that the VM keeps for the running thread.
        unsafe { self.target(word) }
    }

    /// Returns the object of the reference at `offset` of `object`.
    ///
    /// # Safety
    /// [`Heap`] has returned `object` as an object that has a reference field there.
    pub unsafe fn reference(&self, object: u64, offset: u32) -> Reference {
        let word = if self.offsets.narrow.is_some() {
            // SAFETY: the object has a narrow reference there.
            unsafe { self.read::<u32>(object, offset) }.map(u64::from)
        } else {
            // SAFETY: the object has a reference there.
            unsafe { self.read::<u64>(object, offset) }
        };
        match word {
            // SAFETY: a reference from a live object.
            Some(word) => unsafe { self.widened(word) },
            None => Reference::Invalid,
        }
    }

    /// Returns the object of the reference at `offset` of a chunk.
    ///
    /// # Safety
    /// The chunk is alive.
    pub unsafe fn chunk_reference(&self, chunk: &ChunkWords, offset: u32) -> Reference {
        let word = chunk.word(offset);
        let word = if self.offsets.narrow.is_some() { word & u64::from(u32::MAX) } else { word };
        // SAFETY: a reference from a live object.
        unsafe { self.widened(word) }
    }

    /// Returns the first words of a chunk.
    ///
    /// # Safety
    /// [`Heap`] has returned `chunk`.
    pub unsafe fn chunk_words(&self, chunk: u64) -> Option<ChunkWords> {
        let mut words = ChunkWords([0; (CHUNK_FIELD_BYTES / 8) as usize]);
        // An object of another class may be shorter.
        let length = self.offsets.words.min(CHUNK_FIELD_BYTES);
        if !self.has_memory(chunk, u64::from(length)) {
            return None;
        }
        if self.is_checked {
            let to = words.0.as_mut_ptr().cast();
            // SAFETY: `words` has room for so many bytes.
            return unsafe { self.read_checked(chunk, to, length as usize) }.then_some(words);
        }
        // SAFETY: every object has a header.
        let class_word = unsafe { load::<u64>(chunk, self.offsets.klass) } & self.offsets.klass_mask;
        if class_word != self.offsets.klass_word {
            return None;
        }
        for (index, word) in words.0.iter_mut().take((length / 8) as usize).enumerate() {
            // SAFETY: by its class it is a chunk, which has so many words.
            *word = unsafe { load(chunk, (index as u32).wrapping_mul(8)) };
        }
        Some(words)
    }

    /// Returns the class bits of an object's header.
    ///
    /// # Safety
    /// [`Heap`] has returned `object`.
    pub unsafe fn class_word(&self, object: u64) -> Option<u64> {
        // SAFETY: every object has a header, and the smallest instance of a class with fields is 16 bytes long.
        let word = unsafe { self.read::<u64>(object, self.offsets.klass) }?;
        Some(word & self.offsets.klass_mask)
    }

    /// Reads a field of an object.
    ///
    /// # Safety
    /// [`Heap`] has returned `object`, which has a field of this type there.
    pub unsafe fn read<T: Copy + Default>(&self, object: u64, offset: u32) -> Option<T> {
        let address = object.wrapping_add(u64::from(offset));
        if !self.has_memory(address, size_of::<T>() as u64) {
            return None;
        }
        if !self.is_checked {
            // SAFETY: the caller's promise; no object is moved now.
            return Some(unsafe { load(address, 0) });
        }
        let mut value = T::default();
        // SAFETY: `value` has room for its own size.
        let is_read = unsafe { self.read_checked(address, (&raw mut value).cast(), size_of::<T>()) };
        is_read.then_some(value)
    }

    /// Copies bytes of an object and clears the padding behind them; returns whether they could be read.
    ///
    /// # Safety
    /// [`Heap`] has returned an object that has these bytes; `to` is aligned to 16 and writable for the padded bytes.
    pub unsafe fn copy(&self, from: u64, to: *mut u8, bytes: usize) -> bool {
        if !self.has_memory(from, bytes as u64) {
            return false;
        }
        if !self.is_checked {
            // SAFETY: the object has these bytes and is not moved now; `to` has room.
            unsafe { copy_padded(from as *const u8, to, bytes) };
            return true;
        }
        // SAFETY: `to` has room for the padded bytes.
        unsafe { clear_padding(to, bytes) };
        // SAFETY: `to` has room for the bytes.
        unsafe { self.read_checked(from, to, bytes) }
    }

    /// Returns whether these bytes lie in the heap, and in its committed part if that is known.
    fn has_memory(&self, address: u64, bytes: u64) -> bool {
        let (start, end) = self.offsets.heap;
        if address < start || address.checked_add(bytes).is_none_or(|after| after > end) {
            return false;
        }
        // SAFETY: words of the collector's account, which the VM never frees.
        let word = |at| Some(unsafe { load::<u64>(at, 0) });
        self.offsets.committed.is_none_or(|committed| committed.holds(address, bytes, word))
    }

    /// Reads by a system call; returns whether all bytes could be read.
    ///
    /// # Safety
    /// `to` is writable for `bytes` bytes.
    #[cold]
    unsafe fn read_checked(&self, address: u64, to: *mut u8, bytes: usize) -> bool {
        let file = self.shared.memory_file;
        if file >= 0 {
            // SAFETY: by the caller's promise; the kernel checks the address, which is an offset of this file.
            let read = unsafe { libc::pread(file, to.cast(), bytes, address.cast_signed()) };
            return usize::try_from(read) == Ok(bytes);
        }
        // SAFETY: no preconditions. Asked each time: a process that was restored from an image may have another id.
        let process = unsafe { libc::getpid() };
        let local = libc::iovec { iov_base: to.cast(), iov_len: bytes };
        let remote =
            libc::iovec { iov_base: core::ptr::without_provenance_mut(address as usize), iov_len: bytes };
        // SAFETY: by the caller's promise; the kernel checks `remote`.
        let read = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
        usize::try_from(read) == Ok(bytes)
    }

    /// Returns the object of a reference as it lies in a field.
    ///
    /// # Safety
    /// It was read from a live object.
    unsafe fn widened(&self, word: u64) -> Reference {
        let word = match self.offsets.narrow {
            Some((base, shift)) if word != 0 => base.wrapping_add(word.wrapping_shl(shift)),
            _ => word,
        };
        // SAFETY: the word is a reference from a live object.
        unsafe { self.target(word) }
    }

    /// Returns the object of a reference of full width.
    ///
    /// # Safety
    /// It is a reference that the VM keeps for the running thread, or from a live object.
    unsafe fn target(&self, word: u64) -> Reference {
        match self.offsets.objects {
            Objects::Still => self.within(word),
            Objects::Forwarded => match self.within(word) {
                // SAFETY: a reference of a live object leads to an object.
                Reference::Object(object) => unsafe { self.forwarded(object) },
                other => other,
            },
            Objects::Coloured(Colours { bad_mask, shifted, .. }) => {
                // SAFETY: a variable of libjvm.
                let bad: u64 = unsafe { load(bad_mask, 0) };
                let is_null = if shifted.is_some() { word.wrapping_shr(COLOUR_BITS) == 0 } else { word == 0 };
                if is_null {
                    return Reference::Null;
                }
                if word & bad != 0 {
                    return Reference::Moving;
                }
                // SAFETY: a variable of libjvm.
                let shift = shifted.map_or(0, |shifted| unsafe { load::<u64>(shifted.shift, 0) });
                self.within(word.wrapping_shr(shift as u32))
            }
        }
    }

    /// Follows an object to its copy, if there is one.
    ///
    /// # Safety
    /// As for [`Self::target`].
    unsafe fn forwarded(&self, object: u64) -> Reference {
        // SAFETY: every object has a mark word.
        match unsafe { self.read::<u64>(object, 0) } {
            // A mark without an address is one of JVMTI's.
            Some(mark) if mark & FORWARDED == FORWARDED && mark != FORWARDED => {
                self.within(mark & !FORWARDED)
            }
            Some(_) => Reference::Object(object),
            None => Reference::Invalid,
        }
    }

    /// Returns the object at an address, if it lies in the reserved heap.
    fn within(&self, address: u64) -> Reference {
        let (start, end) = self.offsets.heap;
        if address == 0 {
            Reference::Null
        } else if address >= start && address < end && address & 7 == 0 {
            Reference::Object(address)
        } else {
            Reference::Invalid
        }
    }
}

impl State {
    /// Reads the state before objects are read.
    ///
    /// The good mask takes few values and returns to the same one, but not without another collection. So the two
    /// counts enclose it: read before it here, and after it in [`Self::now_reversed`].
    fn now(shared: &Shared, objects: &Objects) -> Self {
        let pauses = shared.pauses.load(Ordering::Acquire);
        let collections = collections(objects);
        fence(Ordering::Acquire);
        Self { pauses, collections, good_mask: good_mask(objects) }
    }

    /// Reads the state after objects were read.
    fn now_reversed(shared: &Shared, objects: &Objects) -> Self {
        let good_mask = good_mask(objects);
        fence(Ordering::Acquire);
        let collections = collections(objects);
        Self { pauses: shared.pauses.load(Ordering::Acquire), collections, good_mask }
    }
}

fn good_mask(objects: &Objects) -> u64 {
    match objects {
        // SAFETY: a variable of libjvm.
        Objects::Coloured(colours) => unsafe { load(colours.good_mask, 0) },
        _ => 0,
    }
}

fn collections(objects: &Objects) -> u32 {
    match objects {
        // SAFETY: a field of the VM's description of its heap, which is never freed.
        Objects::Coloured(colours) => unsafe { load(colours.collections, 0) },
        _ => 0,
    }
}
