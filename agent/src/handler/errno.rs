//! The calling thread's errno, which interrupted code must find unchanged.

/// Restores errno when dropped. Signal safe.
pub struct KeptErrno(i32);

impl KeptErrno {
    /// Keeps the present value.
    #[allow(clippy::new_without_default, reason = "it reads the thread's state")]
    pub fn new() -> Self {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the calling thread's errno is always readable.
        Self(unsafe { errno.read() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the calling thread's errno is always writable.
        unsafe { errno.write(self.0) };
    }
}
