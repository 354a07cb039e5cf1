//! `libtickwalk_agct.so`: the agent with AsyncGetCallTrace beside its own capture; for measurements, never for users.
//!
//! Problem: a claim about cost and correctness of the capture needs the VM's own walk on the same samples.
//! Approach: this library links the agent with its developers' hooks and registers an observer when it is loaded.
//! [`call_trace`] calls AsyncGetCallTrace after each capture, [`differences`] compares the two walks of a sample,
//! [`quiet`] compares our walk with GetStackTrace where a class is prepared, and [`judge`] decides which of two lists
//! is right. [`record`] keeps samples on which both agree as fixtures.
//! At the end of the profile a few lines report costs and differences; `java-tests/measure/differential.py` reads them.
//! Sources: HotSpot `prims/forte.cpp` (JDK 11 to 25): CLASS_LOAD events must be on and jmethodIDs made beforehand.
#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "AsyncGetCallTrace runs in the signal handler and fills memory shared with the sampler"
)]
mod call_trace;
#[allow(unsafe_code, reason = "raw function table of the VM")]
mod class_files;
mod differences;
mod judge;
#[allow(unsafe_code, reason = "raw function table of the VM")]
mod jvmti_events;
#[allow(unsafe_code, reason = "the fields of the calling thread's JavaThread")]
mod quiet;
#[allow(unsafe_code, reason = "looks up symbols of libjvm")]
mod record;

use std::sync::Arc;

use jvmti_sys::jvmtiEventCallbacks;
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{Frame, Stop};
use tickwalk::hooks::{self, HandlerRun, ObservedVm, Observer};
use tickwalk::jvmti::{Jvmti, JvmtiError};

/// Runs [`register`] when the library is loaded.
#[used]
#[allow(unsafe_code, reason = "a constructor is named by its section")]
// SAFETY: the section holds pointers to functions without parameters.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = register;

extern "C" fn register() {
    hooks::register(&Comparison);
}

/// Compares the walks of each sample.
struct Comparison;

#[allow(unsafe_code, reason = "called by the signal handler")]
impl Observer for Comparison {
    fn prepare(&self, jvmti: &Jvmti, callbacks: &mut jvmtiEventCallbacks) -> Result<(), JvmtiError> {
        jvmti_events::prepare(jvmti, callbacks)
    }

    fn started(&self, vm: &ObservedVm) {
        differences::start(Arc::clone(&vm.hotspot), vm.memory);
        quiet::start(Arc::clone(&vm.hotspot), vm.memory);
        jvmti_events::start(&vm.jvmti, vm.env_offset);
        call_trace::start(vm.env_offset);
        record::start(vm.memory);
    }

    unsafe fn captured(&self, run: &HandlerRun) {
        // SAFETY: called by the handler, which promises the same.
        unsafe { call_trace::captured(run) };
    }

    fn walked(&self, slot: u32, ticks: u64, snapshot: &Snapshot<'_>, frames: &[Frame], stop: Stop) {
        call_trace::walked(slot, ticks, snapshot, frames, stop);
    }

    /// Reports costs, differences and verdicts.
    fn stopping(&self, jvmti: &Jvmti) {
        call_trace::report();
        differences::report(jvmti);
        quiet::report();
        record::store();
    }
}

/// Writes one line to standard error, in the agent's form.
fn print(line: &str) {
    eprintln!("tickwalk: {line}");
}
