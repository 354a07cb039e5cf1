//! The timer of each thread: armed, taken away, replaced by one with another period.
//!
//! Problem: the period changes while threads run (`budget=`, `rate=`), and every nanosecond of CPU time must be sampled
//! once, with its own weight.
//! Approach: a thread's timer is replaced, never set anew, so that its signals say which one they come from. The new
//! timer is made before the old one is deleted; then [`Grid::switch`](crate::signal::grid::Grid::switch) tells to the
//! last period what the old one has covered, and the rest of the thread's clock, its unfinished part, brings the first
//! expiration of the new timer forward.
//! A thread whose unfinished part does not fit the new period keeps its timer until it has expired once more: an
//! expiration that is overdue when its timer is started would interrupt the thread wherever it sleeps.
//! Invariant: clock since the timer was armed + carried = expired + without timer + unfinished, at any time.
//! Sources: timer_create(2), timer_settime(2); Linux 6.18 `kernel/time/posix-cpu-timers.c`, `posix_cpu_timer_set`.

use std::io;
use std::time::Duration;

use sampler_thread::account::clock::thread_cpu_nanos;

use super::{Entry, Inner, Registry};
use crate::arena::{Shared, ThreadSlot};
use crate::signal::grid::Key;
use crate::timer::Timer;

/// Earliest first expiration after a timer is armed, however large the period taken over, in nanoseconds.
///
/// A timer that has expired when it is armed fires inside ThreadStart, and would charge every short thread's time to the
/// start of threads; 20 to 60 us after arming the thread runs its own code (JDK 17, 2.6 GHz).
const SOONEST_FIRST_NS: u64 = 100_000;

/// Timers replaced while the registry's lock is held once: some five system calls each, and starting threads wait.
const REPLACED_AT_ONCE: usize = 256;

/// The largest unfinished part that fits a period.
pub(super) fn largest_part(period_ns: u64) -> u64 {
    period_ns - (period_ns / 2).min(SOONEST_FIRST_NS)
}

impl Registry {
    /// Makes `key` the slot's present timer; what the one before has covered since it was made, in nanoseconds.
    pub(super) fn switch(&self, inner: &mut Inner, slot: &ThreadSlot, key: Key) -> u64 {
        let before = slot.grid.key().period();
        inner.periods.leave(before);
        inner.periods.enter(key.period());
        slot.grid.switch(key).saturating_mul(self.shared.period_ns(before))
    }

    /// Starts a timer with the slot's present key; its first expiration comes `unfinished_ns` early. Returns the clock
    /// it was armed at.
    pub(super) fn arm(
        &self,
        tid: i32,
        slot: &'static ThreadSlot,
        unfinished: impl Fn(u64) -> i64,
    ) -> io::Result<(Timer, u64)> {
        let timer = Timer::create(tid, self.signal, slot.signal_value(slot.grid.key()))?;
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
        let early_ns = unfinished(armed_ns).min(largest_part(period_ns).cast_signed());
        let first_ns = armed_ns.saturating_add(period_ns).saturating_sub_signed(early_ns);
        timer.start(Duration::from_nanos(first_ns), Duration::from_nanos(period_ns))?;
        Ok(armed_ns)
    }

    /// Gives new timers this period; false if no number for it is free now.
    pub(super) fn aim(&self, period_ns: u64) -> bool {
        self.inner.lock().periods.aim(&self.shared.periods, period_ns)
    }

    /// Replaces the timers of threads that run with another period than new ones get, as far as that can be done now.
    pub(super) fn retune(&self) {
        let mut inner = self.inner.lock();
        if inner.stopped || inner.periods.stragglers() == 0 {
            return;
        }
        let mut replaced = 0;
        for index in 0..inner.entries.len() {
            replaced += usize::from(self.replace(&mut inner, index as u32));
            if replaced == REPLACED_AT_ONCE {
                return;
            }
        }
    }

    /// Replaces one thread's timer if that is due and can be done; whether it was.
    fn replace(&self, inner: &mut Inner, index: u32) -> bool {
        let target = inner.periods.target();
        let Some(slot) = self.slot(index) else { return false };
        let (before, periods) = (slot.grid.key(), slot.grid.periods());
        let Some(entry) = inner.entry(index) else { return false };
        if before.period() == target || entry.facts.ended_ns.is_some() || entry.held_back == Some(periods) {
            return false;
        }
        let key = before.next(target);
        if entry.timer.is_none() {
            // Nothing runs; the next timer will have the new period.
            let expired_ns = self.switch(inner, slot, key);
            inner.add_expired(index, expired_ns);
            return false;
        }
        let tid = entry.facts.tid;
        // A thread that has ended is found by the next look.
        let Ok(clock_ns) = thread_cpu_nanos(tid) else { return false };
        let unfinished_ns = entry.unfinished_at(clock_ns, self.shared, slot);
        if unfinished_ns > largest_part(self.shared.period_ns(target)).cast_signed() {
            entry.held_back = Some(periods);
            return false;
        }
        let timer = match Timer::create(tid, self.signal, slot.signal_value(key)) {
            Ok(timer) => timer,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                // Not one timer more than there are: the thread gives its own one up for it, and takes turns if
                // another process was faster.
                inner.is_short = true;
                self.take_timer(inner, index);
                let given = self.give_timer(inner, index);
                inner.replaced += u64::from(given);
                return given;
            }
            Err(_) => return false,
        };
        entry.timer = None;
        entry.held_back = None;
        let expired_ns = self.switch(inner, slot, key);
        inner.add_expired(index, expired_ns);
        let Some(entry) = inner.entry(index) else { return false };
        let unfinished = |clock_ns| entry.unfinished_at(clock_ns, self.shared, slot);
        if self.start(&timer, tid, slot, unfinished).is_ok() {
            entry.timer = Some(timer);
        }
        inner.replaced += 1;
        true
    }
}

impl Entry {
    /// CPU time that expirations have covered: sampled, or lost with a request.
    pub(super) fn expired_ns(&self, shared: &Shared, slot: &ThreadSlot) -> u64 {
        let present = slot.grid.periods().saturating_mul(shared.period_ns(slot.grid.key().period()));
        self.expired_ns.saturating_add(present)
    }

    /// Of the CPU time until the thread's clock reads `clock_ns`, what no expiration has covered and no timer missed.
    pub(super) fn unfinished_at(&self, clock_ns: u64, shared: &Shared, slot: &ThreadSlot) -> i64 {
        let facts = &self.facts;
        let known = clock_ns.saturating_sub(facts.armed_ns).saturating_add(facts.carried_ns);
        let covered = known.saturating_sub(facts.coverage.untimed_at(clock_ns));
        covered.cast_signed().saturating_sub_unsigned(self.expired_ns(shared, slot))
    }
}

impl Inner {
    pub(super) fn entry(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(super) fn add_expired(&mut self, slot: u32, expired_ns: u64) {
        if let Some(entry) = self.entry(slot) {
            entry.expired_ns = entry.expired_ns.saturating_add(expired_ns);
        }
    }
}
