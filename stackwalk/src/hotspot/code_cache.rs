//! From a pc to the code blob that holds it.
//!
//! The code cache is up to a few `CodeHeap`s, each a reserved range committed from its low end and divided into
//! segments. A byte per segment says how far back the block containing it begins: 0 at a block's first segment,
//! 0xFF for memory never used, otherwise a number of segments to go back, possibly in several hops.
//! A block is a small header (length, used) followed by the blob.
//! Blocks are freed and reused concurrently: the caller has to check what it finds.
//! Sources: `memory/heap.{hpp,cpp}`, `code/codeCache.cpp`, JDK 11 to 25.

use super::layout::CodeHeapLayout;
use super::layout_error::LayoutError;
use super::offsets::SizedField;
use crate::limits::{MAX_CODE_HEAPS, MAX_SEGMENT_HOPS};
use crate::memory::{Memory, Unreadable, at};
use crate::stop::Stop;
use core::sync::atomic::{AtomicU64, Ordering};

/// Segment that was never part of a block.
const UNUSED_SEGMENT: u8 = 0xff;

/// Segment sizes HotSpot chooses lie between 64 bytes and a page.
const LOG2_SEGMENT_SIZES: core::ops::RangeInclusive<u32> = 3..=16;

/// One heap; all but its committed end is fixed once the VM has started.
#[derive(Debug)]
struct CodeHeap {
    object: u64,
    low: u64,
    reserved_end: u64,
    log2_segment_size: u32,
    segmap: u64,
    /// Last known committed end; it only grows, so a stale value costs one read and never an error.
    /// Relaxed: no other data is published with it.
    committed_end: AtomicU64,
}

/// All heaps of one VM.
#[derive(Debug)]
pub(crate) struct CodeCache {
    heaps: [Option<CodeHeap>; MAX_CODE_HEAPS],
}

impl CodeCache {
    pub(crate) fn read<M: Memory + ?Sized>(layout: &CodeHeapLayout, memory: &M) -> Result<Self, LayoutError> {
        let array = memory.read_u64(layout.heaps)?;
        if array == 0 {
            return Err(LayoutError::NotStarted);
        }
        let length = memory.read_u32(at(array, layout.growable_length))?;
        let data = memory.read_u64(at(array, layout.growable_data))?;
        let mut heaps = [const { None }; MAX_CODE_HEAPS];
        for (heap, index) in heaps.iter_mut().zip(0..u64::from(length)) {
            let object = memory.read_u64(data.wrapping_add(index * 8))?;
            *heap = Some(CodeHeap::read(layout, memory, object)?);
        }
        if length == 0 {
            return Err(LayoutError::NotStarted);
        }
        Ok(Self { heaps })
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.heap(address).is_some()
    }

    fn heap(&self, address: u64) -> Option<&CodeHeap> {
        self.heaps.iter().flatten().find(|heap| address >= heap.low && address < heap.reserved_end)
    }

    /// Address of the blob in use at `pc`.
    pub(crate) fn find_blob<M: Memory + ?Sized>(
        &self,
        layout: &CodeHeapLayout,
        memory: &M,
        pc: u64,
    ) -> Result<u64, Stop> {
        let heap = self.heap(pc).ok_or(Stop::NativeCode(pc))?;
        if pc >= heap.committed_end.load(Ordering::Relaxed) && pc >= heap.refresh(layout, memory)? {
            return Err(Stop::UnknownCode(pc));
        }
        let block = heap.find_block(memory, pc)?.ok_or(Stop::UnknownCode(pc))?;
        if memory.read_u8(at(block, layout.block_used))? == 0 {
            return Err(Stop::UnknownCode(pc));
        }
        Ok(block.wrapping_add(layout.block_header))
    }

    /// Addresses of all blobs in use, heap by heap; ends early at a block that changes while it is read.
    pub(crate) fn blobs<'c, M: Memory + ?Sized>(
        &'c self,
        layout: &'c CodeHeapLayout,
        length: SizedField,
        memory: &'c M,
    ) -> impl Iterator<Item = u64> + 'c {
        self.heaps.iter().flatten().flat_map(move |heap| {
            let end = heap.committed_end.load(Ordering::Relaxed);
            let block_after = move |block: u64| {
                let segments = length.read(memory, block).ok().filter(|&segments| segments != 0)?;
                let next = block.checked_add(segments.checked_shl(heap.log2_segment_size)?)?;
                (next > block && next < end).then_some(next)
            };
            let first = (heap.low < end).then_some(heap.low);
            core::iter::successors(first, move |&block| block_after(block)).filter_map(move |block| {
                let used = memory.read_u8(at(block, layout.block_used)).ok()?;
                (used != 0).then_some(block.wrapping_add(layout.block_header))
            })
        })
    }

    /// Committed code, segment maps and the variables with their ends, as (start, end).
    pub(crate) fn ranges<M: Memory + ?Sized>(
        &self,
        layout: &CodeHeapLayout,
        memory: &M,
    ) -> [Option<[(u64, u64); 3]>; MAX_CODE_HEAPS] {
        self.heaps.each_ref().map(|heap| heap.as_ref().and_then(|heap| heap.ranges(layout, memory).ok()))
    }
}

impl CodeHeap {
    fn read<M: Memory + ?Sized>(
        layout: &CodeHeapLayout,
        memory: &M,
        object: u64,
    ) -> Result<Self, LayoutError> {
        let space = at(object, layout.memory);
        let log2_segment_size = memory.read_u32(object.wrapping_add(u64::from(layout.log2_segment_size)))?;
        let segmap = at(object, layout.segmap).wrapping_add(u64::from(layout.space_low));
        let heap = Self {
            object,
            low: memory.read_u64(at(space, layout.space_low_boundary))?,
            reserved_end: memory.read_u64(at(space, layout.space_high_boundary))?,
            log2_segment_size,
            segmap: memory.read_u64(segmap)?,
            committed_end: AtomicU64::new(0),
        };
        if !LOG2_SEGMENT_SIZES.contains(&log2_segment_size) || heap.low == 0 || heap.low > heap.reserved_end {
            return Err(LayoutError::NotStarted);
        }
        heap.refresh(layout, memory)?;
        Ok(heap)
    }

    /// Reads the committed end again.
    fn refresh<M: Memory + ?Sized>(&self, layout: &CodeHeapLayout, memory: &M) -> Result<u64, Unreadable> {
        let end = memory.read_u64(self.high(layout))?;
        Ok(self.commit(end))
    }

    /// Address of the end of the committed code.
    fn high(&self, layout: &CodeHeapLayout) -> u64 {
        at(at(self.object, layout.memory), layout.space_high)
    }

    /// Notes and returns the end of the committed code.
    fn commit(&self, end: u64) -> u64 {
        let end = end.min(self.reserved_end);
        // Walks of all threads look at this line.
        if self.committed_end.load(Ordering::Relaxed) != end {
            self.committed_end.store(end, Ordering::Relaxed);
        }
        end
    }

    /// Follows the segment map from `pc` to the header of its block.
    fn find_block<M: Memory + ?Sized>(&self, memory: &M, pc: u64) -> Result<Option<u64>, Unreadable> {
        let mut segment = (pc - self.low) >> self.log2_segment_size;
        for _ in 0..MAX_SEGMENT_HOPS {
            match memory.read_u8(self.segmap.wrapping_add(segment))? {
                0 => return Ok(Some(self.low + (segment << self.log2_segment_size))),
                UNUSED_SEGMENT => return Ok(None),
                hop => match segment.checked_sub(u64::from(hop)) {
                    Some(earlier) => segment = earlier,
                    None => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    fn ranges<M: Memory + ?Sized>(
        &self,
        layout: &CodeHeapLayout,
        memory: &M,
    ) -> Result<[(u64, u64); 3], Unreadable> {
        let (high, segmap_high) = (self.high(layout), at(at(self.object, layout.segmap), layout.space_high));
        let [committed, segmap_end] = memory.read_words([high, segmap_high])?;
        // Both lie in the `CodeHeap`, which is never freed.
        let ends = (high.min(segmap_high), high.max(segmap_high).saturating_add(8));
        Ok([(self.low, self.commit(committed)), (self.segmap, segmap_end), ends])
    }
}
