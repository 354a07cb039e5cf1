//! Developers' hooks: an observer of captures and walks, with the cargo feature `hooks` only.
//!
//! Problem: another way to walk stacks can be compared with ours fairly only on the same samples and in the same
//! handler, and must not be part of the library that users get.
//! Approach: a library that links this one [`register`]s an [`Observer`] when it is loaded; the agent calls the
//! observer after its own work.
//! Invariant: without the feature this module does not exist, and nothing calls it.

pub mod signals;

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use jvmti_sys::jvmtiEventCallbacks;
use sampler_thread::hooks::Hooks;
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{Frame, HotSpot, LiveMemory, Memory, Stop};

use crate::handler::expiration::Expiration;
use crate::handler::slots::ThreadSlot;
use crate::jvmti::{Jvmti, JvmtiError};

/// The functions of an observer.
pub struct Observer {
    /// Adds capabilities and callbacks; called before the agent registers its own.
    pub on_prepare: fn(&Jvmti, &mut jvmtiEventCallbacks) -> Result<(), JvmtiError>,
    /// Called once a profile runs.
    pub on_start: fn(&ObservedVm),
    /// Called by the signal handler at the end of a capture; bound by the handler's rules.
    pub on_capture: unsafe fn(&HandlerRun<'_>),
    /// Called by the sampler thread with the walk of the request that has this slot and time stamp.
    pub on_walk: fn(u32, u64, &Snapshot<'_>, &[Frame], Stop),
    /// Called on a thread of the VM when no further capture can begin and before the last requests are walked.
    pub on_stop: fn(&Jvmti),
}

/// The VM of a profile that has started.
pub struct ObservedVm {
    /// JVMTI.
    pub jvmti: Jvmti,
    /// Address of a thread's JNI environment minus that of its `JavaThread`; 0 if unknown.
    pub env_offset: u64,
    /// Layouts.
    pub hotspot: Arc<HotSpot>,
    /// Its memory.
    pub memory: &'static LiveMemory,
}

/// One run of the signal handler.
pub struct HandlerRun<'a> {
    /// Number of the running thread's slot.
    pub index: u32,
    /// The running thread's slot.
    pub slot: &'a ThreadSlot,
    /// Time stamp of the request.
    pub ticks: u64,
    /// Cycles the capture took.
    pub cycles: u64,
    /// The handler's third argument.
    pub context: *mut c_void,
}

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Registers the observer of this process; only the first one counts.
pub fn register(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// Returns the observer, if there is one. Signal safe.
pub fn observer() -> Option<&'static Observer> {
    OBSERVER.get()
}

/// Returns the observer of the sampler thread.
pub fn of_sampler<M: Memory>(hooks: Hooks) -> Box<dyn sampler_thread::hooks::Observer<M>> {
    Box::new(developer_hooks::DeveloperHooks::new(hooks, observer().map(|observer| observer.on_walk)))
}

/// Shows a capture to the observer, with its time stamp and the cycles it took. Signal safe.
///
/// # Safety
/// Called by the signal handler, with its own arguments.
pub unsafe fn captured(expiration: &Expiration, (ticks, cycles): (u64, u64), context: *mut c_void) {
    if let Some(observer) = observer() {
        let run = HandlerRun { index: expiration.index, slot: expiration.slot, ticks, cycles, context };
        // SAFETY: by the caller's promise.
        unsafe { (observer.on_capture)(&run) };
    }
}
