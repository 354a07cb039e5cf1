//! Frozen frames of the interrupted virtual thread.
//!
//! Problem: after a virtual thread has blocked, all but its newest frames lie in `StackChunk` objects, which the
//! garbage collector moves and the thread itself empties, so they cannot be read later.
//! Approach: follow `_cont_entry`, `Continuation.tail` and `StackChunk.parent` on the thread that owns them, and copy
//! the used part of each chunk behind the copy of the stack.
//! Invariant: no load can fault, see [`find`] and [`super::heap`]; chunks and bytes are bounded; every value is checked
//! before it is used; if not all frames fit, the newest are copied.
//! Sources: `runtime/continuationEntry.hpp`, `oops/stackChunkOop.hpp` of JDK 21 and 25 (`design/hotspot.md`).

use sampler_thread::walk::snapshot::{CHUNK_HEAD_BYTES, ChunkHead, FrozenExtent, padded};
use stackwalk::{Capture, ChunkBottom, FRAME_RECORD_BYTES, MAX_CHUNKS};

use super::heap::{ChunkWords, Heap, Reference};

/// Bytes of a `ContinuationEntry` that are read.
const ENTRY_BYTES: u64 = 32;

/// Smallest part of a chunk that is worth copying: head, link and a few frames.
const CUT_BYTES: usize = 256;

#[derive(Clone, Copy)]
pub struct FrozenFrames {
    /// The newest chunk, 0 for none.
    chunk: u64,
    /// Bytes of the copy, heads included.
    pub bytes: usize,
    pub chunks: u8,
    /// True if the newest chunk has none.
    pub emptied: bool,
    /// Why no further frames were found.
    pub extent: FrozenExtent,
}

impl FrozenFrames {
    pub const NONE: Self = Self::not_found(FrozenExtent::NotRead);

    /// No frames, for a reason.
    pub const fn not_found(extent: FrozenExtent) -> Self {
        Self { chunk: 0, bytes: 0, chunks: 0, emptied: false, extent }
    }
}

/// The used part of one chunk.
struct UsedWords {
    from: u64,
    bytes: usize,
}

/// Finds up to `capacity` bytes of frozen frames.
///
/// Why no load faults: the entry lies on this thread's stack, not below the interrupted sp, and is filled
/// ([`FrozenOffsets::is_entered`](stackwalk::FrozenOffsets::is_entered)). Its continuation, the continuation's tail and
/// a chunk's parent are references that the VM keeps current; [`Heap`] follows them only to objects that stay in place,
/// and a chunk must have the class of chunks. A chunk has `size` words as long as it lives, and the copied range lies
/// within them.
///
/// # Safety
/// `capture` was taken on the calling thread by this handler run, `capture.thread` is its `JavaThread`, and `heap` was
/// made for it.
pub unsafe fn find(capture: &Capture, heap: &Heap, capacity: usize) -> FrozenFrames {
    let frozen = heap.offsets;
    let entry = capture.cont_entry;
    let entry_end = entry.saturating_add(ENTRY_BYTES);
    let on_stack = capture.stack_low == capture.sp
        && frozen.is_entered(entry, capture.pc, capture.sp)
        && entry_end <= capture.stack_high;
    if !on_stack || entry & 7 != 0 {
        return FrozenFrames::not_found(FrozenExtent::NoEntry);
    }
    let continuation = entry.wrapping_add(u64::from(frozen.continuation));
    // SAFETY: the entry is a filled one on this thread's stack, as explained above.
    let continuation = match unsafe { heap.of_own_stack(continuation, capture.thread) } {
        Reference::Object(continuation) => continuation,
        Reference::Moving => return FrozenFrames::not_found(FrozenExtent::Moving),
        Reference::Null | Reference::Invalid => return FrozenFrames::not_found(FrozenExtent::NoContinuation),
    };
    // SAFETY: a live Continuation object, which has the field.
    let newest = unsafe { heap.reference(continuation, frozen.class.tail) };
    let mut found = FrozenFrames {
        chunk: newest.object().unwrap_or(0),
        extent: FrozenExtent::ManyChunks,
        ..FrozenFrames::NONE
    };
    let mut next = newest;
    for _ in 0..MAX_CHUNKS {
        let chunk = match next {
            Reference::Object(chunk) => chunk,
            Reference::Null => {
                found.extent = FrozenExtent::Whole;
                break;
            }
            Reference::Moving => {
                found.extent = FrozenExtent::Moving;
                break;
            }
            Reference::Invalid => {
                found.extent = FrozenExtent::NoChunk;
                break;
            }
        };
        // SAFETY: `chunk` is an object of the heap.
        let Some((words, used)) = (unsafe { used(chunk, heap) }) else {
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
        } else if next == newest {
            found.emptied = true;
        }
        // SAFETY: `used` has checked that it is a chunk.
        next = unsafe { heap.chunk_reference(&words, frozen.class.parent) };
    }
    found
}

/// Copies the frames that [`find`] has found in the same run of the handler; returns whether all could be read.
///
/// If a pause may run beside the handler, the chunks may have changed: no more is written than [`find`] has counted,
/// and [`Heap::is_unchanged`] decides whether the copy is used.
///
/// # Safety
/// As for [`find`]; `to` is writable for `found.bytes` bytes and aligned to 16.
pub unsafe fn copy(found: &FrozenFrames, heap: &Heap, to: *mut u8) -> bool {
    let (mut next, mut to) = (Reference::Object(found.chunk), to);
    let (mut left, mut bytes_left) = (found.chunks, found.bytes);
    while left > 0 {
        let Reference::Object(chunk) = next else { return false };
        // SAFETY: `find` has found it, or the parent of a chunk is an object of the heap.
        let Some((words, used)) = (unsafe { used(chunk, heap) }) else { return false };
        if used.bytes > 0 {
            if bytes_left < CHUNK_HEAD_BYTES {
                return false;
            }
            bytes_left = bytes_left.saturating_sub(CHUNK_HEAD_BYTES);
            // Only the last chunk can be longer than the space left.
            let bytes = used.bytes.min(bytes_left);
            let head = ChunkHead { address: used.from, bytes: bytes as u32, used: used.bytes as u32 };
            // SAFETY: `find` has counted this head and these bytes.
            unsafe { to.cast::<ChunkHead>().write(head) };
            to = to.wrapping_add(CHUNK_HEAD_BYTES);
            // SAFETY: as above; `used.from` and `bytes` lie within the chunk.
            if !unsafe { heap.copy(used.from, to, bytes) } {
                return false;
            }
            to = to.wrapping_add(padded(bytes));
            bytes_left = bytes_left.saturating_sub(padded(bytes));
            left = left.saturating_sub(1);
        }
        // SAFETY: `used` has checked that it is a chunk.
        next = unsafe { heap.chunk_reference(&words, heap.offsets.class.parent) };
    }
    true
}

/// Returns a chunk's fields, and its used words with the link below them; `None` if it is no chunk or inconsistent.
///
/// # Safety
/// [`Heap`] has returned `chunk` as an object.
unsafe fn used(chunk: u64, heap: &Heap) -> Option<(ChunkWords, UsedWords)> {
    let frozen = heap.offsets;
    // SAFETY: `chunk` is an object that the heap has returned.
    let words = unsafe { heap.chunk_words(chunk) }?;
    if words.class_word(frozen) != frozen.klass_word {
        return None;
    }
    let class = &frozen.class;
    let size = words.int(class.size);
    let bottom = match class.bottom {
        ChunkBottom::Field(offset) => words.int(offset),
        ChunkBottom::Arguments(offset) => size.checked_sub(words.int(offset))?,
    };
    let (sp, bottom, size) =
        (u64::try_from(words.int(class.sp)).ok()?, u64::try_from(bottom).ok()?, u64::try_from(size).ok()?);
    let start = chunk.checked_add(u64::from(frozen.words))?;
    if bottom > size || start.checked_add(size.checked_mul(8)?)? > frozen.heap.1 {
        return None;
    }
    if sp >= bottom {
        return Some((words, UsedWords { from: start, bytes: 0 }));
    }
    // The link of the newest frame lies below its sp, in the free part of the chunk.
    let first = sp.checked_mul(8)?.checked_sub(FRAME_RECORD_BYTES)?;
    let bytes = bottom.checked_mul(8)?.checked_sub(first)?;
    let bytes = usize::try_from(bytes).ok()?;
    Some((words, UsedWords { from: start.checked_add(first)?, bytes }))
}
