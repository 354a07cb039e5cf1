//! Memory of the VM that can be read with plain loads, because it is never unmapped.
//!
//! Problem: a fault-tolerant read costs a system call, and a walk makes hundreds of reads of the code heap.
//! Approach: register the ranges that stay mapped for the life of the process.
//! Sources: HotSpot `memory/heap.cpp` (`CodeHeap::expand_by` commits upwards, nothing is uncommitted),
//! `os/posix/perfMemory_posix.cpp`, JDK 11 to 25; `cds/metaspaceShared.cpp`, JDK 17 to 25.

use std::sync::OnceLock;

use sampler_thread::native::maps;
use stackwalk::{HotSpot, LayoutError, LiveMemory, MountedOffsets};

use super::symbols::Library;

/// Returns a reader that reads the segments of the VM's library directly, and those of the C library, whose
/// unwinding tables nearly every native stack needs; it lives as long as the process.
pub fn of_library(library: &Library) -> &'static LiveMemory {
    static MEMORY: OnceLock<LiveMemory> = OnceLock::new();
    MEMORY.get_or_init(|| {
        let memory = LiveMemory::new();
        let c_library = Library::containing(libc::getpid as *const () as u64);
        for segment in [Some(library), c_library.as_ref()].into_iter().flatten().flat_map(Library::segments) {
            // SAFETY: `Library` holds a reference to the loaded file that is never released, so it stays mapped.
            unsafe { memory.add_permanent(segment.range.start, segment.range.end) };
        }
        memory
    })
}

/// Finds the offsets in a `JavaThread` at which the VM stores the mounted virtual thread, from data of the VM's
/// library.
pub fn mounted_offsets(library: &Library, memory: &LiveMemory) -> Option<MountedOffsets> {
    // Strings are in the last read-only segment. The code, where it has a segment of its own, is left out: tables of
    // functions look like rows too, and a thousand pages of code would be read in vain.
    let names = library.segments().into_iter().rfind(|segment| !segment.is_writable)?.range;
    // The VM's tables of fields are variables; its constants are five times as many bytes.
    MountedOffsets::find(|name| library.symbol(name), memory, library.variables()?, &names)
}

/// Reads the state of a VM that has started; code heaps and performance counters are read directly from here on.
///
/// # Errors
/// [`LayoutError::NotStarted`] before it has; may then be called again.
pub fn start(hotspot: &mut HotSpot, memory: &LiveMemory) -> Result<(), LayoutError> {
    hotspot.read_started(memory)?;
    add_code_heaps(memory, hotspot);
    add_counters(memory, hotspot);
    hotspot.find_continuations(memory);
    Ok(())
}

/// Adds the committed code heaps of a started VM; call it again to follow their growth.
pub fn add_code_heaps(memory: &LiveMemory, hotspot: &HotSpot) {
    for (start, end) in hotspot.code_ranges(memory) {
        // SAFETY: HotSpot commits code heap memory upwards and never uncommits it.
        unsafe { memory.add_permanent(start, end) };
    }
}

/// Adds the archive of the JDK's classes, whose methods and names are in every stack, as far as it is mapped.
///
/// Reads the list of mappings, so it is called once.
pub fn add_archive(memory: &LiveMemory, hotspot: &HotSpot) {
    let Some((start, end)) = hotspot.archive_range(memory) else { return };
    for (start, end) in readable_parts(&maps::read().unwrap_or_default(), start, end) {
        // SAFETY: readable, and HotSpot never unmaps an archive that it uses (`HotSpot::archive_range`).
        unsafe { memory.add_permanent(start, end) };
    }
}

/// Returns the readable parts between two addresses, each as long as possible.
fn readable_parts(maps: &str, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for mapping in maps::parse(maps).filter(|mapping| mapping.readable) {
        let (from, to) = (mapping.start.max(start), mapping.end.min(end));
        match parts.last_mut() {
            _ if from >= to => {}
            Some((_, before)) if *before == from => *before = to,
            _ => parts.push((from, to)),
        }
    }
    parts
}

/// Adds the VM's performance counters, which every drain reads.
fn add_counters(memory: &LiveMemory, hotspot: &HotSpot) {
    if let Some((start, end)) = hotspot.perf_range(memory) {
        // SAFETY: HotSpot never unmaps its counters, and it writes to all of them with plain stores itself.
        unsafe { memory.add_permanent(start, end) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readable_memory_counts_as_the_archive() {
        let maps = "1000-3000 r--p 00000000 fe:01 9 /cds\n3000-5000 rw-p 00002000 fe:01 9 /cds\n\
                    5000-6000 ---p 00000000 00:00 0\n6000-9000 r--p 00000000 fe:01 8 /more\n\
                    b000-c000 rw-p 00000000 00:00 0\n";
        assert_eq!(readable_parts(maps, 0x2000, 0x8000), [(0x2000, 0x5000), (0x6000, 0x8000)]);
        assert_eq!(readable_parts(maps, 0x9000, 0xb000), []);
    }
}
