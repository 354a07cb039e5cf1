//! The kernel's clocks.
//!
//! Sources: clock_gettime(2), clock_getres(2); Linux `include/linux/posix-timers_types.h`
//! (`CPUCLOCK_PERTHREAD_MASK` = 4, `CPUCLOCK_SCHED` = 2, clock id = (!tid << 3) | 6).

use std::io;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_getres, clock_gettime};

/// Returns the id of the CPU clock of thread `tid` of this process.
pub fn thread_cpu_clock(tid: i32) -> i32 {
    const PER_THREAD_SCHED: i32 = 6;
    (!tid << 3) | PER_THREAD_SCHED
}

/// The clock by which a profile measures threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThreadClock {
    /// The thread's own CPU clock.
    #[default]
    Cpu,
    /// CLOCK_MONOTONIC, which goes on while the thread waits.
    Wall,
}

impl ThreadClock {
    /// Returns the id for a timer of thread `tid`.
    pub fn id(self, tid: i32) -> i32 {
        match self {
            Self::Cpu => thread_cpu_clock(tid),
            Self::Wall => ClockId::CLOCK_MONOTONIC.as_raw(),
        }
    }

    /// Returns the reading for thread `tid` of this process in nanoseconds.
    ///
    /// # Errors
    /// `EINVAL` when the thread has ended.
    pub fn read(self, tid: i32) -> io::Result<u64> {
        let cpu_ns = thread_cpu_nanos(tid)?;
        Ok(match self {
            Self::Cpu => cpu_ns,
            Self::Wall => monotonic_nanos(),
        })
    }
}

/// Returns the CPU time of thread `tid` of this process in nanoseconds.
///
/// # Errors
/// `EINVAL` when the thread has ended.
pub fn thread_cpu_nanos(tid: i32) -> io::Result<u64> {
    read(ClockId::from_raw(thread_cpu_clock(tid)))
}

/// Checks that the CPU clocks of threads can be read.
///
/// # Errors
/// As clock_gettime(2), which a filter of system calls may refuse.
pub fn check() -> io::Result<()> {
    thread_cpu_nanos(nix::unistd::gettid().as_raw()).map(drop)
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub fn own_cpu_nanos() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of the whole process in nanoseconds, ended threads included.
pub fn process_cpu_nanos() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

pub fn monotonic_nanos() -> u64 {
    read(ClockId::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Returns CLOCK_REALTIME in nanoseconds since the epoch.
pub fn wall_nanos() -> u64 {
    read(ClockId::CLOCK_REALTIME).unwrap_or(0)
}

/// Returns the kernel's tick in nanoseconds, the shortest period of a CPU timer; 0 if unknown.
///
/// The coarse clock advances once per tick, so its resolution is the tick.
pub fn kernel_tick_nanos() -> u64 {
    clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map(nanos).unwrap_or(0)
}

fn read(clock: ClockId) -> io::Result<u64> {
    Ok(nanos(clock_gettime(clock)?))
}

fn nanos(time: TimeSpec) -> u64 {
    // Negative times do not occur on these clocks.
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_this_thread_advances() {
        let tid = nix::unistd::gettid().as_raw();
        let before = thread_cpu_nanos(tid).expect("own clock");
        let mut value = 1_u64;
        for i in 1..2_000_000_u64 {
            value = std::hint::black_box(value.wrapping_mul(i) ^ i);
        }
        assert!(thread_cpu_nanos(tid).expect("own clock") > before, "{value}");
        assert!(own_cpu_nanos() >= before);
    }

    #[test]
    fn clock_of_an_ended_thread_is_an_error() {
        let tid = std::thread::spawn(|| nix::unistd::gettid().as_raw()).join().expect("thread ran");
        // The kernel may keep the task for an instant after join; its directory entry shows when it is gone.
        while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
            std::thread::yield_now();
        }
        for clock in [ThreadClock::Cpu, ThreadClock::Wall] {
            let error = clock.read(tid).expect_err("ended");
            assert_eq!(error.raw_os_error(), Some(nix::libc::EINVAL));
        }
    }
}
