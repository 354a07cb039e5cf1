//! Wakes the second thread when the sampler thread is late.
//!
//! Problem: a thread that looks every 30 ms whether another one is late costs as much as the other one's drains.
//! Approach: the second thread reads a timer descriptor, which blocks until the timer expires. Every drain sets the
//! timer again, which costs one system call and does not wake the reader.
//! Invariants: the reader wakes only if the timer was not set again in time. A number that the program uses for
//! something else is neither set nor read.
//!
//! Sources: timerfd_create(2); Linux 6.18 `fs/timerfd.c` (`timerfd_setup` keeps the period of a timer that is not set).

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::descriptor::{Identify, OwnedDescriptor};

/// Shortest period, in seconds: some thirty years, so that it never comes to its end.
const LEAST_PERIOD_S: u64 = 1_000_000_000;

/// All timers of this kind share one inode; each of ours has a period of its own.
impl Identify for TimerFd {
    fn mark(&self) -> io::Result<u64> {
        let period = match self.get()? {
            Some(Expiration::Interval(period) | Expiration::IntervalDelayed(_, period)) => {
                Duration::from(period)
            }
            Some(Expiration::OneShot(_)) | None => Duration::ZERO,
        };
        Ok(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A timer that one thread waits for.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedDescriptor<TimerFd>,
    period: TimeSpec,
}

impl Alarm {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// As `timerfd_create`.
    pub(crate) fn new() -> io::Result<Self> {
        let random = RandomState::new().hash_one(0);
        // Below 2^31 seconds, which the kernel counts in nanoseconds of 63 bits.
        let period = Duration::new(LEAST_PERIOD_S + (random >> 34), (random % 1_000_000_000) as u32);
        let period = TimeSpec::from_duration(period);
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
        set(&timer, Duration::ZERO, period)?;
        Ok(Self { timer: OwnedDescriptor::new(timer)?, period })
    }

    /// Lets the timer expire once, in `time`, and not before.
    pub(crate) fn set(&self, time: Duration) {
        // A time of zero would unset it.
        self.set_if_present(time.max(Duration::from_nanos(1)));
    }

    /// Unsets the timer.
    pub(crate) fn unset(&self) {
        self.set_if_present(Duration::ZERO);
    }

    fn set_if_present(&self, time: Duration) {
        // Without the descriptor the reader ends. Setting fails only for invalid arguments.
        let _ = self.timer.get().map(|timer| set(timer, time, self.period));
    }

    /// Waits until the timer expires.
    ///
    /// # Errors
    /// [`Lost`](crate::descriptor::Lost) if the program has closed the descriptor.
    pub(crate) fn wait(&self) -> io::Result<()> {
        loop {
            match self.timer.get()?.wait() {
                Err(Errno::EINTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }
}

/// Lets the timer expire in `time`, or never for a time of zero.
fn set(timer: &TimerFd, time: Duration, period: TimeSpec) -> io::Result<()> {
    let setting = Expiration::IntervalDelayed(TimeSpec::from_duration(time), period);
    Ok(timer.set(setting, TimerSetTimeFlags::empty())?)
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
            waiting.join().expect("no panic").expect("expired");
            assert!(begin.elapsed() >= late);
        });
        alarm.set(Duration::ZERO);
        alarm.wait().expect("expires at once");
    }

    #[test]
    fn a_timer_of_the_program_is_left_alone() {
        let (own, foreign) = (Alarm::new().expect("a timer"), Alarm::new().expect("a timer"));
        let Alarm { timer, period } = &own;
        assert!(timer.get().is_ok());
        own.unset();
        assert!(timer.get().is_ok(), "a timer that is not set keeps its period");
        let foreign = foreign.timer.get().expect("a timer");
        set(foreign, Duration::ZERO, TimeSpec::from_duration(Duration::from_secs(1))).expect("set");
        assert_ne!(foreign.mark().ok(), timer.get().expect("a timer").mark().ok());
        assert_eq!(
            Duration::from(*period).as_nanos() as u64,
            timer.get().expect("a timer").mark().expect("a mark")
        );
    }
}
