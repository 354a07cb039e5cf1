//! Begins and ends the session of a profile, for every event and request that leads there.
//!
//! Invariant: after every end another profile can begin.

use jvmti_sys::jvmtiEvent;
use sampler_thread::End;

use super::refusal::Refusal;
use super::session::Session;
use super::{pauses, results, state};
use crate::guest::log;
use crate::handler::{install, slots};
use crate::jvmti::jni_calls::{Jni, MOST_REFERENCES};
use crate::jvmti::vm::Vm;
use crate::jvmti::{ThreadRef, guard, routines};

/// The events that are enabled while a session runs, beside those of pauses and generated code.
const THREAD_EVENTS: [jvmtiEvent; 2] =
    [jvmtiEvent::JVMTI_EVENT_THREAD_START, jvmtiEvent::JVMTI_EVENT_THREAD_END];

/// Starts the prepared profile in a VM that is initialised; `thread` is the calling thread, if it is known.
///
/// # Errors
/// [`Refusal`]; another profile can begin then.
pub(super) fn begin(jni: Jni, thread: Option<ThreadRef>) -> Result<(), Refusal> {
    jni.in_frame(MOST_REFERENCES, || begin_in_frame(jni, thread))
}

fn begin_in_frame(jni: Jni, thread: Option<ThreadRef>) -> Result<(), Refusal> {
    let Some(prepared) = state::take_prepared() else { return Ok(()) };
    let jvmti = prepared.host.jvmti;
    let session = Session::start(*prepared, jni, thread, sampler_ended).inspect_err(|_| {
        remove_handler();
        state::free(None);
    })?;
    state::keep_running(session);
    if let Err(error) = THREAD_EVENTS.into_iter().try_for_each(|event| jvmti.enable(event)) {
        log::print(&format!(
            "thread events are not reported ({error}): the first samples of new Java threads will be missing"
        ));
    }
    let has_ended = state::with_session(|session| {
        // Threads that started between the listing and the events.
        session.java_threads().register_existing(jni);
        session.has_ended()
    });
    if has_ended == Some(true) {
        end("stopped");
    }
    Ok(())
}

/// Starts the prepared profile on a thread of a VM that runs.
///
/// # Errors
/// [`Refusal`]; another profile can begin then.
pub(super) fn begin_now(vm: Vm) -> Result<(), Refusal> {
    let jni = vm.jni().map_err(|error| {
        state::free(None);
        Refusal::Thread(error)
    })?;
    let thread = vm.jvmti().ok().and_then(|jvmti| jvmti.current_thread());
    begin(jni, thread)?;
    state::with_session(|_| ()).ok_or(Refusal::EndedAtOnce)
}

/// Ends the profile in a VM that runs on, and writes the result that its start asked for.
///
/// # Errors
/// [`Refusal::NotActive`] if no profile runs; [`Refusal::File`] if the result cannot be written, the profile has
/// ended then.
pub fn stop(vm: Vm) -> Result<(), Refusal> {
    if let Ok(jni) = vm.jni() {
        refresh_names(jni);
    }
    results::written_by(|| {
        // Between two profiles of `loop=`, the end of their sequence is that of a profile.
        let has_next = state::record().next.take().is_some();
        if end("stopped") || has_next { Ok(()) } else { Err(Refusal::NotActive) }
    })
}

/// Ends the profile in a VM that ends; a second call does nothing.
pub fn stop_at_exit(reason: &'static str) {
    state::record().next = None;
    if let Some(session) = state::take_running() {
        let stopped = session.stop(reason);
        // The process ends soon: only writing a result has a use for the memory of the sampler thread.
        if state::record().results.at_end.is_some() {
            stopped.join();
        }
        results::write_at_end();
    }
}

/// Ends the session that runs, and disables its events; returns whether there was one.
fn end(reason: &'static str) -> bool {
    let Some(session) = state::take_running() else { return false };
    let jvmti = session.jvmti;
    let unfinished = session.stop(reason).join();
    remove_handler();
    results::write_at_end();
    state::free(unfinished);
    // The VM refuses this on a thread that it does not know; the events of an ended profile have no effect.
    let events = THREAD_EVENTS.into_iter().chain([jvmtiEvent::JVMTI_EVENT_VM_DEATH, routines::EVENT]);
    for event in events.chain(pauses::EVENTS) {
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
pub(super) fn end_after_panic() {
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
        End::Stopped(_) => return,
        End::Duration => {
            end(how.reason());
            let next = state::record().next.take();
            if let Some(begin_next) = next {
                begin_next();
            }
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

/// Reads the names of the threads of a running session again.
pub(super) fn refresh_names(jni: Jni) {
    state::with_session(|session| session.java_threads().refresh(jni));
}
