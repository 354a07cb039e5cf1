//! Installs the tick handler, and forwards foreign signals.
//!
//! Problem: the program may use the signal as well. Removing the handler while a timer's signal is queued would restore
//! the default action, which ends the process.
//! Approach: choose a free real-time signal; keep the previous action and call it for everything that is not an
//! expiration of ours. After a profile, discard queued signals before the previous action is restored
//! (`design/signal-safety.md`).
//! A program that blocks signals before it starts a JVM passes its mask on. At the start of the VM the signal is
//! unblocked on the thread that makes all others; in a running VM a blocked signal is refused.
//! Sources: sigaction(2), signal(7), Linux `kernel/signal.c` (`do_sigaction`).

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "not called by handlers")]

use std::io;
use std::mem::MaybeUninit;

use super::on_tick;
use crate::handler::slots::Shared;
use agent_options::SIGNALS_OF_EVENTS;

/// Why no signal could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    #[error("every real-time signal has a handler; choose one with signal=")]
    NoFreeSignal,
    #[error(
        "clock=perf: SIGURG and SIGWINCH, which perf events may use, have handlers; leave clock=perf out"
    )]
    NoFreeSignalForEvents,
    /// An earlier profile used it, and the program has installed a handler over ours, which may call ours.
    #[error(
        "the program has installed a handler for signal {0} after the last profile; choose another signal with \
                 signal="
    )]
    TakenOver(i32),
    /// The calling thread blocks it, as all threads do if the program that started the JVM does.
    #[error(
        "signal {0} is blocked in this process, so no thread could be sampled; start the program with the agent, or \
                 choose another signal with signal="
    )]
    Blocked(i32),
    #[error("the signal cannot be used: {0}; choose another one with signal=")]
    Refused(io::Error),
}

/// Source of the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Timers. The kernel discards their pending signals when the process executes another program.
    Timers,
    /// Perf events, whose pending signals another program inherits.
    Events,
}

/// Real-time signals that C libraries and language run-times use for thread control.
const RESERVED_REAL_TIME: i32 = 4;

impl Sender {
    /// Returns the signals that it may use, the best first.
    fn candidates(self) -> Vec<i32> {
        match self {
            Self::Timers => (libc::SIGRTMIN() + RESERVED_REAL_TIME..=libc::SIGRTMAX()).rev().collect(),
            Self::Events => SIGNALS_OF_EVENTS.to_vec(),
        }
    }
}

/// Returns the signal to use: the requested one, or the first one for the sender that is free and not blocked.
///
/// # Errors
/// [`SignalError`].
pub fn choose(requested: Option<i32>, sender: Sender) -> Result<i32, SignalError> {
    let mask = Mask::own()?;
    let blocks = |signal: i32| mask.blocks(signal);
    if let Some(signal) = requested {
        return if blocks(signal) { Err(SignalError::Blocked(signal)) } else { Ok(signal) };
    }
    let mut outcome = Err(match sender {
        Sender::Timers => SignalError::NoFreeSignal,
        Sender::Events => SignalError::NoFreeSignalForEvents,
    });
    for signal in sender.candidates() {
        if is_free(signal)? && (outcome.is_err() || !blocks(signal)) {
            outcome = if blocks(signal) { Err(SignalError::Blocked(signal)) } else { Ok(signal) };
        }
    }
    outcome
}

/// Chooses like [`choose`], on the thread that makes all others, and unblocks the signal there.
///
/// # Errors
/// [`SignalError`].
pub fn choose_unblocked(requested: Option<i32>, sender: Sender) -> Result<i32, SignalError> {
    let signal = match choose(requested, sender) {
        Err(SignalError::Blocked(signal)) => signal,
        outcome => return outcome,
    };
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call makes it an empty set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was just made.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: as above; the mask before is not requested.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) };
    if error != 0 { Err(SignalError::Refused(io::Error::from_raw_os_error(error))) } else { Ok(signal) }
}

/// Returns whether a signal has the default action or our handler.
///
/// # Errors
/// [`SignalError::Refused`] for a number that is no signal.
pub fn is_free(signal: i32) -> Result<bool, SignalError> {
    let action = current_action(signal)?.sa_sigaction;
    Ok(action == libc::SIG_DFL || action == on_tick())
}

/// Returns whether our handler is installed; true if that is unknown.
pub fn has_handler(signal: i32) -> bool {
    current_action(signal).map_or(true, |action| action.sa_sigaction == on_tick())
}

/// Returns whether the calling thread blocks a signal; false if that is unknown.
pub fn is_blocked(signal: i32) -> bool {
    Mask::own().is_ok_and(|mask| mask.blocks(signal))
}

/// The signals that a thread blocks.
pub struct Mask(libc::sigset_t);

impl Mask {
    /// Returns those of the calling thread.
    ///
    /// # Errors
    /// [`SignalError::Refused`].
    pub fn own() -> Result<Self, SignalError> {
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: no new mask is given, the present one is written to `mask`.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
        if error != 0 {
            return Err(SignalError::Refused(io::Error::from_raw_os_error(error)));
        }
        // SAFETY: all-zero bytes are a valid set, and the call filled it.
        Ok(Self(unsafe { mask.assume_init() }))
    }

    pub fn blocks(&self, signal: i32) -> bool {
        // SAFETY: the set is valid.
        unsafe { libc::sigismember(&raw const self.0, signal) == 1 }
    }
}

/// Returns the current action of a signal.
///
/// # Errors
/// [`SignalError::Refused`] for a number that is no signal.
pub fn current_action(signal: i32) -> Result<libc::sigaction, SignalError> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the new action is null, the old one is written to `action`.
    let outcome = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    if outcome != 0 {
        return Err(SignalError::Refused(io::Error::last_os_error()));
    }
    // SAFETY: all-zero bytes are a valid sigaction, and the call filled it.
    Ok(unsafe { action.assume_init() })
}

/// Returns the action of a signal before the first profile that used it.
///
/// # Errors
/// [`SignalError`].
pub fn previous_action(signal: i32, former: Option<&'static Shared>) -> Result<libc::sigaction, SignalError> {
    let current = current_action(signal)?;
    let user = former.and_then(|former| former.all().find(|shared| shared.signal == signal));
    match user {
        None => Ok(current),
        Some(user) if current.sa_sigaction == on_tick() => Ok(user.previous),
        // The action before ours is restored, or ours was never installed.
        Some(user) if current.sa_sigaction == user.previous.sa_sigaction => Ok(current),
        Some(_) => Err(SignalError::TakenOver(signal)),
    }
}

fn on_tick() -> usize {
    on_tick::on_tick as *const () as usize
}

/// Installs the tick handler; [`crate::handler::slots::publish`] must have been called.
///
/// # Errors
/// [`SignalError::Refused`].
pub fn install(signal: i32) -> Result<(), SignalError> {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_tick();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `sa_mask` is a valid signal set to write to.
    unsafe { libc::sigemptyset(&raw mut action.sa_mask) };
    // SAFETY: the handler has the three-argument form that SA_SIGINFO announces and is never unloaded.
    let outcome = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    if outcome != 0 { Err(SignalError::Refused(io::Error::last_os_error())) } else { Ok(()) }
}

/// Restores the action from before the profile of `shared`, whose timers are deleted, and discards signals still queued
/// for threads that block them. A handler that the program has installed since stays.
///
/// # Errors
/// [`SignalError::Refused`].
pub fn uninstall(shared: &Shared) -> Result<(), SignalError> {
    if current_action(shared.signal)?.sa_sigaction != on_tick() {
        return Ok(());
    }
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut ignore: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ignore.sa_sigaction = libc::SIG_IGN;
    // The kernel discards the queued signals of all threads when a signal becomes ignored.
    for action in [&ignore, &shared.previous] {
        // SAFETY: the first is complete, the second was read from the kernel.
        let outcome = unsafe { libc::sigaction(shared.signal, action, std::ptr::null_mut()) };
        if outcome != 0 {
            return Err(SignalError::Refused(io::Error::last_os_error()));
        }
    }
    Ok(())
}
