//! Garbage collection pauses: what is pending is named before anything is freed.
//!
//! Problem: a pause may unload the classes that queued samples refer to.
//! Approach: `sampler_thread::unloading`; this file is its end at the VM: the events, and the gate through which they
//! reach a running session.
//! Invariant: the callbacks run on the VM's thread at a safepoint. They call no JVMTI or JNI function, take no lock
//! that a thread of the VM may hold while it is stopped, and wait at most for the budget.
//! Sources: JVMTI 1.2, GarbageCollectionStart and GarbageCollectionFinish; HotSpot `prims/jvmtiExport.cpp`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use sampler_thread::Waker;
use sampler_thread::unloading::Unloading;
use stackwalk::LiveMemory;

use super::callbacks::guard;
use super::{Jvmti, JvmtiError};
use crate::threads::Registry;

/// `can_generate_garbage_collection_events`: the last of the 32 capabilities in the first word (`jvmti.h`).
const GARBAGE_COLLECTION_EVENTS: u32 = 1 << 31;

/// What a callback needs of the running session.
pub struct Gate {
    /// Shared with the sampler thread.
    pub unloading: Arc<Unloading>,
    /// Wakes it.
    pub waker: Waker,
    /// Who may have something queued.
    pub registry: Arc<Registry>,
    /// The VM's memory.
    pub memory: &'static LiveMemory,
}

static GATE: OnceLock<Gate> = OnceLock::new();
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Adds the callbacks and asks for the capability; without it no pause is ever told.
///
/// # Errors
/// As AddCapabilities.
pub fn prepare(jvmti: &Jvmti, callbacks: &mut jvmtiEventCallbacks) -> Result<(), JvmtiError> {
    callbacks.GarbageCollectionStart = Some(garbage_collection_start);
    callbacks.GarbageCollectionFinish = Some(garbage_collection_finish);
    let wanted =
        jvmtiCapabilities { _bindgen_bitfield_1_: GARBAGE_COLLECTION_EVENTS, ..jvmtiCapabilities::default() };
    jvmti.add_capabilities(&wanted)
}

/// Lets pauses through to a session; there is one in the life of a process.
///
/// # Errors
/// As SetEventNotificationMode.
pub fn open(jvmti: &Jvmti, gate: Gate) -> Result<(), JvmtiError> {
    // A second session cannot be started (`StartError::AlreadyRunning`), so the gate is never taken.
    let _ = GATE.set(gate);
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_GARBAGE_COLLECTION_FINISH)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_GARBAGE_COLLECTION_START)
}

/// Nobody answers from here on; pauses are not held up any more.
pub fn close() {
    CLOSED.store(true, Ordering::Release);
}

fn gate() -> Option<&'static Gate> {
    if CLOSED.load(Ordering::Acquire) { None } else { GATE.get() }
}

unsafe extern "C" fn garbage_collection_start(_jvmti: *mut jvmtiEnv) {
    guard(|| {
        if let Some(gate) = gate() {
            gate.unloading.pause_begins(|| gate.registry.is_anything_pending(), || gate.waker.wake());
        }
    });
}

unsafe extern "C" fn garbage_collection_finish(_jvmti: *mut jvmtiEnv) {
    guard(|| {
        if let Some(gate) = gate() {
            gate.unloading.pause_ends(gate.memory);
        }
    });
}
