//! The VM's performance counters, found by name in the memory that `jstat` reads.
//!
//! Problem: whether classes were unloaded meanwhile is in no field of the tables, but the VM counts it.
//! Approach: the entries of `PerfMemory` are walked once; afterwards a counter is one word at a fixed address.
//! Entries are only ever appended, and the memory stays where it is until the VM exits.
//! With `-XX:-UsePerfData` there are none.
//! Sources: `runtime/{perfMemory,perfData}.{hpp,cpp}`, `services/classLoadingService.cpp`, JDK 11 to 25.

use super::HotSpot;
use crate::limits::MAX_PERF_ENTRIES;
use crate::memory::{Memory, Unreadable, at, read_c_string};

/// First word of the prologue (`PERFDATA_MAGIC`).
const MAGIC: u32 = 0xcafe_c0c0_u32.swap_bytes();

/// Type letter of an eight-byte counter (`BasicType` signature of long).
const LONG: u8 = b'J';

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
            let mut bytes = [0; NAME_BYTES];
            let name_at = at(entry, memory.read_u32(at(entry, layout.entry_name)).ok()?);
            let length = read_c_string(memory, name_at, &mut bytes).ok()?;
            if bytes.get(..length) == Some(name.as_bytes()) {
                let scalar = memory.read_u32(at(entry, layout.entry_vector)).ok()? == 0;
                let long = memory.read_u8(at(entry, layout.entry_type)).ok()? == LONG;
                let data = at(entry, memory.read_u32(at(entry, layout.entry_data)).ok()?);
                return (scalar && long && data.is_multiple_of(8)).then_some(PerfCounter(data));
            }
            let length =
                memory.read_u32(at(entry, layout.entry_length)).ok().filter(|&length| length != 0)?;
            entry = at(entry, length);
        }
        None
    }
}
