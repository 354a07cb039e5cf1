//! Virtual threads: where a thread keeps its continuation entry, and where frames wait in the heap.
//!
//! A virtual thread that has blocked is mounted again with its newest frames only. The others stay in `StackChunk`
//! objects, newest chunk first, and the oldest frame on the stack returns into the *return barrier*, a stub that thaws
//! more.
//!
//! ```text
//! JavaThread::_cont_entry -> ContinuationEntry (on the stack) -> Continuation.tail -> StackChunk -> parent ...
//! StackChunk: [header, fields] [ free | frames from word `sp` up to word `bottom` | stack arguments ]
//! ```
//!
//! Problem: the tables of most releases describe none of this.
//! Approach: the offset of `_cont_entry` is the operand of the barrier's first instruction, which is searched for in
//! the short blobs of routines. The agent gets the declared fields of the classes from JNI ([`ChunkClass`]). The stack
//! words begin where an ordinary instance would end (`Klass::_layout_helper`).
//! The result is `None` if anything is missing. A walk then ends at the barrier, marked as cut.
//! Sources: `runtime/continuationEntry.hpp`, `oops/{stackChunkOop,instanceStackChunkKlass}.*`,
//! `cpu/x86/stubGenerator_x86_64.cpp` (`generate_cont_thaw`), `cpu/x86/sharedRuntime_x86_64.cpp`
//! (`continuation_enter_setup`), JDK 21 and 25.

use super::HotSpot;
use super::code_blob::may_hold_routines;
use super::committed::Committed;
use super::layout::ContinuationLayout;
use super::objects::{CollectedHeap, Objects};
use crate::cpu::{BARRIER_START, return_barrier};
use crate::limits::MAX_CODE_BLOBS;
use crate::memory::{Memory, at};

/// Offset of `ContinuationEntry::_parent`, in the tables from JDK 27 on only: an empty base class takes the first word.
/// A wrong value is harmless: the other words of an entry are stack addresses, counters and flags, and only addresses
/// inside the heap are followed.
const ENTRY_PARENT: u32 = 8;

/// First release in which a thread that returns from native code may take the state of Java code before it has looked
/// for a pause in progress (JDK-8390604).
const FIRST_TO_POLL_IN_JAVA: u32 = 28;

/// Largest blob that is searched for the barrier, in bytes: it holds a few short stubs; 4 KiB seen.
const MAX_STUBS: usize = 16 << 10;

/// The field of a `StackChunk` with the end of its frames.
///
/// Source: JDK-8329088, which replaced `argsize` by `bottom` in JDK 23 and 21.0.5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkBottom {
    /// The field `bottom`: words from the first word to the end of the frames.
    Field(u32),
    /// The field `argsize`, up to JDK 21.0.4 and in JDK 22: words between the frames and the end of the chunk.
    Arguments(u32),
}

/// Byte offsets of fields of `jdk.internal.vm.StackChunk`, `Continuation` and `java.lang.Thread`, from JNI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkClass {
    /// `Klass*` of `StackChunk`.
    pub klass: u64,
    /// `StackChunk.parent`.
    pub parent: u32,
    /// `StackChunk.size`.
    pub size: u32,
    /// `StackChunk.sp`.
    pub sp: u32,
    /// `StackChunk.bottom` or `argsize`.
    pub bottom: ChunkBottom,
    /// `Continuation.tail`.
    pub tail: u32,
    /// `java.lang.Thread.tid`.
    pub thread_id: u32,
    /// Fields and classes that lead to a thread's name, if all of them are known.
    pub name: Option<NameClass>,
}

/// Byte offsets of the fields that lead to a thread's name, and the classes of the objects they refer to, from JNI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameClass {
    /// `java.lang.Thread.name`.
    pub name: u32,
    /// `java.lang.String.value`.
    pub value: u32,
    /// `java.lang.String.coder`: 0 for one byte a character, 1 for two.
    pub coder: u32,
    /// `Klass*` of `String`.
    pub string: u64,
    /// `Klass*` of `byte[]`.
    pub bytes: u64,
    /// Offset of the first element of a `byte[]`.
    pub first_byte: u32,
}

/// Offsets with which a signal handler copies the name of the running virtual thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameOffsets {
    /// Fields of the classes.
    pub class: NameClass,
    /// Class word of a `String`, as [`FrozenOffsets::klass_word`].
    pub string_word: u64,
    /// Class word of a `byte[]`.
    pub bytes_word: u64,
    /// Offset of the length, 32 bits, of a `byte[]`.
    pub length: u32,
}

/// Offsets with which a signal handler copies the frozen frames of the running virtual thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrozenOffsets {
    /// Offset of the `Continuation` reference, always of full width, in a `ContinuationEntry`.
    pub continuation: u32,
    /// Fields of the classes.
    pub class: ChunkClass,
    /// Offset of the first stack word in a chunk.
    pub words: u32,
    /// Base and shift of compressed references; `None` if references take 8 bytes.
    pub narrow: Option<(u64, u32)>,
    /// Addresses that objects may have.
    pub heap: (u64, u64),
    /// The part of these that has memory; `None` if that is unknown.
    pub committed: Option<Committed>,
    /// How references lead to objects.
    pub objects: Objects,
    /// True if every pause waits for a thread whose state is in Java.
    pub holds_pauses_off: bool,
    /// Offset of the class word of an object.
    pub klass: u32,
    /// Class word of a chunk under `klass_mask`.
    pub klass_word: u64,
    /// Bits of the 8 bytes at `klass` that are the class word.
    pub klass_mask: u64,
    /// Names of threads; `None` if a field or class that leads to them is unknown.
    pub name: Option<NameOffsets>,
    /// First instruction of the return barrier.
    pub barrier: u64,
}

/// Bytes of a chunk that hold its header and its fields; 80 seen.
pub const CHUNK_FIELD_BYTES: u32 = 128;

impl FrozenOffsets {
    /// Returns whether a chunk's header and all fields of interest lie in its first [`CHUNK_FIELD_BYTES`], before the
    /// stack words.
    fn has_short_fields(&self) -> bool {
        let class = &self.class;
        let (ChunkBottom::Field(bottom) | ChunkBottom::Arguments(bottom)) = class.bottom;
        let fields = [class.parent, class.size, class.sp, bottom, self.klass];
        let end = self.words.min(CHUNK_FIELD_BYTES);
        fields.into_iter().all(|field| field.checked_add(8).is_some_and(|after| after <= end))
    }

    /// Returns whether the entry at `entry` is a filled one on the stack of a thread stopped at `pc` with this sp.
    ///
    /// `_cont_entry` is set before the entry is filled, the entry is filled before anything is called, and
    /// `_cont_entry` is reset before the entry is popped. With sp below the entry, something was called. With sp at the
    /// entry, a pc in the first instructions of the return barrier shows that a call has returned.
    /// Sources: `gen_continuation_enter` in `sharedRuntime_x86_64.cpp`, `generate_cont_thaw` in
    /// `stubGenerator_x86_64.cpp`, JDK 21 and 25.
    #[must_use]
    pub fn is_entered(&self, entry: u64, pc: u64, sp: u64) -> bool {
        is_entered(entry, pc, sp, self.barrier)
    }
}

fn is_entered(entry: u64, pc: u64, sp: u64, barrier: u64) -> bool {
    entry > sp || (entry == sp && pc.wrapping_sub(barrier) <= BARRIER_START)
}

struct Header {
    /// Offset of the 8 bytes that hold the class word.
    klass: u32,
    /// The bits of these that it takes.
    mask: u64,
    /// Bits below it.
    shift: u32,
    /// End of the header: an array's length follows.
    end: u32,
}

impl Header {
    /// The header as this VM lays it out; a compact one keeps the class in the mark word.
    ///
    /// Source: `oops/markWord.hpp` and `oops/arrayOop.hpp`, JDK 21 to 28.
    fn of(layout: &ContinuationLayout, compact: bool, compressed: bool) -> Option<Self> {
        if compact {
            let shift = layout.mark_klass_shift.filter(|&shift| (32..64).contains(&shift))?;
            return Some(Self { klass: 0, mask: u64::MAX << shift, shift, end: 8 });
        }
        let klass = layout.oop_klass?;
        Some(if compressed {
            Self { klass, mask: u64::from(u32::MAX), shift: 0, end: klass.checked_add(4)? }
        } else {
            Self { klass, mask: u64::MAX, shift: 0, end: klass.checked_add(8)? }
        })
    }

    /// The class word of a class with this number, if the number fits.
    fn class_word(&self, number: u64) -> Option<u64> {
        let word = number << self.shift;
        (word != 0 && word & self.mask == word && word >> self.shift == number).then_some(word)
    }
}

impl HotSpot {
    /// Offset of the injected field of `java.lang.Class` that leads to its `Klass`, once the VM has started.
    pub fn class_klass_offset<M: Memory + ?Sized>(&self, memory: &M) -> Option<u32> {
        memory.read_u32(self.layout.continuation.class_klass?).ok().filter(|&offset| offset != 0)
    }

    /// Offsets with which a handler follows a virtual thread into the heap; `None` if anything is unknown. The VM must
    /// have started.
    pub fn frozen_offsets<M: Memory + ?Sized>(&self, memory: &M, class: ChunkClass) -> Option<FrozenOffsets> {
        let layout = &self.layout.continuation;
        let flag = |name| self.bool_flag(memory, name);
        let CollectedHeap { objects, range, committed } = self.collected_heap(memory)?;
        let narrow = match flag("UseCompressedOops") {
            Some(true) => {
                Some((memory.read_u64(layout.oop_base?).ok()?, memory.read_u32(layout.oop_shift?).ok()?))
            }
            _ => None,
        };
        // Releases without this flag always compress.
        let compressed = flag("UseCompressedClassPointers") != Some(false);
        let header = Header::of(layout, flag("UseCompactObjectHeaders") == Some(true), compressed)?;
        let (klass_base, klass_shift) = if compressed {
            (memory.read_u64(layout.klass_base?).ok()?, memory.read_u32(layout.klass_shift?).ok()?)
        } else {
            (0, 0)
        };
        let class_word =
            |klass: u64| header.class_word(klass.checked_sub(klass_base)?.checked_shr(klass_shift)?);
        let instance = memory.read_i32(at(class.klass, layout.layout_helper?)).ok()?;
        let name = class.name.and_then(|class| {
            let length = header.end;
            let first = class.first_byte.checked_sub(length)?;
            let (string_word, bytes_word) = (class_word(class.string)?, class_word(class.bytes)?);
            (4..=8).contains(&first).then_some(NameOffsets { class, string_word, bytes_word, length })
        });
        let klass_word = class_word(class.klass)?;
        let found = FrozenOffsets {
            continuation: layout.entry_parent.unwrap_or(ENTRY_PARENT).checked_add(8)?,
            class,
            words: u32::try_from(instance).ok()? & !7,
            narrow: narrow.filter(|&(_, shift)| shift < 32),
            heap: range,
            committed,
            objects,
            holds_pauses_off: self.jdk_major() < FIRST_TO_POLL_IN_JAVA,
            klass: header.klass,
            klass_word,
            klass_mask: header.mask,
            name,
            barrier: self.started()?.continuation_barrier?,
        };
        (found.has_short_fields() && narrow == found.narrow).then_some(found)
    }

    /// The return barrier and the offset of `_cont_entry`, read from the barrier's code.
    pub(super) fn find_barrier<M: Memory + ?Sized>(&self, memory: &M) -> Option<(u64, u32)> {
        let started = self.started()?;
        let length = self.layout.continuation.block_length?;
        let blobs = started.code_cache.blobs(&self.layout.code_heap, length, memory).take(MAX_CODE_BLOBS);
        let mut stubs = blobs.filter_map(|blob| {
            let size = memory.read_u32(at(blob, self.layout.blob.size)).ok()? as usize;
            let is_short = size <= MAX_STUBS && may_hold_routines(&self.layout.blob, memory, blob);
            if is_short { find_barrier_code(memory, blob, size) } else { None }
        });
        stubs.next()
    }
}

/// The return barrier in `size` bytes of continuation stubs from `start` on, and the offset of `_cont_entry`.
fn find_barrier_code<M: Memory + ?Sized>(memory: &M, start: u64, size: usize) -> Option<(u64, u32)> {
    const STEP: usize = 256;
    /// Longest instruction searched for; blocks overlap by it.
    const OVERLAP: usize = 16;
    let mut bytes = [0; STEP + OVERLAP];
    (0..size.min(MAX_STUBS)).step_by(STEP).find_map(|begin| {
        let address = start.wrapping_add(begin as u64);
        let block = bytes.get_mut(..(size - begin).min(STEP + OVERLAP))?;
        memory.read(address, block).ok()?;
        let (at, cont_entry) = return_barrier(block)?;
        Some((address.wrapping_add(at as u64), cont_entry))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_at_the_sp_is_filled_once_something_has_returned() {
        const BARRIER: u64 = 0x7000;
        assert!(is_entered(0x1010, 0x10, 0x1000, BARRIER), "something was called below it");
        assert!(!is_entered(0x0ff0, BARRIER, 0x1000, BARRIER), "popped");
        let at_sp = (BARRIER - 2..BARRIER + 20).filter(|&pc| is_entered(0x1000, pc, 0x1000, BARRIER));
        assert!(at_sp.eq(BARRIER..=BARRIER + BARRIER_START));
    }
}
