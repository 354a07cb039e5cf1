//! The events of garbage collection pauses, in which queued samples are named before anything is freed.
//!
//! Problem: a pause may unload the classes that queued samples refer to.
//! Approach: `sampler_thread::proof::unloading`; this file has the VM's callbacks, and the gate through which they
//! reach a running session.
//! Invariant: the callbacks run on the VM's thread at a safepoint. They call no JVMTI or JNI function, take no lock
//! that a thread of the VM may hold while it is stopped, and wait at most for the budget. The gate's lock is taken by
//! threads in native code only, which no safepoint stops, and the callbacks do not wait for it.
//! Sources: JVMTI 1.2, GarbageCollectionStart and GarbageCollectionFinish; HotSpot `prims/jvmtiExport.cpp`.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::RwLock;
use sampler_thread::Waker;
use sampler_thread::proof::unloading::Unloading;
use stackwalk::LiveMemory;

use crate::guest::log;
use crate::handler::slots;
use crate::jvmti::{Jvmti, JvmtiError, guard};
use crate::threads::Registry;

/// `can_generate_garbage_collection_events`: the last of the 32 capabilities in the first word (`jvmti.h`).
const GARBAGE_COLLECTION_EVENTS: u32 = 1 << 31;

/// The parts of a running session that the callbacks need.
pub struct Gate {
    /// Shared with the sampler thread.
    pub unloading: Arc<Unloading>,
    /// Wakes the sampler thread.
    pub waker: Waker,
    /// The threads, whose queues may hold requests.
    pub registry: Arc<Registry>,
    pub memory: &'static LiveMemory,
}

/// The events of a running session.
pub const EVENTS: [jvmtiEvent; 2] =
    [jvmtiEvent::JVMTI_EVENT_GARBAGE_COLLECTION_START, jvmtiEvent::JVMTI_EVENT_GARBAGE_COLLECTION_FINISH];

static GATE: RwLock<Option<Gate>> = RwLock::new(None);

/// Adds the callbacks and acquires the capability; returns whether the VM granted it.
pub fn prepare(jvmti: &Jvmti, callbacks: &mut jvmtiEventCallbacks) -> bool {
    callbacks.GarbageCollectionStart = Some(garbage_collection_start);
    callbacks.GarbageCollectionFinish = Some(garbage_collection_finish);
    let capabilities =
        jvmtiCapabilities { _bindgen_bitfield_1_: GARBAGE_COLLECTION_EVENTS, ..jvmtiCapabilities::default() };
    warn(jvmti.add_capabilities(&capabilities))
}

/// Opens the gate to a session and enables the events.
///
/// Whoever enables the second event, which Agent_OnLoad or a thread of the VM does, waits at its entry for a pause
/// that is in progress. So a pause that is in progress afterwards has been reported, or had not begun: pauses are
/// known from then on.
pub fn open(jvmti: &Jvmti, gate: Gate) {
    *GATE.write() = Some(gate);
    if warn(EVENTS.into_iter().try_for_each(|event| jvmti.enable(event)))
        && let Some(shared) = slots::shared()
    {
        // Fails if a pause has been reported meanwhile, which has made the number right. Release pairs with the
        // handler.
        let _ = shared.pauses.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Closes the gate; later pauses go on at once.
pub fn close() {
    let gate = GATE.write().take();
    // Freed outside of the lock: the session's memory may be large.
    drop(gate);
}

/// Warns if the events are not available; returns whether they are.
fn warn(outcome: Result<(), JvmtiError>) -> bool {
    if let Err(error) = outcome {
        log::print(&format!(
            "garbage collection pauses are not reported ({error}): some names of unloaded classes will be missing"
        ));
    }
    outcome.is_ok()
}

/// Runs `body` in a callback, if the gate is open.
fn through_gate(body: impl FnOnce(&Gate)) {
    guard::callback(|| {
        if let Some(Some(gate)) = GATE.try_read().as_deref() {
            body(gate);
        }
    });
}

/// Counts the begin or the end of a pause. Only one thread does so at a time.
fn count(next: impl FnOnce(u64) -> u64) {
    if let Some(shared) = slots::shared() {
        shared.pauses.store(next(shared.pauses.load(Ordering::Relaxed)), Ordering::Release);
        // Release: a handler that sees an object in motion sees the number as well.
        fence(Ordering::Release);
    }
}

/// The next odd number.
fn begun(pauses: u64) -> u64 {
    (pauses + 1) | 1
}

/// The next even number.
fn ended(pauses: u64) -> u64 {
    (pauses | 1) + 1
}

unsafe extern "C" fn garbage_collection_start(_jvmti: *mut jvmtiEnv) {
    count(begun);
    through_gate(|gate| {
        let pending = || gate.registry.is_anything_pending();
        gate.unloading.pause_begins(gate.memory, pending, || gate.waker.wake());
    });
}

unsafe extern "C" fn garbage_collection_finish(_jvmti: *mut jvmtiEnv) {
    through_gate(|gate| gate.unloading.pause_ends(gate.memory));
    count(ended);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_does_not_wait_for_the_gate() {
        let changing = GATE.write();
        // On this thread, which would wait for itself.
        through_gate(|_| panic!("the gate is being changed"));
        drop(changing);
        assert!(GATE.read().is_none());
        through_gate(|_| panic!("the gate is closed"));
        assert!(!guard::is_disabled(), "no panic");
    }
}
