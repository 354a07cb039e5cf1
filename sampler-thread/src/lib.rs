//! The thread that turns requests into samples.
//!
//! Problem: a signal handler can only leave raw material; walking, naming, accounting and sending need a place where
//! allocation, faults and blocking are allowed and where no safepoint stops the work.
//! Approach: a native thread that the VM does not know, fed through lock-free queues (`queue`), which walks copied stacks
//! (`stackwalk`) and streams messages (`proto`) to files and collectors ([`sink`]). A second thread keeps the queues
//! empty while the first is busy (`intake`).
//! Invariant: this crate knows neither JNI nor JVMTI and contains no `unsafe`; what belongs to the process comes
//! through [`host::Host`].
#![forbid(unsafe_code)]

pub mod account;
pub mod drain;
pub mod host;
pub mod name;
pub mod period;
pub mod probe;
pub mod send;
pub mod validity;
pub mod walk;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use stackwalk::{HotSpot, Memory};

pub use proto::version::{MAGIC, WIRE_VERSION};
pub use worker::SessionFacts;

use crate::drain::intake::{Intake, LastDrain};
use crate::host::Host;
use crate::send::sink::Destinations;
use crate::worker::{Command, Worker};

/// Name of the thread, as `ps -T` and `/proc` show it.
pub const THREAD_NAME: &str = "tickwalk-sampler";

/// A running sampler thread.
#[derive(Debug)]
pub struct Sampler {
    commands: Sender<Command>,
    thread: JoinHandle<()>,
    intake: Arc<dyn LastDrain>,
}

/// Makes the sampler thread drain at once.
#[derive(Debug, Clone)]
pub struct Waker(Sender<Command>);

impl Waker {
    /// Asks for a drain; a thread that has ended needs none.
    pub fn wake(&self) {
        let _ = self.0.send(Command::Drain);
    }
}

impl Sampler {
    /// Starts the thread and the one that steps in for it; `started` runs on each first, with its kernel thread id.
    ///
    /// # Errors
    /// As [`std::thread::Builder::spawn`].
    pub fn start<H, M>(
        host: H,
        hotspot: Arc<HotSpot>,
        memory: M,
        session: SessionFacts,
        destinations: Destinations,
        started: impl Fn(i32) + Clone + Send + 'static,
    ) -> io::Result<Self>
    where
        H: Host,
        M: Memory + Send + 'static,
    {
        let (commands, inbox) = channel();
        // The new thread inherits the mask, so no signal of the host can ever land on it.
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
        let intake = Arc::new(Intake::new(Arc::new(host)));
        let shared = Arc::clone(&intake);
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            started(nix::unistd::gettid().as_raw());
            Worker::new(intake, hotspot, memory, session, destinations, started).run(&inbox);
        });
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        Ok(Self { commands, thread: thread?, intake: shared })
    }

    /// Empties queue `slot`, unless others are emptying queues or enough requests wait; they will come to it.
    ///
    /// For a thread that ends, after its last request; never waits.
    pub fn leave(&self, slot: u32) {
        self.intake.last_drain(slot);
    }

    /// Wakes the thread from wherever it is called, without waiting.
    pub fn waker(&self) -> Waker {
        Waker(self.commands.clone())
    }

    /// Drains everything, sends the last messages and waits at most `patience` for the thread to be done.
    ///
    /// Returns the thread if it was not done in time; the caller must have stopped all producers before.
    pub fn stop(self, reason: &'static str, patience: Duration) -> Option<JoinHandle<()>> {
        let (done, finished) = channel();
        let is_done = match self.commands.send(Command::Stop { reason, done }) {
            Ok(()) => finished.recv_timeout(patience).is_ok(),
            Err(_) => self.thread.is_finished(),
        };
        (!is_done).then_some(self.thread)
    }
}
