//! The source of a thread's signals: a timer or a perf event.

use std::io;
use std::time::Duration;

use crate::perf_event::PerfEvent;
use crate::timer::Timer;

/// A timer or a perf event; dropping it ends it.
#[derive(Debug)]
pub(super) enum Source {
    Timer(Timer),
    Event(PerfEvent),
}

impl Source {
    /// Returns the number that its signals carry.
    pub(super) fn number(&self) -> i32 {
        match self {
            Self::Timer(timer) => timer.number(),
            Self::Event(event) => event.number(),
        }
    }

    /// Starts it: first expiration after `first_ns` of the thread's CPU time, then every `period_ns`.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(super) fn start(&self, first_ns: u64, period_ns: u64) -> io::Result<()> {
        match self {
            Self::Timer(timer) => {
                timer.start(Duration::from_nanos(first_ns), Duration::from_nanos(period_ns))
            }
            // Its handler sets the period.
            Self::Event(event) => event.start(first_ns),
        }
    }
}
