//! The boundary that no panic crosses.
//!
//! Problem: a panic that unwinds into the VM would end the host program.
//! Approach: every callback and every entry point runs its body here; after a panic the agent is off for good.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::log;

static DISABLED: AtomicBool = AtomicBool::new(false);

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
        if !DISABLED.swap(true, Ordering::Relaxed) {
            log::print("internal error, profiling is off; the program goes on");
        }
        fallback
    })
}
