//! The state of all exported functions: published once, never freed.

use core::sync::atomic::{AtomicPtr, Ordering};

use sampler_thread::native::in_handler::LibraryTables;
use stackwalk::{HotSpot, LiveMemory, ThreadOffsets};

use super::memos::Memos;
use super::threads::Threads;
use crate::jvmti::Jvmti;
use crate::jvmti::vm::Vm;

/// The VM, its threads, and memory for walks.
pub struct Api {
    pub vm: Vm,
    /// The environment whose events are enabled.
    pub jvmti: Jvmti,
    pub hotspot: HotSpot,
    pub memory: &'static LiveMemory,
    /// Fields of a `JavaThread`.
    pub offsets: ThreadOffsets,
    /// Finds the running thread and its stack.
    pub threads: Threads,
    /// Memory for walks.
    pub memos: Memos,
    /// Address of a byte that is not 0 while a collector has stopped the program, if the VM's tables have it.
    pub stopping_collector: Option<u64>,
    /// The current list of libraries. SeqCst, as for the memos: a walk that takes a memo after it was seen free sees
    /// the list that was stored before.
    pub libraries: AtomicPtr<LibraryTables>,
}

/// Release by [`publish`], Acquire by [`api`].
static API: AtomicPtr<Api> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the functions answer; only the first call has an effect.
pub fn publish(api: &'static Api) {
    let none = core::ptr::null_mut();
    let pointer = core::ptr::from_ref(api).cast_mut();
    let _ = API.compare_exchange(none, pointer, Ordering::Release, Ordering::Relaxed);
}

/// Returns the published state. Signal safe.
pub fn api() -> Option<&'static Api> {
    // SAFETY: null, or what `publish` stored, which is never freed or borrowed mutably.
    unsafe { API.load(Ordering::Acquire).as_ref() }
}
