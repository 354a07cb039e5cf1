//! The key under which the VM keeps the current `Thread` in thread-specific data, for its own signal handlers.
//!
//! The VM sets the value before a thread runs Java, and clears it before it frees the object.
//! Sources: `os/posix/threadLocalStorage_posix.cpp`, `runtime/thread.cpp` (`initialize_thread_current`,
//! `clear_thread_current`), JDK 11 to 25.

/// Keys that a process may have (PTHREAD_KEYS_MAX of glibc).
const KEYS: u32 = 1024;

/// Finds the key on the thread whose `JavaThread` is at `thread`.
pub fn find(thread: u64) -> Option<libc::pthread_key_t> {
    (0..KEYS).find(|&key| {
        // SAFETY: any number may be passed; the value of a key that is not in use is null.
        let value = unsafe { libc::pthread_getspecific(key) };
        value as u64 == thread
    })
}
