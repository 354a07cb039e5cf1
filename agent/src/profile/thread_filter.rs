//! The threads that a program has chosen, over time.
//!
//! Approach: every thread is sampled, so that the account closes; each change is kept with its time, and results leave out
//! the samples of a thread while it was not chosen.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Changes of one thread, by time in nanoseconds since the epoch: chosen by the first, not by the second, and so on.
type Changes = Vec<u64>;

static FILTER: Mutex<Filter> = Mutex::new(Filter { is_on: false, threads: BTreeMap::new() });

/// The filter of the last profile.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    is_on: bool,
    threads: BTreeMap<i32, Changes>,
}

impl Filter {
    /// Begins a profile: threads that are chosen now have always been.
    fn begin(&mut self, is_on: bool) {
        self.is_on = is_on;
        self.threads.retain(|_, changes| changes.len() % 2 == 1);
        self.threads.values_mut().for_each(|changes| *changes = vec![0]);
    }

    fn change(&mut self, tid: i32, is_chosen: bool, time_ns: u64) {
        let changes = self.threads.entry(tid).or_default();
        if (changes.len() % 2 == 1) != is_chosen {
            changes.push(time_ns);
        }
    }

    /// Returns whether samples are left out.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns whether a thread was chosen at a time in nanoseconds since the epoch.
    pub fn has(&self, tid: i32, time_ns: u64) -> bool {
        let changes = self.threads.get(&tid).map_or(&[][..], |changes| changes);
        changes.partition_point(|&change_ns| change_ns <= time_ns) % 2 == 1
    }
}

/// Begins a profile; without a filter all threads are shown.
pub fn begin(is_on: bool) {
    FILTER.lock().begin(is_on);
}

/// Chooses a thread, or ends that.
pub fn change(tid: i32, is_chosen: bool, time_ns: u64) {
    FILTER.lock().change(tid, is_chosen, time_ns);
}

/// Returns the filter of the last profile.
pub fn last() -> Filter {
    FILTER.lock().clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_shown_while_it_is_chosen() {
        let mut filter = Filter::default();
        filter.change(7, true, 50);
        filter.change(8, true, 60);
        filter.change(8, false, 70);
        filter.begin(true);
        assert!(filter.is_on() && filter.has(7, 1) && !filter.has(8, 1) && !filter.has(9, 1));
        // A second request for what is so changes nothing.
        for (is_chosen, time_ns) in [(true, 90), (false, 100), (false, 110), (true, 200)] {
            filter.change(7, is_chosen, time_ns);
        }
        let shown = [99, 100, 150, 199, 200, u64::MAX].map(|time_ns| filter.has(7, time_ns));
        assert_eq!(shown, [true, false, false, false, true, true]);
    }
}
