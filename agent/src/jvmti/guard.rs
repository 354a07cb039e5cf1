//! The boundary that no panic crosses.
//!
//! Problem: a panic that unwinds into the VM would end the host program.
//! Approach: every callback and every entry point runs its body here; after a panic the agent is off for good, and the
//! running profile ends ([`set_on_panic`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::guest::log;

static DISABLED: AtomicBool = AtomicBool::new(false);

static ON_PANIC: OnceLock<fn()> = OnceLock::new();

/// Sets the function that ends the running profile after the first panic; only the first call counts.
///
/// Panics of all threads of the agent are reported in one line each, without a stack trace of the host program.
pub fn set_on_panic(end: fn()) {
    if ON_PANIC.set(end).is_err() {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("unknown");
        let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
        log::print(&format!("panic{place}: {}; please report this", text.replace('\n', " ")));
    }));
}

/// Returns whether a panic has switched the agent off.
pub fn is_disabled() -> bool {
    DISABLED.load(Ordering::Relaxed)
}

/// Runs the body of a callback, unless the agent is off; a panic switches it off.
pub fn callback(body: impl FnOnce()) {
    if !is_disabled() {
        entry_point((), body);
    }
}

/// Runs the body of an entry point; a panic switches the agent off, and `fallback` is returned.
pub fn entry_point<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        if switch_off()
            && let Some(end) = ON_PANIC.get()
        {
            end();
        }
        fallback
    })
}

/// Switches the agent off for good, with one line; returns whether it was on.
pub fn switch_off() -> bool {
    let was_on = !DISABLED.swap(true, Ordering::Relaxed);
    if was_on {
        log::print("internal error, profiling is off; the program goes on");
    }
    was_on
}
