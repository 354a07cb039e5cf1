//! State of all exported functions, published once.
//!
//! Invariant: a published [`Api`] lives as long as the process.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::{AtomicPtr, Ordering};

use sampler_thread::native::in_handler::LibraryTables;
use stackwalk::{HotSpot, LiveMemory, ThreadOffsets};

use super::memos::Memos;
use super::threads::Threads;

/// The VM, its threads, and memory for walks.
pub struct Api {
    /// Layouts.
    pub hotspot: HotSpot,
    /// Its memory.
    pub memory: &'static LiveMemory,
    /// Fields of a `JavaThread`.
    pub offsets: ThreadOffsets,
    /// Finds the running thread and its stack.
    pub threads: Threads,
    /// Memory for walks.
    pub memos: Memos,
    /// Address of a byte that is not 0 while a collector has stopped the program, if the VM has it in its tables.
    pub stopping_collector: Option<u64>,
    /// The present list of libraries. SeqCst, as the memos: a walk that takes a memo after it was seen free sees the list
    /// that was stored before.
    pub libraries: AtomicPtr<LibraryTables>,
}

/// Release by [`publish`], Acquire by [`api`].
static API: AtomicPtr<Api> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the functions answer; only the first call counts.
pub fn publish(api: &'static Api) {
    let none = core::ptr::null_mut();
    let pointer = core::ptr::from_ref(api).cast_mut();
    // A second one is left unused.
    let _ = API.compare_exchange(none, pointer, Ordering::Release, Ordering::Relaxed);
}

/// Returns what was published. Signal safe.
pub fn api() -> Option<&'static Api> {
    // SAFETY: null, or what `publish` stored, which lives for ever and is never borrowed mutably.
    unsafe { API.load(Ordering::Acquire).as_ref() }
}
