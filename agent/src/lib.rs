//! `libtickwalk.so`: the JVMTI agent, which samples every thread by a timer on its CPU clock, or offers the
//! stack-walk API.
//!
//! Problem: a profiler runs inside a foreign process, which it must not crash, block or slow down.
//! Approach: the entry points of the VM are here, those of Java and C programs in [`program_api`]. [`options`] are
//! parsed,
//! [`profile`] starts and stops everything in order; [`threads`] gives each thread a timer of [`clock`], [`handler`]
//! captures; the sampler thread does everything else.
//! Invariant: after every error the JVM starts and runs (with `strict`, an error at start stops it).
//! Sources: JVMTI 1.2, "Agent Start-Up", "Agent Shutdown".
//!
//! Rooms, from the bottom up:
//! - [`guest`]: messages, scheduling and memory in a process that belongs to another program.
//! - [`jvmti`]: the VM's function tables, checked.
//! - [`hooks`]: for developers, without effect in a library that is shipped.
//! - [`clock`]: timers and counters on the CPU clocks of threads.
//! - [`handler`]: what runs in a signal handler, and the memory that it touches.
//! - [`vm`]: what is read and tested of the VM itself.
//! - [`threads`]: the profiled threads.
//! - [`dumps`]: the stacks of all threads as text.
//! - [`profile`]: the life of a profile.
//! - [`program_api`]: profiles that a program starts, ends and reads by itself.
//! - [`stack_api`]: the stack-walk API.
#![deny(unsafe_code)]

// Unit tests use the support of the other tests.
#[cfg(test)]
extern crate self as tickwalk;

pub mod clock;
mod dumps;
pub mod guest;
#[allow(unsafe_code, reason = "signal handlers and the memory that they touch")]
pub mod handler;
#[allow(unsafe_code, reason = "called by the signal handler")]
pub mod hooks;
#[allow(unsafe_code, reason = "raw function tables of the VM")]
pub mod jvmti;
mod profile;
mod program_api;
#[allow(unsafe_code, reason = "live stacks and functions for C programs")]
pub mod stack_api;
pub mod threads;
pub mod vm;

pub use agent_options as options;

use std::ffi::{CStr, c_char, c_void};

use jni::sys::{JNI_EEXIST, JNI_ERR, JNI_OK, JavaVM, jint};

use crate::guest::log;
use crate::jvmti::vm::Vm;
use crate::jvmti::{guard, mark};
use crate::profile::{Refusal, run, start, state};
use crate::program_api::{attached, execute, messages};
use agent_options::{BadRequest, Door, Mode, Options, Request};

/// Called by the VM before anything else runs, for `-agentpath` and `-agentlib`.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "entry point")]
pub unsafe extern "system" fn Agent_OnLoad(
    vm: *mut JavaVM,
    options: *const c_char,
    _reserved: *mut c_void,
) -> jint {
    // SAFETY: the VM passes its own pointer and a NUL-terminated string or null.
    let (vm, options) = unsafe { arguments(vm, options) };
    guard::entry_point(JNI_OK, || match start::request(Door::Load, &options) {
        Ok(request) if request.starts() => start(vm, &request, false),
        Ok(request) => attached::answer(vm, &request),
        Err(bad) => refused(&bad, false),
    })
}

/// Return code of a start while the last profile has samples to deliver; no code of JNI.
const ENDING: jint = -7;

/// Called by the VM when the agent is attached to a running program.
///
/// Returns 0; for a start with `strict` another value if no profile begins: `JNI_EEXIST` (-5) if one runs already,
/// [`ENDING`] if the last one has samples to deliver. A request that is no start returns another value if it fails,
/// `JNI_EINVAL` (-6) for `stop` if no profile runs.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "entry point")]
pub unsafe extern "system" fn Agent_OnAttach(
    vm: *mut JavaVM,
    options: *const c_char,
    _reserved: *mut c_void,
) -> jint {
    // SAFETY: the VM passes its own pointer and a NUL-terminated string or null.
    let (vm, options) = unsafe { arguments(vm, options) };
    guard::entry_point(JNI_OK, || match start::request(Door::Attach, &options) {
        Ok(request) if request.starts() => start(vm, &request, true),
        Ok(request) => attached::answer(vm, &request),
        Err(bad) => refused(&bad, true),
    })
}

/// Called by the VM at the very end; VMDeath has usually ended the profile already.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "entry point")]
pub unsafe extern "system" fn Agent_OnUnload(_vm: *mut JavaVM) {
    guard::entry_point((), || run::stop_at_exit("agent_unload"));
}

/// Returns the VM and the text of the options.
///
/// # Safety
/// `vm` is the pointer that the VM passes to an entry point; `options` is null or a NUL-terminated string.
#[allow(unsafe_code, reason = "entry point")]
unsafe fn arguments(vm: *mut JavaVM, options: *const c_char) -> (Vm, String) {
    mark::show_agent();
    // SAFETY: the VM passes its own pointer.
    let vm = unsafe { Vm::new(vm) };
    if options.is_null() {
        return (vm, String::new());
    }
    // SAFETY: not null, so a NUL-terminated string.
    (vm, unsafe { CStr::from_ptr(options) }.to_string_lossy().into_owned())
}

/// Starts a profile or the wait for a start, or offers the stack-walk API.
fn start(vm: Vm, request: &Request, is_attached: bool) -> jint {
    messages::warn(request);
    let Options { mode, strict, starts, .. } = request.options;
    let started = match mode {
        Mode::Api => open_api(vm, request, is_attached),
        _ if is_attached && starts => {
            start::now(vm, request).map(|()| attached::confirm(request, execute::STARTED))
        }
        _ => start::prepare(vm, request, is_attached),
    };
    let Err(refusal) = started else { return JNI_OK };
    let (code, message) = match refusal {
        Refusal::Running if request.messages.is_some() => (JNI_EEXIST, refusal.for_programs()),
        Refusal::Running => (JNI_EEXIST, refusal.to_string()),
        Refusal::Delivering => (ENDING, refusal.to_string()),
        Refusal::Off | Refusal::Resume => (JNI_ERR, refusal.to_string()),
        _ => (JNI_ERR, format!("{refusal}; {}", consequence(mode, strict, is_attached))),
    };
    if !state::vm_ends() {
        messages::tell(request.messages.as_deref(), &message);
    }
    if strict || request.messages.is_some() { code } else { JNI_OK }
}

/// Offers the stack-walk API; no profile is claimed, and one may run beside it.
fn open_api(vm: Vm, request: &Request, is_attached: bool) -> Result<(), Refusal> {
    log::install(request.options.log);
    stack_api::start::open(vm, is_attached)
}

/// Reports a text that is no request.
fn refused(bad: &BadRequest, is_attached: bool) -> jint {
    let consequence = consequence(bad.mode, bad.is_strict, is_attached);
    messages::tell(bad.messages.as_deref(), &format!("{bad}; {consequence}"));
    match bad.messages {
        Some(_) => attached::WRONG_ARGUMENTS,
        None if bad.is_strict => JNI_ERR,
        None => JNI_OK,
    }
}

fn consequence(mode: Mode, is_strict: bool, is_attached: bool) -> &'static str {
    match mode {
        _ if is_strict && !is_attached => "strict: the JVM does not start",
        Mode::Api => "the stack-walk API is not available",
        _ => "the program runs unprofiled",
    }
}
