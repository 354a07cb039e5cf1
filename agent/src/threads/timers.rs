//! Arms the timer of a thread, and replaces it by one with another period.
//!
//! Problem: a thread gets another timer when the period changes and when threads share timers, and every nanosecond of
//! its CPU time must be sampled once, with the right weight.
//! Approach: a timer is replaced, never changed, so its signals identify it. The new timer is made before the old one
//! is deleted; then [`Grid::switch`](crate::clock::grid::Grid::switch) returns how many periods samples have claimed
//! under the old one. The rest of the thread's clock is its unfinished part: whole periods of it wait under the new
//! timer, and what remains brings the first expiration forward.
//! Invariant: clock since the timer was armed + carried = claimed + without timer + unfinished, at any time.
//! Sources: timer_create(2), timer_settime(2); Linux 6.18 `kernel/time/posix-cpu-timers.c`, `posix_cpu_timer_set`.

use std::io;
use std::sync::atomic::Ordering;

use sampler_thread::clock::ThreadClock;
use sampler_thread::period::aim::Aim;
use sampler_thread::process::Gap;

use super::registry::Registry;
use super::remainder::{SOONEST_NS, random_below};
use super::source::Source;
use super::table::{Correction, Table};
use crate::clock::grid::Key;
use crate::clock::perf_event::PerfEvent;
use crate::clock::timer::Timer;
use crate::handler::slots::ThreadSlot;

/// Timers replaced under the registry's lock at once, for which starting threads wait: some five system calls each.
const REPLACED_AT_ONCE: usize = 256;

impl Registry {
    /// Makes the source of a thread's signals, which carry this key; it does not run.
    ///
    /// # Errors
    /// `EAGAIN` when a limit or the agent's share of it is used up, another one when the thread has ended.
    pub(super) fn create(&self, tid: i32, slot: &'static ThreadSlot, key: Key) -> io::Result<Source> {
        let Some(table) = self.shared.descriptors else {
            return Timer::create(self.clock, tid, self.shared.signal, slot.signal_value(key))
                .map(Source::Timer);
        };
        let slot: *const ThreadSlot = slot;
        let (index, _) = self.shared.slot_at(slot.cast()).ok_or(io::ErrorKind::NotFound)?;
        PerfEvent::create(tid, self.shared.signal, table, index, key).map(Source::Event)
    }

    /// Makes `key` the slot's current timer; returns the CPU time that was claimed under the one before, in
    /// nanoseconds.
    pub(super) fn switch(&self, table: &mut Table, slot: &ThreadSlot, key: Key) -> u64 {
        let before = slot.grid.key().period();
        table.periods.leave(before);
        table.periods.enter(key.period());
        slot.grid.switch(key).saturating_mul(self.shared.period_ns(before))
    }

    /// Starts a timer with the slot's current key, which goes on from the `unfinished` part at a reading of the clock,
    /// and whose expirations come later by `late_ns`. Returns the timer and the clock it was armed at.
    pub(super) fn arm(
        &self,
        tid: i32,
        slot: &'static ThreadSlot,
        late_ns: u64,
        unfinished: impl Fn(u64) -> i64,
    ) -> io::Result<(Source, u64)> {
        let timer = self.create(tid, slot, slot.grid.key())?;
        slot.timer.store(timer.number(), Ordering::Relaxed);
        let armed_ns = self.start(&timer, tid, slot, late_ns, unfinished)?;
        Ok((timer, armed_ns))
    }

    fn start(
        &self,
        timer: &Source,
        tid: i32,
        slot: &ThreadSlot,
        late_ns: u64,
        unfinished: impl Fn(u64) -> i64,
    ) -> io::Result<u64> {
        let period_ns = self.shared.period_ns(slot.grid.key().period());
        let armed_ns = self.clock.read(tid)?;
        let unfinished_ns = unfinished(armed_ns).max(0).cast_unsigned();
        slot.grid.begin(unfinished_ns.checked_div(period_ns).unwrap_or(0));
        slot.drift.want(0);
        let early_ns = unfinished_ns.checked_rem(period_ns).unwrap_or(0);
        let first_ns = (period_ns - early_ns).max(SOONEST_NS).saturating_add(late_ns);
        slot.begins.store(timer.number(), Ordering::Relaxed);
        timer.start(first_ns, period_ns)?;
        Ok(armed_ns)
    }

    /// Sets the distance between samples; gives new timers this period, and returns false if no index for it is free
    /// now.
    pub(super) fn aim(&self, aim: Aim) -> bool {
        let mut table = self.table.lock();
        // Relaxed: a handler may use the former distance once more.
        self.shared.distance_ns.store(aim.distance_ns(), Ordering::Relaxed);
        table.changes += u64::from(table.aim.interval_ns != aim.interval_ns);
        table.aim = aim;
        table.periods.aim(&self.shared.periods, aim.period_ns)
    }

    /// Replaces the timers that have another period than new ones get, as far as that is possible now.
    pub(super) fn retune(&self) {
        let mut table = self.table.lock();
        if table.stopped || table.periods.outdated() == 0 {
            return;
        }
        let mut replaced = 0;
        for index in 0..table.entries.len() {
            replaced += usize::from(self.replace(&mut table, index as u32));
            if replaced == REPLACED_AT_ONCE {
                return;
            }
        }
    }

    /// Replaces one thread's timer if it has another period and that is possible now; returns whether it did.
    fn replace(&self, table: &mut Table, index: u32) -> bool {
        let target = table.periods.target();
        let Some(slot) = self.slot(index) else { return false };
        let before = slot.grid.key();
        let Some(entry) = table.entry_mut(index) else { return false };
        if before.period() == target || entry.facts.ended_ns.is_some() {
            return false;
        }
        if !entry.former.is_empty() {
            // No more than two descriptors for a thread.
            return false;
        }
        let key = before.next(target);
        if entry.timer.is_none() {
            // Nothing runs; the next timer will have the new period.
            let expired_ns = self.switch(table, slot, key);
            table.add_expired(index, expired_ns);
            return false;
        }
        let tid = entry.facts.tid;
        let timer = match self.create(tid, slot, key) {
            Ok(timer) => timer,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                // The thread gives up its timer for another one, and waits if another process was faster.
                table.lacks_timers = true;
                self.take_timer(table, index, Gap::NoTimer);
                let given = self.give_timer(table, index);
                table.replaced += u64::from(given);
                return given;
            }
            Err(_) => return false,
        };
        entry.end_timer();
        slot.timer.store(timer.number(), Ordering::Relaxed);
        let expired_ns = self.switch(table, slot, key);
        table.add_expired(index, expired_ns);
        let Some(entry) = table.entry_mut(index) else { return false };
        let unfinished = |clock_ns| entry.unfinished_at(clock_ns, self.shared, slot);
        let longer_ns =
            self.shared.period_ns(key.period()).saturating_sub(self.shared.period_ns(before.period()));
        let late_ns = if self.clock == ThreadClock::Wall { random_below(longer_ns) } else { 0 };
        let is_started = self.start(&timer, tid, slot, late_ns, unfinished).is_ok();
        entry.timer = Some(timer);
        entry.correction = Correction::default();
        if !is_started {
            entry.end_timer();
        }
        table.replaced += 1;
        true
    }
}
