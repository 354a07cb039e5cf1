//! The calling thread's errno, as the interrupted code expects it after a handler.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

/// Restores errno when it is dropped. Signal safe.
pub struct KeptErrno(i32);

impl KeptErrno {
    /// Keeps the present value.
    pub fn new() -> Self {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the C library's errno of the calling thread is always readable.
        Self(unsafe { errno.read() })
    }
}

impl Default for KeptErrno {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: and always writable.
        unsafe { errno.write(self.0) };
    }
}
