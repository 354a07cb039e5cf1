//! Levels of resolution: how samples are summed up as they age.
//!
//! Minutes distinguish threads, and times by the second; hours distinguish groups of threads, and minutes; days
//! distinguish groups of threads, and hours. Each level is summed up from the one below it once its bucket has ended.

use super::memory::{MINUTE_S, Sums};
use super::session::StoredSession;

/// A level of resolution, as the first part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Sums of a minute, with times by the second.
    Minute = 0,
    /// Sums of an hour, with times by the minute and groups of threads with similar names.
    Hour = 1,
    /// Sums of a day, with times by the hour and groups of threads as in hours.
    Day = 2,
}

impl Level {
    pub(super) const COUNT: usize = 3;
    pub(super) const COARSE: [Level; 2] = [Level::Hour, Level::Day];

    pub fn width_s(self) -> u64 {
        [MINUTE_S, 3600, 86_400][self as usize]
    }

    /// Returns the seconds of a time cell in a bucket.
    pub fn cell_s(self) -> u64 {
        [1, 60, 3600][self as usize]
    }

    pub(super) fn start_of(self, time_s: u64) -> u64 {
        time_s / self.width_s() * self.width_s()
    }

    pub(super) fn below(self) -> Level {
        if self == Level::Day { Level::Hour } else { Level::Minute }
    }

    /// Returns the sums of a bucket of a finer level that starts at `start_s`, in the resolution of this level.
    pub(super) fn coarsen(self, session: &mut StoredSession, start_s: u64, sums: &Sums) -> Sums {
        let mut group = |thread: u32| session.group_of(thread);
        let offset_s = start_s - self.start_of(start_s);
        let thread_stacks: Vec<_> =
            sums.thread_stacks.iter().map(|&(thread, stack, sum)| (group(thread), stack, sum)).collect();
        let times = sums.times.iter().map(|&(thread, second, cpu_ns)| {
            let second = (offset_s + u64::from(second)) / self.cell_s() * self.cell_s();
            (group(thread), second as u32, cpu_ns)
        });
        Sums::merge(thread_stacks, times)
    }
}
