//! A profile while it runs, and the order of its start and its end.
//!
//! Problem: a handler may run on any thread from the moment a timer exists, and one that was preempted may go on
//! after the end.
//! Approach: [`PreparedSession`] holds what Agent_OnLoad can make (options, VM tables, destinations);
//! [`Session::start`] makes the rest at VMInit in the order layout, handler, threads, sampler, events;
//! [`Session::stop`] takes it down in the opposite order: timers, handlers in flight, sampler. Memory that handlers
//! touch is never freed.
//! Invariant: after every error the JVM runs on without a profile.

mod prepared;
mod start;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sampler_thread::send::delivery::Reach;
use sampler_thread::{Sampler, Stopped};

use super::pauses;
use crate::handler::slots::Shared;
use crate::hooks;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::{Jvmti, ThreadRef, routines};
use crate::threads::trace_thread::TraceThread;
use crate::threads::{JavaThreads, Registry};
use agent_options::debug::Hooks;

pub use prepared::{PreparedSession, prepare_waiting};

/// Longest wait for the last samples to be delivered when the JVM ends.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for handlers that run when profiling stops; one takes microseconds.
const HANDLER_PATIENCE: Duration = Duration::from_millis(100);

/// A running profile.
pub struct Session {
    pub jvmti: Jvmti,
    registry: Arc<Registry>,
    java_threads: JavaThreads,
    shared: &'static Shared,
    sampler: Sampler,
    /// The connection to the collector, if there is one.
    reach: Option<Reach>,
    /// The thread of `mode=jvmti`.
    asking: Option<TraceThread>,
    hooks: Hooks,
}

impl Session {
    /// Checks again whether a thread is sampled, which the program has chosen, or not any more.
    pub fn judge_again(&self, tid: i32) {
        self.registry.judge_again(tid);
    }

    pub fn java_threads(&self) -> &JavaThreads {
        &self.java_threads
    }

    /// Registers the calling Java thread.
    pub fn thread_started(&self, jni: Jni, thread: ThreadRef) {
        hooks::panic_in_callback(self.hooks);
        self.java_threads.started(jni, thread);
        self.java_threads.refresh_if_due(jni);
    }

    /// Unregisters the calling Java thread, and empties its queue if no other thread drains one now.
    pub fn thread_ended(&self, jni: Jni, thread: ThreadRef) {
        if let Some(slot) = self.java_threads.ended(jni, thread) {
            self.sampler.drain_ended(slot);
        }
    }

    /// Ends sampling: later expirations count as lost.
    pub fn silence(&self) {
        self.shared.silence();
    }

    /// Sends every sample taken so far; waits at most for `patience`, and returns whether that is done.
    pub fn flush(&self, patience: Duration) -> bool {
        self.sampler.flush(patience)
    }

    /// Returns the state of the connection to the collector, if there is one.
    pub fn collector(&self) -> Option<String> {
        self.reach.as_ref().map(Reach::described)
    }

    /// Returns whether the sampler thread has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.sampler.has_ended()
    }

    /// Ends a session whose handlers are silent: stops timers first, then waits for handlers in flight, then for the
    /// sampler, which drains and sends everything.
    pub fn stop(self, reason: &'static str) -> Stopped {
        hooks::delay_stop(self.hooks);
        pauses::close();
        routines::close();
        self.asking.inspect(TraceThread::stop);
        self.registry.stop();
        // The handlers' flags are plain stores, visible within nanoseconds. A handler that has only just begun may be
        // overlooked: its request then stays in its queue, and its time counts as unfinished.
        let deadline = Instant::now() + HANDLER_PATIENCE;
        let mut is_running = self.registry.is_any_handler_running();
        while is_running && Instant::now() < deadline {
            std::thread::yield_now();
            is_running = self.registry.is_any_handler_running();
        }
        self.shared.is_at_rest.store(!is_running, Ordering::Release);
        if let Some(observer) = hooks::observer() {
            observer.stopping(&self.jvmti);
        }
        let stopped = self.sampler.stop(reason, STOP_PATIENCE);
        if !stopped.has_sent() {
            tracing::warn!("the last samples were not delivered within {STOP_PATIENCE:?}");
        }
        stopped
    }
}
