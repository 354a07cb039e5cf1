//! Handlers that ask the thread which writes stacks for a dump: of SIGABRT, which waits for it, and of a signal that
//! the user has chosen, which does not.
//!
//! Problem: a dying process has locks that are never released and memory that may be damaged, and HotSpot uses
//! SIGSEGV, SIGBUS and others for itself: implicit null checks, polls of safepoints, stack banging.
//! Approach: those signals stay the VM's. When it gives up, it writes its error file and then calls abort(3), and so
//! do the C library and native code; the handler of SIGABRT stores the registers, wakes the thread that writes
//! stacks, which was made in good times, and waits for it, at most [`LONGEST_WAIT_NS`]. Then it restores the action
//! that SIGABRT had before and raises it again, so the process ends as it would have ended.
//! Invariants: the handlers allocate nothing and take no lock; a forked child dumps nothing.
//! Sources: HotSpot `os::abort` (`os/linux/os_linux.cpp`, JDK 11; `os/posix/os_posix.cpp`, JDK 17 to 25), which
//! calls abort(3) unless `-XX:-CreateCoredumpOnCrash`; `VMError::report_and_die` (`utilities/vmError.cpp`), which
//! writes hs_err and runs OnError before that; abort(3); signal-safety(7).

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use libc::{c_int, c_void, siginfo_t};
use rustix::thread::futex;
use stackwalk::Capture;

use crate::handler::install::{SignalError, current_action};
use crate::handler::own_stack::{self, BlockOffset};
use crate::handler::slots::call_action;
use crate::handler::ucontext;

/// Longest time that a dying process waits for its stacks.
///
/// 400 threads take less than a second; a thread that does not answer costs a tenth of a second, and the copies end
/// after 5.
pub const LONGEST_WAIT_NS: u64 = 10_000_000_000;
/// Pause between two looks at the state.
const PAUSE_NS: i64 = 1_000_000;

/// States of the end of the process.
const ALIVE: u64 = 0;
const STORING: u64 = 1;
const DYING: u64 = 2;
const DUMPED: u64 = 3;

/// The thread in which the process dies.
#[derive(Debug, Clone, Copy)]
pub struct Dying {
    /// Its kernel id.
    pub tid: i32,
    /// Its registers; the bounds of the stack are those of the C library, 0 if it has none.
    pub capture: Capture,
    /// Process that has sent the signal; its own if the program has called abort(3).
    pub sender: i32,
}

/// Data of the handlers; made once, never freed.
pub struct Requests {
    pid: c_int,
    /// Number of requests so far, for which the thread that writes stacks waits. A descriptor could be closed by the
    /// program.
    requests: AtomicU32,
    block: Option<BlockOffset>,
    abort_before: libc::sigaction,
    signal: c_int,
    signal_before: libc::sigaction,
    /// Kernel id of the thread that writes stacks; 0 before it runs.
    writer: AtomicI32,
    /// Signals of the user's choice that have arrived.
    arrived: AtomicU64,
    state: AtomicU64,
    dying: UnsafeCell<Dying>,
}

// SAFETY: `dying` is written between STORING and DYING by one handler, and read after DYING; the rest is atomic or
// constant.
unsafe impl Sync for Requests {}
// SAFETY: no field belongs to a thread.
unsafe impl Send for Requests {}

/// The record of the installed handlers.
static REQUESTS: AtomicPtr<Requests> = AtomicPtr::new(core::ptr::null_mut());

impl Requests {
    /// Makes the record of the handlers; `signal` is that of the user's choice, 0 for none.
    ///
    /// # Errors
    /// [`SignalError::Refused`].
    pub fn new(signal: c_int, block: Option<BlockOffset>) -> Result<Self, SignalError> {
        let abort_before = current_action(libc::SIGABRT)?;
        let signal_before = if signal == 0 { abort_before } else { current_action(signal)? };
        Ok(Self {
            // SAFETY: getpid always succeeds.
            pid: unsafe { libc::getpid() },
            requests: AtomicU32::new(0),
            block,
            abort_before,
            signal,
            signal_before,
            writer: AtomicI32::new(0),
            arrived: AtomicU64::new(0),
            state: AtomicU64::new(ALIVE),
            dying: UnsafeCell::new(Dying { tid: 0, capture: Capture::ZERO, sender: 0 }),
        })
    }

    /// Publishes the record, which is never freed, and installs the handlers: that of SIGABRT if `on_abort`, and
    /// that of the signal of the user's choice. To be called once a process.
    ///
    /// # Errors
    /// [`SignalError::Refused`].
    pub fn install(&'static self, on_abort: bool) -> Result<(), SignalError> {
        // Release: pairs with the handlers' Acquire.
        REQUESTS.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
        if on_abort {
            set_action(libc::SIGABRT, &handler_action(self::on_abort as *const () as usize))?;
            FAULTS.into_iter().try_for_each(let_abort_through)?;
        }
        if self.signal == 0 {
            Ok(())
        } else {
            set_action(self.signal, &handler_action(on_request as *const () as usize))
        }
    }

    /// Names the calling thread as the one that writes stacks: it must not wait for itself.
    pub fn written_here(&self) {
        self.writer.store(own_tid(), Ordering::Release);
    }

    /// Waits until a handler has asked for a dump more often than `seen` times, at most for `limit`; returns how
    /// often so far.
    pub fn wait(&self, seen: u32, limit: Option<Duration>) -> u32 {
        let limit = limit.and_then(|limit| futex::Timespec::try_from(limit).ok());
        // Returns at once if a handler has asked meanwhile. Any other end of the wait counts as its time being over.
        let _ = futex::wait(&self.requests, futex::Flags::PRIVATE, seen, limit.as_ref());
        self.requests.load(Ordering::Acquire)
    }

    /// Takes the signals of the user's choice that have arrived; returns whether there was one.
    pub fn take_arrived(&self) -> bool {
        self.arrived.swap(0, Ordering::AcqRel) != 0
    }

    /// Returns the thread in which the process dies, if it does.
    pub fn dying(&self) -> Option<Dying> {
        // Acquire: pairs with the handler's Release.
        let is_dying = self.state.load(Ordering::Acquire) == DYING;
        // SAFETY: stored before the state DYING, and never written again.
        is_dying.then(|| unsafe { *self.dying.get() })
    }

    /// Lets the process die.
    pub fn dumped(&self) {
        self.state.store(DUMPED, Ordering::Release);
    }

    /// # Signal Safe Methods
    /// Wakes the thread that writes stacks.
    fn wake(&self) {
        self.requests.fetch_add(1, Ordering::Release);
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel wakes one thread that waits for this word, which lives as long as the process.
        unsafe { libc::syscall(libc::SYS_futex, self.requests.as_ptr(), operation, 1) };
    }

    fn is_of_this_process(&self) -> bool {
        // SAFETY: getpid always succeeds.
        self.pid == unsafe { libc::getpid() }
    }

    /// Stores where the process dies, unless it dies in another thread already, and waits for the stacks.
    ///
    /// # Safety
    /// The arguments are those the kernel passed to the handler of SIGABRT.
    unsafe fn die(&self, info: *mut siginfo_t, context: *mut c_void) {
        let tid = own_tid();
        let writer = self.writer.load(Ordering::Acquire);
        if writer == 0 || writer == tid {
            return;
        }
        let begin = ucontext::monotonic();
        let is_first =
            self.state.compare_exchange(ALIVE, STORING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_first {
            // SAFETY: the kernel's context.
            let mut capture = unsafe { ucontext::registers(context) };
            let (_, high) = own_stack::bounds(0, 0, capture.sp, self.block);
            (capture.stack_low, capture.stack_high) = (capture.sp, high);
            // SAFETY: the kernel passes a valid siginfo.
            let sender = unsafe { info.as_ref() }.map_or(0, |info| {
                // SAFETY: kill(2), tgkill(2) and sigqueue(3), by which SIGABRT is sent, set the member.
                unsafe { info.si_pid() }
            });
            // SAFETY: in the state STORING the record belongs to this handler.
            unsafe { self.dying.get().write(Dying { tid, capture, sender }) };
            self.state.store(DYING, Ordering::Release);
            self.wake();
        }
        while self.state.load(Ordering::Acquire) != DUMPED
            && ucontext::monotonic().saturating_sub(begin) < LONGEST_WAIT_NS
        {
            sleep(PAUSE_NS);
        }
    }
}

/// Returns the action that runs `handler`, on the alternate stack if there is one and with an empty mask.
pub(super) fn handler_action(handler: usize) -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid sigaction, and an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    action
}

/// Sets the action of a signal. Signal safe.
///
/// # Errors
/// [`SignalError::Refused`].
pub(super) fn set_action(signal: c_int, action: &libc::sigaction) -> Result<(), SignalError> {
    // SAFETY: the action is complete; a handler in it is never unloaded.
    let outcome = unsafe { libc::sigaction(signal, action, core::ptr::null_mut()) };
    if outcome != 0 { Err(SignalError::Refused(std::io::Error::last_os_error())) } else { Ok(()) }
}

/// Sleeps less than a second. Signal safe.
pub(super) fn sleep(ns: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: the time is valid, and the rest is not requested. An early end changes nothing.
    unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) };
}

/// Signals of faults, which the VM handles and may die of.
const FAULTS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Lets SIGABRT through while a handler of this signal runs; nothing else of its action is changed.
///
/// The VM's handlers block it, and die in abort(3). Up to glibc 2.36 that function unblocks the signal before it
/// raises it; that of 2.43 raises it blocked, and ends the process without calling the handler.
fn let_abort_through(signal: c_int) -> Result<(), SignalError> {
    let mut action = current_action(signal)?;
    if action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    // SAFETY: the mask is that of a complete action, and the number that of a signal.
    unsafe { libc::sigdelset(&raw mut action.sa_mask, libc::SIGABRT) };
    set_action(signal, &action)
}

fn own_tid() -> i32 {
    // SAFETY: gettid always succeeds.
    unsafe { libc::gettid() }
}

/// Handler of SIGABRT.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_abort(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: null or a record that is never freed.
    let Some(requests) = (unsafe { REQUESTS.load(Ordering::Acquire).as_ref() }) else { return };
    if requests.is_of_this_process() {
        // SAFETY: the kernel's arguments.
        unsafe { requests.die(info, context) };
    }
    // The signal is blocked until this handler returns. A refusal leaves the handler, and abort(3) ends the process
    // all the same.
    if set_action(signal, &requests.abort_before).is_ok() {
        // SAFETY: getpid always succeeds.
        let pid = unsafe { libc::getpid() };
        // SAFETY: no preconditions.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, own_tid(), signal) };
    }
}

/// Handler of the signal of the user's choice.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_request(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: null or a record that is never freed.
    let Some(requests) = (unsafe { REQUESTS.load(Ordering::Acquire).as_ref() }) else { return };
    // SAFETY: errno of the calling thread always exists.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's own variable.
    let saved_errno = unsafe { errno.read() };
    if requests.is_of_this_process() {
        requests.arrived.fetch_add(1, Ordering::AcqRel);
        requests.wake();
    }
    // SAFETY: read from the kernel for this signal; the kernel's arguments.
    unsafe { call_action(&requests.signal_before, signal, info, context) };
    // SAFETY: the calling thread's own variable.
    unsafe { errno.write(saved_errno) }
}
