//! The VM's performance counters, found by name in the memory that `jstat` reads.
//!
//! Problem: whether classes were unloaded meanwhile is in no field of the tables, but the VM counts it.
//! Approach: the entries of `PerfMemory` are walked once; afterwards a counter is one word at a fixed address.
//! Entries are only ever appended, and the memory stays where it is until the VM exits.
//! With `-XX:-UsePerfData` that memory is missing. The VM then keeps the counters of `java.lang.management` in the C
//! heap, in entries of the same form, to which only variables that it does not export lead.
//! Sources: `runtime/{perfMemory,perfData}.{hpp,cpp}`, `services/classLoadingService.cpp`, JDK 11 to 25.

use super::HotSpot;
use super::layout::PerfLayout;
use crate::limits::MAX_PERF_ENTRIES;
use crate::memory::{Memory, Unreadable, at, read_c_string};

/// First word of the prologue (`PERFDATA_MAGIC`).
const MAGIC: u32 = 0xcafe_c0c0_u32.swap_bytes();

/// Type letter of an eight-byte counter (`BasicType` signature of long).
const LONG: u8 = b'J';

/// Words of a `PerfData` that are looked at; it has seven, from JDK 11 to 25 (`runtime/perfData.hpp`).
const PERF_DATA_WORDS: u64 = 8;

/// Longest counter name that is compared; those of the VM have up to 60 characters.
const NAME_BYTES: usize = 96;

/// Address of an eight-byte counter of the VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerfCounter(u64);

impl PerfCounter {
    /// The counter's value now.
    ///
    /// # Errors
    /// [`Unreadable`] if its memory cannot be read.
    pub fn read<M: Memory + ?Sized>(self, memory: &M) -> Result<u64, Unreadable> {
        memory.read_u64(self.0)
    }
}

impl HotSpot {
    /// Memory of all counters, as (start, end); usable once the VM is initialised.
    ///
    /// It stays mapped even when the VM exits: `delete_memory_region` (`os/posix/perfMemory_posix.cpp`; in JDK 11
    /// `os/linux/perfMemory_linux.cpp`) removes the file only. `None` with `-XX:-UsePerfData`.
    pub fn perf_range<M: Memory + ?Sized>(&self, memory: &M) -> Option<(u64, u64)> {
        let layout = self.layout.perf?;
        let (start, end) = (memory.read_u64(layout.start).ok()?, memory.read_u64(layout.end).ok()?);
        let is_usable = memory.read_u32(layout.initialized).ok()? != 0 && start != 0 && start < end;
        is_usable.then_some((start, end))
    }

    /// Finds a counter by name (`java.cls.unloadedClasses`); usable once the VM is initialised.
    ///
    /// `None` with `-XX:-UsePerfData`, or if this VM has no such counter.
    pub fn perf_counter<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<PerfCounter> {
        let layout = self.layout.perf?;
        let start = memory.read_u64(layout.start).ok().filter(|&start| start != 0)?;
        if memory.read_u32(layout.initialized).ok()? == 0
            || memory.read_u32(at(start, layout.magic)).ok()? != MAGIC
        {
            return None;
        }
        let count = memory.read_u32(at(start, layout.entries)).ok()?.min(MAX_PERF_ENTRIES);
        let mut entry = at(start, memory.read_u32(at(start, layout.first_entry)).ok()?);
        for _ in 0..count {
            if is_named(&layout, memory, entry, name)? {
                return counter_in(&layout, memory, entry);
            }
            let length =
                memory.read_u32(at(entry, layout.entry_length)).ok().filter(|&length| length != 0)?;
            entry = at(entry, length);
        }
        None
    }

    /// Finds a counter with this name by the VM's own variable at `variable`, which refers to its `PerfData`. So it
    /// is found with `-XX:-UsePerfData` as well; usable once the VM is initialised.
    ///
    /// `PerfData` is in no table: the word that leads to an entry with this name is looked for.
    pub fn perf_counter_of<M: Memory + ?Sized>(
        &self,
        memory: &M,
        variable: u64,
        name: &str,
    ) -> Option<PerfCounter> {
        let layout = self.layout.perf?;
        let data = memory.read_u64(variable).ok().filter(|&data| data != 0)?;
        let entry = (0..PERF_DATA_WORDS).find_map(|word| {
            let entry = memory.read_u64(data.checked_add(word * 8)?).ok()?;
            (is_named(&layout, memory, entry, name) == Some(true)).then_some(entry)
        })?;
        counter_in(&layout, memory, entry)
    }
}

/// Returns whether the entry at this address has this name; `None` if it cannot be read.
fn is_named<M: Memory + ?Sized>(layout: &PerfLayout, memory: &M, entry: u64, name: &str) -> Option<bool> {
    let mut bytes = [0; NAME_BYTES];
    let name_at = at(entry, memory.read_u32(at(entry, layout.entry_name)).ok()?);
    let length = read_c_string(memory, name_at, &mut bytes).ok()?;
    Some(bytes.get(..length) == Some(name.as_bytes()))
}

/// The counter of the entry at this address, if it is one number of eight bytes.
fn counter_in<M: Memory + ?Sized>(layout: &PerfLayout, memory: &M, entry: u64) -> Option<PerfCounter> {
    let scalar = memory.read_u32(at(entry, layout.entry_vector)).ok()? == 0;
    let long = memory.read_u8(at(entry, layout.entry_type)).ok()? == LONG;
    let data = at(entry, memory.read_u32(at(entry, layout.entry_data)).ok()?);
    (scalar && long && data.is_multiple_of(8)).then_some(PerfCounter(data))
}
