//! The JVMTI events, and the state of the agent that they change.
//!
//! Approach: every callback runs inside [`guard`], which no panic crosses.
//! Invariant: callbacks lock [`STATE`] before any other lock, and never call into the VM while they hold it for writing.
//! Sources: JVMTI 1.2, events VMInit, ThreadStart, ThreadEnd, VMDeath.

use std::thread::JoinHandle;

use jni::sys::jobject;
use jvmti_sys::{jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::{Mutex, RwLock};

use super::jni_calls::Jni;
use super::vm::Vm;
use super::{JvmtiError, ThreadRef, guard, pauses};
use crate::log;
use crate::session::{PreparedSession, Session};

/// The events of a running session, beside pauses.
const EVENTS: [jvmtiEvent; 3] = [
    jvmtiEvent::JVMTI_EVENT_VM_DEATH,
    jvmtiEvent::JVMTI_EVENT_THREAD_START,
    jvmtiEvent::JVMTI_EVENT_THREAD_END,
];

/// The state of the agent.
enum State {
    Idle,
    Prepared(Box<PreparedSession>),
    Running(Box<Session>),
}

static STATE: RwLock<State> = RwLock::new(State::Idle);
static CLAIM: Mutex<Claim> = Mutex::new(Claim::Free);

/// Which profile, if any, owns this process.
enum Claim {
    Free,
    /// A profile is prepared or runs.
    Active,
    /// A profile has ended, but its sampler thread still sends samples and reads memory that the next one would reuse.
    Ending(JoinHandle<()>),
}

/// Why a profile cannot begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Another profile runs.
    #[error("this JVM is being profiled already; that profile continues, attach with 'stop' to end it")]
    Running,
    /// The last profile has samples to deliver.
    #[error("the last profile of this JVM still has samples to deliver; try again in some seconds")]
    Ending,
    /// An internal error has switched the agent off.
    #[error("an internal error has switched the agent off in this JVM; restart the JVM to profile it")]
    Disabled,
}

/// Claims this process for one profile.
///
/// # Errors
/// [`ClaimError`].
pub fn claim() -> Result<(), ClaimError> {
    if guard::is_disabled() {
        return Err(ClaimError::Disabled);
    }
    let mut claim = CLAIM.lock();
    match &*claim {
        Claim::Active => return Err(ClaimError::Running),
        Claim::Ending(thread) if !thread.is_finished() => return Err(ClaimError::Ending),
        Claim::Free | Claim::Ending(_) => *claim = Claim::Active,
    }
    Ok(())
}

/// Gives the claim back after a start that failed.
pub fn unclaim() {
    *CLAIM.lock() = Claim::Free;
}

/// Registers the callbacks and keeps `prepared` until the VM is initialised.
///
/// # Errors
/// As SetEventCallbacks and SetEventNotificationMode.
pub fn arm(mut prepared: PreparedSession) -> Result<(), JvmtiError> {
    let jvmti = prepared.jvmti;
    let mut callbacks = jvmtiEventCallbacks {
        VMInit: Some(vm_init),
        VMDeath: Some(vm_death),
        ThreadStart: Some(thread_start),
        ThreadEnd: Some(thread_end),
        ..jvmtiEventCallbacks::default()
    };
    prepared.has_pause_events = pauses::prepare(&jvmti, &mut callbacks);
    #[cfg(feature = "hooks")]
    if let Some(observer) = crate::hooks::observer() {
        (observer.on_prepare)(&jvmti, &mut callbacks)?;
    }
    jvmti.set_callbacks(&callbacks)?;
    *STATE.write() = State::Prepared(Box::new(prepared));
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_INIT)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_DEATH)
}

/// Starts profiling in a VM that is initialised; `thread` is the calling thread, if it is known.
pub fn start(jni: Jni, thread: Option<ThreadRef>) {
    let State::Prepared(prepared) = std::mem::replace(&mut *STATE.write(), State::Idle) else {
        return;
    };
    let jvmti = prepared.jvmti;
    match Session::start(*prepared, jni, thread) {
        Ok(session) => {
            *STATE.write() = State::Running(Box::new(session));
            let enabled = jvmti
                .enable(jvmtiEvent::JVMTI_EVENT_THREAD_START)
                .and_then(|()| jvmti.enable(jvmtiEvent::JVMTI_EVENT_THREAD_END));
            if let Err(error) = enabled {
                log::print(&format!(
                    "thread events are not reported ({error}): the first samples of new Java threads will be missing"
                ));
            }
            // Threads that started between the listing and the events.
            if let State::Running(session) = &*STATE.read() {
                session.java_threads().register_existing(jni);
            }
        }
        Err(error) => {
            unclaim();
            log::print(&format!("{error}; the program runs unprofiled"));
        }
    }
}

/// Ends a running session in a VM that ends; a second call does nothing.
pub fn stop(reason: &'static str) {
    let state = std::mem::replace(&mut *STATE.write(), State::Idle);
    if let State::Running(session) = state {
        session.stop(reason);
    }
}

/// Ends a running session in a VM that runs on, and disables its events; returns whether there was one.
pub fn stop_attached() -> bool {
    let state = std::mem::replace(&mut *STATE.write(), State::Idle);
    let State::Running(session) = state else { return false };
    let jvmti = session.jvmti;
    *CLAIM.lock() = session.stop("stopped").map_or(Claim::Free, Claim::Ending);
    for event in EVENTS.into_iter().chain(pauses::EVENTS) {
        if let Err(error) = jvmti.disable(event) {
            tracing::info!("an event stays enabled without effect: {error}");
        }
    }
    true
}

/// Starts profiling from Agent_OnAttach, on a thread of the VM; returns whether a profile runs now.
pub fn attach_now(vm: Vm) -> bool {
    match vm.jni() {
        Ok(jni) => start(jni, None),
        Err(error) => log::print(&format!("{error}; the program runs unprofiled")),
    }
    matches!(&*STATE.read(), State::Running(_))
}

// The bindings use the JNI environment of an older jni-sys; here it is a pointer that `Jni` wraps, so the callbacks are
// generic in its type.

unsafe extern "C" fn vm_init<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: and a reference to it.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| start(jni, Some(thread)));
}

unsafe extern "C" fn vm_death<Env>(_jvmti: *mut jvmtiEnv, _env: *mut Env) {
    guard::callback(|| stop("vm_death"));
}

unsafe extern "C" fn thread_start<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: and a reference to it.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let State::Running(session) = &*STATE.read() {
            session.java_threads().started(jni, thread);
        }
    });
}

unsafe extern "C" fn thread_end<Env>(_jvmti: *mut jvmtiEnv, _env: *mut Env, _thread: jobject) {
    guard::callback(|| {
        if let State::Running(session) = &*STATE.read() {
            session.thread_ended();
        }
    });
}
