//! Reads which method the running compiler thread compiles.
//!
//! Problem: the VM reuses the description of a compilation (`CompileTask`) soon after its end, mostly before the sample
//! is walked.
//! Approach: the handler reads the method from the running thread, which cannot end the compilation meanwhile. The
//! registry finds the `CompilerThread` in the VM's list of threads.
//! - The VM keeps the current thread in thread-specific data, and clears that before it frees the `CompilerThread`.
//! - The environment of the compilation (`ciEnv`) is a local variable of the thread. It is published before it gets its
//!   task, so the task counts only if it is also that of the thread (`_task`, two words behind `_env`, in no table).
//!   The thread has its task before there is an environment, and drops it before the task is freed.
//!
//! Invariant: plain loads are made only from memory that the running thread keeps alive. The result proves nothing
//! until the method's names are read and proven.
//! Sources: `os/posix/threadLocalStorage_posix.cpp`, `compiler/compilerThread.hpp` (in 11 `runtime/thread.hpp`),
//! `ci/ciEnv.cpp`, `compiler/compileBroker.cpp` (`CompileTaskWrapper`, `invoke_compiler_on_method`), JDK 11 to 25.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use stackwalk::CompilerOffsets;

use super::ucontext::load;

/// From `CompilerThread::_env` to `CompilerThread::_task`.
pub const ENV_TO_TASK: u32 = 16;

/// How the handler finds the method that a thread compiles.
#[derive(Debug, Clone, Copy)]
pub struct Compilers {
    /// Key of the VM's current thread.
    pub key: libc::pthread_key_t,
    /// From the thread to the method.
    pub offsets: CompilerOffsets,
}

impl Compilers {
    /// Returns the address of the `Method` that the running thread compiles; 0 for none. `thread` is the address of its
    /// `CompilerThread`, 0 if it is not known to be one; `frames` are the used bytes of its stack.
    ///
    /// # Safety
    /// Key and offsets are those of the VM; `frames` is readable.
    pub unsafe fn method(&self, thread: &AtomicU64, frames: Range<u64>) -> u64 {
        let Self { key, offsets } = *self;
        let thread = thread.load(Ordering::Relaxed);
        // SAFETY: any number may be passed; reads an array of the thread, without a lock.
        if thread == 0 || unsafe { libc::pthread_getspecific(key) } as u64 != thread {
            return 0;
        }
        // SAFETY: a field of the running thread's own description, which exists while the value of the key is set.
        let env: u64 = unsafe { load(thread, offsets.env) };
        let field = env.wrapping_add(u64::from(offsets.task));
        if !frames.contains(&env) || !frames.contains(&field) || field & 7 != 0 {
            return 0;
        }
        // SAFETY: an aligned word of the thread's own stack.
        let task: u64 = unsafe { load(env, offsets.task) };
        // SAFETY: as for the environment.
        let own_task: u64 = unsafe { load(thread, offsets.env.wrapping_add(ENV_TO_TASK)) };
        if task == 0 || task != own_task {
            return 0;
        }
        // SAFETY: the task of the running thread is alive until the thread drops it.
        unsafe { load(task, offsets.method) }
    }
}
