//! The process as the sampler thread sees it: threads, queues, pool, and what the options asked for.
//!
//! Problem: the sampler thread knows neither JNI nor JVMTI, and must not: it runs while the VM is stopped.
//! Approach: it asks through [`Host`]; here the questions meet the registry, which the VM's threads change meanwhile.
//! Invariant: the registry's lock is held for a look at it, never for a file or a system call that may take long.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use queue::{Capacity, RingEnds, SizeRange, SnapshotPool, ThreadQueue};
use sampler_thread::drain::pace::PaceTuning;
use sampler_thread::host::{Host, QueueBytes, ThreadFacts, TimerCounts, UnboundedStack};
use sampler_thread::period::interval::Tuning;
#[cfg(feature = "hooks")]
use sampler_thread::probe::Probe;
use sampler_thread::validity::self_test::{SelfTest, Trust};
use sampler_thread::validity::unloading::Unloading;
use stackwalk::{HotSpot, LiveMemory};

use super::{Registry, discovery};
use crate::arena;
use crate::debug_options::DebugOptions;
use crate::jvmti::vm_memory;
use crate::kernel_threads;
use crate::options;
use crate::self_test::{self, Evidence};
use crate::signal::ucontext::cycles;
use crate::tick;

/// How often the bounds of a thread's stack are looked for: on stacks of coroutines it would be at every tick.
const STACK_LOOKS: u8 = 3;

/// The registry as the sampler thread sees it.
pub struct SampledProcess {
    /// The threads.
    pub registry: Arc<Registry>,
    /// The VM's memory.
    pub memory: &'static LiveMemory,
    /// Layout of the VM.
    pub hotspot: Arc<HotSpot>,
    /// What tells that classes were unloaded.
    pub unloading: Arc<Unloading>,
    /// What the self-test compares walks with.
    pub evidence: Option<Evidence>,
    /// What the period of timers follows.
    pub tuning: Tuning,
    /// What experiments hold still.
    pub debug: DebugOptions,
}

impl Host for SampledProcess {
    fn drain_begins(&self) {
        self.registry.table.lock().periods.drain_begins();
    }

    fn ready(&self) -> Vec<u32> {
        let used = u32::try_from(self.registry.table.lock().entries.len()).unwrap_or(u32::MAX);
        self.registry.shared.ready.take(used).collect()
    }

    fn queue(&self, slot: u32) -> &ThreadQueue {
        // Slots named by the ready list or the registry exist; the first stands in rather than panicking.
        let slots = self.registry.shared.slots;
        &slots.get(slot as usize).unwrap_or(&slots[0]).queue
    }

    fn pool(&self) -> &SnapshotPool<'static> {
        &self.registry.shared.pool
    }

    fn ticks(&self) -> u64 {
        cycles()
    }

    fn discover(&self) {
        vm_memory::add_code_heaps(self.memory, &self.hotspot);
        let (begun, links) = (Instant::now(), discovery::links());
        let look = {
            let mut table = self.registry.table.lock();
            let unsettled = !table.detached.is_empty();
            if table.stopped || !table.discovery.is_due(begun, links, unsettled) {
                return;
            }
            table.listings += 1;
            table.listings
        };
        // Listed without the lock: a directory of thousands of threads must not hold up a starting one.
        let alive = kernel_threads::list();
        if alive.is_empty() {
            return;
        }
        let mut table = self.registry.table.lock();
        if !table.stopped {
            self.registry.close_vanished(&mut table, &alive, look);
            self.registry.open_found(&mut table, &alive);
        }
        table.discovery.listed(begun, Instant::now(), links);
    }

    fn bound_stacks(&self, stacks: &[UnboundedStack]) {
        let wanted: Vec<UnboundedStack> = {
            let mut table = self.registry.table.lock();
            let mut wants = |stack: &UnboundedStack| {
                let entry = table.entries.get_mut(stack.slot as usize).and_then(Option::as_mut)?;
                let wants = entry.facts.id == stack.thread && entry.bounds_lookups < STACK_LOOKS;
                entry.bounds_lookups += u8::from(wants);
                wants.then_some(*stack)
            };
            stacks.iter().filter_map(&mut wants).collect()
        };
        if wanted.is_empty() {
            return;
        }
        let places: Vec<(u64, u64)> = wanted.iter().map(|stack| (stack.sp, stack.thread_pointer)).collect();
        let bounds = kernel_threads::stacks_at(&places);
        // Held while the slots are written: a thread that ends or becomes a Java thread waits.
        let table = self.registry.table.lock();
        for (stack, bounds) in wanted.iter().zip(bounds) {
            let entry = table.entries.get(stack.slot as usize).and_then(Option::as_ref);
            let still =
                entry.is_some_and(|entry| entry.facts.id == stack.thread && entry.facts.ended_ns.is_none());
            if let (true, Some((low, high)), Some(slot)) = (still, bounds, self.registry.slot(stack.slot))
                && slot.java_thread.load(Ordering::Relaxed) == 0
            {
                slot.stack_low.store(low, Ordering::Relaxed);
                // The handler copies nothing while this is 0, and needs both.
                slot.stack_high.store(high, Ordering::Release);
            }
        }
    }

    fn thread(&self, slot: u32) -> Option<ThreadFacts> {
        let table = self.registry.table.lock();
        Some(self.registry.facts(table.entries.get(slot as usize)?.as_ref()?))
    }

    fn threads(&self) -> Vec<ThreadFacts> {
        let table = self.registry.table.lock();
        table.entries.iter().flatten().map(|entry| self.registry.facts(entry)).collect()
    }

    fn next_thread_id(&self) -> u32 {
        let mut table = self.registry.table.lock();
        table.next_id += 1;
        table.next_id
    }

    fn ended(&self) -> Vec<ThreadFacts> {
        let mut table = self.registry.table.lock();
        let ended = std::mem::take(&mut table.ended);
        ended
            .iter()
            .filter_map(|slot| Some(self.registry.facts(table.entries.get(*slot as usize)?.as_ref()?)))
            .collect()
    }

    fn retire(&self, slot: u32, handed_on_ns: u64) {
        let mut table = self.registry.table.lock();
        if let Some(place) = table.entries.get_mut(slot as usize) {
            *place = None;
        }
        if let Some(slot) = self.registry.slot(slot) {
            table.periods.leave(slot.grid.key().period());
        }
        table.free.push(slot);
        table.carry_ns = table.carry_ns.saturating_add(handed_on_ns);
    }

    fn unloading(&self) -> Arc<Unloading> {
        Arc::clone(&self.unloading)
    }

    fn self_tests(&self) -> (Trust, Vec<SelfTest>) {
        self_test::examine(self.evidence.as_ref(), &self.hotspot, self.memory)
    }

    fn queue_bytes(&self) -> QueueBytes {
        let rings = &self.registry.table.lock().rings;
        QueueBytes { used: rings.used_bytes(), most: rings.most_bytes() }
    }

    fn queue_sizes(&self) -> SizeRange {
        self.debug.queues
    }

    fn pace(&self) -> PaceTuning {
        self.debug.pace
    }

    fn take_ring(&self, size: Capacity) -> Option<RingEnds> {
        self.registry.table.lock().rings.take(size)
    }

    fn give_back_ring(&self, ring: RingEnds) {
        self.registry.table.lock().rings.give_back(ring);
    }

    fn rotate_timers(&self) {
        self.registry.rotate();
    }

    fn period_ns(&self, number: u8) -> u64 {
        self.registry.shared.period_ns(number)
    }

    fn aim_period(&self, period_ns: u64) -> bool {
        self.registry.aim(period_ns)
    }

    fn retune_timers(&self) {
        self.registry.retune();
    }

    fn tuning(&self) -> Tuning {
        self.tuning
    }

    fn processors(&self) -> u64 {
        options::processors()
    }

    fn measure_tick(&self, most_cpu_ns: u64) -> Option<u64> {
        tick::measure(self.registry.signal, most_cpu_ns)
    }

    fn timers(&self) -> TimerCounts {
        self.registry.timer_counts()
    }

    fn release_pages(&self, bytes: &mut [MaybeUninit<u8>]) {
        arena::release_pages(bytes);
    }

    fn adopt_ring(&self, slot: u32) {
        let table = self.registry.table.lock();
        let entry = table.entries.get(slot as usize).and_then(Option::as_ref);
        // An ended thread has no timer, and has told us so itself or is gone: no handler of the slot can run.
        let has_ended = entry.is_some_and(|entry| entry.timer.is_none() && entry.facts.ended_ns.is_some());
        if has_ended && let Some(slot) = self.registry.slot(slot) {
            slot.adopt_ring();
        }
    }

    #[cfg(feature = "hooks")]
    fn probe(&self) -> Probe {
        self.debug.hooks.probe
    }

    #[cfg(feature = "hooks")]
    fn compares_walks(&self) -> bool {
        crate::hooks::observer().is_some()
    }

    #[cfg(feature = "hooks")]
    fn walked(
        &self,
        slot: u32,
        ticks: u64,
        snapshot: &sampler_thread::walk::snapshot::Snapshot,
        frames: &[stackwalk::Frame],
        stop: stackwalk::Stop,
    ) {
        if let Some(observer) = crate::hooks::observer() {
            (observer.on_walk)(slot, ticks, snapshot, frames, stop);
        }
    }
}
