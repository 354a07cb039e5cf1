//! The thread that keeps a connection to the collector.
//!
//! Problem: collectors are restarted, networks fail, and neither may cost the profiled program anything.
//! Approach: connect, introduce, send what the window holds, take acknowledgements; on any error start over after a
//! pause that doubles up to ten seconds, until a collector takes something.
//! Invariant: the thread ends when the session has ended and everything is acknowledged, or when the session has ended
//! and the collector does not answer.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proto::framing::{FrameDecoder, FramingError};
use proto::v1::{CollectorMessage, collector_message};

use super::transport::{Connection, Target};
use super::window::Window;
use crate::account::clock;

/// Pause after the first failure; it doubles with each one that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Longest wait for the collector's answer to the introduction.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest message a collector may send; acknowledgements take some ten bytes, a refusal is one line.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Why a connection ended.
#[derive(Debug)]
enum LinkError {
    Io(io::Error),
    /// The peer is no collector.
    Framing(FramingError),
    /// The collector refused, in its own words.
    Rejected(String),
    Closed,
    /// No answer to the introduction.
    Silent,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Framing(error) => write!(f, "the peer is no collector: {error}"),
            Self::Rejected(reason) => write!(f, "rejected: {reason}"),
            Self::Closed => f.write_str("the collector closed the connection"),
            Self::Silent => write!(f, "no answer within {HELLO_TIMEOUT:?}"),
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for LinkError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Runs the link until the session is over.
pub fn run(target: &Target, window: &Window, wake: &UnixStream) {
    let mut pauses = Pauses::new();
    let mut told: Option<String> = None;
    let mut connected_before = false;
    while !window.done() {
        let ended = match open(target, window, wake) {
            Ok(mut open) => {
                connected_before = true;
                // A collector that welcomes and then takes nothing, as one with a full disk may, has not recovered.
                let ended = open.serve(window, wake, || {
                    pauses = Pauses::new();
                    if told.take().is_some() {
                        tracing::info!("collector={target} answers again");
                    }
                });
                window.disconnected();
                ended
            }
            Err(error) => Err(error),
        };
        window.set_link_cpu(clock::own_cpu_nanos());
        let Err(error) = ended else { break };
        // One line for each change, not for each attempt.
        let reason = error.to_string();
        if told.as_ref() != Some(&reason) {
            let trouble = if connected_before { "lost" } else { "cannot reach" };
            tracing::warn!("{trouble} collector={target}: {reason}; samples are kept and it is tried again");
            told = Some(reason);
        }
        if window.closing() && pauses.failed_since_closing() {
            break;
        }
        pauses.wait(window, wake);
    }
    window.give_up();
}

/// The time between two attempts.
struct Pauses {
    next: Duration,
    closing_failures: u32,
}

impl Pauses {
    fn new() -> Self {
        Self { next: FIRST_PAUSE, closing_failures: 0 }
    }

    /// One attempt is still made after the session has ended; a collector that is being restarted gets that chance.
    fn failed_since_closing(&mut self) -> bool {
        self.closing_failures += 1;
        self.closing_failures > 1
    }

    fn wait(&mut self, window: &Window, wake: &UnixStream) {
        // Up to a quarter less, so that the agents of a restarted collector do not all come at once.
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish() % 250;
        let until = Instant::now() + self.next.mul_f64(1.0 - random as f64 / 1000.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        while !window.closing() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || readable(&[wake.as_fd()], left).is_err() {
                return;
            }
            empty(wake);
        }
    }
}

/// A connection that the collector has accepted.
struct Open {
    connection: Connection,
    decoder: FrameDecoder,
}

fn open(target: &Target, window: &Window, wake: &UnixStream) -> Result<Open, LinkError> {
    let mut open = Open { connection: target.connect()?, decoder: FrameDecoder::with_max(MAX_ANSWER_BYTES) };
    open.connection.send(&window.hello())?;
    let deadline = Instant::now() + HELLO_TIMEOUT;
    loop {
        if let Some(sequence) = open.acknowledged()? {
            window.resume(sequence);
            return Ok(open);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LinkError::Silent);
        }
        if readable(&[open.connection.as_fd()], left)? {
            open.receive()?;
        }
        empty(wake);
    }
}

impl Open {
    /// Sends what the window holds; `taken` is called when the collector has taken something.
    fn serve(
        &mut self,
        window: &Window,
        wake: &UnixStream,
        mut taken: impl FnMut(),
    ) -> Result<(), LinkError> {
        let mut chunk = Vec::new();
        loop {
            while window.next_chunk(&mut chunk) {
                // A rejection explains a broken pipe better than the pipe does.
                if let Err(error) = self.connection.send(&chunk) {
                    self.rejection()?;
                    return Err(error.into());
                }
            }
            if window.done() {
                return Ok(());
            }
            window.set_link_cpu(clock::own_cpu_nanos());
            let mut fds = [
                PollFd::new(self.connection.as_fd(), PollFlags::POLLIN),
                PollFd::new(wake.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [socket, woken] = fds.map(|fd| fd.any().unwrap_or(true));
            if woken {
                empty(wake);
            }
            if socket {
                self.receive()?;
                if let Some(sequence) = self.acknowledged()? {
                    window.acknowledge(sequence);
                    taken();
                }
            }
        }
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        let mut buffer = [0; 4096];
        let length = self.connection.receive(&mut buffer)?.ok_or(LinkError::Closed)?;
        self.decoder.push(buffer.get(..length).unwrap_or_default());
        Ok(())
    }

    /// Highest acknowledgement among the messages received.
    fn acknowledged(&mut self) -> Result<Option<u64>, LinkError> {
        let mut highest = None;
        while let Some(message) = self.decoder.next::<CollectorMessage>().map_err(LinkError::Framing)? {
            match message.body {
                Some(collector_message::Body::Acknowledgement(ack)) => {
                    highest = highest.max(Some(ack.sequence));
                }
                Some(collector_message::Body::Reject(reject)) => {
                    return Err(LinkError::Rejected(reject.reason));
                }
                None => {}
            }
        }
        Ok(highest)
    }

    /// The rejection that has arrived, if there is one.
    fn rejection(&mut self) -> Result<(), LinkError> {
        if readable(&[self.connection.as_fd()], Duration::ZERO)? && self.receive().is_ok() {
            self.acknowledged()?;
        }
        Ok(())
    }
}

/// Waits until one of `fds` is readable, or for `timeout`.
fn readable(fds: &[std::os::fd::BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
    let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes the wake-up bytes out of the pipe.
fn empty(mut wake: &UnixStream) {
    let mut bytes = [0; 256];
    while wake.read(&mut bytes).is_ok_and(|length| length == bytes.len()) {}
}
