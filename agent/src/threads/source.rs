//! The source of a thread's signals: a timer or a perf event.

use std::io;
use std::time::Duration;

use crate::clock::perf_event::PerfEvent;
use crate::clock::timer::Timer;

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

    /// Returns whether the program has left its descriptor alone.
    pub(super) fn is_intact(&self) -> bool {
        match self {
            Self::Timer(_) => true,
            Self::Event(event) => event.is_intact(),
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

/// Returns the warning that the kernel grants no further source, with the remedy for a limit.
pub(super) fn refusal(error: &io::Error, is_event: bool) -> String {
    match (error.raw_os_error(), is_event) {
        (Some(libc::EAGAIN), true) => {
            "fewer perf events than threads (the agent uses a quarter of the limit of descriptors): threads share events, and \
             CPU time without one is reported as lost.no_timer; raise `ulimit -n` or leave clock=perf out to profile all threads"
                .to_owned()
        }
        (Some(libc::EAGAIN), false) => {
            "fewer timers than threads (the agent uses half of the user's pending signals that are free): threads share \
             timers, and CPU time without one is reported as lost.no_timer; raise `ulimit -i` to profile all threads"
                .to_owned()
        }
        _ => format!("threads without a timer ({error}): their CPU time is reported as lost.no_timer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_blamed_only_for_the_error_of_limits() {
        let told = |code, is_event| refusal(&io::Error::from_raw_os_error(code), is_event);
        assert!(told(libc::EAGAIN, false).contains("raise `ulimit -i`"));
        assert!(told(libc::EAGAIN, true).contains("raise `ulimit -n`"));
        for is_event in [false, true] {
            let other = told(libc::EPERM, is_event);
            assert!(other.contains("Operation not permitted") && !other.contains("ulimit"), "{other}");
        }
    }
}
