//! A perf event on one thread's CPU clock.
//!
//! Problem: timers expire only at the kernel's ticks. A perf event of the kernel's software clock expires at any time,
//! but it has a descriptor, signals the descriptor's owner, and has one period for all expirations.
//! Approach: `perf_event_open` for the thread (PERF_COUNT_SW_CPU_CLOCK), `F_SETSIG` and `F_SETOWN_EX` for the signal.
//! The first period differs from the others; the handler of the first expiration sets the usual one
//! (`crate::clock::descriptors`). Events do not stop themselves (PERF_EVENT_IOC_REFRESH): with this clock that can stop
//! Linux 6.16 and 6.17 altogether.
//! A signal that is pending in execve(2) reaches the new program, so one is used whose default action is to be ignored
//! ([`agent_options::SIGNALS_OF_EVENTS`]). At most one such signal is pending: several expirations during a long system
//! call are one signal, and the thread's clock corrects that ([`Drift`](crate::clock::drift::Drift)).
//! Descriptors lie above those that select(2) can use if there are enough, and the agent takes at most a quarter of the
//! limit ([`most_descriptors`]). The program may close a descriptor and reuse its number, which the kernel's id of the
//! event shows.
//! Invariant: after [`PerfEvent::silence`] or drop the kernel sends no further signal for it, even if a forked process
//! has a copy of the descriptor.
//! Sources: perf_event_open(2), fcntl(2); Linux 6.18 `kernel/events/core.c` (`perf_swevent_hrtimer`,
//! `perf_event_period`).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_long, c_ulong};
use sampler_thread::descriptor::{Identify, Lost, OwnedDescriptor};

use crate::clock::descriptors::{Descriptors, SET_PERIOD};
use crate::clock::grid::Key;

/// Number of events. Relaxed: a count.
static LIVE: AtomicU64 = AtomicU64::new(0);

/// Part of the limit of descriptors that the agent may use.
const SHARE: u64 = 4;
/// Most descriptors of the table, 4 MB of addresses.
const MOST: u64 = 1 << 20;
/// Descriptors from here on cannot be used with select(2) (FD_SETSIZE).
const BEYOND_SELECT: u64 = 1024;

/// `perf_event_attr` in its first version, which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64, "PERF_ATTR_SIZE_VER0");

/// PERF_TYPE_SOFTWARE.
const SOFTWARE: u32 = 1;
/// PERF_COUNT_SW_CPU_CLOCK.
const CPU_CLOCK: u64 = 0;
/// The flag `disabled`.
const DISABLED: u64 = 1;
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: c_ulong = 8;
/// Requests of ioctl(2).
const DISABLE: u64 = 0x2401;
const ENABLE: u64 = 0x2400;
/// PERF_EVENT_IOC_ID.
const ID: u64 = 0x8008_2407;
/// Commands of fcntl(2).
const SET_SIGNAL: c_int = 10;
const SET_OWNER: c_int = 15;
/// F_OWNER_TID.
const OWNER_IS_THREAD: c_int = 0;

/// `f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: c_int,
    id: c_int,
}

/// Why the kernel grants no perf events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfEventError {
    #[error(
        "clock=perf: the kernel refuses perf events ({error}, kernel.perf_event_paranoid is {paranoid}); set it to 1, grant \
         CAP_PERFMON, allow perf_event_open in the container's seccomp profile, or leave clock=perf out"
    )]
    /// The process may not profile itself.
    Refused {
        /// The kernel's reason.
        error: io::Error,
        paranoid: String,
    },
    #[error("clock=perf: this kernel has no perf events ({0}); leave clock=perf out")]
    Missing(io::Error),
}

/// Checks that a thread of this process may have a perf event.
pub fn check() -> Result<(), PerfEventError> {
    let outcome = open(nix::unistd::gettid().as_raw());
    let Err(error) = outcome else { return Ok(()) };
    Err(match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid =
                std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            let paranoid = if paranoid.is_empty() { "unknown" } else { paranoid.trim() };
            PerfEventError::Refused { error, paranoid: paranoid.to_owned() }
        }
        _ => PerfEventError::Missing(error),
    })
}

/// Returns the number of descriptors that the process may have, at most a million.
pub fn most_descriptors() -> usize {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    let most = limit.map_or(BEYOND_SELECT, |(soft, _)| soft).min(MOST);
    usize::try_from(most).unwrap_or(0)
}

/// The descriptor of an event. All events share one inode.
#[derive(Debug)]
struct EventFile(OwnedFd);

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Identify for EventFile {
    /// Returns the kernel's id of the event.
    fn mark(&self) -> io::Result<u64> {
        let mut id = 0_u64;
        // SAFETY: the id is valid for the kernel to write.
        done(unsafe { libc::ioctl(self.0.as_raw_fd(), ID as _, &raw mut id) })?;
        Ok(id)
    }
}

/// An event; dropping it closes it.
#[derive(Debug)]
pub struct PerfEvent {
    file: OwnedDescriptor<EventFile>,
    /// The number of the descriptor, which signals carry.
    number: c_int,
}

impl PerfEvent {
    /// Makes an event for `tid` that sends `signal` to that thread, for this slot and key.
    ///
    /// # Errors
    /// `EAGAIN` when the descriptors or the agent's share of them are used up, `ESRCH` when the thread has ended.
    pub fn create(tid: i32, signal: i32, table: Descriptors, slot: u32, key: Key) -> io::Result<Self> {
        let used_up = || io::Error::from_raw_os_error(libc::EAGAIN);
        if LIVE.load(Ordering::Relaxed) >= table.count() as u64 / SHARE {
            return Err(used_up());
        }
        let low = open(tid).map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => used_up(),
            _ => error,
        })?;
        let from = BEYOND_SELECT.min(table.count() as u64 / 2);
        // SAFETY: a request without memory.
        let descriptor = unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from as c_int) };
        drop(low);
        if descriptor < 0 {
            return Err(used_up());
        }
        // SAFETY: the descriptor was just made, and nothing else has it.
        let file = EventFile(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let event = Self { file: OwnedDescriptor::new(file)?, number: descriptor };
        LIVE.fetch_add(1, Ordering::Relaxed);
        if !table.set(descriptor, slot, key) {
            return Err(used_up());
        }
        let owner = Owner { kind: OWNER_IS_THREAD, id: tid };
        // SAFETY: a request without memory.
        done(unsafe { libc::fcntl(descriptor, SET_SIGNAL, signal) })?;
        // SAFETY: the owner is valid for the kernel to read.
        done(unsafe { libc::fcntl(descriptor, SET_OWNER, &raw const owner) })?;
        // SAFETY: a request without memory.
        done(unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC) })?;
        Ok(event)
    }

    /// Returns the descriptor plus one, which its signals carry.
    pub fn number(&self) -> i32 {
        self.number.wrapping_add(1)
    }

    /// Starts the event: it expires each `first_ns` of the thread's CPU time until the handler sets its period.
    ///
    /// # Errors
    /// As ioctl(2); [`Lost`] if the program has closed the descriptor.
    pub fn start(&self, first_ns: u64) -> io::Result<()> {
        let first_ns = first_ns.max(1);
        let descriptor = self.descriptor()?;
        // SAFETY: the period is valid for the kernel to read.
        done(unsafe { libc::ioctl(descriptor, SET_PERIOD as _, &raw const first_ns) })?;
        // SAFETY: a request without memory.
        done(unsafe { libc::ioctl(descriptor, ENABLE as _, 0) })
    }

    /// Ends its signals. The descriptor stays open, so that a signal on its way still leads to the slot.
    pub fn silence(&self) {
        // If the program has closed the descriptor, the event has ended.
        let Ok(descriptor) = self.descriptor() else { return };
        // Ends signals at once, also for copies of the descriptor; disabling only spares the kernel work.
        // SAFETY: a request without memory; a refusal changes nothing.
        unsafe { libc::fcntl(descriptor, libc::F_SETFL, 0) };
        // SAFETY: a request without memory; a refusal changes nothing.
        unsafe { libc::ioctl(descriptor, DISABLE as _, 0) };
    }

    /// Returns whether the program has left the descriptor alone.
    pub fn is_intact(&self) -> bool {
        self.file.get().is_ok()
    }

    fn descriptor(&self) -> Result<c_int, Lost> {
        self.file.get().map(|file| file.0.as_raw_fd())
    }
}

impl Drop for PerfEvent {
    fn drop(&mut self) {
        self.silence();
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens an event that does not run.
fn open(tid: i32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: CPU_CLOCK,
        // Any period makes this an event with expirations; the start sets the real one.
        sample_period: 1_000_000_000,
        flags: DISABLED,
        ..Attributes::default()
    };
    let (any_processor, no_group): (c_int, c_int) = (-1, -1);
    // SAFETY: the attributes are valid for the kernel to read, and as long as they say.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            tid,
            any_processor,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as c_int) })
}

fn done(outcome: c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const _: () = assert!(size_of::<c_long>() == 8, "the layout of siginfo is that of 64-bit kernels");
