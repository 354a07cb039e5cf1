//! SIGIO while perf events run.
//!
//! Problem: where the user's pending signals are used up, the kernel sends SIGIO in place of the signal of a perf event, and
//! its default action ends the process.
//! Approach: if SIGIO has the default action, a handler counts it, and the registry looks for the threads whose signals are
//! missing (`crate::threads::events`). A handler of the program stays; then only threads without any signal are found.
//! After the profile SIGIO is discarded before the default action is restored, as the timers' signal is.
//! Source: fcntl(2) (F_SETSIG); Linux 6.18 `fs/fcntl.c`, `send_sigio_to_task`.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handler::install::{SignalError, current_action};

/// Signals that the kernel could not queue, at least. Relaxed: a count.
static REFUSED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: libc::c_int) {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// Returns how many signals were refused so far, at least.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Counts SIGIO from now on, unless the program handles or ignores it.
///
/// # Errors
/// [`SignalError::Refused`].
pub fn install() -> Result<(), SignalError> {
    if current_action(libc::SIGIO)?.sa_sigaction == libc::SIG_DFL {
        set(count as *const () as usize)
    } else {
        Ok(())
    }
}

/// Restores the default action if the handler is ours.
///
/// # Errors
/// [`SignalError::Refused`].
pub fn uninstall() -> Result<(), SignalError> {
    if current_action(libc::SIGIO)?.sa_sigaction != count as *const () as usize {
        return Ok(());
    }
    // The kernel discards what is pending when the action becomes to ignore it.
    set(libc::SIG_IGN)?;
    set(libc::SIG_DFL)
}

fn set(handler: usize) -> Result<(), SignalError> {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete; without SA_SIGINFO a handler takes the signal's number.
    let outcome = unsafe { libc::sigaction(libc::SIGIO, &raw const action, std::ptr::null_mut()) };
    if outcome != 0 { Err(SignalError::Refused(io::Error::last_os_error())) } else { Ok(()) }
}
