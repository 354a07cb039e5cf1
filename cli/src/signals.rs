//! Signals as events that are waited for.
//!
//! The signals are blocked and read from a file descriptor, so no handler runs anywhere, and nothing here is
//! unsafe. They must be blocked before other threads start, since threads inherit what is blocked, and a program
//! started meanwhile must be given its own mask back.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// A set of blocked signals.
pub struct Signals {
    before: SigSet,
    descriptor: SignalFd,
}

/// One signal that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Which one.
    pub signal: Signal,
    /// Whether a key of the terminal caused it, so that the whole foreground process group has got it.
    pub from_terminal: bool,
}

impl Signals {
    /// Blocks `signals` in this thread and in those it will start.
    pub fn block(signals: &[Signal]) -> anyhow::Result<Self> {
        let set: SigSet = signals.iter().copied().collect();
        let before = SigSet::thread_get_mask().context("blocked signals cannot be read")?;
        set.thread_block().context("signals cannot be blocked")?;
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).context("signals cannot be waited for")?;
        Ok(Signals { before, descriptor })
    }

    /// The signals that were blocked before, the mask that a program started by this one should have.
    pub fn blocked_before(&self) -> &SigSet {
        &self.before
    }

    /// Readable when a signal has arrived.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Waits for the next signal.
    pub fn next(&self) -> anyhow::Result<Received> {
        loop {
            match self.descriptor.read_signal() {
                Ok(Some(info)) => {
                    let number = i32::try_from(info.ssi_signo).context("signal number")?;
                    return Ok(Received {
                        signal: Signal::try_from(number).context("signal number")?,
                        from_terminal: info.ssi_code == libc::SI_KERNEL,
                    });
                }
                Ok(None) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("signals cannot be waited for"),
            }
        }
    }
}
