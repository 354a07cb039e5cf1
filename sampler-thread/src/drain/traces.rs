//! Stack traces from the VM, for `mode=jvmti`.
//!
//! Problem: GetStackTrace needs a thread of the VM, which the sampler thread is not.
//! Approach: a thread of the agent leaves the traces here, each with its CPU time; the sampler thread names and counts
//! them like samples.
//! Invariant: a trace lies here before its thread is listed as ended.
//! Decision: `design/account.md`.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Most traces that wait; with some 50 frames each they take 8 MB. The sampler thread takes them every few
/// milliseconds.
const MOST_WAITING: usize = 10_000;

/// The stack trace of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub slot: u32,
    /// Id of the thread on the wire.
    pub thread: u32,
    /// Time stamp before the request.
    pub ticks: u64,
    /// CPU time that it stands for, in nanoseconds.
    pub cpu_ns: u64,
    /// Address of the method (0 if it is unloaded) and bytecode index (negative in native methods) of each frame,
    /// newest first.
    pub frames: Vec<(u64, i32)>,
    /// True if the oldest frames are missing, because the stack exceeds the requested depth.
    pub is_cut: bool,
}

/// The traces that the sampler thread has not taken.
#[derive(Debug, Default)]
pub struct Traces {
    waiting: Mutex<Vec<Trace>>,
    /// CPU time of the thread that requests them, in nanoseconds.
    cpu_ns: AtomicU64,
}

impl Traces {
    pub fn push(&self, trace: Trace) {
        self.waiting.lock().push(trace);
    }

    /// Returns whether no more traces should be added before the sampler thread has taken those that wait.
    pub fn is_full(&self) -> bool {
        self.waiting.lock().len() >= MOST_WAITING
    }

    /// Takes all traces, the oldest first.
    pub fn take(&self) -> Vec<Trace> {
        std::mem::take(&mut self.waiting.lock())
    }

    /// Sets the CPU time of the thread that requests traces, in nanoseconds.
    pub fn set_cpu_ns(&self, ns: u64) {
        // Relaxed: nothing else depends on it.
        self.cpu_ns.store(ns, Ordering::Relaxed);
    }

    /// Returns the CPU time of the thread that requests traces, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}
