//! Memory of the VM that can be read with plain loads, because it never goes away.
//!
//! Problem: a fault-tolerant read costs a system call, and a walk makes hundreds of reads of the code heap.
//! Approach: register the ranges that stay mapped for the life of the process.
//! Sources: HotSpot `memory/heap.cpp` (`CodeHeap::expand_by` commits upwards, nothing is uncommitted), JDK 11 to 25.

use stackwalk::{HotSpot, LiveMemory, MountedOffsets};

use super::symbols::Library;

/// Memory in which the segments of the VM's library are read directly; it lives as long as the process.
pub fn of_library(library: &Library) -> &'static LiveMemory {
    let memory = Box::leak(Box::new(LiveMemory::new()));
    for segment in library.segments() {
        // SAFETY: `Library` holds a reference to the loaded file that is never given back, so it stays mapped.
        unsafe { memory.add_permanent(segment.range.start, segment.range.end) };
    }
    memory
}

/// Where threads note the virtual threads they run, looked for in the VM's library.
pub fn mounted_offsets(library: &Library, memory: &LiveMemory) -> Option<MountedOffsets> {
    let segments = library.segments();
    // Strings lie in the last segment that is not written to. The code, where that is a segment of its own, is left
    // out: tables of functions look like rows too, and a thousand pages of code would be read for nothing.
    let names = segments.iter().rfind(|segment| !segment.is_writable)?.range.clone();
    let data = segments.iter().find(|segment| segment.is_writable)?;
    let data = data.range.start..data.range.start.saturating_add(data.file_bytes).min(data.range.end);
    MountedOffsets::find(|name| library.symbol(name), memory, data, &names)
}

/// Adds the committed code heaps of a started VM; called again, it follows their growth.
pub fn add_code_heaps(memory: &LiveMemory, hotspot: &HotSpot) {
    for (start, end) in hotspot.code_ranges(memory) {
        // SAFETY: HotSpot commits code heap memory upwards and never gives any of it back.
        unsafe { memory.add_permanent(start, end) };
    }
}
