//! Arming the timer of a thread, and replacing it by one with another period.
//!
//! Problem: the period changes while threads run (`budget=`, `rate=`), and every nanosecond of CPU time must be sampled
//! once, with its own weight.
//! Approach: a thread's timer is replaced, never changed, so that its signals identify the timer they come from. The new
//! timer is made before the old one is deleted; then [`Grid::switch`](crate::signal::grid::Grid::switch) returns exactly
//! how many periods the old one has covered, and the rest of the thread's clock, its unfinished part, brings the first
//! expiration of the new timer forward.
//! A thread whose unfinished part does not fit the new period keeps its timer until it has expired once more: an
//! expiration that is overdue when its timer is started would interrupt the thread wherever it sleeps.
//! Invariant: clock since the timer was armed + carried = expired + without timer + unfinished, at any time.
//! Sources: timer_create(2), timer_settime(2); Linux 6.18 `kernel/time/posix-cpu-timers.c`, `posix_cpu_timer_set`.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_thread::account::clock::thread_cpu_nanos;
use sampler_thread::process::Gap;

use super::periods::largest_unfinished;
use super::registry::Registry;
use super::table::Table;
use crate::arena::ThreadSlot;
use crate::signal::grid::Key;
use crate::timer::Timer;

/// Timers replaced while the registry's lock is held once: some five system calls each, and starting threads wait.
const REPLACED_AT_ONCE: usize = 256;

impl Registry {
    /// Makes `key` the slot's current timer; returns the CPU time that the one before has covered, in nanoseconds.
    pub(super) fn switch(&self, table: &mut Table, slot: &ThreadSlot, key: Key) -> u64 {
        let before = slot.grid.key().period();
        table.periods.leave(before);
        table.periods.enter(key.period());
        slot.grid.switch(key).saturating_mul(self.shared.period_ns(before))
    }

    /// Starts a timer with the slot's current key. Its first expiration comes early by `unfinished` of the thread's clock.
    /// Returns the timer and the clock it was armed at.
    pub(super) fn arm(
        &self,
        tid: i32,
        slot: &'static ThreadSlot,
        unfinished: impl Fn(u64) -> i64,
    ) -> io::Result<(Timer, u64)> {
        let timer = Timer::create(tid, self.signal, slot.signal_value(slot.grid.key()))?;
        slot.timer.store(timer.number(), Ordering::Relaxed);
        let armed_ns = self.start(&timer, tid, slot, unfinished)?;
        Ok((timer, armed_ns))
    }

    fn start(
        &self,
        timer: &Timer,
        tid: i32,
        slot: &ThreadSlot,
        unfinished: impl Fn(u64) -> i64,
    ) -> io::Result<u64> {
        let period_ns = self.shared.period_ns(slot.grid.key().period());
        let armed_ns = thread_cpu_nanos(tid)?;
        let early_ns = unfinished(armed_ns).min(largest_unfinished(period_ns).cast_signed());
        let first_ns = armed_ns.saturating_add(period_ns).saturating_sub_signed(early_ns);
        timer.start(Duration::from_nanos(first_ns), Duration::from_nanos(period_ns))?;
        Ok(armed_ns)
    }

    /// Gives new timers this period; returns false if no index for it is free now.
    pub(super) fn aim(&self, period_ns: u64) -> bool {
        self.table.lock().periods.aim(&self.shared.periods, period_ns)
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
        let (before, periods) = (slot.grid.key(), slot.grid.periods());
        let Some(entry) = table.entry_mut(index) else { return false };
        if before.period() == target || entry.facts.ended_ns.is_some() || entry.deferred_at == Some(periods) {
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
        // The next listing finds that the thread has ended.
        let Ok(clock_ns) = thread_cpu_nanos(tid) else { return false };
        let unfinished_ns = entry.unfinished_at(clock_ns, self.shared, slot);
        if unfinished_ns > largest_unfinished(self.shared.period_ns(target)).cast_signed() {
            entry.deferred_at = Some(periods);
            return false;
        }
        let timer = match Timer::create(tid, self.signal, slot.signal_value(key)) {
            Ok(timer) => timer,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                // The kernel grants no further timer: the thread gives up its own, and waits for another one if another
                // process was faster.
                table.lacks_timers = true;
                self.take_timer(table, index, Gap::NoTimer);
                let given = self.give_timer(table, index);
                table.replaced += u64::from(given);
                return given;
            }
            Err(_) => return false,
        };
        entry.timer = None;
        entry.deferred_at = None;
        slot.timer.store(timer.number(), Ordering::Relaxed);
        let expired_ns = self.switch(table, slot, key);
        table.add_expired(index, expired_ns);
        let Some(entry) = table.entry_mut(index) else { return false };
        let unfinished = |clock_ns| entry.unfinished_at(clock_ns, self.shared, slot);
        if self.start(&timer, tid, slot, unfinished).is_ok() {
            entry.timer = Some(timer);
        }
        table.replaced += 1;
        true
    }
}
