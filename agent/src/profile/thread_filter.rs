//! The threads that a program has chosen, over time.
//!
//! Approach: each change is kept with its time, and results leave out the samples of a thread while it was not chosen.
//! On the clock of CPU time every thread is sampled, so that the account closes; on the wall clock all threads share a
//! rate, so only the chosen ones have timers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use agent_options::request::Filter as Chosen;

/// Changes of one thread, by time in nanoseconds since the epoch: chosen by the first, not by the second, and so on.
type Changes = Vec<u64>;

/// The filter of the last profile.
#[derive(Debug, Clone)]
pub struct Filter {
    is_on: bool,
    /// Threads that are chosen from the start.
    ranges: Vec<RangeInclusive<i32>>,
    /// Threads whose choice changes.
    threads: BTreeMap<i32, Changes>,
}

impl Filter {
    /// All threads are shown.
    pub const fn new() -> Self {
        Self { is_on: false, ranges: Vec::new(), threads: BTreeMap::new() }
    }

    /// Begins a profile: threads that are chosen now have always been. Without a choice all threads are shown.
    pub fn begin(&mut self, chosen: Option<&Chosen>) {
        self.is_on = chosen.is_some();
        self.ranges = chosen.map(|chosen| chosen.threads.clone()).unwrap_or_default();
        self.threads.retain(|_, changes| changes.len() % 2 == 1);
        self.threads.values_mut().for_each(|changes| *changes = vec![0]);
    }

    /// Chooses a thread, or ends that, at a time in nanoseconds since the epoch.
    pub fn change(&mut self, tid: i32, is_chosen: bool, time_ns: u64) {
        let is_in_range = self.ranges.iter().any(|range| range.contains(&tid));
        let changes = self.threads.entry(tid).or_insert_with(|| if is_in_range { vec![0] } else { vec![] });
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
        match self.threads.get(&tid) {
            Some(changes) => changes.partition_point(|&change_ns| change_ns <= time_ns) % 2 == 1,
            None => self.ranges.iter().any(|range| range.contains(&tid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_shown_while_it_is_chosen() {
        let mut filter = Filter::new();
        filter.change(7, true, 50);
        filter.change(8, true, 60);
        filter.change(8, false, 70);
        filter.begin(Some(&Chosen::default()));
        assert!(filter.is_on() && filter.has(7, 1) && !filter.has(8, 1) && !filter.has(9, 1));
        // A second request for what is so changes nothing.
        for (is_chosen, time_ns) in [(true, 90), (false, 100), (false, 110), (true, 200)] {
            filter.change(7, is_chosen, time_ns);
        }
        let shown = [99, 100, 150, 199, 200, u64::MAX].map(|time_ns| filter.has(7, time_ns));
        assert_eq!(shown, [true, false, false, false, true, true]);
    }

    #[test]
    fn threads_that_a_request_names_are_shown_from_the_start() {
        let mut filter = Filter::new();
        filter.begin(Some(&Chosen { threads: vec![5..=7, 9..=9] }));
        assert!([5, 6, 7, 9].iter().all(|&tid| filter.has(tid, 1)) && !filter.has(8, 1));
        filter.change(6, false, 100);
        assert!(filter.has(6, 99) && !filter.has(6, 100) && filter.has(7, 100));
        filter.begin(None);
        assert!(!filter.is_on() && !filter.has(5, 1));
    }
}
