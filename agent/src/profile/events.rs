//! The JVMTI events, and the state of the agent that they change.
//!
//! Approach: every callback runs inside [`guard`], which no panic crosses.
//! Invariant: callbacks lock [`STATE`] before any other lock, and never call into the VM while they hold it for writing.
//! Sources: JVMTI 1.2, events VMInit, ThreadStart, ThreadEnd, VMDeath.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use jni::sys::jobject;
use jvmti_sys::{jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::{Mutex, RwLock};
use sampler_thread::{End, Stopped};

use super::pauses;
use crate::guest::log;
use crate::handler::{install, slots};
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::mark::{self, Mark};
use crate::jvmti::vm::Vm;
use crate::jvmti::{JvmtiError, ThreadRef, guard, routines};
use crate::profile::error::StartError;
use crate::profile::session::{PreparedSession, Session};
use crate::profile::status::Phase;

/// The events of a running session, beside pauses and generated code.
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
/// True once the VM has reported its end to a profile.
static VM_ENDS: AtomicBool = AtomicBool::new(false);
static ON_END: OnceLock<fn()> = OnceLock::new();
/// Begins the next profile when the time of the present one is over, if profiles repeat.
static REPEAT: Mutex<Option<fn()>> = Mutex::new(None);

/// Which profile, if any, owns this process.
enum Claim {
    Free,
    /// A profile is prepared or runs; other processes see that by the mark.
    Active {
        _mark: Option<Mark>,
    },
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
    guard::set_on_panic(abandon);
    mark::show_agent();
    if guard::is_disabled() {
        return Err(ClaimError::Disabled);
    }
    let mut claim = CLAIM.lock();
    match &*claim {
        Claim::Active { .. } => return Err(ClaimError::Running),
        Claim::Ending(thread) if !thread.is_finished() => return Err(ClaimError::Ending),
        Claim::Free | Claim::Ending(_) => *claim = Claim::Active { _mark: Mark::of_profile() },
    }
    Ok(())
}

/// Returns what the agent does.
pub fn phase() -> Phase {
    if guard::is_disabled() {
        return Phase::Off;
    }
    match &*CLAIM.lock() {
        Claim::Ending(thread) if !thread.is_finished() => return Phase::Ending,
        Claim::Free | Claim::Ending(_) => return Phase::Idle,
        Claim::Active { .. } => {}
    }
    match &*STATE.read() {
        State::Running(_) => Phase::Running,
        State::Idle | State::Prepared(_) => Phase::Starting,
    }
}

/// Gives the claim back after a start that failed.
pub fn unclaim() {
    *CLAIM.lock() = Claim::Free;
}

/// Registers the callbacks and keeps `prepared` for a start: by the VM once it is initialised, or by whoever has
/// attached.
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
    routines::prepare(&mut callbacks);
    prepared.has_pause_events = pauses::prepare(&jvmti, &mut callbacks);
    #[cfg(feature = "hooks")]
    if let Some(observer) = crate::hooks::observer() {
        (observer.on_prepare)(&jvmti, &mut callbacks)?;
    }
    jvmti.set_callbacks(&callbacks)?;
    let is_attached = prepared.is_attached;
    *STATE.write() = State::Prepared(Box::new(prepared));
    if !is_attached {
        jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_INIT)?;
    }
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_DEATH)
}

/// Longest wait for samples that are to be sent at once.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// Local references that a start may make, two for each thread and some more: the most that the VM lets a frame have by
/// default, which takes no memory (`MaxJNILocalCapacity` in `runtime/globals.hpp`, JDK 11 to 25).
const REFERENCES_AT_START: usize = 65_536;

/// Starts profiling in a VM that is initialised; `thread` is the calling thread, if it is known.
///
/// # Errors
/// [`StartError`]; another profile can begin then.
fn start(jni: Jni, thread: Option<ThreadRef>) -> Result<(), StartError> {
    jni.in_frame(REFERENCES_AT_START, || start_in_frame(jni, thread))
}

fn start_in_frame(jni: Jni, thread: Option<ThreadRef>) -> Result<(), StartError> {
    let Some(prepared) = take_prepared() else { return Ok(()) };
    let jvmti = prepared.jvmti;
    match Session::start(*prepared, jni, thread, sampler_ended) {
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
            let mut has_ended = false;
            if let State::Running(session) = &*STATE.read() {
                session.java_threads().register_existing(jni);
                has_ended = session.has_ended();
            }
            if has_ended {
                end("stopped");
            }
            Ok(())
        }
        Err(error) => {
            remove_handler();
            unclaim();
            Err(error)
        }
    }
}

/// Takes a running session out of the state, whose handlers sample nothing from then on.
///
/// A Java thread that ends after this does not report it, and its handlers must not read its `JavaThread` any more. No
/// callback runs while the state is locked for writing, so each thread has either reported its end or is silent.
fn take_session() -> Option<Box<Session>> {
    let mut state = STATE.write();
    if let State::Running(session) = &*state {
        session.silence();
    }
    match std::mem::replace(&mut *state, State::Idle) {
        State::Running(session) => Some(session),
        other => {
            *state = other;
            None
        }
    }
}

/// Takes a profile out of the state that has not begun; one that runs stays.
fn take_prepared() -> Option<Box<PreparedSession>> {
    let mut state = STATE.write();
    match std::mem::replace(&mut *state, State::Idle) {
        State::Prepared(prepared) => Some(prepared),
        other => {
            *state = other;
            None
        }
    }
}

/// Sets the function that runs whenever a profile has ended and its recording is complete; only the first call counts.
pub fn set_on_end(ended: fn()) {
    // A second call sets the same function.
    let _ = ON_END.set(ended);
}

/// Sets the function that begins the next profile when the time of the one that begins now is over.
pub fn set_repeating(next: Option<fn()>) {
    *REPEAT.lock() = next;
}

/// Ends a running session in a VM that ends; a second call does nothing.
pub fn stop(reason: &'static str) {
    set_repeating(None);
    if let Some(session) = take_session() {
        // The process ends soon, and nobody waits until the sampler thread has given its memory back.
        let _: Stopped = session.stop(reason);
        ON_END.get().inspect(|ended| ended());
    }
}

/// Ends a running session in a VM that runs on, and disables its events; returns whether there was one.
pub fn stop_attached(vm: Vm) -> bool {
    if let Ok(jni) = vm.jni() {
        refresh_names(jni);
    }
    // Between two profiles, ending their sequence ends a profile.
    let has_next = REPEAT.lock().take().is_some();
    end("stopped") || has_next
}

fn end(reason: &'static str) -> bool {
    let Some(session) = take_session() else { return false };
    let jvmti = session.jvmti;
    let unfinished = session.stop(reason).join();
    remove_handler();
    ON_END.get().inspect(|ended| ended());
    *CLAIM.lock() = unfinished.map_or(Claim::Free, Claim::Ending);
    // Without effect, and refused, on a thread that the VM does not know; events of an ended profile change nothing.
    for event in EVENTS.into_iter().chain(pauses::EVENTS).chain([routines::EVENT]) {
        if let Err(error) = jvmti.disable(event) {
            tracing::info!("an event stays enabled without effect: {error}");
        }
    }
    true
}

/// Removes the handler of the last profile, whose timers are deleted.
fn remove_handler() {
    let Some(shared) = slots::shared() else { return };
    if let Err(error) = install::uninstall(shared) {
        tracing::info!("the handler stays installed without effect: {error}");
    }
}

/// Ends the profile after a panic in a callback, on a thread of its own: a thread of the VM must not wait.
fn abandon() {
    if let Some(shared) = slots::shared() {
        shared.silence();
    }
    let body = || _ = end(End::Panic.reason());
    // Without a thread the timers go on, and their handlers count lost samples.
    let _thread = std::thread::Builder::new().name("tickwalk-stop".to_owned()).spawn(body);
}

/// Ends a session whose sampler thread ends by itself, on that thread.
fn sampler_ended(how: End) {
    match how {
        End::Asked(_) => return,
        End::Duration => {
            end(how.reason());
            let next = REPEAT.lock().take();
            next.inspect(|next| next());
            return;
        }
        // The destination was named when it was dropped.
        End::NoDestination => {}
        End::HandlerReplaced => {
            let signal = slots::shared().map_or(0, |shared| shared.signal);
            log::print(&format!(
                "profiling stops because the program has installed its own handler for signal {signal}, which the timers \
                 use; choose another one with signal="
            ));
        }
        End::DescriptorsClosed => log::print(
            "profiling stops because the program has closed descriptors that are not its own; leave clock=perf out, or close \
             only those that the program has opened",
        ),
        End::Panic => _ = guard::switch_off(),
    }
    end(how.reason());
}

/// Starts the prepared profile on a thread of a VM that runs.
///
/// # Errors
/// The reason, in one line.
pub fn start_now(vm: Vm) -> Result<(), String> {
    let jni = vm.jni().map_err(|error| {
        *STATE.write() = State::Idle;
        unclaim();
        error.to_string()
    })?;
    let thread = vm.jvmti().ok().and_then(|jvmti| jvmti.current_thread());
    start(jni, thread).map_err(|error| error.to_string())?;
    match &*STATE.read() {
        State::Running(_) => Ok(()),
        State::Idle | State::Prepared(_) => Err("the profile has ended at once".to_owned()),
    }
}

/// Starts profiling from Agent_OnAttach; prints why it does not, and returns whether a profile runs now.
pub fn attach_now(vm: Vm) -> bool {
    let outcome = start_now(vm);
    if let Err(reason) = &outcome
        && !vm_ends()
    {
        log::print(&format!("{reason}; the program runs unprofiled"));
    }
    outcome.is_ok()
}

/// Returns whether the VM has reported its end, which is no failure of a profile that begins or ends beside it.
pub fn vm_ends() -> bool {
    VM_ENDS.load(Ordering::Relaxed)
}

/// Has every sample of the running profile sent to its destinations; returns whether that is done within a second.
pub fn flush() -> bool {
    match &*STATE.read() {
        State::Running(session) => session.flush(FLUSH_PATIENCE),
        State::Idle | State::Prepared(_) => false,
    }
}

/// Judges a thread again that the program has chosen, or not any more, if a profile runs.
pub fn judge_again(tid: i32) {
    if let State::Running(session) = &*STATE.read() {
        session.judge_again(tid);
    }
}

/// Returns the kernel id of a Java thread that is alive, while a profile runs.
pub fn tid_of(jni: Jni, thread: ThreadRef) -> Option<i32> {
    match &*STATE.read() {
        State::Running(session) => session.java_threads().tid_of(jni, thread),
        State::Idle | State::Prepared(_) => None,
    }
}

// The bindings use the JNI environment of an older jni-sys; here it is a pointer that `Jni` wraps, so the callbacks are
// generic in its type.

unsafe extern "C" fn vm_init<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: and a reference to it.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let Err(error) = start(jni, Some(thread)) {
            log::print(&format!("{error}; the program runs unprofiled"));
        }
    });
}

unsafe extern "C" fn vm_death<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    guard::callback(|| {
        VM_ENDS.store(true, Ordering::Relaxed);
        refresh_names(jni);
        stop("vm_death");
    });
}

/// Reads the last names of the threads of a running session.
fn refresh_names(jni: Jni) {
    if let State::Running(session) = &*STATE.read() {
        session.java_threads().refresh(jni);
    }
}

unsafe extern "C" fn thread_start<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: and a reference to it.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let State::Running(session) = &*STATE.read() {
            #[cfg(feature = "hooks")]
            session.panic_if_told();
            session.java_threads().started(jni, thread);
            session.java_threads().refresh_if_due(jni);
        }
    });
}

unsafe extern "C" fn thread_end<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: and a reference to it.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let State::Running(session) = &*STATE.read() {
            session.thread_ended(jni, thread);
        }
    });
}
