//! The JVMTI events of a profile.
//!
//! Invariant: every callback runs inside [`guard`], which no panic crosses.
//! Sources: JVMTI 1.2, events VMInit, ThreadStart, ThreadEnd, VMDeath.

use jni::sys::jobject;
use jvmti_sys::{jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};

use super::session::PreparedSession;
use super::{pauses, run, state};
use crate::guest::log;
use crate::hooks;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::{JvmtiError, ThreadRef, guard, routines};

/// Registers the callbacks and keeps `prepared` for its start, which the VM's initialisation triggers unless the VM
/// runs.
///
/// # Errors
/// As SetEventCallbacks and SetEventNotificationMode.
pub(super) fn arm(mut prepared: PreparedSession) -> Result<(), JvmtiError> {
    let jvmti = prepared.host.jvmti;
    let mut callbacks = jvmtiEventCallbacks {
        VMInit: Some(vm_init),
        VMDeath: Some(vm_death),
        ThreadStart: Some(thread_start),
        ThreadEnd: Some(thread_end),
        ..jvmtiEventCallbacks::default()
    };
    routines::prepare(&mut callbacks);
    prepared.has_pause_events = pauses::prepare(&jvmti, &mut callbacks);
    if let Some(observer) = hooks::observer() {
        observer.prepare(&jvmti, &mut callbacks)?;
    }
    jvmti.set_callbacks(&callbacks)?;
    let is_attached = prepared.is_attached;
    state::keep_prepared(prepared);
    if !is_attached {
        jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_INIT)?;
    }
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_DEATH)
}

// The bindings use the JNI environment of an older jni-sys; here it is a pointer that `Jni` wraps, so the callbacks are
// generic in its type.

unsafe extern "C" fn vm_init<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: the VM passes a reference to the calling thread.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let Err(refusal) = run::begin(jni, Some(thread)) {
            log::print(&format!("{refusal}; the program runs unprofiled"));
        }
    });
}

unsafe extern "C" fn vm_death<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    guard::callback(|| {
        state::set_vm_ends();
        run::refresh_names(jni);
        run::stop_at_exit("vm_death");
    });
}

unsafe extern "C" fn thread_start<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: the VM passes a reference to the calling thread.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| _ = state::with_session(|session| session.thread_started(jni, thread)));
}

unsafe extern "C" fn thread_end<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: the VM passes a reference to the calling thread.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| _ = state::with_session(|session| session.thread_ended(jni, thread)));
}
