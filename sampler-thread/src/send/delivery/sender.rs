//! The thread that sends to the collector.
//!
//! Problem: collectors are restarted and networks fail; neither may affect the profiled program.
//! Approach: connect, send the first message, send the window, receive acknowledgements. After an error start over
//! after a pause that doubles up to ten seconds, until a collector acknowledges something.
//! Invariant: the thread ends after the session, when everything is acknowledged or the collector does not answer, and
//! during the session only if the collector is given up.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proto::framing::{FrameDecoder, FramingError};
use proto::v1::{CollectorMessage, collector_message};

use super::transport::{Connection, Target};
use super::wake::WakeUps;
use super::window::Window;
use crate::clock;
use crate::descriptor::Lost;

/// Pause after the first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Longest wait for the answer to the first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait on a connection before a look at whether the program has closed its descriptor, in milliseconds.
const LONGEST_WAIT_MS: u16 = 10_000;
/// Longest message a collector may send; acknowledgements take some ten bytes, a refusal is one line.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error("the peer is no collector: {0}")]
    Framing(#[from] FramingError),
    #[error("rejected: {0}")]
    Rejected(String),
    #[error("the collector closed the connection")]
    Closed,
    #[error("no answer within {:?}", HELLO_TIMEOUT)]
    Silent,
}

impl From<Errno> for SendError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Sends messages until the session is over, or until no connection could be made for `abandon`.
pub fn run(target: &Target, window: &Window, mut wake_ups: WakeUps, abandon: Option<Duration>) {
    let mut absent_since = Instant::now();
    let mut pauses = Pauses::new();
    let mut reported: Option<String> = None;
    let mut connected_before = false;
    while !window.done() {
        if let Err(error) = window.keep_awake(&mut wake_ups) {
            tracing::warn!("collector={target} is given up: {error}");
            break;
        }
        let ended = match open(target, window, &wake_ups) {
            Ok(mut open) => {
                connected_before = true;
                // A collector that accepts a connection but no message, like one with a full disk, has not recovered.
                let ended = open.serve(window, &wake_ups, || {
                    pauses = Pauses::new();
                    if reported.take().is_some() {
                        window.recovered();
                        tracing::info!("collector={target} is reachable again");
                    }
                });
                window.disconnected();
                absent_since = Instant::now();
                ended
            }
            Err(error) => Err(error),
        };
        window.set_sender_cpu(clock::own_cpu_nanos());
        let Err(error) = ended else { break };
        // One line for each change, not for each attempt.
        let reason = error.to_string();
        if reported.as_ref() != Some(&reason) {
            let trouble = if connected_before { "lost the connection to" } else { "cannot reach" };
            tracing::warn!(
                "{trouble} collector={target}: {reason}; samples are kept until it is reachable again"
            );
            window.warned(format!("{trouble} it: {reason}"));
            reported = Some(reason);
        }
        if window.closing() && pauses.failed_since_closing() {
            break;
        }
        let end = abandon.map(|limit| absent_since + limit);
        if end.is_some_and(|end| Instant::now() >= end) && !window.closing() {
            tracing::warn!(
                "collector={target} is given up: it was not reachable for {:?}",
                abandon.unwrap_or_default()
            );
            target.remove_left_behind();
            break;
        }
        pauses.wait(window, &wake_ups, end);
    }
    window.give_up();
}

/// Time between two attempts.
struct Pauses {
    next: Duration,
    closing_failures: u32,
}

impl Pauses {
    fn new() -> Self {
        Self { next: FIRST_PAUSE, closing_failures: 0 }
    }

    /// Returns whether a second attempt after the end of the session failed; a collector may be restarting at the
    /// first.
    fn failed_since_closing(&mut self) -> bool {
        self.closing_failures += 1;
        self.closing_failures > 1
    }

    /// Waits for the pause, at most until `end`.
    fn wait(&mut self, window: &Window, wake_ups: &WakeUps, end: Option<Instant>) {
        // Up to a quarter less, so that the agents of a restarted collector do not all come at once.
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish() % 250;
        let until = Instant::now() + self.next.mul_f64(1.0 - random as f64 / 1000.0);
        let until = end.map_or(until, |end| end.min(until));
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        while !window.closing() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || readable(&[wake_ups.as_fd()], left).is_err() || wake_ups.take().is_err() {
                return;
            }
        }
    }
}

/// A connection that the collector has accepted.
struct Open {
    connection: Connection,
    decoder: FrameDecoder,
}

fn open(target: &Target, window: &Window, wake_ups: &WakeUps) -> Result<Open, SendError> {
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
            return Err(SendError::Silent);
        }
        if readable(&[open.connection.as_fd()], left)? {
            open.receive()?;
        }
        wake_ups.take()?;
    }
}

impl Open {
    /// Sends the window; `on_acknowledged` is called after each acknowledgement.
    fn serve(
        &mut self,
        window: &Window,
        wake_ups: &WakeUps,
        mut on_acknowledged: impl FnMut(),
    ) -> Result<(), SendError> {
        let mut chunk = Vec::new();
        loop {
            while window.next_chunk(&mut chunk) {
                // A rejection explains the error of the socket.
                if let Err(error) = self.connection.send(&chunk) {
                    self.rejection()?;
                    return Err(error.into());
                }
            }
            if window.done() {
                return Ok(());
            }
            window.set_sender_cpu(clock::own_cpu_nanos());
            let mut fds = [
                PollFd::new(self.connection.as_fd(), PollFlags::POLLIN),
                PollFd::new(wake_ups.as_fd(), PollFlags::POLLIN),
            ];
            let is_silent = match poll(&mut fds, PollTimeout::from(LONGEST_WAIT_MS)) {
                Ok(ready) => ready == 0,
                Err(Errno::EINTR) => false,
                Err(error) => return Err(error.into()),
            };
            let [socket, woken] = fds.map(|fd| fd.any().unwrap_or(true));
            if is_silent {
                self.connection.check()?;
            }
            if woken || is_silent {
                wake_ups.take()?;
            }
            if socket {
                self.receive()?;
                if let Some(sequence) = self.acknowledged()? {
                    window.acknowledge(sequence);
                    on_acknowledged();
                }
            }
        }
    }

    fn receive(&mut self) -> Result<(), SendError> {
        let mut buffer = [0; 4096];
        let length = self.connection.receive(&mut buffer)?.ok_or(SendError::Closed)?;
        self.decoder.push(buffer.get(..length).unwrap_or_default());
        Ok(())
    }

    /// Returns the highest acknowledgement among the received messages.
    fn acknowledged(&mut self) -> Result<Option<u64>, SendError> {
        let mut highest = None;
        while let Some(message) = self.decoder.next::<CollectorMessage>()? {
            match message.body {
                Some(collector_message::Body::Acknowledgement(ack)) => {
                    highest = highest.max(Some(ack.sequence));
                }
                Some(collector_message::Body::Reject(reject)) => {
                    return Err(SendError::Rejected(reject.reason));
                }
                None => {}
            }
        }
        Ok(highest)
    }

    /// Returns the rejection that has arrived as an error, if there is one.
    fn rejection(&mut self) -> Result<(), SendError> {
        if readable(&[self.connection.as_fd()], Duration::ZERO)? && self.receive().is_ok() {
            self.acknowledged()?;
        }
        Ok(())
    }
}

/// Waits at most `timeout` until one of `fds` is readable; returns whether one is.
fn readable(fds: &[std::os::fd::BorrowedFd<'_>], timeout: Duration) -> Result<bool, SendError> {
    let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
