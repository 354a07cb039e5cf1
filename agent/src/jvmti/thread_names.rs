//! Names of Java threads, known before a dump is made.
//!
//! Problem: a thread of the agent that the VM does not know writes dumps, maybe while the VM hangs or dies, and the
//! kernel has only the first 15 bytes of a name.
//! Approach: a JVMTI environment of its own reports threads that start and end.
//! Invariant: the lock is held for the change of one entry, never while the VM is called.
//! Sources: JVMTI 1.2, ThreadStart, ThreadEnd.

use std::collections::BTreeMap;
use std::time::Duration;

use jni::sys::jobject;
use jvmti_sys::{jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::Mutex;

use super::jni_calls::{Jni, MOST_REFERENCES};
use super::vm::Vm;
use super::{JvmtiError, ThreadRef, guard};

/// Longest wait for the lock; the thread that holds it may be the one that dies.
const PATIENCE: Duration = Duration::from_millis(100);

/// Names by the addresses of `JavaThread`s.
static NAMES: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

/// Keeps the names of all threads from now on. To be called once a process, on a thread of the VM.
///
/// # Errors
/// As of a new environment and its events.
pub fn follow(vm: Vm) -> Result<(), JvmtiError> {
    let jvmti = vm.separate_jvmti()?;
    let callbacks = jvmtiEventCallbacks {
        ThreadStart: Some(thread_start),
        ThreadEnd: Some(thread_end),
        ..jvmtiEventCallbacks::default()
    };
    jvmti.set_callbacks(&callbacks)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_THREAD_START)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_THREAD_END)?;
    let running = of_running(vm);
    NAMES.lock().extend(running);
    Ok(())
}

/// Returns the names that threads had when they started, by the addresses of their `JavaThread`s, without the VM.
pub fn known() -> Vec<(u64, String)> {
    let names = NAMES.try_lock_for(PATIENCE);
    names
        .map_or_else(Vec::new, |names| names.iter().map(|(address, name)| (*address, name.clone())).collect())
}

/// Returns the names of all threads by the addresses of their `JavaThread`s; nothing on a thread that the VM does
/// not know.
pub fn of_running(vm: Vm) -> Vec<(u64, String)> {
    let (Ok(jni), Ok(jvmti)) = (vm.jni(), vm.jvmti()) else { return Vec::new() };
    jni.in_frame(MOST_REFERENCES, || {
        let name = |thread| Some((jni.java_thread(thread)?, jni.thread_name(thread)?));
        jvmti.all_threads().into_iter().filter_map(name).collect()
    })
}

unsafe extern "C" fn thread_start<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: the VM passes a reference to the calling thread.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let (Some(address), Some(name)) = (jni.java_thread(thread), jni.thread_name(thread)) {
            NAMES.lock().insert(address, name);
        }
    });
}

unsafe extern "C" fn thread_end<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: the VM passes a reference to the calling thread.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let Some(address) = jni.java_thread(thread) {
            NAMES.lock().remove(&address);
        }
    });
}
