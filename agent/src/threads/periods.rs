//! The timer periods in use, by index.
//!
//! Problem: the period may change (a measured tick differs from the reported one), but timers are replaced one by one,
//! and requests of the old period are still in queues.
//! Approach: handlers read a table of sixteen periods. Timers carry the index; a period is replaced only when no thread
//! has used its index for some drains. While all are in use, new timers keep the present period.
//! Invariant: an index stands for the same period as long as a request with it may exist.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::grid::PERIODS;

/// Complete drains after its last thread during which an index keeps its period.
const QUARANTINE: u64 = 3;

/// The users of each index.
#[derive(Debug, Default)]
pub(super) struct Periods {
    users: [Users; PERIODS],
    /// Index of the period that new timers get.
    target: u8,
    drains: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Users {
    threads: u32,
    /// Value of `Periods::drains` when the last thread left.
    left_at: u64,
}

impl Periods {
    /// Index of the period that new timers get.
    pub(super) fn target(&self) -> u8 {
        self.target
    }

    /// Adds a thread whose requests carry the index.
    pub(super) fn enter(&mut self, index: u8) {
        if let Some(users) = self.users.get_mut(usize::from(index)) {
            users.threads += 1;
        }
    }

    /// Removes a thread whose requests carried the index; some may still be in its queue.
    pub(super) fn leave(&mut self, index: u8) {
        if let Some(users) = self.users.get_mut(usize::from(index)) {
            users.threads = users.threads.saturating_sub(1);
            users.left_at = self.drains;
        }
    }

    /// Returns the number of threads whose timers have another period than new ones get.
    pub(super) fn outdated(&self) -> u64 {
        let others = self.users.iter().enumerate().filter(|(index, _)| *index != usize::from(self.target));
        others.map(|(_, users)| u64::from(users.threads)).sum()
    }

    /// Counts a drain of all queues, at its start.
    pub(super) fn drain_begins(&mut self) {
        self.drains += 1;
    }

    /// Gives new timers this period; returns false if no index for it is free now.
    pub(super) fn aim(&mut self, table: &[AtomicU64; PERIODS], period_ns: u64) -> bool {
        // Relaxed throughout: only this side writes, and a system call makes the first timer with an index later.
        let rows = || (0_u8..).zip(table).zip(&self.users);
        let known = rows().find(|((_, period), _)| period.load(Ordering::Relaxed) == period_ns);
        let is_unused = |users: &Users| users.threads == 0 && users.left_at + QUARANTINE <= self.drains;
        let is_free = |index: u8, period: &AtomicU64, users: &Users| {
            index != self.target && (period.load(Ordering::Relaxed) == 0 || is_unused(users))
        };
        let index = match known {
            Some(((index, _), _)) => index,
            None => {
                let free = rows().filter(|((index, period), users)| is_free(*index, period, users));
                let Some(((index, period), _)) = free.min_by_key(|(_, users)| users.left_at) else {
                    return false;
                };
                period.store(period_ns, Ordering::Relaxed);
                index
            }
        };
        self.target = index;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(first_ns: u64) -> [AtomicU64; PERIODS] {
        std::array::from_fn(|index| AtomicU64::new(if index == 0 { first_ns } else { 0 }))
    }

    #[test]
    fn a_period_keeps_its_index() {
        let table = table(100);
        let mut periods = Periods::default();
        assert!(periods.aim(&table, 100));
        assert_eq!(periods.target(), 0, "the first period");
        assert!(periods.aim(&table, 200));
        let second = periods.target();
        assert!(periods.aim(&table, 100) && periods.target() == 0);
        assert!(periods.aim(&table, 200) && periods.target() == second);
    }

    #[test]
    fn an_index_in_use_or_just_left_keeps_its_period() {
        let table = table(1);
        let mut periods = Periods::default();
        for period_ns in 1..=PERIODS as u64 {
            assert!(periods.aim(&table, period_ns));
            periods.enter(periods.target());
        }
        assert_eq!(periods.outdated(), PERIODS as u64 - 1);
        assert!(!periods.aim(&table, 99), "every index is in use");
        periods.leave(4);
        for _ in 0..QUARANTINE {
            assert!(!periods.aim(&table, 99), "its requests may still be queued");
            periods.drain_begins();
        }
        assert!(periods.aim(&table, 99));
        assert_eq!((periods.target(), table[4].load(Ordering::Relaxed)), (4, 99));
    }
}
