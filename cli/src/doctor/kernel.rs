//! Checks of the kernel: timers, perf events, pending signals, seccomp and reading memory.

use std::fs;
use std::io::{self, IoSliceMut};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::signal::{SigEvent, SigSet, SigevNotify, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, clock_getres, clock_gettime};
use nix::unistd::Pid;
use perf_event::Builder;
use perf_event::events::Software;
use profile::text::quantity;

use super::Finding;

/// Timer interval for measuring the tick: that of a 1000 Hz kernel, the shortest usual tick.
const TIMER_INTERVAL_NS: u64 = 1_000_000;

/// CPU time spent on measuring the tick: 20 expirations on the slowest usual kernel (100 Hz).
const MEASURE_NS: u64 = 200_000_000;

/// Fewer free timers than this cause a warning: twice the threads of a large server (500).
const ENOUGH_TIMERS: u64 = 1_000;

pub(super) fn examine() -> Vec<Finding> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    vec![
        architecture(),
        tick(),
        perf_events(&status),
        pending_signals(&status),
        time_stamps(),
        seccomp(&status),
        reading_memory(),
    ]
}

/// Reports the CPU that this command and the agent are built for, and the size of pages.
fn architecture() -> Finding {
    let pages = page_bytes(&fs::read("/proc/self/auxv").unwrap_or_default());
    let pages = pages.map_or(String::new(), |bytes| format!(", pages of {} KiB", bytes / 1024));
    let tried = if cfg!(target_arch = "aarch64") { "; tried under emulation only" } else { "" };
    Finding::ok("architecture", format!("{}{pages}{tried}", std::env::consts::ARCH))
}

/// Returns the size of pages by the auxiliary vector (getauxval(3)).
fn page_bytes(vector: &[u8]) -> Option<u64> {
    const AT_PAGESZ: u64 = 6;
    let (words, _) = vector.as_chunks::<8>();
    let word = |word: &[u8; 8]| u64::from_ne_bytes(*word);
    words.as_chunks::<2>().0.iter().find(|[key, _]| word(key) == AT_PAGESZ).map(|[_, value]| word(value))
}

/// Measures the shortest period of a timer on a thread's CPU clock.
fn tick() -> Finding {
    const SUBJECT: &str = "timer tick";
    match measure_tick() {
        Ok(Some(measured_ns)) => {
            let tick_ns = likely_tick_ns(measured_ns, reported_tick_ns());
            let rate = 1e9 / tick_ns as f64;
            let configured = configured_hz().map_or(String::new(), |hz| format!(", CONFIG_HZ={hz}"));
            Finding::ok(
                SUBJECT,
                format!(
                    "{} of CPU time: at most {rate:.0} samples per CPU second and thread{configured}",
                    quantity::duration(tick_ns)
                ),
            )
        }
        Ok(None) => Finding::fail(
            SUBJECT,
            "a timer on the thread's CPU clock never fired",
            "use a kernel with CONFIG_POSIX_TIMERS, outside of a sandbox that emulates timers",
        ),
        Err(error) => Finding::fail(
            SUBJECT,
            format!("a timer on the thread's CPU clock cannot be created: {error}"),
            "allow timer_create and timer_settime in the seccomp profile of the container",
        ),
    }
}

/// Returns the tick that the kernel reports if the measured one is near it: on a busy machine, measured ticks vary.
fn likely_tick_ns(measured_ns: u64, reported_ns: u64) -> u64 {
    if measured_ns.abs_diff(reported_ns) <= reported_ns / 2 { reported_ns } else { measured_ns }
}

/// Returns the kernel's tick by the resolution of its coarse clock, 0 if unknown.
fn reported_tick_ns() -> u64 {
    clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(0, |tick| tick.tv_nsec() as u64)
}

fn measure_tick() -> nix::Result<Option<u64>> {
    let signal = Signal::SIGALRM;
    let set: SigSet = [signal].into_iter().collect();
    set.thread_block()?;
    let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let event = SigEvent::new(SigevNotify::SigevSignal { signal, si_value: 0 });
    let mut timer = Timer::new(ClockId::CLOCK_THREAD_CPUTIME_ID, event)?;
    let interval = TimeSpec::new(0, TIMER_INTERVAL_NS as i64);
    timer.set(Expiration::IntervalDelayed(interval, interval), TimerSetTimeFlags::empty())?;
    let start_ns = cpu_ns()?;
    let mut expirations = Vec::new();
    while cpu_ns()? - start_ns < MEASURE_NS {
        // The loop polls because only CPU time advances the timer.
        if matches!(descriptor.read_signal(), Ok(Some(_))) {
            expirations.push((cpu_ns()?, now_ns(ClockId::CLOCK_MONOTONIC)?));
        }
    }
    drop(timer);
    // Consume an expiration that is still pending.
    let _ = descriptor.read_signal();
    Ok(tick_between(&expirations, reported_tick_ns()))
}

/// Returns the mean distance between expirations, each given by the thread's CPU clock and the wall clock, for those
/// pairs between which the thread never lost its processor; without such a pair, the tick that the kernel reports.
fn tick_between(expirations: &[(u64, u64)], reported_ns: u64) -> Option<u64> {
    let pairs = expirations.windows(2).filter_map(|pair| <&[(u64, u64); 2]>::try_from(pair).ok());
    let distances = pairs.map(|[(cpu, wall), (next_cpu, next_wall)]| (next_cpu - cpu, next_wall - wall));
    let whole: Vec<u64> =
        distances.filter(|(cpu, wall)| wall - wall / 16 <= *cpu).map(|(cpu, _)| cpu).collect();
    match whole.len() as u64 {
        0 => expirations.first().map(|_| reported_ns).filter(|&ns| ns > 0),
        count => Some(whole.iter().sum::<u64>() / count),
    }
}

fn cpu_ns() -> nix::Result<u64> {
    now_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn now_ns(clock: ClockId) -> nix::Result<u64> {
    let now = clock_gettime(clock)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Returns `CONFIG_HZ` from the kernel's configuration in `/boot`, if that is readable.
fn configured_hz() -> Option<u64> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let config = fs::read_to_string(format!("/boot/config-{}", release.trim())).ok()?;
    config.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")).and_then(|hz| hz.parse().ok())
}

/// Capabilities that allow perf events of every kind, by number (linux/capability.h).
const PERF_CAPABILITIES: [(u32, &str); 2] = [(38, "CAP_PERFMON"), (21, "CAP_SYS_ADMIN")];

/// Tries a perf event of this thread that counts in the kernel as well, as `clock=perf` needs it.
fn perf_events(status: &str) -> Finding {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let paranoid = paranoid.as_deref().map_or("unknown", str::trim);
    let held = held_capability(status).map_or(String::new(), |name| format!(", {name}"));
    let setting = format!("kernel.perf_event_paranoid={paranoid}{held}");
    let mut event = Builder::new().kind(Software::CPU_CLOCK);
    event.include_kernel();
    let tried = event.build();
    perf_finding(tried.err(), &setting)
}

fn perf_finding(error: Option<io::Error>, setting: &str) -> Finding {
    const SUBJECT: &str = "perf events";
    match error {
        None => Finding::ok(SUBJECT, format!("clock=perf may be used ({setting})")),
        // Nothing else needs them.
        Some(error) => Finding::ok(
            SUBJECT,
            format!(
                "clock=perf cannot be used: {error} ({setting}); it needs kernel.perf_event_paranoid=1 or CAP_PERFMON, and in \
                 a container a seccomp profile that allows perf_event_open"
            ),
        ),
    }
}

/// Returns the capability by which this process may use perf events.
fn held_capability(status: &str) -> Option<&'static str> {
    let held = u64::from_str_radix(field(status, "CapEff")?, 16).ok()?;
    PERF_CAPABILITIES.into_iter().find(|(number, _)| held >> number & 1 != 0).map(|(_, name)| name)
}

/// Checks `RLIMIT_SIGPENDING`: each timer reserves one queued signal of the user's limit.
fn pending_signals(status: &str) -> Finding {
    const SUBJECT: &str = "timers";
    const FIX: &str = "raise it with 'ulimit -i', or LimitSIGPENDING= of the systemd unit";
    let used: u64 = field(status, "SigQ")
        .and_then(|queue| queue.split_once('/'))
        .and_then(|(used, _)| used.parse().ok())
        .unwrap_or(0);
    match getrlimit(Resource::RLIMIT_SIGPENDING) {
        Ok((limit, _)) if limit == RLIM_INFINITY => Finding::ok(SUBJECT, "RLIMIT_SIGPENDING is unlimited"),
        Ok((limit, _)) => {
            // The agent leaves half to others.
            let free = limit.saturating_sub(used) / 2;
            let found = format!(
                "RLIMIT_SIGPENDING is {}, {} in use: half of the rest gives timers for {} threads",
                quantity::count(limit),
                quantity::count(used),
                quantity::count(free)
            );
            match free {
                0 => Finding::fail(SUBJECT, found, FIX),
                free if free < ENOUGH_TIMERS => Finding::warn(SUBJECT, found, FIX),
                _ => Finding::ok(SUBJECT, found),
            }
        }
        Err(error) => Finding::warn(SUBJECT, format!("RLIMIT_SIGPENDING cannot be read: {error}"), FIX),
    }
}

/// Reports the kernel's clock source; if it is not the time stamp counter, each time stamp costs a call of the kernel.
fn time_stamps() -> Finding {
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    time_stamps_by(fs::read_to_string(PATH).as_deref().map(str::trim))
}

/// Reports a clock source, given by its name.
fn time_stamps_by(clock_source: Result<&str, &io::Error>) -> Finding {
    const SUBJECT: &str = "time stamps";
    /// Clock sources that are the counter itself (`agent/src/clock/time_source.rs`).
    const COUNTERS: &[&str] = match cfg!(target_arch = "aarch64") {
        true => &["arch_sys_counter"],
        false => &["tsc", "hyperv_clocksource_tsc_page"],
    };
    match clock_source {
        Ok(name) if COUNTERS.contains(&name) => {
            Finding::ok(SUBJECT, format!("clock source {name}: the processor's counter"))
        }
        Ok(name) => Finding::warn(
            SUBJECT,
            format!(
                "clock source {name}: the counters of this machine's processors may differ, so each sample asks the kernel"
            ),
            "nothing is wrong; a sample costs up to a microsecond more",
        ),
        Err(_) => Finding::ok(SUBJECT, "clock source unknown: the processor's flags decide"),
    }
}

/// Reports the seccomp mode; the other checks try the system calls that a filter could forbid.
fn seccomp(status: &str) -> Finding {
    let mode = match field(status, "Seccomp") {
        Some("0") => "none",
        Some("1") => "strict",
        Some("2") => {
            "filter, usual in containers; the other checks try the system calls that the agent needs"
        }
        _ => "unknown",
    };
    Finding::ok("seccomp", mode)
}

/// Checks `process_vm_readv`, which the agent uses to read memory that may be unmapped, because it fails without a
/// fault.
fn reading_memory() -> Finding {
    const SUBJECT: &str = "memory access";
    let source = *b"tickwalk";
    let mut target = [0; 8];
    let remote = [RemoteIoVec { base: source.as_ptr() as usize, len: source.len() }];
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut target)], &remote) {
        Ok(8) if target == source => Finding::ok(SUBJECT, "process_vm_readv works"),
        Ok(_) => Finding::warn(
            SUBJECT,
            "process_vm_readv returns wrong data",
            "report this kernel version as a bug",
        ),
        Err(error) => Finding::warn(
            SUBJECT,
            format!("process_vm_readv fails ({error}); the agent uses a slower way"),
            "allow process_vm_readv in the seccomp profile of the container",
        ),
    }
}

/// Returns the value of the line `name: value` of a status file.
fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_events_are_tried() {
        let refused = perf_finding(
            Some(io::Error::from_raw_os_error(nix::libc::EACCES)),
            "kernel.perf_event_paranoid=2",
        );
        assert!(refused.found.contains("cannot be used: Permission denied"), "{}", refused.found);
        assert!(perf_finding(None, "x").found.contains("may be used (x)"));
        let status = |mask: u64| format!("CapEff:\t{mask:016x}\n");
        assert_eq!(held_capability(&status(1 << 38)), Some("CAP_PERFMON"));
        assert_eq!(held_capability(&status(1 << 21 | 1)), Some("CAP_SYS_ADMIN"));
        assert_eq!(held_capability(&status(1)), None);
    }

    #[test]
    fn the_architecture_has_its_pages() {
        let vector: Vec<u8> =
            [3, 0x40, 6, 65_536, 0, 0_u64].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(page_bytes(&vector), Some(65_536));
        assert_eq!(page_bytes(&vector[..16]), None);
        let found = architecture().found;
        assert!(found.starts_with(std::env::consts::ARCH) && found.contains(" KiB"), "{found}");
    }

    #[test]
    fn clock_sources_other_than_the_counter_cost_a_call_of_the_kernel() {
        let counter = if cfg!(target_arch = "aarch64") { "arch_sys_counter" } else { "tsc" };
        let found = |name| time_stamps_by(Ok(name)).found;
        assert_eq!(found(counter), format!("clock source {counter}: the processor's counter"));
        for name in ["kvm-clock", "hpet"] {
            let found = found(name);
            assert!(found.contains(name) && found.contains("each sample asks the kernel"), "{found}");
        }
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert!(time_stamps_by(Err(&missing)).found.contains("the processor's flags decide"));
    }

    #[test]
    fn the_tick_is_measured_while_the_thread_runs() {
        let ms = |times: &[(u64, u64)]| -> Vec<_> {
            times.iter().map(|(cpu, wall)| (cpu * 1_000_000, wall * 1_000_000)).collect()
        };
        let tick = |times: &[(u64, u64)]| tick_between(&ms(times), 1_000_000);
        assert_eq!(tick(&[(0, 0), (4, 4), (19, 60), (23, 64), (27, 68)]), Some(4_000_000));
        assert_eq!(
            tick(&[(0, 0), (15, 60), (30, 100)]),
            Some(1_000_000),
            "it never ran from one tick to the next"
        );
        assert_eq!(tick(&[]), None);
        assert_eq!(tick_between(&ms(&[(0, 0)]), 0), None);
    }

    #[test]
    fn a_measured_tick_near_the_reported_one_is_taken_for_it() {
        assert_eq!(likely_tick_ns(5_100_000, 4_000_000), 4_000_000);
        assert_eq!(likely_tick_ns(4_000_000, 1_000_000), 4_000_000, "another clock than reported");
        assert_eq!(likely_tick_ns(4_000_000, 0), 4_000_000);
    }
}
