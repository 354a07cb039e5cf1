//! `libtickwalk.so`: the JVMTI agent, which samples every thread by a timer on its CPU clock, or offers the stack-walk API.
//!
//! Problem: a profiler runs inside a foreign process, which it must not crash, block or slow down.
//! Approach: the entry points of the VM are here, those of Java and C programs in [`program_api`]. [`options`] are parsed,
//! [`profile`] starts and stops everything in order; [`threads`] gives each thread a timer of [`clock`], [`handler`]
//! captures; the sampler thread does everything else.
//! Invariant: after every error the JVM starts and runs (with `strict`, an error at start stops it).
//! Sources: JVMTI 1.2, "Agent Start-Up", "Agent Shutdown".
//!
//! Rooms, from the bottom up:
//! - [`guest`]: how the agent behaves in somebody else's process: messages, scheduling, memory.
//! - [`options`]: the option string, parsed.
//! - [`clock`]: timers and counters on the CPU clocks of threads.
//! - [`handler`]: what runs in a signal handler, and the memory that it touches.
//! - [`jvmti`]: the VM's function tables, checked.
//! - [`vm`]: what is read and tested of the VM itself.
//! - [`threads`]: the profiled threads.
//! - [`dumps`]: the stacks of all threads as text.
//! - [`profile`]: the life of a profile.
//! - [`program_api`]: profiles that a program starts, ends and reads by itself.
//! - [`hooks`]: for developers, and never in a library that is shipped.
//! - [`stack_api`]: the stack-walk API.
#![deny(unsafe_code)]

// Unit tests use the support of the other tests.
#[cfg(test)]
extern crate self as tickwalk;

pub mod clock;
mod dumps;
mod guest;
#[allow(unsafe_code, reason = "signal handlers and the memory that they touch")]
pub mod handler;
#[cfg(feature = "hooks")]
#[allow(unsafe_code, reason = "called by the signal handler")]
pub mod hooks;
#[allow(unsafe_code, reason = "raw function tables of the VM")]
pub mod jvmti;
pub mod options;
pub mod profile;
mod program_api;
#[allow(unsafe_code, reason = "live stacks and functions for C programs")]
pub mod stack_api;
pub mod threads;
pub mod vm;

use std::ffi::{CStr, c_char, c_void};

use jni::sys::{JNI_EEXIST, JNI_EINVAL, JNI_ERR, JNI_OK, JavaVM, jint};

use crate::dumps::print;
use crate::guest::log;
use crate::jvmti::vm::Vm;
use crate::jvmti::{guard, mark};
use crate::options::Options;
use crate::profile::events::{self, ClaimError};
use crate::profile::start::{self, Refusal};
use crate::profile::status;

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
    guard::entry_point(JNI_OK, || match options::is_for_api(&options) {
        true => load_api(vm, &options, false),
        false => load(vm, &with_environment(&options), false),
    })
}

fn with_environment(options: &str) -> String {
    options::environment::before(options, std::env::vars_os())
}

/// What a start returns while the last profile has samples to deliver; no code of JNI.
const ENDING: jint = -7;

/// Options of an attach that ends the profile.
const STOP: &str = "stop";

/// Called by the VM when the agent is attached to a running program.
///
/// Returns 0; with `strict` another value if no profile begins: `JNI_EEXIST` (-5) if one runs already, [`ENDING`] if the last one
/// has samples to deliver. With `stop` returns `JNI_EINVAL` (-6) if none runs.
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
    guard::entry_point(JNI_OK, || {
        if options == STOP {
            return stop_attached(vm);
        }
        if let Some(reply) = status::status_reply(&options) {
            // A command that does not listen any more needs no answer.
            return status::answer(reply, events::phase()).map_or(JNI_ERR, |()| JNI_OK);
        }
        if let Some(reply) = print::reply(&options) {
            return print::answer(vm, reply).map_or(JNI_ERR, |()| JNI_OK);
        }
        if options::is_for_api(&options) {
            return load_api(vm, &options, true);
        }
        // An agent that waits has read the environment when it was loaded.
        let options = match status::with_defaults(&options) {
            unchanged if unchanged == options => with_environment(&options),
            merged => merged,
        };
        let outcome = load(vm, &options, true);
        if options::waits_for_start(&options) {
            return outcome;
        }
        if outcome == JNI_OK && !events::attach_now(vm) && options::is_strict(&options) {
            return JNI_ERR;
        }
        outcome
    })
}

/// Called by the VM at the very end; VMDeath has usually stopped the session already.
///
/// # Safety
/// Called by the VM only.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "entry point")]
pub unsafe extern "system" fn Agent_OnUnload(_vm: *mut JavaVM) {
    guard::entry_point((), || events::stop("agent_unload"));
}

/// Returns the VM and the text of the options.
///
/// # Safety
/// `vm` is the pointer that the VM passes to an entry point; `options` is null or a NUL-terminated string.
#[allow(unsafe_code, reason = "entry point")]
unsafe fn arguments(vm: *mut JavaVM, options: *const c_char) -> (Vm, String) {
    mark::show_agent();
    // SAFETY: by the caller's promise.
    let vm = unsafe { Vm::new(vm) };
    if options.is_null() {
        return (vm, String::new());
    }
    // SAFETY: by the caller's promise.
    (vm, unsafe { CStr::from_ptr(options) }.to_string_lossy().into_owned())
}

/// Ends the profile in a program that runs on.
fn stop_attached(vm: Vm) -> jint {
    if events::stop_attached(vm) {
        return JNI_OK;
    }
    if !events::vm_ends() {
        log::print("no profile runs in this JVM, so there is nothing to stop");
    }
    JNI_EINVAL
}

fn load(vm: Vm, text: &str, is_attached: bool) -> jint {
    let strict = options::is_strict(text);
    let Err(refusal) = start::prepare(vm, text, is_attached) else { return JNI_OK };
    let code = match refusal {
        Refusal::Claimed(claimed) => {
            log::print(&claimed.to_string());
            match claimed {
                ClaimError::Running => JNI_EEXIST,
                ClaimError::Ending => ENDING,
                ClaimError::Disabled => JNI_ERR,
            }
        }
        refusal => {
            let consequence = match strict && !is_attached {
                true => "strict: the JVM does not start",
                false => "the program runs unprofiled",
            };
            log::print(&format!("{refusal}; {consequence}"));
            JNI_ERR
        }
    };
    if strict { code } else { JNI_OK }
}

/// Offers the stack-walk API; no profile is claimed, and one may run beside it.
fn load_api(vm: Vm, text: &str, is_attached: bool) -> jint {
    let opened = Options::parse(text).map_err(|error| error.to_string()).and_then(|options| {
        log::install(options.log);
        stack_api::start::open(vm, is_attached).map_err(|error| error.to_string())
    });
    let Err(reason) = opened else { return JNI_OK };
    let strict = options::is_strict(text);
    let consequence = match strict && !is_attached {
        true => "strict: the JVM does not start",
        false => "the stack-walk API is not available",
    };
    log::print(&format!("{reason}; {consequence}"));
    if strict { JNI_ERR } else { JNI_OK }
}
