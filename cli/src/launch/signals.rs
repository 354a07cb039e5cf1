//! Waits for signals by a file descriptor.
//!
//! The signals are blocked and read from a signalfd, so there is no signal handler and no unsafe code. They must be
//! blocked before other threads start, because threads inherit the mask, and a program that is started meanwhile needs
//! the mask from before.

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
    pub signal: Signal,
    /// True if a key of the terminal caused it; the terminal then signals the whole foreground process group.
    pub from_terminal: bool,
}

/// Turns writes beyond the limit of file sizes (`ulimit -f`) into errors; their signal would end this program. Call it
/// before other threads start.
pub fn survive_file_limit() {
    // With the signal unblocked, this program ends at the limit, as most do.
    let _ = [Signal::SIGXFSZ].into_iter().collect::<SigSet>().thread_block();
}

impl Signals {
    /// Blocks `signals` in the calling thread and in the threads it starts later.
    pub fn block(signals: &[Signal]) -> anyhow::Result<Self> {
        let set: SigSet = signals.iter().copied().collect();
        let mut before = SigSet::thread_get_mask().context("cannot read the signal mask")?;
        // Blocked only for this program itself.
        before.remove(Signal::SIGXFSZ);
        set.thread_block().context("cannot block signals")?;
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).context("cannot wait for signals")?;
        Ok(Signals { before, descriptor })
    }

    /// Returns the signal mask from before [`block`](Self::block), the mask for programs that this one starts.
    pub fn blocked_before(&self) -> &SigSet {
        &self.before
    }

    /// Readable when a signal has arrived.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

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
                Err(error) => return Err(error).context("cannot wait for signals"),
            }
        }
    }
}
