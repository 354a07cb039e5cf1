//! The options of dumps: when stacks are written without a command, and where.

use std::time::Duration;

use profile::text::units;

/// Shortest and longest time over which CPU time is compared with a limit.
const TIMES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Most percent of a processor: a thousand processors.
const MOST_PERCENT: u32 = 100_000;

/// When all stacks are written, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DumpOptions {
    /// Pattern of the file for the stacks of a dying process.
    pub crash: Option<String>,
    /// Signal that triggers a dump.
    pub signal: Option<i32>,
    /// Use of CPU time that triggers a dump.
    pub cpu: Option<CpuLimit>,
    /// Pattern of the file for the dumps of a living process.
    pub file: Option<String>,
}

/// A use of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuLimit {
    /// CPU time of the process, in percent of a processor.
    pub percent: u32,
    pub time: Duration,
}

impl DumpOptions {
    /// Pattern of the file for the dumps of a living process, if none is given.
    pub const DEFAULT_FILE: &'static str = "%p-%t.stacks";

    pub fn has_trigger(&self) -> bool {
        self.crash.is_some() || self.signal.is_some() || self.cpu.is_some()
    }
}

/// Reads a signal that may trigger a dump; HotSpot sends SIGUSR2 to its own threads (`os_posix.cpp`,
/// SR_signum).
pub(crate) fn signal(value: &str) -> Option<i32> {
    let number = match value.strip_prefix("SIG").unwrap_or(value) {
        "QUIT" => libc::SIGQUIT,
        "USR1" => libc::SIGUSR1,
        other => other.parse().ok()?,
    };
    let is_possible = [libc::SIGQUIT, libc::SIGUSR1].contains(&number)
        || (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number);
    is_possible.then_some(number)
}

/// Reads a limit as in `90%/10s`.
pub(crate) fn cpu_limit(value: &str) -> Option<CpuLimit> {
    let (percent, time) = value.split_once("%/")?;
    let percent = percent.parse().ok().filter(|percent| (1..=MOST_PERCENT).contains(percent))?;
    let time = units::duration_ns(time).map(Duration::from_nanos).filter(|time| TIMES.contains(time))?;
    Some(CpuLimit { percent, time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_cpu_time() {
        let ten = Duration::from_secs(10);
        assert_eq!(cpu_limit("90%/10s"), Some(CpuLimit { percent: 90, time: ten }));
        assert_eq!(cpu_limit("800%/1m").map(|limit| limit.percent), Some(800));
        for wrong in ["90/10s", "90%", "0%/10s", "90%/10", "90%/100ms", "90%/2h", "%/1s", "-1%/1s", ""] {
            assert_eq!(cpu_limit(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn signals_that_ask() {
        assert_eq!(signal("SIGQUIT"), Some(libc::SIGQUIT));
        assert_eq!(signal("USR1"), Some(libc::SIGUSR1));
        assert_eq!(signal("40"), Some(40));
        for wrong in ["SIGSEGV", "11", "USR2", "9", "6", "0", "200", ""] {
            assert_eq!(signal(wrong), None, "{wrong}");
        }
    }
}
