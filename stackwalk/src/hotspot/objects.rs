//! How the collector moves objects, and how a reference shows that its object stays where it is.
//!
//! Problem: some collectors move objects while Java code runs; a handler may follow a reference only if its object
//! cannot move before the handler returns.
//! Approach: a handler makes the test that compiled code makes before it uses a reference (`design/signal-safety.md`).
//!
//! ```text
//! Serial, Parallel, G1         objects move in pauses only
//! Shenandoah                   an object that was copied has the address of its copy in its mark word
//! ZGC                          reference = address << shift | colour; usable if it has no colour of the bad mask
//! ZGC without generations      address = colour | offset; usable if it has no colour of the bad mask
//! ```
//!
//! Problem: on a stack, ZGC with generations keeps addresses without colours, which are corrected some time after a
//! pause.
//! Approach: the VM then also stores the masks of that moment in the `JavaThread`. The place of these masks is in no
//! table: five masks of different values follow each other there, and this sequence is searched for.
//! Sources: `gc/z/{zAddress.inline,zThreadLocalData,zStackWatermark,vmStructs_z}`, `gc/x/{xAddress,vmStructs_x}`,
//! `gc/shenandoah/shenandoahForwarding.inline.hpp`, `cpu/x86/gc/z/zAddress_x86.inline.hpp`, JDK 21 and 25.

use super::HotSpot;
use super::committed::Committed;
use super::heap_layout::ColourLayout;
use crate::memory::{Memory, at};

/// Collectors that move objects in pauses only.
const PAUSING_COLLECTORS: [&str; 3] = ["UseSerialGC", "UseParallelGC", "UseG1GC"];

/// How many words of a `JavaThread` are searched for the masks, which are members of its base class `Thread`; seen at
/// word 5 (JDK 21) and 7 (JDK 25).
const THREAD_WORDS: usize = 128;

/// Masks that stand together in a `JavaThread`: load good, load bad, mark bad, store good, store bad.
const THREAD_MASKS: usize = 5;

/// How a reference leads to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objects {
    /// Objects move in pauses only.
    Still,
    /// An object that was copied has the address of its copy, and the two low bits set, in its mark word.
    Forwarded,
    Coloured(Colours),
}

/// Words of the VM by which the colour of a reference is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colours {
    /// Address of the mask of bad colours.
    pub bad_mask: u64,
    /// Address of the mask of good colours.
    pub good_mask: u64,
    /// Colours of references that lie below their address; `None` if they are part of the address.
    pub shifted: Option<Shifted>,
    /// Address of the number of collections that have begun, 32 bits.
    pub collections: u64,
}

/// Colours below an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shifted {
    /// Address of the number of bits by which a good reference is shifted.
    pub shift: u64,
    /// Offset, in a `JavaThread`, of the good mask for which the references outside of its frames were corrected.
    pub thread_good_mask: u32,
}

/// Bits of a shifted reference that are never part of an address: a reference without others is null.
pub const COLOUR_BITS: u32 = 16;

/// Low bits of the mark word of an object that was copied (`markWord::marked_value`).
pub const FORWARDED: u64 = 3;

/// Objects of a collector, and where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectedHeap {
    /// How references lead to objects.
    pub objects: Objects,
    /// Addresses that objects may have.
    pub range: (u64, u64),
    /// The part of these that has memory; `None` if that is unknown.
    pub committed: Option<Committed>,
}

/// The VM's words for colours.
struct Table {
    good_mask: u64,
    bad_mask: u64,
    /// Bits of an offset in the heap.
    offset_mask: u64,
}

impl Table {
    /// Follows the table's pointers; `None` if this collector is not used, which leaves its words 0.
    fn read<M: Memory + ?Sized>(layout: ColourLayout, memory: &M) -> Option<Self> {
        let table = memory.read_u64(layout.instance).ok()?;
        let word = |offset| memory.read_u64(at(table, offset)).ok().filter(|&address| address != 0);
        let (good_mask, bad_mask) = (word(layout.good_mask)?, word(layout.bad_mask)?);
        let offset_mask = memory.read_u64(word(layout.offset_mask)?).ok()?;
        let is_used = memory.read_u64(bad_mask).ok()? != 0 && offset_mask != 0;
        is_used.then_some(Self { good_mask, bad_mask, offset_mask })
    }
}

impl HotSpot {
    /// Returns how this VM's collector moves objects and where they lie; `None` if that is unknown. The VM must have
    /// started.
    pub fn collected_heap<M: Memory + ?Sized>(&self, memory: &M) -> Option<CollectedHeap> {
        let flag = |name| self.bool_flag(memory, name) == Some(true);
        if flag("UseZGC") {
            return self.shifted_colours(memory).or_else(|| self.colours_in_addresses(memory));
        }
        let objects = match () {
            () if PAUSING_COLLECTORS.into_iter().any(flag) => Objects::Still,
            () if flag("UseShenandoahGC") => Objects::Forwarded,
            () => return None,
        };
        let layout = &self.layout.continuation;
        let reserved = at(memory.read_u64(layout.heap?).ok()?, layout.reserved?);
        let start = memory.read_u64(at(reserved, layout.region_start?)).ok()?;
        let words = memory.read_u64(at(reserved, layout.region_words?)).ok()?;
        let end = start.checked_add(words.checked_mul(8)?)?;
        let (range, committed) = ((start, end), self.committed(memory, start, end));
        (start != 0).then_some(CollectedHeap { objects, range, committed })
    }

    /// ZGC with generations.
    fn shifted_colours<M: Memory + ?Sized>(&self, memory: &M) -> Option<CollectedHeap> {
        let layout = self.layout.shifted_colours?;
        let table = Table::read(layout.colours, memory)?;
        let pointers = memory.read_u64(layout.colours.instance).ok()?;
        let shift = memory.read_u64(at(pointers, layout.shift)).ok()?;
        let size = table.offset_mask.checked_add(1)?;
        // The bit above the offset is set in every address.
        let range = (size, size.checked_mul(2)?);
        let colours = Colours {
            good_mask: table.good_mask,
            bad_mask: table.bad_mask,
            shifted: Some(Shifted { shift, thread_good_mask: self.thread_masks(memory, pointers)? }),
            collections: self.collections(memory)?,
        };
        let committed = self.committed_pages(memory, self.layout.heap.z, table.offset_mask);
        Some(CollectedHeap { objects: Objects::Coloured(colours), range, committed })
    }

    /// ZGC without generations, up to JDK 23.
    fn colours_in_addresses<M: Memory + ?Sized>(&self, memory: &M) -> Option<CollectedHeap> {
        let layout = self.layout.colours_in_addresses?;
        let table = Table::read(layout.colours, memory)?;
        let pointers = memory.read_u64(layout.colours.instance).ok()?;
        let metadata = memory.read_u64(memory.read_u64(at(pointers, layout.metadata_mask)).ok()?).ok()?;
        let range = (table.offset_mask.checked_add(1)?, (metadata | table.offset_mask).checked_add(1)?);
        let colours = Colours {
            good_mask: table.good_mask,
            bad_mask: table.bad_mask,
            shifted: None,
            collections: self.collections(memory)?,
        };
        let committed = self.committed_pages(memory, self.layout.heap.x, table.offset_mask);
        Some(CollectedHeap { objects: Objects::Coloured(colours), range, committed })
    }

    /// Address of the number of collections that have begun.
    fn collections<M: Memory + ?Sized>(&self, memory: &M) -> Option<u64> {
        let heap = memory.read_u64(self.layout.continuation.heap?).ok()?;
        Some(at(heap, self.layout.continuation.collections?))
    }

    /// Address of a byte that is not 0 while a collector has stopped the program; usable once the VM is initialised.
    /// The heap's object, which holds it, is never freed.
    #[must_use]
    pub fn stopping_collector<M: Memory + ?Sized>(&self, memory: &M) -> Option<u64> {
        let heap = memory.read_u64(self.layout.continuation.heap?).ok().filter(|&heap| heap != 0)?;
        Some(at(heap, self.layout.continuation.gc_active?))
    }

    /// Offset of the good mask in a `JavaThread`, from the first thread that has the masks of this moment.
    fn thread_masks<M: Memory + ?Sized>(&self, memory: &M, pointers: u64) -> Option<u32> {
        let fields = self.layout.shifted_colours?.thread_masks;
        self.java_threads(memory).find_map(|thread| {
            let mut masks = [0; THREAD_MASKS];
            for (mask, field) in masks.iter_mut().zip(fields) {
                *mask = memory.read_u64(memory.read_u64(at(pointers, field)).ok()?).ok()?;
            }
            let mut words = [0; THREAD_WORDS * 8];
            memory.read(thread, &mut words).ok()?;
            find_masks(&words, &masks)
        })
    }
}

/// Offset of `masks` in the bytes of a thread, if they stand there once.
fn find_masks(thread: &[u8], masks: &[u64; THREAD_MASKS]) -> Option<u32> {
    let words = thread.as_chunks::<8>().0;
    let is_at =
        |window: &[[u8; 8]]| window.iter().zip(masks).all(|(word, mask)| u64::from_ne_bytes(*word) == *mask);
    let mut found = words.windows(THREAD_MASKS).enumerate().filter(|(_, window)| is_at(window));
    let (index, _) = found.next()?;
    let has_values = masks.iter().all(|&mask| mask != 0);
    (has_values && found.next().is_none()).then_some(index as u32 * 8)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn masks_are_found_where_they_stand_once() {
        let masks = [0x1000, 0xe000, 0xeac0, 0x1510, 0xeae0];
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let thread = [&[7, 0x1000, 0xe000][..], &masks, &[9]].concat();
        assert_eq!(find_masks(&bytes(&thread), &masks), Some(24));
        assert_eq!(find_masks(&bytes(&thread[..7]), &masks), None, "incomplete");
        assert_eq!(find_masks(&bytes(&[thread.clone(), thread].concat()), &masks), None, "ambiguous");
        assert_eq!(find_masks(&[0; 80], &[0; THREAD_MASKS]), None, "the collector has not started");
    }
}
