//! Times of looks whether a sweep of the VM's code has begun (JDK 17 to 19), beyond which samples must not wait.
//!
//! Problem: sweeps come in bursts, some 20 ms apart, because the zombies of one count as changed code for the next. The
//! second takes the proof from stacks that were sampled before the first (`proof::code_freeing`).
//! Approach: waiting samples are walked when a sweep has begun and when it has ended. A look takes a few loads. The VM
//! begins a sweep once it has counted a number of changed bytes, so the next look comes after the time in which the
//! rest can change, or after a small part of the time without a change, and soon while a burst lasts.
//! Invariant: this limits nothing in a VM without a sweeper, nor on JDK 11, whose sweeps are rare and come in no
//! bursts.
//!
//! Sources: `SweeperThreshold` (17.0.9) and the VM's variables, read every 5 ms while H2 (the program of `./demo`) ran
//! for 20 s: a sweep began each time `_bytes_changed` reached `_sweep_threshold_bytes`, 1.26 MB; up to 1.7 MB changed
//! in a second; of four sweeps three came within 0.2 s. On 11.0.13 the same program had two sweeps, fifteen seconds
//! apart.

use std::time::{Duration, Instant};

use crate::drain::pace::WATCHFUL;
use crate::proof::code_freeing::Ahead;

/// Code that changes in a second at most, in bytes: twice what was seen.
const CHANGED_IN_A_SECOND: u64 = 4_000_000;
/// Part of the time without a change after which to look, however near the next sweep is.
const OF_QUIET_TIME: u32 = 40;
/// Time after the begin of a sweep in which others may follow at once.
const BURST: Duration = Duration::from_millis(200);
/// Time between two looks in a burst: shorter than between two of its sweeps.
const IN_BURST: Duration = Duration::from_millis(5);

/// The sweeps that were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NextSweep {
    ahead: Option<Ahead>,
    /// When code was seen to change last.
    changed: Option<Instant>,
    burst_until: Option<Instant>,
}

impl NextSweep {
    /// Returns whether a sweep has begun or ended since the last call of [`next_look`](Self::next_look).
    pub(crate) fn has_come(&self, ahead: Option<Ahead>) -> bool {
        ahead.map(|ahead| ahead.sweeps) != self.ahead.map(|ahead| ahead.sweeps)
    }

    /// Returns the time until the next look, by what was read before the queues were emptied; `None` if there are no
    /// sweeps.
    pub(crate) fn next_look(&mut self, now: Instant, ahead: Option<Ahead>) -> Option<Duration> {
        let Ahead { sweeps, bytes_left } = ahead?;
        let before = self.ahead.replace(Ahead { sweeps, bytes_left });
        if before.is_some_and(|before| before.sweeps.begun != sweeps.begun) {
            self.burst_until = Some(now + BURST);
        }
        if before != self.ahead {
            self.changed = Some(now);
        }
        if self.burst_until.is_some_and(|until| now < until) {
            return Some(IN_BURST);
        }
        let Some(bytes_left) = bytes_left else { return Some(WATCHFUL) };
        let by_rate = Duration::from_micros(bytes_left.saturating_mul(1_000_000) / CHANGED_IN_A_SECOND);
        let quiet = self.changed.map_or(Duration::ZERO, |changed| now.saturating_duration_since(changed));
        Some(by_rate.max(quiet / OF_QUIET_TIME).max(IN_BURST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::code_freeing::Sweeps;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ahead(begun: u64, ended: u64, bytes_left: Option<u64>) -> Option<Ahead> {
        Some(Ahead { sweeps: Sweeps { begun, ended }, bytes_left })
    }

    #[test]
    fn looks_are_frequent_before_a_sweep_and_in_a_burst() {
        let mut next = NextSweep::default();
        let start = Instant::now();
        let mut look = |at_ms, begun, bytes_left| {
            let ahead = ahead(begun, begun, bytes_left);
            next.next_look(start + ms(at_ms), ahead).map(|time| time.as_millis())
        };
        assert_eq!(look(0, 0, Some(1_200_000)), Some(300));
        assert_eq!(look(200, 0, Some(1_000_000)), Some(250));
        assert_eq!(look(201, 0, Some(80_000)), Some(20));
        assert_eq!(look(601, 0, Some(80_000)), Some(20));
        assert_eq!(look(8_201, 0, Some(80_000)), Some(200), "nothing has changed for eight seconds");
        assert_eq!(look(8_301, 0, Some(0)), Some(5));
        assert_eq!(look(9_000, 1, Some(1_200_000)), Some(5), "a sweep has begun");
        assert_eq!(look(9_199, 1, Some(1_200_000)), Some(5));
        assert_eq!(look(9_200, 1, Some(1_200_000)), Some(300));
        assert_eq!(look(9_201, 1, None), Some(25));
        assert_eq!(next.next_look(start, None), None, "without a sweeper");
    }

    #[test]
    fn a_sweep_comes_when_it_begins_and_when_it_ends() {
        let mut next = NextSweep::default();
        assert!(!next.has_come(None), "without a sweeper");
        assert!(next.has_come(ahead(3, 3, None)), "the first reading");
        next.next_look(Instant::now(), ahead(3, 3, None));
        assert!(!next.has_come(ahead(3, 3, Some(7))));
        for (begun, ended) in [(4, 3), (4, 4)] {
            assert!(next.has_come(ahead(begun, ended, None)));
            next.next_look(Instant::now(), ahead(begun, ended, None));
            assert!(!next.has_come(ahead(begun, ended, None)));
        }
    }
}
