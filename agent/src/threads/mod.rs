//! The profiled threads: one entry for each live thread, its timer, and its slot.
//!
//! Problem: Java threads announce themselves, all other threads (GC, compilers, native pools) do not, and a thread can
//! change from one to the other.
//! Approach: a [`Registry`] keyed by kernel thread id. ThreadStart and ThreadEnd events feed it on the thread itself
//! ([`JavaThreads`]); a listing of `/proc/self/task` finds the rest ([`discovery`]). Both paths are idempotent.
//! Invariant: a slot has at most one timer; a slot is freed only after the sampler retired its former owner.
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
