//! The thread that turns requests into samples.
//!
//! Problem: a signal handler can only record raw data; walking, naming, accounting and sending need a thread that may
//! allocate, fault and block and that no safepoint stops.
//! Approach: a native thread that the VM does not know. The rooms follow a sample: [`drain`] takes requests from the
//! lock-free queues (`queue`), [`walk`] turns copied stacks into frames (`stackwalk`), [`name`] turns frames into ids,
//! [`account`] adds up CPU time, [`send`] streams messages (`proto`) to files and collectors. `worker/samples.rs` ties
//! the first four together.
//! Invariant: this crate uses neither JNI nor JVMTI and contains no `unsafe`; the process is reached through the roles
//! in [`process`].
//!
//! Rooms, from the bottom up:
//! - [`clock`]: the kernel's CPU clocks and its clock of time stamps.
//! - [`descriptor`]: files and sockets whose numbers the program may close and reuse.
//! - [`pacing`]: rests during long work.
//! - [`period`]: the period of the timers.
//! - [`process`]: the roles of the sampled process.
//! - [`native`]: symbols, unwind tables and variables of the process's libraries.
//! - [`proof`]: proof that names and code are still those of a sample.
//! - [`walk`]: from copied stacks to frames.
//! - [`drain`]: from queues to lists of requests.
//! - [`name`]: from frames to ids.
//! - [`account`]: CPU time by thread.
//! - [`send`]: messages to files and collectors.
//! - [`hooks`]: an observer for developers, of which a shipped library has none.
//! - [`settings`]: settings of a session.
//! - `worker`: the sampler thread.
#![forbid(unsafe_code)]

pub mod account;
pub mod clock;
pub mod descriptor;
pub mod drain;
pub mod hooks;
pub mod name;
pub mod native;
pub mod pacing;
pub mod period;
pub mod process;
pub mod proof;
pub mod send;
pub mod settings;
pub mod walk;
mod worker;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use stackwalk::Memory;

pub use proto::characters;
pub use proto::v1::Mode as WireMode;
pub use proto::version::{MAGIC, WIRE_VERSION};
pub use worker::SessionFacts;
pub use worker::inbox::Waker;

use crate::drain::intake::Intake;
use crate::process::Process;
use crate::send::sink::Destinations;
use crate::settings::Settings;
use crate::walk::vm::Vm;
use crate::worker::Worker;
use crate::worker::inbox::{Inbox, Owner};

/// Name of the thread, as `ps -T` and `/proc` show it.
pub const THREAD_NAME: &str = "tickwalk-sampler";

/// Why the sampler thread ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its owner ends the profile, for this reason.
    Stopped(&'static str),
    /// Every destination has failed.
    NoDestination,
    /// The program has replaced the handler of the timers' signal.
    HandlerReplaced,
    /// The program has closed descriptors that the profile cannot do without.
    DescriptorsClosed,
    /// The time that the options give it is over.
    Duration,
    /// An internal error.
    Panic,
}

impl End {
    /// Returns the reason in the last message of a recording.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Stopped(reason) => reason,
            Self::NoDestination => "no_destination",
            Self::HandlerReplaced => "handler_replaced",
            Self::DescriptorsClosed => "descriptors_closed",
            Self::Duration => "duration",
            Self::Panic => "internal_error",
        }
    }
}

/// A running sampler thread.
pub struct Sampler {
    owner: Owner,
    thread: JoinHandle<()>,
    /// Empties the queue of a slot.
    last_drain: Box<dyn Fn(u32) + Send + Sync>,
}

impl Sampler {
    /// Starts the sampler thread and the second thread; `started` runs first on each, with its kernel thread id.
    ///
    /// If the sampler thread ends before its owner stops it, it deletes every timer, counts as ended and calls `ended`.
    ///
    /// # Errors
    /// As [`std::thread::Builder::spawn`].
    pub fn start<P, M>(
        process: P,
        settings: Settings<M>,
        vm: Vm<M>,
        session: SessionFacts,
        destinations: Destinations,
        started: impl Fn(i32) + Clone + Send + 'static,
        ended: impl FnOnce(End) + Send + 'static,
    ) -> io::Result<Self>
    where
        P: Process,
        M: Memory + Send + 'static,
    {
        let inbox = Inbox::default();
        let sender = inbox.sender();
        // The new thread inherits the mask, so no signal of the host can ever land on it.
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
        let process = Arc::new(process);
        let (unloading, is_exact) = (Arc::clone(&settings.unloading), settings.pace.is_exact());
        let intake = Arc::new(Intake::new(Arc::clone(&process), unloading, settings.queue_sizes, is_exact));
        let shared = Arc::clone(&intake);
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            started(nix::unistd::gettid().as_raw());
            let (timers, second) = (Arc::clone(&process), Arc::clone(&intake));
            // The worker handles a panic itself, unless it cannot even begin or end.
            let mut worker = None;
            let sample = || {
                intake.start(started);
                worker.insert(Worker::new(process, intake, settings, vm, session, destinations)).run(&inbox)
            };
            let end = catch_unwind(AssertUnwindSafe(sample)).unwrap_or(End::Panic);
            second.close();
            if matches!(end, End::Stopped(_)) {
                // All is sent: a process that ends does not wait for the rest.
                drop(inbox);
                drop(worker);
                second.join();
                return;
            }
            drop(worker);
            second.join();
            timers.stop(None);
            // `ended` may stop this thread, which must not wait for itself.
            drop(inbox);
            ended(end);
        });
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        let thread = thread?;
        let last_drain = Box::new(move |slot| shared.last_drain(slot));
        Ok(Self { owner: sender.owner(thread.thread()), thread, last_drain })
    }

    /// Empties queue `slot`, unless another thread is emptying queues or too many requests wait.
    ///
    /// For a thread that ends, after its last request; never waits.
    pub fn drain_ended(&self, slot: u32) {
        (self.last_drain)(slot);
    }

    /// Has every sample taken so far sent to the destinations, with the accounts; waits at most for `patience`, and
    /// returns whether that is done.
    pub fn flush(&self, patience: Duration) -> bool {
        self.owner.flush(patience)
    }

    /// Returns whether the thread has ended, or is about to without any further message.
    pub fn has_ended(&self) -> bool {
        self.owner.has_ended()
    }

    /// Returns a handle that wakes the thread from any other, without waiting.
    pub fn waker(&self) -> Waker {
        self.owner.waker()
    }

    /// Drains everything, sends the last messages and waits at most `patience` for that; the caller must have stopped
    /// all producers before.
    pub fn stop(self, reason: &'static str, patience: Duration) -> Stopped {
        Stopped { has_sent: self.owner.stop(reason, patience), thread: self.thread }
    }
}

/// A sampler thread that is to end.
#[derive(Debug)]
#[must_use]
pub struct Stopped {
    has_sent: bool,
    thread: JoinHandle<()>,
}

impl Stopped {
    /// Returns whether every sample was sent in time.
    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Waits until the thread has given back its memory. Not needed at the end of the process, which is faster at that.
    ///
    /// Returns the thread at once if it still sends.
    pub fn join(self) -> Option<JoinHandle<()>> {
        if !self.has_sent {
            return Some(self.thread);
        }
        // The thread does nothing more, unless it is the caller itself.
        if self.thread.thread().id() != std::thread::current().id() {
            let _ = self.thread.join();
        }
        None
    }
}
