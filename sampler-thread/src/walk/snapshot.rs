//! The layout of a snapshot, which the handler writes into a slab: capture, cost, stack bytes, frozen frames, a name.
//!
//! ```text
//! SnapshotHead  stack bytes, padded to 16   { ChunkHead (16)  chunk bytes, padded to 16 }...  name bytes
//! ```
//!
//! Problem: the handler's cost must be measured in production, but counting it in shared memory would cost more than
//! the handler itself.
//! Approach: each run stores its length in the thread's slot, and the thread's next run copies it into its snapshot;
//! only the last run of each thread is not counted.
//! Invariant: the layout is defined in this module only.

use proto::characters::from_utf16;
use queue::{Request, RequestFlags};
use stackwalk::{CAPTURE_BYTES, Capture, Frozen, StackCopy};

/// The record at the head of a snapshot; the stack bytes follow, on a cache line of their own.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Registers and thread fields.
    pub capture: Capture,
    /// Address of the `Method` that a compiler thread compiles, 0 for none.
    pub compiled_method: u64,
    /// Time stamp counter cycles of the thread's previous handler run, 0 for its first.
    pub previous_cycles: u64,
    /// Bytes of the stack copy.
    pub stack_bytes: u64,
    /// `java.lang.Thread.tid` of the mounted virtual thread; 0 for none, or if it could not be read.
    pub virtual_thread: u64,
    /// Chunks of frozen frames behind the stack bytes.
    pub chunks: u8,
    /// 1 if the newest chunk has no frames.
    pub emptied: u8,
    /// The [`FrozenExtent`] of the chunks.
    pub frozen_extent: u8,
    /// Bytes per character of the name, minus one.
    pub name_coder: u8,
    /// Bytes of the virtual thread's name after the chunks; 0 if it has none, or if it was left out.
    pub name_bytes: u32,
}

/// Extent to which the handler copied the frozen frames in the heap.
#[repr(u8)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FrozenExtent {
    /// There is no virtual thread, its heap cannot be read, or a pause was in progress.
    #[default]
    NotRead = 0,
    /// To the oldest frozen frame.
    Whole = 1,
    /// To the end of the slab or of the stack limit.
    NoRoom = 2,
    /// To the maximum number of chunks.
    ManyChunks = 3,
    /// To an object that is not a chunk.
    NoChunk = 4,
    /// The entry of the continuation was not found.
    NoEntry = 5,
    NoContinuation = 6,
    /// To a reference whose object the collector may be moving.
    Moving = 7,
    /// Nothing: objects may have been moved while they were copied.
    Changed = 8,
}

/// The record before the bytes of each chunk of frozen frames.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkHead {
    /// Address of the first byte copied.
    pub address: u64,
    /// Bytes copied, without padding.
    pub bytes: u32,
    /// Bytes in use; more than `bytes` in a chunk that is cut, which is the last.
    pub used: u32,
}

/// Bytes of [`SnapshotHead`], a whole number of cache lines.
pub const HEAD_BYTES: usize = (CAPTURE_BYTES + 40).next_multiple_of(64);
/// Bytes of [`ChunkHead`].
pub const CHUNK_HEAD_BYTES: usize = size_of::<ChunkHead>();

const _: () = assert!(size_of::<SnapshotHead>() == HEAD_BYTES);
const _: () = assert!(std::mem::offset_of!(SnapshotHead, compiled_method) == CAPTURE_BYTES);
const _: () = assert!(CHUNK_HEAD_BYTES == 16);

/// Returns `bytes` rounded up to the start of the next part. Signal safe.
pub const fn padded(bytes: usize) -> usize {
    bytes.saturating_add(15) & !15
}

/// A snapshot that was read.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    pub head: SnapshotHead,
    /// The stack bytes, from `head.capture.stack_low` on.
    pub stack: &'a [u8],
    /// Frozen frames of a virtual thread.
    pub frozen: Frozen<'a>,
    /// Bytes of its name; empty if it has none, or if it was left out.
    pub name: &'a [u8],
    /// True if the handler wrote it; otherwise it is made of the request itself.
    pub is_copy: bool,
}

impl<'a> Snapshot<'a> {
    /// A snapshot of registers only.
    pub fn of_registers(capture: Capture) -> Self {
        let head = SnapshotHead { capture, ..SnapshotHead::default() };
        Self { head, stack: &[], frozen: Frozen::NONE, name: &[], is_copy: true }
    }

    /// A snapshot from a request without one: enough for the newest frame.
    pub fn of_request(request: &Request) -> Self {
        let capture = Capture {
            pc: request.pc,
            sp: request.sp,
            fp: request.fp,
            // The address of the `JavaThread` is unknown; nothing is read from there.
            thread: u64::from(request.flags.contains(RequestFlags::IN_JAVA_THREAD)),
            thread_state: u64::from(request.thread_state.cast_unsigned()),
            stack_low: request.sp,
            stack_high: request.sp,
            ..Capture::default()
        };
        Self { is_copy: false, ..Self::of_registers(capture) }
    }

    /// Reads a snapshot; `None` if the bytes are too short.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let (capture, words) = head.split_at_checked(CAPTURE_BYTES)?;
        let mut words = words.as_chunks::<8>().0.iter().copied();
        let capture = Capture::from_bytes(capture)?;
        let compiled_method = u64::from_ne_bytes(words.next()?);
        let previous_cycles = u64::from_ne_bytes(words.next()?);
        let stack_bytes = u64::from_ne_bytes(words.next()?);
        let virtual_thread = u64::from_ne_bytes(words.next()?);
        let [chunks, emptied, frozen_extent, name_coder, e, f, g, h] = words.next()?;
        let head = SnapshotHead {
            capture,
            compiled_method,
            previous_cycles,
            stack_bytes,
            virtual_thread,
            chunks,
            emptied,
            frozen_extent,
            name_coder,
            name_bytes: u32::from_ne_bytes([e, f, g, h]),
        };
        let stack = rest.get(..usize::try_from(stack_bytes).ok()?)?;
        let chunks = rest.get(padded(stack.len())..).unwrap_or_default();
        let count = usize::from(head.chunks);
        let (mut first, mut rest) = (chunks, chunks);
        let (mut found, mut end) = (0, 0);
        for chunk in std::iter::from_fn(|| chunk_copy(&mut rest)).take(count) {
            (found, end) = (found + 1, chunk.end);
        }
        let copies = std::iter::from_fn(|| chunk_copy(&mut first)).take(count);
        let whole = head.frozen_extent == FrozenExtent::Whole as u8 && found == count;
        let frozen = match found {
            0 => Frozen::NONE,
            _ => Frozen::new(copies.map(|chunk| chunk.copy), whole).ending_at(end).emptied(head.emptied != 0),
        };
        // After an incomplete chunk there is no name.
        let name = rest.get(..head.name_bytes as usize).filter(|_| found == count).unwrap_or_default();
        Some(Self { head, stack, frozen, name, is_copy: true })
    }

    /// Returns the name of the virtual thread, if it was copied.
    pub fn virtual_thread_name(&self) -> Option<String> {
        let text = match self.head.name_coder {
            0 => self.name.iter().map(|&byte| char::from(byte)).collect(),
            _ => from_utf16(self.name.as_chunks::<2>().0.iter().map(|&unit| u16::from_ne_bytes(unit))),
        };
        Some(text).filter(|text: &String| !text.is_empty())
    }
}

struct ChunkCopy<'a> {
    copy: StackCopy<'a>,
    /// End address of its frames, copied or not.
    end: u64,
}

/// Reads the chunk at the start of `rest`, and advances `rest`.
fn chunk_copy<'a>(rest: &mut &'a [u8]) -> Option<ChunkCopy<'a>> {
    let (address, after) = rest.split_first_chunk::<8>()?;
    let (length, after) = after.split_first_chunk::<4>()?;
    let (used, after) = after.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
    let chunk = after.get(..length)?;
    *rest = after.get(padded(length)..).unwrap_or_default();
    let address = u64::from_ne_bytes(*address);
    let end = address.saturating_add(u64::from(u32::from_ne_bytes(*used)));
    Some(ChunkCopy { copy: StackCopy::new(address, chunk), end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: &SnapshotHead) -> Vec<u8> {
        let mut bytes = head.capture.to_bytes().to_vec();
        for word in [head.compiled_method, head.previous_cycles, head.stack_bytes, head.virtual_thread] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&[head.chunks, head.emptied, head.frozen_extent, head.name_coder]);
        bytes.extend_from_slice(&head.name_bytes.to_ne_bytes());
        bytes.resize(HEAD_BYTES, 0);
        bytes
    }

    #[test]
    fn names_of_both_widths() {
        let name: Vec<u8> = "\u{65e5}-1".encode_utf16().flat_map(u16::to_ne_bytes).collect();
        let head = SnapshotHead { name_coder: 1, name_bytes: 6, ..SnapshotHead::default() };
        let bytes = [written(&head), name].concat();
        let read = |bytes| Snapshot::read(bytes).and_then(|snapshot| snapshot.virtual_thread_name());
        assert_eq!(read(&bytes).as_deref(), Some("\u{65e5}-1"));
        assert_eq!(read(&bytes[..bytes.len() - 1]), None, "an incomplete name");
    }

    #[test]
    fn reads_what_was_written() {
        let head = SnapshotHead {
            capture: Capture { pc: 7, stack_high: 9, ..Capture::default() },
            compiled_method: 0x5000,
            previous_cycles: 77,
            stack_bytes: 5,
            virtual_thread: 31,
            chunks: 2,
            emptied: 1,
            frozen_extent: FrozenExtent::Whole as u8,
            name_coder: 0,
            name_bytes: 5,
        };
        let mut bytes = written(&head);
        bytes.extend_from_slice(b"stack-----------");
        for (address, text) in [(0x1000_u64, &b"newest chunk....."[..]), (0x2000, b"older")] {
            bytes.extend_from_slice(&address.to_ne_bytes());
            for length in [text.len() as u32, text.len() as u32] {
                bytes.extend_from_slice(&length.to_ne_bytes());
            }
            bytes.extend_from_slice(text);
            bytes.resize(padded(bytes.len()), 0);
        }
        let end_of_chunks = bytes.len();
        bytes.extend_from_slice(b"na\xefve-----------");
        let snapshot = Snapshot::read(&bytes).expect("whole");
        assert_eq!(snapshot.virtual_thread_name().as_deref(), Some("na\u{ef}ve"));
        assert_eq!((snapshot.head, snapshot.stack), (head, &b"stack"[..]));
        let chunk = |index| snapshot.frozen.chunk(index).map(|copy| (copy.base(), copy.end() - copy.base()));
        assert_eq!([chunk(0), chunk(1), chunk(2)], [Some((0x1000, 17)), Some((0x2000, 5)), None]);
        assert!(snapshot.frozen.is_whole());
        assert!(Snapshot::read(&bytes[..HEAD_BYTES - 1]).is_none());
        assert!(Snapshot::read(&bytes[..HEAD_BYTES + 4]).is_none(), "stack bytes are missing");
        let cut = Snapshot::read(&bytes[..HEAD_BYTES + 32 + 16]).expect("a stack");
        assert!(cut.frozen.chunk(0).is_none(), "an incomplete chunk");
        let cut = Snapshot::read(&bytes[..end_of_chunks - 16]).expect("a stack");
        assert!(cut.frozen.chunk(0).is_some() && !cut.frozen.is_whole(), "the oldest chunk is missing");
        assert_eq!(cut.virtual_thread_name(), None);
    }
}
