//! Developers' hooks of the agent, with the cargo feature `hooks` only.
//!
//! Problem: another way to walk stacks can be compared with ours fairly only on the same samples and in the same
//! handler, and must not be part of the library that users get.
//! Approach: a library that links this one [`register`]s an [`Observer`] when it is loaded; the agent calls it
//! after its own work. Other hooks follow from `debug=` options.
//! Invariant: without the feature [`ENABLED`] is false, and the compiler removes everything that depends on it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use agent_options::debug::Hooks;
use jvmti_sys::jvmtiEventCallbacks;
use sampler_thread::hooks::{Hooks as SamplerHooks, Observer as SamplerObserver};
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{Frame, HotSpot, LiveMemory, Memory, Stop};

use crate::jvmti::{Jvmti, JvmtiError};

pub use agent_options::debug::HAS_HOOKS as ENABLED;

/// Follows the profiles of this process.
pub trait Observer: Send + Sync {
    /// Adds capabilities and callbacks, before the agent registers its own.
    ///
    /// # Errors
    /// If the VM refuses; then no profile begins.
    fn prepare(&self, jvmti: &Jvmti, callbacks: &mut jvmtiEventCallbacks) -> Result<(), JvmtiError>;

    /// A profile runs.
    fn started(&self, vm: &ObservedVm);

    /// The signal handler has captured a stack; bound by the handler's rules.
    ///
    /// # Safety
    /// Called by the signal handler, on the thread of `run`.
    unsafe fn captured(&self, run: &HandlerRun);

    /// The sampler thread has walked the stack of the request that has this slot and time stamp.
    fn walked(&self, slot: u32, ticks: u64, snapshot: &Snapshot<'_>, frames: &[Frame], stop: Stop);

    /// No further capture can begin, and the last requests are not walked yet. Called on a thread of the VM.
    fn stopping(&self, jvmti: &Jvmti);
}

/// The VM of a profile that has started.
pub struct ObservedVm {
    pub jvmti: Jvmti,
    /// Address of a thread's JNI environment minus that of its `JavaThread`; 0 if unknown.
    pub env_offset: u64,
    pub hotspot: Arc<HotSpot>,
    pub memory: &'static LiveMemory,
}

pub struct HandlerRun {
    /// Number of the running thread's slot.
    pub slot: u32,
    /// Address of the running thread's `JavaThread`, 0 if it has none.
    pub java_thread: u64,
    /// Time stamp of the request.
    pub ticks: u64,
    /// Cycles the capture took.
    pub cycles: u64,
    /// The handler's third argument.
    pub context: *mut c_void,
}

static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new();

/// Registers the observer of this process; only the first one counts.
pub fn register(observer: &'static dyn Observer) {
    let _ = OBSERVER.set(observer);
}

/// Returns the observer, if there is one. Signal safe.
#[inline]
pub fn observer() -> Option<&'static dyn Observer> {
    if ENABLED { OBSERVER.get().copied() } else { None }
}

/// Shows a capture to the observer. Signal safe; without the feature this does nothing.
///
/// # Safety
/// Called by the signal handler, on the thread of this slot, with the address of its `JavaThread` and its own context.
#[inline(always)]
pub unsafe fn captured(slot: u32, thread: &AtomicU64, ticks: u64, cycles: u64, context: *mut c_void) {
    if let Some(observer) = observer() {
        let run = HandlerRun { slot, java_thread: thread.load(Ordering::Acquire), ticks, cycles, context };
        // SAFETY: by the promise that the handler makes above.
        unsafe { observer.captured(&run) };
    }
}

/// Panics once if `debug=panic:callback` demands it.
///
/// # Panics
/// Once, if the option is set.
pub fn panic_in_callback(hooks: Hooks) {
    static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
    let panics = ENABLED && hooks.panics_at_start && !HAS_PANICKED.swap(true, Ordering::Relaxed);
    assert!(!panics, "the hook panic:callback demands a panic");
}

/// Returns the observer of the sampler thread, in a build with hooks.
#[cfg(feature = "hooks")]
pub fn of_sampler<M: Memory>(hooks: SamplerHooks) -> Option<Box<dyn SamplerObserver<M>>> {
    Some(Box::new(developer_hooks::DeveloperHooks::new(hooks, observer().map(|_| walked as _))))
}

/// Returns none.
#[cfg(not(feature = "hooks"))]
pub fn of_sampler<M: Memory>(_hooks: SamplerHooks) -> Option<Box<dyn SamplerObserver<M>>> {
    None
}

/// Shows a walk to the observer.
#[cfg(feature = "hooks")]
fn walked(slot: u32, ticks: u64, snapshot: &Snapshot<'_>, frames: &[Frame], stop: Stop) {
    if let Some(observer) = observer() {
        observer.walked(slot, ticks, snapshot, frames, stop);
    }
}

/// Delays the end of the timers after the end of events as long as `debug=stop-delay:` demands, so that threads end in
/// between.
pub fn delay_stop(hooks: Hooks) {
    if ENABLED && let Some(delay) = hooks.stop_delay {
        // The delay is the purpose.
        #[expect(clippy::disallowed_methods)]
        std::thread::sleep(delay);
    }
}
