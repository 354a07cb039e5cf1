//! Pauses of long work, so that waiting threads of the program get a processor.
//!
//! Problem: a thread that works without a pause is replaced at the scheduler's next tick (1 to 10 ms), and a thread of
//! the program that starts meanwhile waits for it.
//! Approach: work for many threads sleeps for a moment after each millisecond. A thread that only yields may be chosen
//! again at once; with sleeps fewer threads start late (`design/measured/benchmarks.md`, Starts of threads).
//! Source: sched_yield(2).

use std::time::{Duration, Instant};

/// Rests from time to time.
#[derive(Debug)]
pub struct Pacer {
    last: Instant,
}

/// Longest work without a rest. Each one may cost a turn of all waiting threads, so it is not shorter.
const WORK: Duration = Duration::from_millis(1);
/// A rest: longer than a thread needs to start (0.4 ms).
const REST: Duration = Duration::from_micros(500);

impl Pacer {
    #[must_use]
    pub fn start() -> Self {
        Self { last: Instant::now() }
    }

    /// Call it often, without a lock held.
    pub fn rest_if_due(&mut self) {
        if self.last.elapsed() >= WORK {
            #[expect(clippy::disallowed_methods, reason = "the purpose is that others run meanwhile")]
            std::thread::sleep(REST);
            self.last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{UsageWho, getrusage};

    use super::*;

    #[test]
    fn long_work_rests_and_short_work_does_not() {
        // A thread that yields does not count as one that waits.
        let waits = || getrusage(UsageWho::RUSAGE_THREAD).expect("own usage").voluntary_context_switches();
        let mut short = Pacer { last: Instant::now() + Duration::from_secs(60) };
        let before = waits();
        short.rest_if_due();
        assert_eq!(waits(), before);
        let begun = Instant::now();
        let mut long = Pacer { last: begun - WORK };
        long.rest_if_due();
        assert_eq!(waits(), before + 1);
        assert!(long.last >= begun + REST, "the time starts at the end of the rest");
    }
}
