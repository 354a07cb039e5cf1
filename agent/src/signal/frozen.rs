//! Frozen frames of the interrupted virtual thread.
//!
//! Problem: after a virtual thread has blocked, all but its newest frames lie in `StackChunk` objects, which the garbage
//! collector moves and the thread itself empties; they cannot be read later.
//! Approach: follow `_cont_entry`, `Continuation.tail` and `StackChunk.parent` on the thread that owns them, while it
//! runs Java code or code of the VM, and copy the used part of each chunk behind the copy of the stack.
//! Invariant: no load here can fault, see [`find`]; the number of chunks and bytes is bounded; every value is compared
//! with its bounds before it is used; if not all frames fit, the newest are copied.
//! Sources: `runtime/continuationEntry.hpp`, `oops/stackChunkOop.hpp` of JDK 21 and 25 (`design/hotspot.md`).

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use sampler_thread::walk::snapshot::{CHUNK_HEAD_BYTES, ChunkHead, FrozenExtent, padded};
use stackwalk::{Capture, ChunkBottom, FRAME_RECORD_BYTES, FrozenOffsets, MAX_CHUNKS};

use super::ucontext::{copy_padded, load};

/// Bytes of a `ContinuationEntry` that are read.
const ENTRY_BYTES: u64 = 32;

/// Smallest part of a chunk that is worth copying: head, link and a few frames.
const CUT_BYTES: usize = 256;

/// The frames to copy.
#[derive(Clone, Copy)]
pub struct FrozenFrames {
    /// Offsets; `None` if there are no frames.
    offsets: Option<&'static FrozenOffsets>,
    /// The newest chunk, 0 for none.
    chunk: u64,
    /// Bytes of the copy, heads included.
    pub bytes: usize,
    /// Chunks with frames.
    pub chunks: u8,
    /// True if the newest chunk has none.
    pub emptied: bool,
    /// Why no further frames were found.
    pub extent: FrozenExtent,
}

impl FrozenFrames {
    /// No frames.
    pub const NONE: Self =
        Self { offsets: None, chunk: 0, bytes: 0, chunks: 0, emptied: false, extent: FrozenExtent::NotRead };

    /// Returns the offsets, if frames were found.
    pub const fn offsets(&self) -> Option<&'static FrozenOffsets> {
        self.offsets
    }

    const fn not_found(extent: FrozenExtent) -> Self {
        Self { extent, ..Self::NONE }
    }
}

/// The used part of one chunk.
struct UsedWords {
    from: u64,
    bytes: usize,
}

/// Finds up to `capacity` bytes of frozen frames.
///
/// Why no load faults: the thread is in Java code or in the VM, so no garbage collector for which `frozen` exists moves
/// objects, and every reference that the VM holds for this thread is valid.
/// The entry lies on this thread's own stack, not below the interrupted sp, and is filled: see
/// [`FrozenOffsets::is_entered`].
/// Its continuation, the continuation's tail and a chunk's parent are references the VM keeps current; each must lie in
/// the heap, and a chunk must have the class of chunks, before its fields are read. A chunk has `size` words as long as
/// it lives, and the copied range lies between its first and its last.
///
/// # Safety
/// `capture` was taken on the calling thread by this handler run, with the thread in Java code or in the VM.
pub unsafe fn find(capture: &Capture, frozen: &'static FrozenOffsets, capacity: usize) -> FrozenFrames {
    let entry = capture.cont_entry;
    let entry_end = entry.saturating_add(ENTRY_BYTES);
    let on_stack = capture.stack_low == capture.sp
        && frozen.is_entered(entry, capture.pc, capture.sp)
        && entry_end <= capture.stack_high;
    if !on_stack || entry & 7 != 0 {
        return FrozenFrames::not_found(FrozenExtent::NoEntry);
    }
    // SAFETY: the entry is a filled one on this thread's stack, as explained above.
    let continuation: u64 = unsafe { load(entry, frozen.continuation) };
    if !in_heap(continuation, frozen) {
        return FrozenFrames::not_found(FrozenExtent::NoContinuation);
    }
    // SAFETY: a live Continuation object, which has the field.
    let newest = unsafe { reference(continuation, frozen.class.tail, frozen) };
    let mut found = FrozenFrames {
        offsets: Some(frozen),
        chunk: newest,
        extent: FrozenExtent::ManyChunks,
        ..FrozenFrames::NONE
    };
    let mut chunk = newest;
    for _ in 0..MAX_CHUNKS {
        if chunk == 0 {
            found.extent = FrozenExtent::Whole;
            break;
        }
        // SAFETY: `chunk` is a reference the VM keeps for this thread.
        let Some(used) = (unsafe { used(chunk, frozen) }) else {
            found.extent = FrozenExtent::NoChunk;
            break;
        };
        if used.bytes > 0 {
            let left = capacity.saturating_sub(found.bytes) & !15;
            let needed = CHUNK_HEAD_BYTES.saturating_add(padded(used.bytes));
            if needed > left && left < CUT_BYTES {
                found.extent = FrozenExtent::NoRoom;
                break;
            }
            found.bytes = found.bytes.saturating_add(needed.min(left));
            found.chunks = found.chunks.saturating_add(1);
            if needed > left {
                found.extent = FrozenExtent::NoRoom;
                break;
            }
        } else if chunk == newest {
            found.emptied = true;
        }
        // SAFETY: `used` has checked that it is a chunk.
        chunk = unsafe { reference(chunk, frozen.class.parent, frozen) };
    }
    found
}

/// Copies the frames that [`find`] has found in the same run of the handler.
///
/// # Safety
/// As for [`find`]; `to` is writable for `found.bytes` bytes and aligned to 16.
pub unsafe fn copy(found: &FrozenFrames, to: *mut u8) {
    let Some(frozen) = found.offsets else { return };
    let (mut chunk, mut to) = (found.chunk, to);
    let (mut left, mut bytes_left) = (found.chunks, found.bytes);
    while left > 0 {
        // SAFETY: nothing has changed since `find`, because only this thread could change it.
        let Some(used) = (unsafe { used(chunk, frozen) }) else { return };
        if used.bytes > 0 {
            bytes_left = bytes_left.saturating_sub(CHUNK_HEAD_BYTES);
            // Only the last chunk can be longer than the space left.
            let bytes = used.bytes.min(bytes_left);
            let head = ChunkHead { address: used.from, bytes: bytes as u32, used: used.bytes as u32 };
            // SAFETY: `find` has counted this head and these bytes.
            unsafe { to.cast::<ChunkHead>().write(head) };
            to = to.wrapping_add(CHUNK_HEAD_BYTES);
            // SAFETY: as above; `used.from` and `bytes` lie within the chunk.
            unsafe { copy_padded(used.from as *const u8, to, bytes) };
            to = to.wrapping_add(padded(bytes));
            bytes_left = bytes_left.saturating_sub(padded(bytes));
            left = left.saturating_sub(1);
        }
        // SAFETY: `used` has checked that it is a chunk.
        chunk = unsafe { reference(chunk, frozen.class.parent, frozen) };
    }
}

pub(super) fn in_heap(object: u64, frozen: &FrozenOffsets) -> bool {
    let (start, end) = frozen.heap;
    object >= start && object < end && object & 7 == 0
}

/// Returns the reference at `offset` of `object`, 0 for null and for an address outside of the heap.
///
/// # Safety
/// `object` has a reference field there.
pub(super) unsafe fn reference(object: u64, offset: u32, frozen: &FrozenOffsets) -> u64 {
    let target = match frozen.narrow {
        // SAFETY: the caller's promise; references are compressed.
        Some((base, shift)) => match unsafe { load::<u32>(object, offset) } {
            0 => 0,
            narrow => base.wrapping_add(u64::from(narrow).wrapping_shl(shift)),
        },
        // SAFETY: the caller's promise; references have full width.
        None => unsafe { load(object, offset) },
    };
    if in_heap(target, frozen) { target } else { 0 }
}

/// Returns the class bits of an object's header.
///
/// # Safety
/// `object` is a reference the VM keeps for the running thread, not 0.
pub(super) unsafe fn class_word(object: u64, frozen: &FrozenOffsets) -> u64 {
    // SAFETY: every object has a header, and the smallest instance of a class with fields is 16 bytes long.
    let word = unsafe { load::<u64>(object, frozen.klass) };
    word & frozen.klass_mask
}

/// Returns the used words of a chunk with the link below them; `None` if it is no chunk or inconsistent.
///
/// # Safety
/// `chunk` is a reference the VM keeps for the running thread, not 0.
unsafe fn used(chunk: u64, frozen: &FrozenOffsets) -> Option<UsedWords> {
    // SAFETY: the caller's promise.
    if unsafe { class_word(chunk, frozen) } != frozen.klass_word {
        return None;
    }
    let class = &frozen.class;
    // SAFETY: by its class it is a chunk.
    let size = unsafe { load::<i32>(chunk, class.size) };
    // SAFETY: as above.
    let sp = unsafe { load::<i32>(chunk, class.sp) };
    let bottom = match class.bottom {
        // SAFETY: as above.
        ChunkBottom::Field(offset) => unsafe { load::<i32>(chunk, offset) },
        // SAFETY: as above.
        ChunkBottom::Arguments(offset) => size.checked_sub(unsafe { load::<i32>(chunk, offset) })?,
    };
    let (sp, bottom, size) =
        (u64::try_from(sp).ok()?, u64::try_from(bottom).ok()?, u64::try_from(size).ok()?);
    let start = chunk.checked_add(u64::from(frozen.words))?;
    if bottom > size || start.checked_add(size.checked_mul(8)?)? > frozen.heap.1 {
        return None;
    }
    if sp >= bottom {
        return Some(UsedWords { from: start, bytes: 0 });
    }
    // The link of the newest frame lies below its sp, in the free part of the chunk.
    let first = sp.checked_mul(8)?.checked_sub(FRAME_RECORD_BYTES)?;
    let bytes = bottom.checked_mul(8)?.checked_sub(first)?;
    Some(UsedWords { from: start.checked_add(first)?, bytes: usize::try_from(bytes).ok()? })
}
