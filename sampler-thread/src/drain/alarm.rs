//! Wakes the second thread when the sampler thread is late.
//!
//! Problem: a thread that looks every 30 ms whether another one is late costs as much as the other one's drains.
//! Approach: the second thread reads a timer descriptor, which blocks until the timer expires. Every drain sets the timer
//! again, which costs one system call and does not wake the reader.
//! Invariant: the reader wakes only if the timer was not set again in time.
//!
//! Source: timerfd_create(2).

use std::time::Duration;

use nix::Result;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// A timer that one thread waits for.
#[derive(Debug)]
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// As `timerfd_create`.
    pub(crate) fn new() -> Result<Self> {
        TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).map(Self)
    }

    /// Lets the timer expire once, in `time`, and not before.
    pub(crate) fn set(&self, time: Duration) {
        // A time of zero would unset it.
        let time = Expiration::OneShot(TimeSpec::from_duration(time.max(Duration::from_nanos(1))));
        // Fails only for invalid arguments.
        let _ = self.0.set(time, TimerSetTimeFlags::empty());
    }

    /// Unsets the timer.
    pub(crate) fn unset(&self) {
        let _ = self.0.unset();
    }

    /// Waits until the timer expires.
    ///
    /// # Errors
    /// As `read`: for example if the program has closed the descriptor.
    pub(crate) fn wait(&self) -> Result<()> {
        loop {
            match self.0.wait() {
                Err(Errno::EINTR) => {}
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_alarm_that_is_set_again_expires_later() {
        let alarm = Alarm::new().expect("a timer");
        let (early, late) = (Duration::from_millis(1), Duration::from_millis(30));
        std::thread::scope(|scope| {
            alarm.set(late);
            let begin = Instant::now();
            let waiting = scope.spawn(|| alarm.wait());
            alarm.set(early);
            alarm.unset();
            alarm.set(late);
            assert_eq!(waiting.join().expect("no panic"), Ok(()));
            assert!(begin.elapsed() >= late);
        });
        alarm.set(Duration::ZERO);
        assert_eq!(alarm.wait(), Ok(()), "expires at once");
    }
}
