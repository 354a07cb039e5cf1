//! Measures the kernel's tick, the shortest time between two expirations of a CPU timer.
//!
//! Problem: the kernel checks CPU timers only at the scheduler's tick; a shorter interval gives no more samples, only
//! larger overruns. The resolution that the kernel reports is its configuration, not what happens.
//! Approach: a timer on the calling thread's clock, far shorter than any tick, expires at each tick that finds the
//! thread running. Two consecutive expirations without an interruption, on one processor, are one tick apart. On a busy
//! machine threads are mostly switched at ticks; then the CPU time between expirations counts only if it matches the
//! reported resolution.
//! Invariant: no more than the given CPU time is used; the calling thread blocks the timer's signal and takes it
//! itself.

use std::time::Duration;

use nix::sched::sched_getcpu;
use sampler_thread::clock::{self, ThreadClock};

use crate::clock::timer::{Timer, take_signal};

/// Interval of the timer: a hundredth of the shortest usual tick.
const INTERVAL: Duration = Duration::from_micros(10);
/// Readings of the clock between two checks for the signal, each of which is a system call.
const READINGS_BETWEEN_CHECKS: u32 = 8;

/// Longest time between two checks in which the thread counts as running: a check takes about 2 us, an interrupt some
/// more, another thread or virtual machine a time slice.
const MAX_RUN_NS: u64 = 50_000;

/// Measures the tick, in nanoseconds, in at most `max_cpu_ns` of CPU time; the calling thread must block `signal`.
///
/// Returns `None` if the kernel grants no timer, or the thread was interrupted.
pub fn measure(signal: i32, max_cpu_ns: u64) -> Option<u64> {
    let tid = nix::unistd::gettid().as_raw();
    let timer = Timer::create(ThreadClock::Cpu, tid, signal, std::ptr::null_mut()).ok()?;
    let begin_ns = clock::own_cpu_nanos();
    timer.start(INTERVAL, INTERVAL).ok()?;
    let tick_ns = between_two_ticks(signal, begin_ns, max_cpu_ns);
    drop(timer);
    // On kernels before 6.13 the signal of a deleted timer is still pending.
    let _ = take_signal(signal);
    tick_ns
}

/// A tick at which the timer has expired.
#[derive(Clone, Copy)]
struct Expiration {
    cpu_ns: u64,
    monotonic_ns: u64,
    /// True if the thread has run without interruption, on one processor, until the next tick.
    has_run: bool,
}

fn between_two_ticks(signal: i32, begin_cpu_ns: u64, max_cpu_ns: u64) -> Option<u64> {
    let reported_ns = clock::kernel_tick_nanos();
    let mut last: Option<Expiration> = None;
    let mut last_check_ns = clock::monotonic_nanos();
    let mut last_processor = sched_getcpu().ok()?;
    let mut ran_until_last_check = false;
    loop {
        let mut cpu_ns = begin_cpu_ns;
        for _ in 0..READINGS_BETWEEN_CHECKS {
            cpu_ns = clock::own_cpu_nanos();
        }
        if cpu_ns.saturating_sub(begin_cpu_ns) > max_cpu_ns {
            return None;
        }
        let is_tick = take_signal(signal);
        let monotonic_ns = clock::monotonic_nanos();
        let processor = sched_getcpu().ok()?;
        let has_run = processor == last_processor && monotonic_ns.saturating_sub(last_check_ns) <= MAX_RUN_NS;
        (last_check_ns, last_processor) = (monotonic_ns, processor);
        if let Some(last) = &mut last {
            last.has_run &= has_run;
        }
        if is_tick {
            // An interruption between this check and the reading of the clock counts as one before.
            let has_run = has_run && ran_until_last_check;
            let now = Expiration { cpu_ns, monotonic_ns, has_run };
            let tick_ns = last.and_then(|last| tick_between(last, now, reported_ns));
            if tick_ns.is_some() {
                return tick_ns;
            }
            last = Some(now);
        }
        ran_until_last_check = has_run;
    }
}

/// Returns the length of a tick, if it follows from two expirations.
fn tick_between(first: Expiration, second: Expiration, reported_ns: u64) -> Option<u64> {
    let cpu_ns = second.cpu_ns.saturating_sub(first.cpu_ns);
    if first.has_run {
        return Some(second.monotonic_ns.saturating_sub(first.monotonic_ns));
    }
    (cpu_ns.abs_diff(reported_ns) <= reported_ns / 32).then_some(cpu_ns)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::SigSet;

    use super::*;

    /// Kernels have 100 to 1000 ticks a second; on a busy machine none may be found.
    #[test]
    fn a_tick_that_is_found_is_plausible() {
        let signal = crate::handler::install::choose(None, crate::handler::install::Sender::Timers)
            .expect("a free signal");
        // A separate thread, whose signals are blocked like the sampler's.
        let found = std::thread::spawn(move || {
            SigSet::all().thread_block().expect("a mask");
            let begin_ns = clock::own_cpu_nanos();
            let found: Vec<u64> = (0..40).filter_map(|_| measure(signal, 9_000_000)).collect();
            let burnt_ns = clock::own_cpu_nanos() - begin_ns;
            assert!(burnt_ns < 40 * 10_000_000, "{burnt_ns}");
            assert!(!take_signal(signal), "no signal is pending");
            eprintln!("ticks found: {found:?}");
            found
        });
        let found = found.join().expect("measured");
        let usual = 900_000..=10_500_000;
        assert!(found.iter().all(|tick_ns| usual.contains(tick_ns)), "{found:?}");
    }

    #[test]
    fn interrupted_measurements_count_only_if_the_kernel_agrees() {
        let at = |cpu_ns, monotonic_ns, has_run| Expiration { cpu_ns, monotonic_ns, has_run };
        assert_eq!(tick_between(at(0, 0, true), at(3_990, 4_000, true), 10_000), Some(4_000));
        assert_eq!(tick_between(at(0, 0, false), at(3_990, 8_000, false), 4_000), Some(3_990));
        assert_eq!(tick_between(at(0, 0, false), at(2_000, 8_000, true), 4_000), None);
    }
}
