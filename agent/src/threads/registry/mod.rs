//! Registering and unregistering threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use queue::Capacity;
use sampler_thread::clock::{ThreadClock, thread_cpu_nanos};
use sampler_thread::pacing::Pacer;
use sampler_thread::period::aim::Aim;
use sampler_thread::process::{Coverage, Gap, ThreadFacts, ThreadKind};

use super::remainder::Beginning;
use super::source;
use super::table::{DetachedThread, Entry, JavaThread, LISTINGS_OF_NATIVE, NewThread, Table};
use crate::handler::install;
use crate::handler::rings::RingMemory;
use crate::handler::slots::{self, Shared, ThreadSlot};
use crate::threads::kernel;
use agent_options::thread_choice::ThreadChoice;

/// CPU time without an expiration, in nanoseconds, from which on an ending thread is checked for blocking the signal.
const SILENT_NS: i64 = 200_000_000;

/// Threads that are looked at while the registry's lock is held once; a thread that starts waits for some microseconds.
const LOOKED_AT_ONCE: usize = 64;

/// Hands the registry's lock on if another thread waits for it, at every [`LOOKED_AT_ONCE`]th `index` of a loop.
pub(super) fn pass_on(table: &mut MutexGuard<'_, Table>, index: usize) {
    if index.is_multiple_of(LOOKED_AT_ONCE) {
        MutexGuard::bump(table);
    }
}

/// All profiled threads.
pub struct Registry {
    pub(super) shared: &'static Shared,
    /// The threads that get timers.
    pub(super) choice: ThreadChoice,
    /// Returns whether the program has chosen a thread, by the kernel's id; `None` if it chooses none.
    pub(super) filter: Option<fn(i32) -> bool>,
    /// The clock that is measured of them.
    pub(super) clock: ThreadClock,
    /// Part of the period that each thread adds, in nanoseconds.
    share_ns: u64,
    /// True if threads get no timers but stack traces of the VM.
    pub(super) is_traced: bool,
    pub(super) table: Mutex<Table>,
    /// Held while timers are deleted at the end.
    stopping: Mutex<()>,
}

impl Registry {
    /// An empty registry, which gives timers on this clock to the threads of `choice`; `aim` is that of `shared`.
    pub fn new(
        shared: &'static Shared,
        rings: RingMemory,
        choice: ThreadChoice,
        clock: ThreadClock,
        aim: Aim,
    ) -> Self {
        let table = Mutex::new(Table { rings, aim, is_registering: true, ..Table::default() });
        let stopping = Mutex::new(());
        Self { shared, choice, filter: None, clock, share_ns: 0, is_traced: false, table, stopping }
    }

    /// Lets the period grow by so many nanoseconds with each thread, at once; the sampler thread corrects it.
    pub fn with_share(mut self, share_ns: u64) -> Self {
        self.share_ns = share_ns;
        self
    }

    /// Leaves out threads of which `is_chosen` returns false; their rate is that of the others.
    pub fn with_filter(mut self, is_chosen: Option<fn(i32) -> bool>) -> Self {
        self.filter = is_chosen;
        self
    }

    /// Gives new timers twice the period that so many threads need, if they need a longer one. A program may start a
    /// thousand threads before the sampler thread looks, and with the period of a few their signals would leave it no
    /// processor.
    fn lengthen(&self, table: &mut Table) {
        let is_everyone = self.choice.is_everyone() && self.filter.is_none();
        let threads = if is_everyone { table.by_tid.len() as u64 } else { Self::sharing(table) };
        let needed_ns = self.share_ns.saturating_mul(threads);
        let period_ns = needed_ns.saturating_mul(2);
        if needed_ns > table.aim.period_ns && table.periods.aim(&self.shared.periods, period_ns) {
            table.aim = Aim { interval_ns: period_ns, tick_ns: period_ns, period_ns };
        }
    }

    /// Excludes one of the agent's own threads from the profile.
    pub fn exclude(&self, tid: i32) {
        self.table.lock().excluded.push(tid);
    }

    /// Makes the profile begin now, in a program that runs already: CPU time that threads have used is not part of it.
    pub fn exclude_time_until_now(&self) {
        let mut pacer = Pacer::start();
        let clocks = kernel::list().into_iter().filter_map(|tid| {
            pacer.rest_if_due();
            Some((tid, self.clock.read(tid).ok()?))
        });
        let clocks = clocks.collect();
        self.table.lock().clocks_at_attach = clocks;
    }

    /// Registers the calling Java thread, which has started.
    pub fn java_started(&self, tid: i32, thread: &JavaThread) {
        self.begin_java(&mut self.table.lock(), tid, thread);
    }

    /// Registers a Java thread that another thread found running, unless it has registered itself meanwhile, or has
    /// ended and its `JavaThread` is freed.
    pub fn java_found(&self, tid: i32, thread: &JavaThread) {
        let mut table = self.table.lock();
        if !table.detached.contains_key(&tid) && !table.by_tid.contains_key(&tid) {
            self.begin_java(&mut table, tid, thread);
        }
    }

    fn begin_java(&self, table: &mut Table, tid: i32, thread: &JavaThread) {
        if table.stopped || table.excluded.contains(&tid) {
            return;
        }
        // A thread that detached and comes back (the launcher's main thread, as DestroyJavaVM) was profiled before.
        let known_ns = table.detached.remove(&tid).map_or(0, |detached| detached.clock_ns);
        let name = Arc::from(thread.name.as_str());
        match table.by_tid.get(&tid).copied() {
            None => {
                let newcomer = NewThread { tid, name, kind: ThreadKind::Java, known_ns, java: Some(thread) };
                self.open(table, newcomer);
            }
            Some(index) => {
                if let Some(entry) = table.entry_mut(index) {
                    entry.facts.name = name;
                    entry.facts.kind = ThreadKind::Java;
                    entry.facts.revision += 1;
                }
                if let Some(slot) = self.slot(index) {
                    announce(slot, thread);
                }
                self.choose(table, index);
            }
        }
    }

    pub fn threads(&self) -> usize {
        self.table.lock().by_tid.len()
    }

    /// Gives a registered thread a name, if it has another one.
    pub fn rename(&self, tid: i32, name: &str) {
        let mut table = self.table.lock();
        if let Some(slot) = table.rename(tid, name) {
            self.choose(&mut table, slot);
        }
    }

    /// Unregisters the calling Java thread, which is about to end or to detach from the VM, with its `name` if it is
    /// known; returns its slot if its queue holds requests.
    pub fn java_ended(&self, tid: i32, name: Option<&str>) -> Option<u32> {
        let mut table = self.table.lock();
        if let Some(name) = name {
            table.rename(tid, name);
        }
        let Some(slot) = table.by_tid.remove(&tid) else {
            // It was never profiled; a thread that is about to register it must find that it has ended.
            table.detached.insert(tid, DetachedThread { clock_ns: 0, listings: 0 });
            return None;
        };
        let clock_ns = self.clock.read(tid).unwrap_or(0);
        if let Some(known) = self.slot(slot) {
            known.java_thread.store(0, Ordering::Release);
            let entry = table.entry(slot);
            let silent_ns = entry.map_or(0, |entry| entry.unfinished_at(clock_ns, self.shared, known));
            if silent_ns >= SILENT_NS && !self.is_traced && install::is_blocked(self.shared.signal) {
                self.signal_blocked(&mut table, slot);
            }
        }
        self.close_own_events(&mut table, slot);
        self.close(&mut table, slot, None);
        table.detached.insert(tid, DetachedThread { clock_ns, listings: 0 });
        self.hand_on(&mut table, slot, clock_ns);
        self.shared.ready.is_marked(slot).then_some(slot)
    }

    /// Returns whether a handler runs on any thread, as far as its stores are visible.
    pub fn is_any_handler_running(&self) -> bool {
        let used = self.table.lock().entries.len();
        self.shared.slots.iter().take(used).any(|slot| slot.busy.load(Ordering::Acquire))
    }

    /// Returns whether a queue holds requests; true if that is unknown without waiting.
    pub fn is_anything_pending(&self) -> bool {
        self.table.try_lock().is_none_or(|table| {
            self.shared.ready.is_any_marked(u32::try_from(table.entries.len()).unwrap_or(u32::MAX))
        })
    }

    /// Has all other threads listed from now on. Earlier, Java threads would be found a second time, as native ones.
    pub fn java_threads_registered(&self) {
        self.table.lock().is_registering = false;
    }

    /// Deletes every timer; threads that start from now on are not profiled.
    pub fn stop(&self) {
        // A second caller returns when all timers are deleted.
        let _stopping = self.stopping.lock();
        let slots = {
            let mut table = self.table.lock();
            table.stopped = true;
            table.parked.clear();
            table.entries.len()
        };
        let mut pacer = Pacer::start();
        for first in (0..slots).step_by(LOOKED_AT_ONCE) {
            pacer.rest_if_due();
            let last = slots.min(first + LOOKED_AT_ONCE);
            let taken: Vec<_> = {
                let mut table = self.table.lock();
                let entries = table.entries.get_mut(first..last).unwrap_or_default().iter_mut().flatten();
                entries.map(|entry| (entry.facts.slot, entry.facts.tid, entry.take_timers())).collect()
            };
            // Without the lock, which a thread keeps that loses the processor in a system call.
            let delete = |(slot, tid, timers)| {
                drop(timers);
                // The account of a thread that runs on ends here.
                Some((slot, tid, self.clock.read(tid).ok()?))
            };
            let ends: Vec<(u32, i32, u64)> = taken.into_iter().filter_map(delete).collect();
            let mut table = self.table.lock();
            for (slot, tid, clock_ns) in ends {
                let entry = table.entry_mut(slot);
                if let Some(entry) = entry.filter(|entry| entry.facts.tid == tid) {
                    entry.facts.ended_ns.get_or_insert(clock_ns);
                }
            }
        }
    }

    /// Returns the facts of a thread at this moment.
    pub(super) fn facts(&self, entry: &Entry) -> ThreadFacts {
        let expired_ns = self.slot(entry.facts.slot).map(|slot| entry.expired_ns(self.shared, slot));
        ThreadFacts { expired_ns: expired_ns.unwrap_or(0), ..entry.facts.clone() }
    }

    pub(super) fn slot(&self, slot: u32) -> Option<&'static ThreadSlot> {
        self.shared.slots.get(slot as usize)
    }

    /// Makes an entry with a running timer; returns its slot, `None` if the thread has ended or no slot is left.
    fn open(&self, table: &mut Table, newcomer: NewThread<'_>) -> Option<u32> {
        let NewThread { tid, name, kind, known_ns, java } = newcomer;
        let index = self.take_slot(table)?;
        let slot = self.slot(index)?;
        if let Some(java) = java {
            announce(slot, java);
        }
        let left_out = self.left_out(tid, &name, kind);
        if left_out.is_none() {
            self.lengthen(table);
        }
        let period = table.periods.target();
        let Beginning { carried_ns, left_ns, uncounted, seed, late_ns } = {
            let aim = table.aim;
            table.remainder.beginning(&aim)
        };
        // The periods of a former owner's timer are not this thread's.
        slot.grid.switch(slot.grid.key().next(period));
        slot.draw.begin(left_ns, seed, uncounted);
        let late_ns = if self.clock == ThreadClock::Wall { late_ns } else { 0 };
        let has_timer = left_out.is_none() && !self.is_traced;
        let armed = has_timer.then(|| self.arm(tid, slot, late_ns, |_| carried_ns.cast_signed()));
        let (timer, armed_ns) = match armed {
            Some(Ok((timer, armed_ns))) => (Some(timer), armed_ns),
            refused => {
                let Ok(armed_ns) = self.clock.read(tid) else {
                    table.free.push(index);
                    return None;
                };
                if let Some(Err(error)) = refused {
                    self.warn_once(table, &error);
                }
                (None, armed_ns)
            }
        };
        let mut coverage = Coverage::default();
        let lacks_timer = timer.is_none() && !self.is_traced;
        let gap = left_out.or(lacks_timer.then_some(Gap::NoTimer));
        gap.inspect(|&cause| coverage.begin_gap(cause, armed_ns));
        let carried_ns = if gap.is_none() { carried_ns } else { 0 };
        table.remainder.remove(carried_ns);
        table.next_id += 1;
        let known_ns = known_ns.max(table.clocks_at_attach.remove(&tid).unwrap_or(0));
        let before_timer_ns = match self.clock {
            ThreadClock::Cpu => armed_ns.saturating_sub(known_ns),
            // The wall clock began before the thread.
            ThreadClock::Wall => 0,
        };
        let facts = ThreadFacts {
            slot: index,
            id: table.next_id,
            revision: 0,
            tid,
            name,
            kind,
            armed_ns,
            carried_ns,
            before_timer_ns,
            coverage,
            expired_ns: 0,
            ended_ns: None,
        };
        let entry = Entry::new(facts, timer, table.listings);
        if let Some(place) = table.entries.get_mut(index as usize) {
            *place = Some(entry);
        }
        table.periods.enter(period);
        table.by_tid.insert(tid, index);
        Some(index)
    }

    fn take_slot(&self, table: &mut Table) -> Option<u32> {
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.entries.len() >= slots::MAX_THREADS as usize => {
                table.rotation.without_slot += 1;
                if table.rotation.without_slot == 1 {
                    let most = slots::MAX_THREADS;
                    tracing::warn!("more than {most} threads run at once: those beyond are not profiled");
                }
                return None;
            }
            None => {
                table.entries.push(None);
                u32::try_from(table.entries.len() - 1).ok()?
            }
        };
        let slot = self.slot(index)?;
        slot.java_thread.store(0, Ordering::Relaxed);
        slot.compiler.store(0, Ordering::Relaxed);
        slot.stack_low.store(0, Ordering::Relaxed);
        slot.stack_high.store(0, Ordering::Relaxed);
        slot.last_cycles.store(0, Ordering::Relaxed);
        slot.virtual_thread.store(0, Ordering::Relaxed);
        slot.queue.lost().reset();
        if !slot.queue.is_installed() {
            // Both outcomes leave a usable slot: without a queue every request is counted as lost.
            if let Some(ring) = table.rings.first() {
                let capacity = Capacity::at_least(ring.entries());
                let _already_installed = slot.queue.install(ring, capacity);
            }
        }
        Some(index)
    }

    pub(super) fn warn_once(&self, table: &mut Table, error: &io::Error) {
        table.lacks_timers = true;
        if !std::mem::replace(&mut table.has_warned, true) {
            tracing::warn!("{}", source::refusal(error, self.shared.descriptors.is_some()));
        }
    }

    /// Ends an entry: deletes its timer and lists it for the sampler.
    fn close(&self, table: &mut Table, slot: u32, ended_ns: Option<u64>) {
        if let Some(entry) = table.entry_mut(slot) {
            entry.close_timer();
            entry.facts.ended_ns = ended_ns;
        }
        table.ended.push(slot);
    }

    /// Hands the unfinished part of an ending thread on to the next new ones. The sampler sees the end later, when
    /// hundreds of short threads may have started.
    fn hand_on(&self, table: &mut Table, index: u32, clock_ns: u64) {
        let Some(slot) = self.slot(index) else { return };
        // A signal that is still on its way claims nothing of what is handed on.
        let key = slot.grid.key();
        let expired_ns = self.switch(table, slot, key.next(key.period()));
        table.add_expired(index, expired_ns);
        let Some(entry) = table.entry_mut(index) else { return };
        entry.facts.ended_ns = Some(clock_ns);
        let unfinished_ns = entry.unfinished_at(clock_ns, self.shared, slot).max(0).cast_unsigned();
        entry.handed_on_ns = unfinished_ns;
        table.remainder.add(unfinished_ns);
    }

    /// Closes the entries of threads that are not in `alive`, which is listing number `listing`.
    pub(super) fn close_vanished(&self, alive: &[i32], listing: u64) {
        let mut table = self.table.lock();
        for index in 0..table.entries.len() {
            pass_on(&mut table, index);
            if table.stopped {
                return;
            }
            let slot = index as u32;
            let Some(entry) = table.entry(slot) else { continue };
            let tid = entry.facts.tid;
            let has_vanished = entry.made_at < listing && alive.binary_search(&tid).is_err();
            if !has_vanished || table.by_tid.get(&tid) != Some(&slot) {
                continue;
            }
            table.by_tid.remove(&tid);
            if let Some(slot) = self.slot(slot) {
                slot.java_thread.store(0, Ordering::Release);
            }
            // Its clock has ended with it; the sampler keeps the last reading and the time of its expirations.
            self.close(&mut table, slot, Some(0));
        }
        table.detached.retain(|tid, _| alive.binary_search(tid).is_ok());
        table.parked.retain(|(tid, _)| thread_cpu_nanos(*tid).is_ok());
    }

    /// Registers the threads in `alive` that have no entry, under the kernel's name, which `name_of` reads.
    pub(super) fn open_found(&self, alive: &[i32], name_of: impl Fn(i32) -> Option<String>) {
        let found: Vec<i32> = {
            let mut table = self.table.lock();
            let mut is_new = |(index, tid)| {
                pass_on(&mut table, index);
                table.is_new(tid).then_some(tid)
            };
            alive.iter().copied().enumerate().filter_map(&mut is_new).collect()
        };
        let mut pacer = Pacer::start();
        for tid in found {
            pacer.rest_if_due();
            // Without the lock: a file for each thread.
            let Some(name) = name_of(tid) else { continue };
            let kind = kernel::kind_of(&name);
            let mut table = self.table.lock();
            if table.stopped {
                return;
            }
            // It may have registered itself meanwhile, or ended as a Java thread.
            let has_ended =
                table.detached.get(&tid).is_some_and(|detached| detached.listings < LISTINGS_OF_NATIVE);
            if has_ended || table.by_tid.contains_key(&tid) {
                continue;
            }
            let known_ns = table.detached.remove(&tid).map_or(0, |detached| detached.clock_ns);
            let newcomer = NewThread { tid, name: Arc::from(name.as_str()), kind, known_ns, java: None };
            self.open(&mut table, newcomer);
        }
    }
}

/// Publishes the state of a Java thread to the handler.
fn announce(slot: &ThreadSlot, thread: &JavaThread) {
    slot.stack_low.store(thread.stack_low, Ordering::Relaxed);
    slot.stack_high.store(thread.stack_high, Ordering::Relaxed);
    // Release: the handler that sees the thread sees its stack bounds.
    slot.java_thread.store(thread.address, Ordering::Release);
}

#[cfg(test)]
mod tests;
