//! The running thread: its `JavaThread`, and the bounds of its stack.
//!
//! Problem: a handler runs on any thread, and the VM has no public look-up of the current thread.
//! Approach: the VM keeps the current `Thread` in thread-specific data for its own signal handlers ([`thread_key`]).
//! Other threads than a `JavaThread` (GC threads) have no JNI environment: for each C++ class, one checked read of the
//! environment's place decides, and the class is kept by its table of functions.
//! Invariant: plain loads are made only from the running thread's `JavaThread` and C library description.
//! pthread_getspecific reads an array of the thread; glibc and musl neither allocate nor lock in it.

use core::sync::atomic::{AtomicU64, Ordering};

use stackwalk::{LiveMemory, Memory, ThreadOffsets};

use crate::handler::own_stack::{self, BlockOffset};
use crate::handler::ucontext::load;
use crate::jvmti::thread_key;

/// Remembered C++ classes of Java threads; JDK 25 has eight.
const CLASSES: usize = 16;

/// Finds the running thread.
pub struct Threads {
    key: libc::pthread_key_t,
    /// From a `JavaThread` to its JNI environment, and the first word of every environment.
    environment: (u64, u64),
    /// Tables of functions of the classes of Java threads. Relaxed: no other data is published with them.
    classes: [AtomicU64; CLASSES],
    block: Option<BlockOffset>,
}

impl Threads {
    /// Prepares the look-up on the Java thread at `thread`, whose JNI environment is at `environment`.
    pub fn find(
        memory: &LiveMemory,
        thread: u64,
        environment: u64,
        block: Option<BlockOffset>,
    ) -> Option<Self> {
        let key = thread_key::find(thread)?;
        let functions = memory.read_u64(environment).ok()?;
        let classes = [const { AtomicU64::new(0) }; CLASSES];
        let environment = (environment.checked_sub(thread)?, functions);
        Some(Self { key, environment, classes, block })
    }
}

/// # Signal Safe Methods
impl Threads {
    /// Returns where the `JavaThread` of the JNI environment at `environment` would be; the caller checks that it
    /// exists.
    pub fn of_environment(&self, environment: u64) -> u64 {
        environment.wrapping_sub(self.environment.0)
    }

    /// Returns the `JavaThread` of the running thread; 0 if the VM does not know it or runs no Java on it.
    pub fn current(&self, memory: &LiveMemory) -> u64 {
        // SAFETY: a key of this process.
        let thread = unsafe { libc::pthread_getspecific(self.key) } as u64;
        if thread == 0 {
            return 0;
        }
        // SAFETY: the VM clears the value before it frees the object, on this thread.
        let class: u64 = unsafe { load(thread, 0) };
        if self.classes.iter().any(|known| known.load(Ordering::Relaxed) == class) {
            return thread;
        }
        let (distance, functions) = self.environment;
        if memory.read_u64(thread.wrapping_add(distance)) != Ok(functions) {
            return 0;
        }
        // If no place is free, each look-up costs a checked read.
        let _ = self
            .classes
            .iter()
            .find(|known| known.compare_exchange(0, class, Ordering::Relaxed, Ordering::Relaxed).is_ok());
        thread
    }

    /// Returns the lowest and one past the highest address of the running thread's stack; zeros if they are unknown or
    /// `sp` is not between them.
    ///
    /// # Safety
    /// `thread` is what [`Threads::current`] returned on this thread.
    pub unsafe fn bounds(&self, thread: u64, offsets: &ThreadOffsets, sp: u64) -> (u64, u64) {
        let (low, high) = if thread == 0 {
            own_stack::bounds(0, 0, sp, self.block)
        } else {
            // SAFETY: a field of the running thread's JavaThread.
            let base: u64 = unsafe { load(thread, offsets.stack_base) };
            // SAFETY: a field of the running thread's JavaThread.
            let size: u64 = unsafe { load(thread, offsets.stack_size) };
            (base.saturating_sub(size), base)
        };
        if (low..high).contains(&sp) { (low, high) } else { (0, 0) }
    }
}
