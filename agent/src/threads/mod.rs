//! The profiled threads: one entry for each live thread, its timer, and its slot.
//!
//! Problem: Java threads announce themselves, all other threads (GC, compilers, native pools) do not, and a thread can
//! change from one to the other.
//! Approach: a [`Registry`] keyed by kernel thread id. ThreadStart and ThreadEnd events feed it on the thread itself
//! ([`JavaThreads`]); a listing of `/proc/self/task` finds the rest ([`discovery`]). Both paths are idempotent.
//! Invariant: a slot has at most one timer; a slot is freed only after the sampler retired its former owner.
//! Sources: proc(5), timer_create(2) (EAGAIN when RLIMIT_SIGPENDING is used up), JVMTI ThreadStart/ThreadEnd.

mod discovery;
mod java_threads;
mod periods;
mod registry;
mod rotation;
mod sampled_process;
mod silent;
mod table;
mod timers;

pub use java_threads::JavaThreads;
pub use registry::Registry;
pub use sampled_process::SampledProcess;
pub use table::JavaThread;

/// Gives the processor to a thread that waits for it, once in 32 calls of a loop over all threads: each call takes some 20 us,
/// and a thread that starts meanwhile should not wait for a whole slice of the scheduler, which takes milliseconds.
fn yield_now_and_then(index: usize) {
    if index % 32 == 31 {
        std::thread::yield_now();
    }
}
