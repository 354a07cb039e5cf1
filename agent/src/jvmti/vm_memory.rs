//! Memory of the VM that can be read with plain loads, because it is never unmapped.
//!
//! Problem: a fault-tolerant read costs a system call, and a walk makes hundreds of reads of the code heap.
//! Approach: register the ranges that stay mapped for the life of the process.
//! Sources: HotSpot `memory/heap.cpp` (`CodeHeap::expand_by` commits upwards, nothing is uncommitted),
//! `os/posix/perfMemory_posix.cpp`, JDK 11 to 25.

use std::sync::OnceLock;

use stackwalk::{HotSpot, LiveMemory, MountedOffsets};

use super::symbols::Library;

/// Returns a reader that reads the segments of the VM's library directly; it lives as long as the process.
pub fn of_library(library: &Library) -> &'static LiveMemory {
    static MEMORY: OnceLock<LiveMemory> = OnceLock::new();
    MEMORY.get_or_init(|| {
        let memory = LiveMemory::new();
        for segment in library.segments() {
            // SAFETY: `Library` holds a reference to the loaded file that is never released, so it stays mapped.
            unsafe { memory.add_permanent(segment.range.start, segment.range.end) };
        }
        memory
    })
}

/// Finds the offsets in a `JavaThread` at which the VM stores the mounted virtual thread, from data of the VM's library.
pub fn mounted_offsets(library: &Library, memory: &LiveMemory) -> Option<MountedOffsets> {
    let segments = library.segments();
    // Strings are in the last read-only segment. The code, where it has a segment of its own, is left out: tables of
    // functions look like rows too, and a thousand pages of code would be read in vain.
    let names = segments.iter().rfind(|segment| !segment.is_writable)?.range.clone();
    let data = segments.iter().find(|segment| segment.is_writable)?;
    let data = data.range.start..data.range.start.saturating_add(data.file_bytes).min(data.range.end);
    MountedOffsets::find(|name| library.symbol(name), memory, data, &names)
}

/// Adds the committed code heaps of a started VM; call it again to follow their growth.
pub fn add_code_heaps(memory: &LiveMemory, hotspot: &HotSpot) {
    for (start, end) in hotspot.code_ranges(memory) {
        // SAFETY: HotSpot commits code heap memory upwards and never uncommits it.
        unsafe { memory.add_permanent(start, end) };
    }
}

/// Adds the VM's performance counters, which every drain reads.
pub fn add_counters(memory: &LiveMemory, hotspot: &HotSpot) {
    if let Some((start, end)) = hotspot.perf_range(memory) {
        // SAFETY: HotSpot never unmaps its counters, and it writes to all of them with plain stores itself.
        unsafe { memory.add_permanent(start, end) };
    }
}
