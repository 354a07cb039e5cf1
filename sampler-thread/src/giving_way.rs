//! Gives the processor to waiting threads of the program during long work.
//!
//! Problem: a scheduler's tick (1 to 10 ms) is the earliest point at which a thread that works without a pause is replaced, and a
//! thread of the program that starts meanwhile waits for it.
//! Approach: work for many threads, on whatever thread, gives way about once a millisecond.
//! Source: sched_yield(2).

use std::time::{Duration, Instant};

/// Time since the last turn of others.
#[derive(Debug)]
pub struct GivingWay {
    last: Instant,
}

/// Longest work without giving way. Each time may cost a turn of all waiting threads, so it is not shorter.
const WORK: Duration = Duration::from_millis(1);

impl GivingWay {
    /// Begins the work.
    #[must_use]
    pub fn begin() -> Self {
        Self { last: Instant::now() }
    }

    /// Call it often, without a lock held.
    pub fn now_and_then(&mut self) {
        if self.last.elapsed() >= WORK {
            std::thread::yield_now();
            self.last = Instant::now();
        }
    }
}
