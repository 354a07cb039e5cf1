//! Signals as events that are waited for.
//!
//! The signals are blocked and read from a file descriptor, so no handler runs anywhere, and nothing here is
//! unsafe. They must be blocked before other threads start, since threads inherit what is blocked.

use std::io;

use anyhow::Context;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// A set of blocked signals.
pub struct Signals {
    set: SigSet,
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
        set.thread_block().context("signals cannot be blocked")?;
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).context("signals cannot be waited for")?;
        Ok(Signals { set, descriptor })
    }

    /// Runs `start` with the signals let through, so that a process started by it does not inherit the block.
    ///
    /// A signal that arrives meanwhile has its default effect on this process.
    pub fn let_through<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        self.set.thread_unblock()?;
        let result = start();
        self.set.thread_block()?;
        Ok(result)
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
