//! The timer periods in use, by number.
//!
//! Problem: the period may change at any time, but threads get their new timers one by one, and requests of the old
//! period are still in queues.
//! Approach: sixteen numbered periods in the memory that handlers read. Timers carry the number; a number's period is
//! changed only when no thread has used it for some rounds of draining. When all numbers are taken, the period stays.
//! Invariant: while a request with a number may be anywhere, the number means the same period.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::signal::grid::PERIODS;

/// Rounds a number stays untouched after its last thread: each is a complete drain.
const QUARANTINE: u64 = 3;

/// Who uses which number.
#[derive(Debug, Default)]
pub(super) struct Periods {
    numbers: [Number; PERIODS],
    /// Number of the period that new timers get.
    target: u8,
    round: u64,
    /// How often the target changed.
    pub(super) changes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Number {
    users: u32,
    /// Round in which the last user left.
    left: u64,
}

impl Periods {
    /// Number of the period that new timers get.
    pub(super) fn target(&self) -> u8 {
        self.target
    }

    /// One more thread's requests carry the number.
    pub(super) fn enter(&mut self, number: u8) {
        if let Some(entry) = self.numbers.get_mut(usize::from(number)) {
            entry.users += 1;
        }
    }

    /// One thread's requests carry it no more, once those in its queue are drained.
    pub(super) fn leave(&mut self, number: u8) {
        let round = self.round;
        if let Some(entry) = self.numbers.get_mut(usize::from(number)) {
            entry.users = entry.users.saturating_sub(1);
            entry.left = round;
        }
    }

    /// Threads whose timers have another period than new ones get.
    pub(super) fn stragglers(&self) -> u64 {
        let others =
            self.numbers.iter().enumerate().filter(|(number, _)| *number != usize::from(self.target));
        others.map(|(_, entry)| u64::from(entry.users)).sum()
    }

    /// A drain of every queue with requests begins.
    pub(super) fn drain_begins(&mut self) {
        self.round += 1;
    }

    /// Gives new timers this period; false if that is not possible now.
    pub(super) fn aim(&mut self, table: &[AtomicU64; PERIODS], period_ns: u64) -> bool {
        // Relaxed throughout: only this side writes, and the system call that makes the first timer with a number
        // comes after the number's period was written.
        let rows = || (0_u8..).zip(table).zip(&self.numbers);
        let known = rows().find(|((_, period), _)| period.load(Ordering::Relaxed) == period_ns);
        let over = |entry: &Number| entry.users == 0 && entry.left + QUARANTINE <= self.round;
        let is_free = |number: u8, period: &AtomicU64, entry: &Number| {
            number != self.target && (period.load(Ordering::Relaxed) == 0 || over(entry))
        };
        let number = match known {
            Some(((number, _), _)) => number,
            None => {
                let free = rows().filter(|((number, period), entry)| is_free(*number, period, entry));
                let Some(((number, period), _)) = free.min_by_key(|(_, entry)| entry.left) else {
                    return false;
                };
                period.store(period_ns, Ordering::Relaxed);
                number
            }
        };
        self.changes += u64::from(number != self.target);
        self.target = number;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(first_ns: u64) -> [AtomicU64; PERIODS] {
        std::array::from_fn(|number| AtomicU64::new(if number == 0 { first_ns } else { 0 }))
    }

    #[test]
    fn a_period_keeps_its_number() {
        let table = table(100);
        let mut periods = Periods::default();
        assert!(periods.aim(&table, 100));
        assert_eq!((periods.target(), periods.changes), (0, 0), "that is what it begins with");
        assert!(periods.aim(&table, 200));
        let second = periods.target();
        assert!(periods.aim(&table, 100) && periods.target() == 0);
        assert!(periods.aim(&table, 200) && periods.target() == second);
        assert_eq!(periods.changes, 3);
    }

    #[test]
    fn a_number_in_use_or_just_left_keeps_its_period() {
        let table = table(1);
        let mut periods = Periods::default();
        for period_ns in 1..=PERIODS as u64 {
            assert!(periods.aim(&table, period_ns));
            periods.enter(periods.target());
        }
        assert_eq!(periods.stragglers(), PERIODS as u64 - 1);
        assert!(!periods.aim(&table, 99), "every number is in use");
        periods.leave(4);
        for _ in 0..QUARANTINE {
            assert!(!periods.aim(&table, 99), "its requests may not be drained");
            periods.drain_begins();
        }
        assert!(periods.aim(&table, 99));
        assert_eq!((periods.target(), table[4].load(Ordering::Relaxed)), (4, 99));
    }
}
