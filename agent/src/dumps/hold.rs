//! Holds one thread at a time in a signal handler, so that another thread can copy its registers and its stack.
//!
//! Problem: the stack of a running thread changes while it is copied.
//! Approach: [`Holder::hold`] queues a signal to the thread; its handler stores registers and stack bounds and
//! waits until the other thread is done, at most [`LONGEST_HOLD_NS`]. One word has the number of the request and
//! its state, so that a signal that arrives late, or a thread that was let go, is noticed.
//! Invariants: the handler allocates nothing and takes no lock; while a thread is held its holder takes no lock and
//! allocates nothing either, because the thread may hold any lock of the process.
//! Sources: rt_tgsigqueueinfo(2), signal-safety(7).

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use libc::{c_int, c_void, siginfo_t};
use parking_lot::{Mutex, MutexGuard};
use stackwalk::Capture;

use super::request::{handler_action, set_action, sleep};
use crate::handler::install::{Mask, SignalError, current_action};
use crate::handler::own_stack::{self, BlockOffset};
use crate::handler::ucontext;

/// Longest time in the handler: many times the copy of the largest stack.
const LONGEST_HOLD_NS: u64 = 50_000_000;
/// Pause between two looks at the state.
const PAUSE_NS: i64 = 20_000;

/// States of a request, in the low bits of its word; the number of the request is above them.
const IDLE: u64 = 0;
const ASKED: u64 = 1;
const STORING: u64 = 2;
const HELD: u64 = 3;
const STATES: u64 = 4;

/// The request, for the handler.
struct Request {
    word: AtomicU64,
    held: UnsafeCell<Held>,
    /// Locked while a dump is made.
    turn: Mutex<()>,
}

// SAFETY: `held` is written by the handler between STORING and HELD, and read by the holder after HELD.
unsafe impl Sync for Request {}

/// Registers and stack bounds of a held thread, as its handler stores them.
#[derive(Clone, Copy)]
pub struct Held {
    /// Registers; the bounds of the stack are those of the C library, 0 if it has none.
    pub capture: Capture,
    block: Option<BlockOffset>,
}

static REQUEST: Request = Request {
    word: AtomicU64::new(IDLE),
    held: UnsafeCell::new(Held { capture: Capture::ZERO, block: None }),
    turn: Mutex::new(()),
};

/// Waits for the turn to make a dump, at most so long; it lasts until the guard is dropped.
pub fn turn(patience: Duration) -> Option<MutexGuard<'static, ()>> {
    REQUEST.turn.try_lock_for(patience)
}

/// Longest time that a handler took in the present dump, in nanoseconds.
static LONGEST_NS: AtomicU64 = AtomicU64::new(0);
/// Time that all handlers took together.
static SUM_NS: AtomicU64 = AtomicU64::new(0);

/// Returns the longest time for which a thread stood still since the handler was installed, and the time of all
/// together, in nanoseconds.
pub fn pauses() -> (u64, u64) {
    // Relaxed: counters.
    (LONGEST_NS.load(Ordering::Relaxed), SUM_NS.load(Ordering::Relaxed))
}

/// Why a thread was not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHeld {
    Ended,
    /// It went on before this thread had seen that it was held.
    Released,
    /// It did not handle the signal in time: it blocks it, or the kernel does something for it that cannot be
    /// interrupted.
    Silent,
}

/// The handler while it is installed, by whoever has the [`turn`].
pub struct Holder {
    signal: c_int,
    previous: libc::sigaction,
    requests: u64,
}

/// `siginfo_t` as rt_tgsigqueueinfo(2) takes it.
#[repr(C)]
struct QueuedSignal {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: c_int,
    uid: libc::uid_t,
    value: u64,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<QueuedSignal>() == size_of::<siginfo_t>());

impl Holder {
    /// Installs the handler for a real-time signal that has none and that is not in `mask`, which the program's
    /// threads have.
    ///
    /// # Errors
    /// [`SignalError`].
    pub fn install(block: Option<BlockOffset>, mask: &Mask) -> Result<Self, SignalError> {
        let free = |signal: &c_int| {
            let is_default = current_action(*signal).is_ok_and(|action| action.sa_sigaction == libc::SIG_DFL);
            is_default && !mask.blocks(*signal)
        };
        // The first ones are those of C libraries.
        let mut signals = libc::SIGRTMIN().saturating_add(4)..=libc::SIGRTMAX();
        let signal = signals.find(free).ok_or(SignalError::NoFreeSignal)?;
        LONGEST_NS.store(0, Ordering::Relaxed);
        SUM_NS.store(0, Ordering::Relaxed);
        // SAFETY: no handler uses the record before the first request, and only one holder exists.
        unsafe { (*REQUEST.held.get()).block = block };
        let mut action = handler_action(on_hold as *const () as usize);
        // Another handler must not interrupt the wait.
        // SAFETY: `sa_mask` is a valid signal set to write to.
        unsafe { libc::sigfillset(&raw mut action.sa_mask) };
        let previous = current_action(signal)?;
        set_action(signal, &action)?;
        Ok(Self { signal, previous, requests: REQUEST.word.load(Ordering::Relaxed) / STATES })
    }

    pub fn signal(&self) -> i32 {
        self.signal
    }

    /// Holds a thread, runs `copy` with its registers, and lets it go; waits for it at most for `wait_ns`. Returns
    /// the result, and whether the thread was held all the time. `copy` must not allocate or lock.
    ///
    /// # Errors
    /// [`NotHeld`].
    pub fn hold<T>(
        &mut self,
        tid: i32,
        wait_ns: u64,
        copy: impl FnOnce(&Capture) -> T,
    ) -> Result<(T, bool), NotHeld> {
        self.requests = self.requests.wrapping_add(1);
        let number = self.requests.wrapping_mul(STATES);
        let [asked, held] = [ASKED, HELD].map(|state| number | state);
        REQUEST.word.store(asked, Ordering::Release);
        let begin = ucontext::monotonic();
        if !queue_signal(tid, self.signal, number) {
            REQUEST.word.store(IDLE | number, Ordering::Release);
            return Err(NotHeld::Ended);
        }
        // Acquire: pairs with the handler's HELD.
        loop {
            let word = REQUEST.word.load(Ordering::Acquire);
            if word == held {
                break;
            }
            // The handler waits for a time that this thread may have spent without a processor.
            if word == number | IDLE {
                return Err(NotHeld::Released);
            }
            let is_late = ucontext::monotonic().saturating_sub(begin) > wait_ns;
            let gives_up = is_late
                && REQUEST
                    .word
                    .compare_exchange(asked, number | IDLE, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok();
            if gives_up {
                return Err(NotHeld::Silent);
            }
            sleep(PAUSE_NS);
        }
        // SAFETY: the handler stored it before HELD, and writes it again only after another request.
        let capture = unsafe { (*REQUEST.held.get()).capture };
        let result = copy(&capture);
        let was_held =
            REQUEST.word.compare_exchange(held, number | IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok();
        Ok((result, was_held))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let ignore = handler_action(libc::SIG_IGN);
        // The kernel discards queued signals of all threads when their action becomes to ignore them. A refusal
        // leaves the handler, which does nothing without a request.
        let _ = set_action(self.signal, &ignore);
        let _ = set_action(self.signal, &self.previous);
    }
}

/// Queues a signal with a value to a thread of this process; returns false if there is no such thread.
fn queue_signal(tid: i32, signal: c_int, value: u64) -> bool {
    // SAFETY: getpid always succeeds.
    let pid = unsafe { libc::getpid() };
    // SAFETY: getuid always succeeds.
    let uid = unsafe { libc::getuid() };
    let info =
        QueuedSignal { signal, errno: 0, code: libc::SI_QUEUE, padding: 0, pid, uid, value, rest: [0; 12] };
    // SAFETY: the record has the kernel's layout and lives until the call returns.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, &raw const info) == 0 }
}

/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_hold(_signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: errno of the calling thread always exists.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's own variable.
    let saved_errno = unsafe { errno.read() };
    // SAFETY: the kernel passes a valid siginfo.
    if let Some(info) = unsafe { info.as_ref() }
        && info.si_code == libc::SI_QUEUE
    {
        // SAFETY: SI_QUEUE means that the value member is the valid one.
        let number = unsafe { info.si_value() }.sival_ptr as u64;
        // SAFETY: the kernel's context.
        unsafe { wait_while_held(number, context) };
    }
    // SAFETY: the calling thread's own variable.
    unsafe { errno.write(saved_errno) }
}

/// # Safety
/// `context` is the kernel's.
unsafe fn wait_while_held(number: u64, context: *mut c_void) {
    let [asked, storing, held] = [ASKED, STORING, HELD].map(|state| number | state);
    let begin = ucontext::monotonic();
    // A request that was given up, or another one, is not for this thread.
    let word = &REQUEST.word;
    if word.compare_exchange(asked, storing, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: the context is the kernel's.
    let mut capture = unsafe { ucontext::registers(context) };
    // SAFETY: in the state STORING the record belongs to this handler.
    let record = unsafe { &mut *REQUEST.held.get() };
    let (_, high) = own_stack::bounds(0, 0, capture.sp, record.block);
    (capture.stack_low, capture.stack_high) = (capture.sp, high);
    record.capture = capture;
    // Release: pairs with the holder's Acquire.
    word.store(held, Ordering::Release);
    while word.load(Ordering::Acquire) == held {
        if ucontext::monotonic().saturating_sub(begin) > LONGEST_HOLD_NS {
            // If the holder was faster, the thread was held all the time.
            let _ = word.compare_exchange(held, number | IDLE, Ordering::AcqRel, Ordering::Relaxed);
            break;
        }
        sleep(PAUSE_NS);
    }
    let ns = ucontext::monotonic().saturating_sub(begin);
    LONGEST_NS.fetch_max(ns, Ordering::Relaxed);
    SUM_NS.fetch_add(ns, Ordering::Relaxed);
}
