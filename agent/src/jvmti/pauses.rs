//! Garbage collection pauses: what is pending is named before anything is freed.
//!
//! Problem: a pause may unload the classes that queued samples refer to.
//! Approach: `sampler_thread::validity::unloading`; this file is its end at the VM: the events, and the gate through which they
//! reach a running session.
//! Invariant: the callbacks run on the VM's thread at a safepoint. They call no JVMTI or JNI function, take no lock
//! that a thread of the VM may hold while it is stopped, and wait at most for the budget. The gate's lock is taken by
//! threads in native code only, which no safepoint stops, and the callbacks do not wait for it.
//! Sources: JVMTI 1.2, GarbageCollectionStart and GarbageCollectionFinish; HotSpot `prims/jvmtiExport.cpp`.

use std::sync::Arc;

use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::RwLock;
use sampler_thread::Waker;
use sampler_thread::validity::unloading::Unloading;
use stackwalk::LiveMemory;

use super::{Jvmti, JvmtiError, guard};
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

/// What a running session hears of.
pub const EVENTS: [jvmtiEvent; 2] =
    [jvmtiEvent::JVMTI_EVENT_GARBAGE_COLLECTION_START, jvmtiEvent::JVMTI_EVENT_GARBAGE_COLLECTION_FINISH];

static GATE: RwLock<Option<Gate>> = RwLock::new(None);

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

/// Lets pauses through to a session.
///
/// # Errors
/// As SetEventNotificationMode.
pub fn open(jvmti: &Jvmti, gate: Gate) -> Result<(), JvmtiError> {
    *GATE.write() = Some(gate);
    EVENTS.into_iter().try_for_each(|event| jvmti.enable(event))
}

/// Nobody answers from here on; pauses are not held up any more.
pub fn close() {
    let gate = GATE.write().take();
    // What it shares may be large; nobody waits for the lock while that is given back.
    drop(gate);
}

/// Runs `body` in a callback, if a session is there.
fn through_gate(body: impl FnOnce(&Gate)) {
    guard::callback(|| {
        if let Some(Some(gate)) = GATE.try_read().as_deref() {
            body(gate);
        }
    });
}

unsafe extern "C" fn garbage_collection_start(_jvmti: *mut jvmtiEnv) {
    through_gate(|gate| {
        gate.unloading.pause_begins(|| gate.registry.is_anything_pending(), || gate.waker.wake());
    });
}

unsafe extern "C" fn garbage_collection_finish(_jvmti: *mut jvmtiEnv) {
    through_gate(|gate| gate.unloading.pause_ends(gate.memory));
}
