//! The profiled threads: for each live thread an entry, a timer and a slot.
//!
//! Problem: Java threads announce themselves, others (GC, compilers, native pools) do not, and a thread can change from
//! one to the other.
//! Approach: a [`Registry`] by kernel thread id. ThreadStart and ThreadEnd events feed it on the thread itself
//! ([`JavaThreads`]); listings of `/proc/self/task` find the rest ([`discovery`]). Both are idempotent.
//! Invariant: a slot has at most one timer, and is freed only after the sampler has retired its former owner.
//! Sources: proc(5), timer_create(2) (EAGAIN when RLIMIT_SIGPENDING is used up), JVMTI ThreadStart/ThreadEnd.

mod choice;
mod compilers;
mod discovery;
mod events;
mod java_threads;
pub mod kernel;
mod native_names;
mod periods;
mod registry;
mod remainder;
mod rotation;
mod sampled_process;
mod silent;
mod source;
mod table;
mod timers;
pub mod trace_thread;
pub mod traced;

pub use discovery::ThreadFiles;
pub use java_threads::JavaThreads;
pub use registry::Registry;
pub use sampled_process::SampledProcess;
pub use table::JavaThread;
