//! How often a timer on a thread's CPU clock can fire.
//!
//! Problem: CPU timers are looked at by the scheduler's tick only; a shorter interval gives no more samples, only
//! larger overruns, and people should know. What the kernel says of its clocks is its configuration, not what happens.
//! Approach: a timer on the calling thread's own clock, far shorter than any tick, and a few milliseconds of CPU time:
//! it fires at each tick that finds the thread running. Two ticks in a row, between which the thread did nothing but run,
//! are one tick apart. On a busy machine a thread loses its processor at a tick, and gets it back at one, more often
//! than not; then the CPU time between its ticks counts only if it is what the kernel says of itself.
//! Invariant: no more than the given CPU time is burnt; the timer's signal is blocked in the calling thread, is taken by
//! it, and reaches no handler.

use std::time::Duration;

use sampler_thread::account::clock;

use crate::timer::{Timer, take_signal};

/// Interval asked for: a hundredth of the shortest usual tick.
const ASKED: Duration = Duration::from_micros(10);
/// Readings of the clock between two looks for the signal: a look is a system call of its own.
const BURNT_BETWEEN_LOOKS: u32 = 8;

/// Longest time from one look to the next in which the thread is believed to have run: a look takes about 2 us, an
/// interrupt some more, and another thread, or another virtual machine, a slice.
const LONGEST_LOOK_NS: u64 = 50_000;

/// Measures the tick, in nanoseconds, in at most `most_cpu_ns` of CPU time; the calling thread must have `signal`
/// blocked.
///
/// `None` if there is no timer to be had, or the thread was interrupted.
pub fn measure(signal: i32, most_cpu_ns: u64) -> Option<u64> {
    let tid = nix::unistd::gettid().as_raw();
    let timer = Timer::create(tid, signal, std::ptr::null_mut()).ok()?;
    let begin_ns = clock::own_cpu_nanos();
    timer.start(Duration::from_nanos(begin_ns) + ASKED, ASKED).ok()?;
    let tick_ns = between_two_ticks(signal, begin_ns, most_cpu_ns);
    drop(timer);
    // On kernels before 6.13 the signal of a deleted timer is still to be had.
    let _ = take_signal(signal);
    tick_ns
}

/// A tick that was noticed.
#[derive(Clone, Copy)]
struct Seen {
    cpu_ns: u64,
    monotonic_ns: u64,
    /// Whether the thread has run all the time since.
    has_run: bool,
}

fn between_two_ticks(signal: i32, begin_cpu_ns: u64, most_cpu_ns: u64) -> Option<u64> {
    let claimed_ns = clock::kernel_tick_nanos();
    let mut last: Option<Seen> = None;
    let mut last_look_ns = clock::monotonic_nanos();
    loop {
        let mut cpu_ns = begin_cpu_ns;
        for _ in 0..BURNT_BETWEEN_LOOKS {
            cpu_ns = clock::own_cpu_nanos();
        }
        if cpu_ns.saturating_sub(begin_cpu_ns) > most_cpu_ns {
            return None;
        }
        let is_tick = take_signal(signal);
        let monotonic_ns = clock::monotonic_nanos();
        let has_run = monotonic_ns.saturating_sub(last_look_ns) <= LONGEST_LOOK_NS;
        last_look_ns = monotonic_ns;
        if let Some(last) = &mut last {
            last.has_run &= has_run;
        }
        if is_tick {
            let now = Seen { cpu_ns, monotonic_ns, has_run };
            let tick_ns = last.and_then(|last| apart(last, now, claimed_ns));
            if tick_ns.is_some() {
                return tick_ns;
            }
            last = Some(now);
        }
    }
}

/// The length of a tick, if two that were noticed tell.
fn apart(first: Seen, second: Seen, claimed_ns: u64) -> Option<u64> {
    let cpu_ns = second.cpu_ns.saturating_sub(first.cpu_ns);
    if first.has_run {
        return Some(second.monotonic_ns.saturating_sub(first.monotonic_ns));
    }
    (cpu_ns.abs_diff(claimed_ns) <= claimed_ns / 32).then_some(cpu_ns)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::SigSet;

    use super::*;

    /// On any kernel there are 100 to 1000 ticks a second; whether one is seen is up to the machine's load.
    #[test]
    fn a_tick_is_seen_or_not_but_never_made_up() {
        // A thread of its own: its signals are blocked, as the sampler's are.
        let found = std::thread::spawn(|| {
            SigSet::all().thread_block().expect("a mask");
            let signal = crate::signal::choose(None).expect("a free signal");
            let begin_ns = clock::own_cpu_nanos();
            let found: Vec<u64> = (0..40).filter_map(|_| measure(signal, 9_000_000)).collect();
            let burnt_ns = clock::own_cpu_nanos() - begin_ns;
            assert!(burnt_ns < 40 * 10_000_000, "{burnt_ns}");
            assert!(!take_signal(signal), "nothing is left behind");
            eprintln!("ticks seen: {found:?}");
            found
        });
        let found = found.join().expect("measured");
        let usual = 900_000..=10_500_000;
        assert!(found.iter().all(|tick_ns| usual.contains(tick_ns)), "{found:?}");
    }

    #[test]
    fn interruptions_are_believed_only_if_the_kernel_agrees() {
        let at = |cpu_ns, monotonic_ns, has_run| Seen { cpu_ns, monotonic_ns, has_run };
        assert_eq!(apart(at(0, 0, true), at(3_990, 4_000, true), 10_000), Some(4_000));
        assert_eq!(apart(at(0, 0, false), at(3_990, 8_000, false), 4_000), Some(3_990));
        assert_eq!(apart(at(0, 0, false), at(2_000, 8_000, true), 4_000), None);
    }
}
