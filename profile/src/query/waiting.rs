//! Time for which processes waited for processors, over time.
//!
//! Agents send amounts for steps of time, which become longer with the session; a step is spread over the buckets
//! that it overlaps.

use std::ops::Range;

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::error::QueryError;
use super::selection::Selection;
use super::span::Span;
use crate::session::Session;
use crate::source::{Extent, Source};

/// Time in which threads were ready to run but had no processor, in buckets; not in the CPU time. `None` if no selected
/// process reports it, and for selections of threads or stacks, because it is known for whole processes only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitingTimes {
    pub run_delay_ns: Option<Vec<u64>>,
    pub throttled_ns: Option<Vec<u64>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    pub(super) from_ns: u64,
    pub(super) width_ns: u64,
    pub(super) count: usize,
}

impl Buckets {
    /// Spreads an amount evenly over a range of time, and adds it to the buckets there.
    fn add(&self, column: &mut Option<Vec<u64>>, range: Range<u64>, amount: u64) {
        let column = column.get_or_insert_with(|| vec![0; self.count]);
        let length = range.end.saturating_sub(range.start).max(1);
        let before = |time_ns: u64| {
            let part = time_ns.clamp(range.start, range.end) - range.start;
            // At most the amount.
            (u128::from(amount) * u128::from(part) / u128::from(length)) as u64
        };
        let first = range.start.saturating_sub(self.from_ns) / self.width_ns;
        for (bucket, sum) in column.iter_mut().enumerate().skip(usize::try_from(first).unwrap_or(usize::MAX))
        {
            let start = self.from_ns.saturating_add((bucket as u64).saturating_mul(self.width_ns));
            if start >= range.end {
                break;
            }
            *sum = sum.saturating_add(before(start.saturating_add(self.width_ns)) - before(start));
        }
    }
}

/// Returns the waiting of the processes of a selection.
pub(super) fn waiting(
    source: &dyn Source,
    selection: &Selection,
    span: &Span,
    buckets: Buckets,
) -> Result<WaitingTimes, QueryError> {
    let mut times = WaitingTimes::default();
    if selection.filters_threads() || selection.filters_stacks() {
        return Ok(times);
    }
    let mut known: FxHashSet<u64> = FxHashSet::default();
    // The last partition of a session has its complete account.
    for part in source.parts().iter().rev() {
        let mut visited = Vec::new();
        part.sessions(Extent::Account, &|id| !known.contains(&id), &mut |id, session| {
            if selection.is_during(session, span) && selection.matches_session(id, session) {
                visited.push(id);
                add(&mut times, session, buckets);
            }
        })?;
        known.extend(visited);
    }
    Ok(times)
}

fn add(times: &mut WaitingTimes, session: &Session, buckets: Buckets) {
    let Some(statistics) = &session.statistics else { return };
    let Some(waiting) = &statistics.waiting else { return };
    let columns =
        [(&mut times.run_delay_ns, &waiting.run_delay_us), (&mut times.throttled_ns, &waiting.throttled_us)];
    for (column, amounts_us) in columns {
        for (step, amount_us) in (0..).zip(amounts_us) {
            let start = waiting.first_time_ns.saturating_add(waiting.step_ns.saturating_mul(step));
            let start = session.wall_ns(start, statistics.clock_shift_ms);
            let range = start..start.saturating_add(waiting.step_ns);
            buckets.add(column, range, amount_us.saturating_mul(1000));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(range: Range<u64>, amount: u64, expected: &[u64]) {
        let mut column = None;
        Buckets { from_ns: 100, width_ns: 10, count: 4 }.add(&mut column, range, amount);
        assert_eq!(column.as_deref(), Some(expected));
    }

    #[test]
    fn a_step_is_spread_over_its_buckets() {
        check(100..110, 7, &[7, 0, 0, 0]);
        check(115..135, 20, &[0, 5, 10, 5]);
        check(110..140, 10, &[0, 3, 3, 4]);
        check(90..110, 20, &[10, 0, 0, 0]);
        check(130..150, 20, &[0, 0, 0, 10]);
        check(150..160, 20, &[0, 0, 0, 0]);
        check(0..u64::MAX, u64::MAX, &[10, 10, 10, 10]);
        check(120..120, 5, &[0, 0, 0, 0]);
    }
}
