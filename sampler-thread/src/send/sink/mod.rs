//! Destinations of messages: a recording file, a collector, or both.
//!
//! Problem: a slow, dead or full destination must not stop the sampler thread, and must be reported.
//! Approach: every destination is a [`Sink`] with its own sequence numbers. One that fails is dropped with one log
//! line, the others go on. A collector ([`crate::send::delivery`]) does not fail: the connection is made again.
//! Invariant: a sink gets every message of the session, in order.

mod encoder;
mod file;

use std::io;

use proto::framing::FramingError;
use proto::v1::{self, agent_message::Body};

pub use encoder::Encoder;
pub use file::FileSink;

/// Why a destination was dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A message could not be encoded.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// The collector has not acknowledged everything; describes the rest.
    #[error("{0}")]
    Undelivered(String),
}

/// A destination of messages.
pub trait Sink: Send + Sync {
    /// Takes the next message; the first one is the `Hello`.
    ///
    /// # Errors
    /// Any error means that this destination is lost.
    fn send(&mut self, body: &Body) -> Result<(), SinkError>;

    /// Waits until everything is stored, as far as the destination can tell.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`SinkError::Undelivered`].
    fn finish(&mut self) -> Result<(), SinkError>;

    /// Returns the name of the destination for log lines.
    fn name(&self) -> String;

    /// Returns whether the destination lost dictionary entries, so that all must be sent again; true once for each
    /// loss.
    ///
    /// To be called at the end of each flush, when no waiting sample refers to earlier entries.
    fn take_resend_request(&mut self) -> bool {
        false
    }

    /// Returns whether the destination has ended by itself.
    fn has_given_up(&self) -> bool {
        false
    }

    fn delivery(&self) -> Option<v1::Delivery> {
        None
    }

    /// Returns the CPU time of the sink's own threads, in nanoseconds.
    fn cpu_ns(&self) -> u64 {
        0
    }
}

/// All destinations of a session; sending succeeds while one is left.
#[derive(Default)]
pub struct Destinations {
    sinks: Vec<Box<dyn Sink>>,
}

impl Destinations {
    pub fn add(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    pub fn alive(&mut self) -> bool {
        let before = self.sinks.len();
        self.sinks.retain(|sink| !sink.has_given_up());
        if self.sinks.is_empty() && before > 0 {
            tracing::error!("profiling stops because no destination is left; the program goes on");
        }
        !self.sinks.is_empty()
    }

    /// Sends to all; a destination that fails is dropped with one log line.
    pub fn send(&mut self, body: &Body) {
        let mut left = self.sinks.len();
        self.sinks.retain_mut(|sink| {
            let Err(error) = sink.send(body) else { return true };
            left -= 1;
            let name = sink.name();
            match left {
                0 => tracing::error!(
                    "dropped destination {name}: {error}; no destination is left, so profiling stops and the program goes on"
                ),
                _ => tracing::warn!("dropped destination {name}: {error}"),
            }
            false
        });
    }

    /// Finishes all; a destination that fails is dropped with one log line.
    pub fn finish(&mut self) {
        self.sinks.retain_mut(|sink| {
            let Err(error) = sink.finish() else { return true };
            tracing::warn!("cannot finish destination {}: {error}", sink.name());
            false
        });
    }

    /// Returns whether dictionary entries must be sent again.
    pub fn take_resend_request(&mut self) -> bool {
        // Every sink is called, because each returns true only once.
        let requests: Vec<bool> = self.sinks.iter_mut().map(|sink| sink.take_resend_request()).collect();
        requests.contains(&true)
    }

    /// Returns the state of delivery to the collector, if there is one.
    pub fn delivery(&self) -> Option<v1::Delivery> {
        self.sinks.iter().find_map(|sink| sink.delivery())
    }

    /// Returns the CPU time of all sinks' own threads, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.sinks.iter().map(|sink| sink.cpu_ns()).sum()
    }
}
