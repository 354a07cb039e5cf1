//! Clocks of agents that are ahead of the collector's.
//!
//! A session whose machine has a wrong clock would be in the future of a store, where it is not found and from where it
//! does not expire. No session begins after its first message arrives, so one that claims to is given the time of
//! arrival. A clock that is behind looks like a session that began long ago; queries leave out such times by default
//! (`profile::query::selection`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::v1::Hello;

/// How far a clock may be ahead: machines without synchronisation drift by seconds a day.
const AHEAD: Duration = Duration::from_secs(300);

/// Moves the beginning of a session from the future to `now_ns`; returns how far its clock is ahead.
pub(super) fn correct(hello: &mut Hello, now_ns: u64) -> Option<Duration> {
    let ahead = Duration::from_nanos(hello.wall_clock_ns.saturating_sub(now_ns));
    if ahead <= AHEAD {
        return None;
    }
    hello.wall_clock_ns = now_ns;
    Some(ahead)
}

/// Returns the time in nanoseconds since the epoch.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_790_000_000_000_000_000;

    #[track_caller]
    fn check(wall_clock_ns: u64, expected_ns: u64) {
        let mut hello = Hello { wall_clock_ns, ..Hello::default() };
        let ahead = correct(&mut hello, NOW_NS);
        assert_eq!(hello.wall_clock_ns, expected_ns);
        assert_eq!(ahead.is_some(), wall_clock_ns != expected_ns);
    }

    #[test]
    fn only_clocks_that_are_ahead_are_corrected() {
        check(NOW_NS, NOW_NS);
        check(NOW_NS + 300_000_000_000, NOW_NS + 300_000_000_000);
        check(NOW_NS + 300_000_000_001, NOW_NS);
        check(u64::MAX, NOW_NS);
        // A program that has run for a year, or a clock that begins in 1970.
        check(NOW_NS - 365 * 86_400 * 1_000_000_000, NOW_NS - 365 * 86_400 * 1_000_000_000);
        check(0, 0);
    }
}
