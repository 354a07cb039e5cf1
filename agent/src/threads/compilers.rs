//! Finds the `CompilerThread`s of the VM, so that the handler can read what they compile.
//!
//! No event reports their start or end, but the VM's own list of threads has them.
//! Invariant: a slot has an address only while it belongs to that thread.

use std::sync::atomic::Ordering;

use sampler_thread::process::ThreadKind;
use stackwalk::{HotSpot, Memory};

use super::Registry;

/// Most searches for a thread: any program may name a thread like a compiler thread.
const MAX_SEARCHES: u8 = 3;
/// Start of the name of the thread of this kind that compiles nothing (JDK 11 to 19).
const SWEEPER: &str = "Sweeper";

impl Registry {
    /// Looks new compiler threads up in the VM's list of threads.
    pub(super) fn find_compilers(&self, hotspot: &HotSpot, memory: &impl Memory) {
        let wanted: Vec<(u32, i32)> = {
            let mut table = self.table.lock();
            let table = &mut *table;
            table.awaits_compilers = false;
            let entries = table.entries.iter_mut().enumerate();
            let found = entries.filter_map(|(slot, entry)| {
                let entry = entry.as_mut()?;
                let wants = entry.facts.kind == ThreadKind::Compiler
                    && !entry.facts.name.starts_with(SWEEPER)
                    && entry.compiler_searches < MAX_SEARCHES;
                entry.compiler_searches += u8::from(wants);
                table.awaits_compilers |= wants && entry.compiler_searches < MAX_SEARCHES;
                wants.then_some((u32::try_from(slot).ok()?, entry.facts.tid))
            });
            found.collect()
        };
        if wanted.is_empty() {
            return;
        }
        // Without the lock, because each thread of the list is read.
        for address in hotspot.java_threads(memory) {
            let tid = hotspot.thread_id(memory, address).and_then(|tid| i32::try_from(tid).ok());
            let Some(&(slot, tid)) = wanted.iter().find(|(_, wanted)| Some(*wanted) == tid) else { continue };
            // The lock also covers the hand-over of an ended thread's slot.
            let mut table = self.table.lock();
            if let Some(entry) = table.entry_mut(slot)
                && entry.facts.tid == tid
                && entry.facts.ended_ns.is_none()
                && let Some(slot) = self.slot(slot)
            {
                entry.compiler_searches = MAX_SEARCHES;
                slot.compiler.store(address, Ordering::Relaxed);
            }
        }
    }
}
