//! A socket pair that wakes the sending thread while it waits for its connection.
//!
//! Approach: the sending thread holds the pair's reading end, the window the writing end. If the program has closed
//! either, the sending thread makes a new pair.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::descriptor::{Lost, OwnedDescriptor};

/// The writing end.
#[derive(Debug)]
pub(super) struct Waker(OwnedDescriptor<UnixStream>);

/// The reading end.
#[derive(Debug)]
pub(super) struct WakeUps(OwnedDescriptor<UnixStream>);

/// Makes a pair.
///
/// # Errors
/// As socketpair(2), if the process has no descriptor left.
pub(super) fn pair() -> io::Result<(Waker, WakeUps)> {
    let (waker, wake_ups) = UnixStream::pair()?;
    waker.set_nonblocking(true)?;
    wake_ups.set_nonblocking(true)?;
    Ok((Waker(OwnedDescriptor::new(waker)?), WakeUps(OwnedDescriptor::new(wake_ups)?)))
}

impl Waker {
    /// Wakes the sending thread.
    pub(super) fn wake(&self) {
        // An error of the write means that earlier bytes are unread, or that the sending thread has ended. If the
        // pair is lost, the sending thread finds that out itself.
        let _ = self.0.get().map(|mut socket| socket.write(&[0]));
    }

    /// Returns whether the program has left it alone.
    pub(super) fn is_intact(&self) -> bool {
        self.0.get().is_ok()
    }
}

impl WakeUps {
    /// Takes all that have arrived.
    ///
    /// # Errors
    /// [`Lost`] if the program has closed one of the ends.
    pub(super) fn take(&self) -> Result<(), Lost> {
        let mut bytes = [0; 256];
        loop {
            match self.0.get()?.read(&mut bytes) {
                Ok(0) => return Err(Lost),
                Ok(length) if length == bytes.len() => {}
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }

    /// Returns whether the program has left it alone.
    pub(super) fn is_intact(&self) -> bool {
        self.0.get().is_ok()
    }
}

impl AsFd for WakeUps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
