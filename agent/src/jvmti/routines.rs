//! The event of generated code: names of the routines that the VM generates.
//!
//! Approach: the callback adds each routine to the table of the running session; GenerateEvents has the VM report those
//! that exist, on the calling thread and before it returns.
//! Sources: JVMTI 1.2, DynamicCodeGenerated and GenerateEvents; JDK 25 `jvmtiCodeBlobEvents.cpp`.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jni::sys::jint;
use jvmti_sys::{jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::RwLock;
use sampler_thread::walk::routines::Routines;

use super::{Jvmti, guard};

/// The event of a running session.
pub const EVENT: jvmtiEvent = jvmtiEvent::JVMTI_EVENT_DYNAMIC_CODE_GENERATED;

static ROUTINES: RwLock<Option<Arc<Routines>>> = RwLock::new(None);
/// True while the VM reports the routines that exist.
static LISTS: AtomicBool = AtomicBool::new(false);

pub fn prepare(callbacks: &mut jvmtiEventCallbacks) {
    callbacks.DynamicCodeGenerated = Some(dynamic_code_generated);
}

/// Fills `routines`, and adds those that the VM generates from now on. Without the event, stubs have the names of
/// their blobs.
pub fn open(jvmti: &Jvmti, routines: Arc<Routines>) {
    *ROUTINES.write() = Some(routines);
    // Relaxed: the VM reports existing routines on this thread; one that another thread generates meanwhile may be
    // taken for one of these.
    LISTS.store(true, Ordering::Relaxed);
    let listed = jvmti.enable(EVENT).and_then(|()| jvmti.generate_events(EVENT));
    LISTS.store(false, Ordering::Relaxed);
    if let Err(error) = listed {
        tracing::info!("generated code has the names of its blobs: {error}");
    }
}

/// Ends the additions.
pub fn close() {
    *ROUTINES.write() = None;
}

unsafe extern "C" fn dynamic_code_generated(
    _jvmti: *mut jvmtiEnv,
    name: *const c_char,
    address: *const c_void,
    length: jint,
) {
    guard::callback(|| {
        let routines = ROUTINES.read();
        let (Some(routines), false) = (&*routines, name.is_null()) else { return };
        // SAFETY: the VM passes a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let (start, length) = (address as u64, u64::try_from(length).unwrap_or(0));
        match LISTS.load(Ordering::Relaxed) {
            true => routines.add_listed(start, length, &name),
            false => routines.add(start, length, &name),
        }
    });
}
