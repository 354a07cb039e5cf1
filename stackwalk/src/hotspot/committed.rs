//! Which parts of the reserved heap have memory.
//!
//! Problem: a collector reserves addresses for the largest heap and commits memory for what it uses; a load from the
//! rest faults.
//! Approach: each collector keeps account of it in words that the VM's tables describe. They stay where they are as
//! long as the VM lives; what they say changes.
//!
//! ```text
//! Serial      _young_gen, _old_gen -> _virtual_space, from _low to _high
//! Parallel    _young_gen, _old_gen -> _virtual_space -> from _committed_low_addr to _committed_high_addr
//! G1          _hrm._regions[address >> shift] -> region; in use unless its type is free
//! Shenandoah  _regions[(address - start) >> shift] -> region; in use if its state is above _empty_committed
//! ZGC         _heap._page_table._map[offset >> granule shift] -> page; in use if there is one
//! ```
//!
//! The number of ZGC's entries is in no table of the VM: it is the word before the pointer to them
//! (`ZGranuleMap::_size`). In JDK 25 it is smaller than the offsets that an address has room for.
//! The result is `None` if a row is missing (Parallel in JDK 28) or what was read does not fit together.
//! Sources: `memory/virtualspace.hpp`, `gc/parallel/psVirtualspace.hpp`, `gc/g1/{heapRegionManager,g1BiasedArray}.hpp`
//! (`g1HeapRegionManager` in JDK 25), `gc/shenandoah/shenandoahHeapRegion.hpp`, `gc/z/{zPageTable,zGranuleMap}.hpp`,
//! JDK 21 and 25.
//! Invariant: a signal handler calls [`Committed::holds`]; it takes no lock and allocates nothing.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use super::HotSpot;
use super::heap_layout::{G1Layout, PageLayout, ParallelLayout, SerialLayout, ShenandoahLayout};
use super::vm_structs::FieldRow;
use crate::memory::{Memory, at};

/// `HeapRegionType::FreeTag` (`gc/g1/heapRegionType.hpp`): a region that may be given back.
const FREE: u32 = 0;

/// `ShenandoahHeapRegion::_empty_committed` (`gc/shenandoah/shenandoahHeapRegion.hpp`): it may be given back, after
/// which its state is `_empty_uncommitted`, 0.
const EMPTY_COMMITTED: u32 = 1;

/// The account that a collector keeps of its committed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Committed {
    /// Two ranges.
    Spaces([Space; 2]),
    /// Regions or pages of equal size.
    Regions(Regions),
}

/// The words that bound a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Address of the word with the first byte's address.
    pub low: u64,
    /// Address of the word with the address behind the last byte.
    pub high: u64,
}

/// A table with one word for each region, 0 if it was never committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regions {
    /// Address that the entry of the region at address 0 would have.
    pub entries: u64,
    /// Bits of an object's address that tell where it lies.
    pub mask: u64,
    /// log2 of the bytes of a region.
    pub shift: u32,
    /// Number of the first region that has no entry, counted from address 0 of the mask.
    pub end: u64,
    /// The state of a region; `None` if it is in use as long as it has an entry.
    pub state: Option<RegionState>,
}

/// A number of 32 bits in a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionState {
    /// Its offset from the address in the region's entry.
    pub offset: u32,
    /// Largest of the values that it has while the region is not in use.
    pub unused: u32,
}

impl Committed {
    /// Returns whether all of the `bytes` bytes from `address` on, which lie in the reserved heap, have memory.
    ///
    /// `load` reads 8 bytes at an address that is a multiple of 8: a word of the VM that is never freed.
    pub fn holds(&self, address: u64, bytes: u64, mut load: impl FnMut(u64) -> Option<u64>) -> bool {
        let Some(last) = bytes.checked_sub(1).and_then(|more| address.checked_add(more)) else {
            return false;
        };
        match self {
            Self::Spaces(spaces) => spaces.iter().any(|space| {
                load(space.low).is_some_and(|low| low <= address)
                    && load(space.high).is_some_and(|high| last < high)
            }),
            Self::Regions(regions) => {
                let (mut number, last) = (regions.number(address), regions.number(last));
                if last >= regions.end {
                    return false;
                }
                while number <= last {
                    if !regions.has_memory(number, &mut load) {
                        return false;
                    }
                    number = number.saturating_add(1);
                }
                true
            }
        }
    }
}

impl Regions {
    const fn number(&self, address: u64) -> u64 {
        (address & self.mask).wrapping_shr(self.shift)
    }

    const fn entry(&self, number: u64) -> u64 {
        self.entries.wrapping_add(number.wrapping_mul(8))
    }

    fn has_memory(&self, number: u64, load: &mut impl FnMut(u64) -> Option<u64>) -> bool {
        let Some(region) = load(self.entry(number)).filter(|&region| region != 0) else { return false };
        let Some(state) = self.state else { return true };
        let word = at(region, state.offset);
        let shift = ((word & 4) as u32).wrapping_mul(8);
        load(word & !7).is_some_and(|bits| bits.wrapping_shr(shift) as u32 > state.unused)
    }
}

impl HotSpot {
    /// The account of the collector in use, whose objects lie from `start` up to `end`; `None` if it is unknown. The VM
    /// must have started.
    pub(super) fn committed<M: Memory + ?Sized>(
        &self,
        memory: &M,
        start: u64,
        end: u64,
    ) -> Option<Committed> {
        let flag = |name| self.bool_flag(memory, name) == Some(true);
        let heap = memory.read_u64(self.layout.continuation.heap?).ok()?;
        let layout = &self.layout.heap;
        match () {
            () if flag("UseSerialGC") => serial(memory, heap, &layout.serial?),
            () if flag("UseParallelGC") => parallel(memory, heap, &layout.parallel?),
            () if flag("UseG1GC") => g1(memory, heap, &layout.g1?)?.regions(memory, start, end),
            () if flag("UseShenandoahGC") => {
                shenandoah(memory, heap, &layout.shenandoah?)?.regions(memory, start, end)
            }
            () => None,
        }
    }

    /// The account of ZGC; `offset_mask` has the bits of an address that are its offset in the heap.
    pub(super) fn committed_pages<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: Option<PageLayout>,
        offset_mask: u64,
    ) -> Option<Committed> {
        let PageLayout { base, shift } = layout?;
        let pointer = at(memory.read_u64(self.layout.continuation.heap?).ok()?, base);
        let entries = memory.read_u64(pointer).ok().filter(|&entries| entries != 0)?;
        let end = memory.read_u64(pointer.checked_sub(8)?).ok()?;
        let fits = end <= offset_mask.checked_add(1)?.checked_shr(shift)?;
        let regions = Regions { entries, mask: offset_mask, shift, end, state: None };
        (fits && is_table(memory, &regions, 0)).then_some(Committed::Regions(regions))
    }
}

fn serial<M: Memory + ?Sized>(memory: &M, heap: u64, layout: &SerialLayout) -> Option<Committed> {
    let space = |field| {
        let generation = memory.read_u64(at(heap, field)).ok().filter(|&generation| generation != 0)?;
        let space = at(generation, layout.space);
        Some(Space { low: at(space, layout.low), high: at(space, layout.high) })
    };
    Some(Committed::Spaces([space(layout.young)?, space(layout.old)?]))
}

fn parallel<M: Memory + ?Sized>(memory: &M, heap: u64, layout: &ParallelLayout) -> Option<Committed> {
    let follow = |address| memory.read_u64(address).ok().filter(|&pointer| pointer != 0);
    let space = |generation, space| {
        let generation = match generation {
            FieldRow::Static { address } => address,
            FieldRow::Instance { offset, .. } => at(heap, offset),
        };
        let space = follow(at(follow(generation)?, space))?;
        Some(Space { low: at(space, layout.low), high: at(space, layout.high) })
    };
    let young = space(layout.young, layout.young_space)?;
    Some(Committed::Spaces([young, space(layout.old, layout.old_space)?]))
}

fn g1<M: Memory + ?Sized>(memory: &M, heap: u64, layout: &G1Layout) -> Option<Array> {
    let table = at(heap, layout.table);
    Some(Array {
        base: memory.read_u64(at(table, layout.base)).ok()?,
        length: memory.read_u64(at(table, layout.length)).ok()?,
        shift: memory.read_u32(at(table, layout.shift)).ok()?,
        bottom: layout.bottom,
        state: RegionState { offset: layout.state, unused: FREE },
    })
}

fn shenandoah<M: Memory + ?Sized>(memory: &M, heap: u64, layout: &ShenandoahLayout) -> Option<Array> {
    Some(Array {
        base: memory.read_u64(at(heap, layout.base)).ok()?,
        length: memory.read_u64(at(heap, layout.length)).ok()?,
        shift: u32::try_from(memory.read_u64(layout.shift).ok()?).ok()?,
        bottom: layout.bottom,
        state: RegionState { offset: layout.state, unused: EMPTY_COMMITTED },
    })
}

/// Pointers to the regions of a heap, in the order of their addresses.
struct Array {
    base: u64,
    length: u64,
    shift: u32,
    /// Offset of a region's first address, in the region.
    bottom: u32,
    state: RegionState,
}

impl Array {
    /// Returns the table if it has an entry for each region from `start` up to `end`.
    fn regions<M: Memory + ?Sized>(&self, memory: &M, start: u64, end: u64) -> Option<Committed> {
        let first = start.checked_shr(self.shift)?;
        let is_aligned = first.checked_shl(self.shift) == Some(start);
        let is_complete = end.checked_sub(start)?.checked_shr(self.shift) == Some(self.length);
        if self.base == 0 || !is_aligned || !is_complete {
            return None;
        }
        let regions = Regions {
            entries: self.base.wrapping_sub(first.wrapping_mul(8)),
            mask: u64::MAX,
            shift: self.shift,
            end: first.checked_add(self.length)?,
            state: Some(self.state),
        };
        // The first region that exists has its own address.
        let (number, region) = (first..regions.end).find_map(|number| {
            let region = memory.read_u64(regions.entry(number)).ok().filter(|&region| region != 0)?;
            Some((number, region))
        })?;
        let bottom = memory.read_u64(at(region, self.bottom)).ok()?;
        let fits = bottom == number.wrapping_shl(self.shift) && is_table(memory, &regions, first);
        fits.then_some(Committed::Regions(regions))
    }
}

/// Returns whether the entries from `first` to the last can be read.
fn is_table<M: Memory + ?Sized>(memory: &M, regions: &Regions, first: u64) -> bool {
    let is_readable = |number| memory.read_u64(regions.entry(number)).is_ok();
    regions.end > first && is_readable(first) && is_readable(regions.end.wrapping_sub(1))
}
