//! The times of a selection.

use std::ops::Range;

use profile::source::whole_minutes;

const HOUR_US: i64 = 3_600_000_000;

/// Times in microseconds since the epoch: whole minutes, because queries widen ranges to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times(Vec<Range<i64>>);

impl Times {
    /// Returns the minutes of half-open ranges of nanoseconds.
    pub fn of(ranges_ns: &[Range<u64>]) -> Times {
        let minutes = ranges_ns.iter().map(|range| whole_minutes(range.start, range.end));
        let micros = |ns: u64| (ns / 1000).cast_signed();
        Times(minutes.map(|minutes| micros(minutes.start)..micros(minutes.end)).collect())
    }

    /// Returns whether a time is one of these.
    pub fn contains(&self, time_us: i64) -> bool {
        self.0.iter().any(|range| range.contains(&time_us))
    }

    /// Returns whether these times and a range, its end included, have something in common.
    pub fn overlap(&self, first_us: i64, last_us: i64) -> bool {
        self.0.iter().any(|range| range.start <= last_us && first_us < range.end)
    }

    /// Returns the hours since the epoch that have some of these times; `None` if they are more than `most`.
    pub fn hours(&self, most: usize) -> Option<Vec<i64>> {
        let hours = |range: &Range<i64>| {
            range.start.div_euclid(HOUR_US)..range.end.saturating_add(HOUR_US - 1).div_euclid(HOUR_US)
        };
        let is_short = |range: &Range<i64>| hours(range).end - hours(range).start <= most as i64;
        if !self.0.iter().all(is_short) {
            return None;
        }
        let mut all: Vec<i64> = self.0.iter().flat_map(hours).collect();
        all.sort_unstable();
        all.dedup();
        Some(all).filter(|all| all.len() <= most)
    }

    /// Returns the time from the first to the last of these.
    pub fn span_us(&self) -> Range<i64> {
        let starts = self.0.iter().map(|range| range.start);
        let ends = self.0.iter().map(|range| range.end);
        starts.min().unwrap_or(0)..ends.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_minutes_and_have_hours() {
        let ns = |seconds: u64| seconds * 1_000_000_000;
        let times = Times::of(&[ns(3_590)..ns(3_601), ns(90_000)..ns(90_030)]);
        assert_eq!(times.span_us(), 3_540_000_000..90_060_000_000);
        assert_eq!(times.hours(9), Some(vec![0, 1, 25]));
        assert_eq!(times.hours(2), None);
        assert!(times.contains(3_540_000_000) && !times.contains(3_539_999_999));
        assert!(times.overlap(0, 3_540_000_000) && !times.overlap(3_660_000_000, 89_999_999_999));
        let all = Times(vec![Range { start: 0, end: i64::MAX / 2 }]);
        assert_eq!(all.hours(1000), None);
        assert!(all.contains(1_795_924_790_000_000));
    }
}
