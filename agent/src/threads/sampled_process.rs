//! The sampled process as the sampler thread sees it: queues, threads, timers.
//!
//! The sampler thread runs while the VM is stopped, so it uses neither JNI nor JVMTI but the registry.
//! Invariant: no file is read and no long system call is made under the registry's lock.

use std::mem::MaybeUninit;
use std::sync::{Arc, Once};
use std::time::Instant;

use queue::{Capacity, RingEnds, SnapshotPool, ThreadQueue};
use sampler_thread::period::aim::Aim;
use sampler_thread::process::{Gap, Queues, ThreadFacts, Threads, TimerCounts, Timers};
use stackwalk::{HotSpot, LiveMemory};

use super::Registry;
use super::discovery::ThreadFiles;
use super::registry::pass_on;
use crate::clock::tick;
use crate::guest::mappings;
use crate::handler::install;
use crate::jvmti::{symbols, vm_memory};
use crate::threads::kernel;

pub struct SampledProcess {
    pub registry: Arc<Registry>,
    pub memory: &'static LiveMemory,
    /// Layout of the VM.
    pub hotspot: Arc<HotSpot>,
    /// Done once the archive of classes is added to the memory.
    pub archive: Once,
    /// The list of the process's threads.
    pub thread_files: ThreadFiles,
}

impl Queues for SampledProcess {
    fn ready(&self) -> Vec<u32> {
        let used = u32::try_from(self.registry.table.lock().entries.len()).unwrap_or(u32::MAX);
        self.registry.shared.ready.take(used).collect()
    }

    fn queue(&self, slot: u32) -> &ThreadQueue {
        // All slots of the ready list and the registry exist; the first slot is instead of a panic.
        let slots = self.registry.shared.slots;
        &slots.get(slot as usize).unwrap_or(&slots[0]).queue
    }

    fn pool(&self) -> &SnapshotPool<'static> {
        &self.registry.shared.pool
    }

    fn take_ring(&self, size: Capacity) -> Option<RingEnds> {
        self.registry.table.lock().rings.take(size)
    }

    fn give_back_ring(&self, ring: RingEnds) {
        self.registry.table.lock().rings.give_back(ring);
    }

    fn adopt_ring(&self, slot: u32) {
        let table = self.registry.table.lock();
        let entry = table.entry(slot);
        // An ended thread has no timer, and has unregistered itself or is gone: no handler of the slot can run.
        let has_ended = entry.is_some_and(|entry| entry.timer.is_none() && entry.facts.ended_ns.is_some());
        if has_ended && let Some(slot) = self.registry.slot(slot) {
            slot.adopt_ring();
        }
    }

    fn release_pages(&self, bytes: &mut [MaybeUninit<u8>]) {
        mappings::release_pages(bytes);
    }
}

impl Threads for SampledProcess {
    fn discover(&self) {
        self.archive.call_once(|| vm_memory::add_archive(self.memory, &self.hotspot));
        vm_memory::add_code_heaps(self.memory, &self.hotspot);
        self.registry.follow_native_names_if_due();
        let (begun, seen) = (Instant::now(), self.thread_files.look());
        let look = {
            let mut table = self.registry.table.lock();
            let unsettled = !table.detached.is_empty() || table.awaits_compilers;
            if table.stopped || table.is_registering || !table.discovery.is_due(begun, seen, unsettled) {
                return;
            }
            table.listings += 1;
            table.listings
        };
        // Without the lock: listing thousands of threads must not delay one that starts.
        let alive = kernel::list();
        if alive.is_empty() {
            return;
        }
        self.registry.close_vanished(&alive, look);
        self.registry.open_found(&alive, kernel::name_of);
        self.registry.find_compilers(&self.hotspot, self.memory);
        let mut table = self.registry.table.lock();
        table.discovery.listed(begun, Instant::now(), seen);
    }

    fn library_loads(&self) -> Option<u64> {
        symbols::loads()
    }

    fn thread(&self, slot: u32) -> Option<ThreadFacts> {
        let table = self.registry.table.lock();
        Some(self.registry.facts(table.entry(slot)?))
    }

    fn threads(&self) -> Vec<ThreadFacts> {
        let mut table = self.registry.table.lock();
        let mut all = Vec::with_capacity(table.entries.len());
        for index in 0..table.entries.len() {
            pass_on(&mut table, index);
            all.extend(table.entry(index as u32).map(|entry| self.registry.facts(entry)));
        }
        all
    }

    fn next_thread_id(&self) -> u32 {
        let mut table = self.registry.table.lock();
        table.next_id += 1;
        table.next_id
    }

    fn ended(&self) -> Vec<ThreadFacts> {
        let mut table = self.registry.table.lock();
        let ended = std::mem::take(&mut table.ended);
        ended.iter().filter_map(|slot| Some(self.registry.facts(table.entry(*slot)?))).collect()
    }

    fn retire(&self, slot: u32, handed_on_ns: u64) {
        let mut table = self.registry.table.lock();
        let entry = table.entries.get_mut(slot as usize).and_then(Option::take);
        // Most threads have handed on at their end; the sampler may have read the clock a little later.
        let early_ns = entry.map_or(0, |entry| entry.handed_on_ns);
        if let Some(slot) = self.registry.slot(slot) {
            table.periods.leave(slot.grid.key().period());
        }
        table.free.push(slot);
        table.remainder.add(handed_on_ns.saturating_sub(early_ns));
        table.remainder.remove(early_ns.saturating_sub(handed_on_ns));
    }
}

impl Timers for SampledProcess {
    fn drain_begins(&self) {
        self.registry.table.lock().periods.drain_begins();
    }

    fn rotate(&self) -> bool {
        let shares_timers = self.registry.rotate();
        self.registry.correct_events();
        shares_timers
    }

    fn period_ns(&self, index: u8) -> u64 {
        self.registry.shared.period_ns(index)
    }

    fn aim(&self, aim: Aim) -> bool {
        self.registry.aim(aim)
    }

    fn retune(&self) {
        self.registry.retune();
    }

    fn measure_tick(&self, max_cpu_ns: u64) -> Option<u64> {
        tick::measure(self.registry.shared.signal, max_cpu_ns)
    }

    fn timer_counts(&self) -> TimerCounts {
        self.registry.timer_counts()
    }

    fn examine_silent(&self, slots: &[u32]) {
        self.registry.examine_silent(slots);
    }

    fn has_handler(&self) -> bool {
        install::has_handler(self.registry.shared.signal)
    }

    fn has_descriptors(&self) -> bool {
        self.memory.is_intact() && self.registry.has_intact_events()
    }

    fn stop(&self, gap: Option<Gap>) {
        self.registry.shared.silence();
        if let Some(gap) = gap {
            self.registry.take_all_timers(gap);
        }
        self.registry.follow_native_names(kernel::name_of);
        self.registry.stop();
    }
}
