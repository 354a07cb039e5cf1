//! A POSIX timer on one thread's CPU clock.
//!
//! Problem: each thread must be interrupted after every interval of its own CPU time, by a signal that identifies its
//! slot.
//! Approach: `timer_create` on the thread's CPU clock with `SIGEV_THREAD_ID`. Expirations lie on a fixed grid of that
//! clock, so their sum is exact. The first one is relative to the moment of the system call, because a past time would
//! expire inside it, interrupt a sleeping thread, or charge a new thread with CPU time that it has not used.
//! nix's `Timer` has per-thread notification for glibc only and cannot be moved into a slot that outlives the thread
//! (`design/timers.md`), hence raw system calls.
//! A timer reserves one of the pending signals that all processes of a user share (RLIMIT_SIGPENDING): the agent uses
//! at most half of those that others leave ([`adapt_share`]).
//! Invariant: once a [`Timer`] is dropped, the kernel queues no further signal for it.
//! Sources: timer_create(2), timer_settime(2), proc_pid_status(5) (`SigQ`).

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sampler_thread::clock::ThreadClock;

/// Existing timers of the agent. Relaxed, as [`MOST`]: nothing is read because of these counts.
static LIVE: AtomicU64 = AtomicU64::new(0);
/// Most timers of the agent.
static MOST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits the agent to half of the pending signals that others do not use; returns the number of its excess timers.
pub fn adapt_share() -> u64 {
    let live = LIVE.load(Ordering::Relaxed);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = share(&status, live).unwrap_or(u64::MAX);
    MOST.store(most, Ordering::Relaxed);
    live.saturating_sub(most)
}

/// Returns half of the pending signals that others do not use, at least one; `live` is the agent's own number.
fn share(status: &str, live: u64) -> Option<u64> {
    let (used, limit) = status.lines().find_map(|line| line.strip_prefix("SigQ:"))?.trim().split_once('/')?;
    let (used, limit) = (used.parse::<u64>().ok()?, limit.parse::<u64>().ok()?);
    let others = used.saturating_sub(live);
    Some((limit.saturating_sub(others) / 2).max(1))
}

/// A running timer; dropping it deletes it.
#[derive(Debug)]
pub struct Timer {
    id: libc::c_int,
}

/// In place of the number of a timer whose signals carry another one.
pub const UNKNOWN_NUMBER: i32 = i32::MIN;

/// First half of the numbers that qemu's user mode gives to timers; their signals carry the kernel's. Source: qemu
/// `linux-user/user-internals.h` (`TIMER_MAGIC`).
const EMULATED: libc::c_int = 0x0caf_0000;

impl Timer {
    /// Creates a timer for `tid` on this clock that sends `signal` to that thread with this value.
    ///
    /// # Errors
    /// `EAGAIN` when RLIMIT_SIGPENDING or the agent's share of it is used up, `EINVAL` when the thread has ended.
    pub fn create(clock: ThreadClock, tid: i32, signal: i32, value: *mut libc::c_void) -> io::Result<Self> {
        if LIVE.load(Ordering::Relaxed) >= MOST.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        // SAFETY: all-zero bytes are a valid sigevent.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_value = libc::sigval { sival_ptr: value };
        event.sigev_notify_thread_id = tid;
        let mut id: libc::c_int = 0;
        // SAFETY: `event` and `id` are valid for the kernel to read and write; the kernel's timer_t is an int.
        let outcome =
            unsafe { libc::syscall(libc::SYS_timer_create, clock.id(tid), &raw mut event, &raw mut id) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        LIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id })
    }

    /// Returns the kernel's number of the timer plus one, or [`UNKNOWN_NUMBER`]; numbers repeat after 2^31 timers.
    pub fn number(&self) -> i32 {
        if self.id & !0xffff == EMULATED { UNKNOWN_NUMBER } else { self.id.wrapping_add(1) }
    }

    /// Starts the timer: first expiration after `first` of its clock, then every `interval`.
    ///
    /// # Errors
    /// `EINVAL` when the thread has ended.
    pub fn start(&self, first: Duration, interval: Duration) -> io::Result<()> {
        let setting = libc::itimerspec { it_interval: timespec(interval), it_value: timespec(first) };
        let none = std::ptr::null_mut::<libc::itimerspec>();
        // SAFETY: `setting` is a valid itimerspec, the old value is not requested.
        let outcome = unsafe { libc::syscall(libc::SYS_timer_settime, self.id, 0, &raw const setting, none) };
        if outcome != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the id came from timer_create, and is deleted once.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.id) };
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes one pending `signal` of the calling thread, which blocks it; returns whether there was one. Does not wait.
pub fn take_signal(signal: i32) -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call makes it an empty set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was just made.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    let at_once = timespec(Duration::ZERO);
    // SAFETY: set and time are valid; the signal's information is not requested.
    let received = unsafe { libc::sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &raw const at_once) };
    received == signal
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_others_leave() {
        let share = |used, live| share(&format!("Name:\tjava\nSigQ:\t{used}/60\nSigPnd:\t0\n"), live);
        assert_eq!(share(0, 0), Some(30));
        assert_eq!(share(30, 30), Some(30), "the agent's own");
        assert_eq!(share(50, 30), Some(20));
        assert_eq!(share(60, 0), Some(1));
        assert_eq!(super::share("Name:\tjava\n", 0), None);
    }
}
