//! A profile of a running JVM, whose samples this process receives.

use std::io::{Stdin, stdin};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use collector::ingest::{Destination, Limits, Server, SessionReport};
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::profiling::Sampling;
use crate::jvm::agent;
use crate::jvm::attach::Jvm;
use crate::jvm::errors::AttachError;
use crate::jvm::workplace::Workplace;
use crate::launch::AgentOptions;
use crate::launch::agent_library;
use crate::launch::signals::Signals;
use crate::output::{self, tell};

/// Option that ends the agent's profile.
const STOP: &str = "stop";

/// A running profile. Fields are dropped in this order, so the server stops before its directory is removed.
pub struct Attachment {
    jvm: Jvm,
    /// Path of the agent, for the JVM.
    library: String,
    signals: Signals,
    process: OwnedFd,
    /// The end of this input ends the profile.
    input: Option<Stdin>,
    server: Server,
    _workplace: Workplace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    Program,
    /// Another command has ended the profile.
    Profile,
    /// A signal arrived, or the input ended.
    Signal,
    Time,
}

impl Attachment {
    /// Starts a profile of JVM `pid`, with a recording at `output`. Call it before other threads start.
    pub fn begin(pid: i32, sampling: &Sampling, output: PathBuf) -> anyhow::Result<Self> {
        // With this option the agent returns an error code if it cannot start, besides a line on the JVM's standard
        // error.
        let more = sampling.checked(["strict".to_owned()])?;
        let library = agent_library::find(sampling.agent.as_deref())?;
        output::check_writable(&output)?;
        // Threads inherit the mask, so the signals are blocked before the first one starts.
        let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
        let jvm = Jvm::find(pid)?;
        let process = Pid::from_raw(pid).context("the process id must be positive")?;
        let process = pidfd_open(process, PidfdFlags::empty()).context("cannot watch the process")?;
        let workplace = Workplace::for_socket(jvm.process(), jvm.owner());
        let workplace = workplace.map_err(|error| AttachError::NoDirectory(pid, error))?;
        let (listener, socket) = workplace.listen("collector").context("cannot make a socket for the JVM")?;
        let server = Server::start_bound(listener, &socket, Destination::File(output), Limits::default())
            .context("cannot receive samples")?;
        let options = AgentOptions { library, socket, more: &more };
        let library = agent::start(&jvm, &options.library, &options.text()?)?;
        Ok(Self { jvm, library, signals, process, input: None, server, _workplace: workplace })
    }

    /// Lets the end of standard input end the profile, as a signal does.
    pub fn end_with_input(&mut self) {
        self.input = Some(stdin());
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Waits for the end of the program, of the profile or of the input, a signal, or `deadline`.
    pub fn wait(&self, deadline: Option<Instant>) -> anyhow::Result<WaitEnd> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).try_into());
        let left = left.transpose().context("the duration is too long")?;
        let (signal, session_ended) = (self.signals.descriptor(), self.server.session_ended());
        // Without an input, the descriptor of the signals takes its place.
        let input = self.input.as_ref().map_or(signal, AsFd::as_fd);
        let mut events = [
            PollFd::new(&self.process, PollFlags::IN),
            PollFd::new(&session_ended, PollFlags::IN),
            PollFd::new(&signal, PollFlags::IN),
            PollFd::new(&input, PollFlags::IN),
        ];
        poll(&mut events, left.as_ref()).context("cannot wait")?;
        Ok(match events.map(|event| !event.revents().is_empty()) {
            [true, ..] => WaitEnd::Program,
            [_, true, ..] => WaitEnd::Profile,
            [_, _, true, _] | [.., true] => WaitEnd::Signal,
            _ => WaitEnd::Time,
        })
    }

    /// Ends the profile, unless `end` says that it has ended, and returns what was recorded.
    pub fn finish(self, end: WaitEnd) -> Vec<SessionReport> {
        if matches!(end, WaitEnd::Signal | WaitEnd::Time) {
            match self.jvm.load(&self.library, STOP) {
                // Another command may have been faster.
                Ok(()) | Err(AttachError::NotProfiled(_)) => {}
                Err(error) => tell!(
                    "tickwalk: cannot end the profile cleanly, its last samples may be missing: {error}"
                ),
            }
        }
        self.server.stop()
    }
}
