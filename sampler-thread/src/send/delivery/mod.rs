//! Delivery to a collector that may be slow, unreachable or restarted.
//!
//! Problem: because of its collector a profile must not lose CPU time, use unbounded memory or let the sampler wait.
//! Approach: messages stay in a bounded window ([`window`]) until they are acknowledged; a dedicated thread
//! ([`sender`]) sends them, over as many connections as necessary. While the window is full, samples are merged
//! ([`merge`]) and dictionary entries are kept in a backlog ([`backlog`]).
//! Invariant: a sent message refers only to dictionary entries that precede it, and the CPU time of all sent samples
//! adds up to that of all samples. Messages that are in the window when the collector loses its memory are an
//! exception: they are sent unchanged, and may refer to entries that were acknowledged before. Bounds: the backlog
//! takes at most about 40 MB, and some 300 bytes for each live thread. Beyond, it gives up resolution ([`threads`],
//! [`entries`], [`merge`]): of time first, then stacks, then ended threads.

mod backlog;
mod entries;
mod merge;
mod sender;
mod threads;
mod transport;
mod wake;
mod window;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use proto::v1::{self, Dictionary, Statistics, agent_message::Body};

use self::backlog::Backlog;
use self::wake::WakeUps;
use self::window::Window;
use crate::send::sink::{Encoder, Sink, SinkError};

pub use transport::{Target, TlsError};

/// Name of the sending thread, as `ps -T` and `/proc` show it.
pub const THREAD_NAME: &str = "tickwalk-send";

/// Unacknowledged bytes from which on samples are merged: two minutes of sixteen busy processors at 100 samples a
/// second, 20 bytes each.
pub const DEFAULT_WINDOW: u64 = 4 << 20;

/// Length of the secret that proves to a collector that a connection belongs to the session.
const SECRET_BYTES: usize = 16;

/// Longest silence of a collector while the JVM ends: most acknowledgements cross a network within it, and a program
/// may end so much later without notice.
pub const DEFAULT_END_SILENCE: Duration = Duration::from_millis(80);

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Unacknowledged bytes from which on samples are merged.
    pub window: u64,
    /// Longest silence of the collector at the end of the session, after which it is given up.
    pub end_silence: Duration,
    /// Time without a connection after which the collector is given up; `None` for never. A Unix socket that a killed
    /// command has left in a private directory is then removed with the directory.
    pub abandon: Option<Duration>,
}

/// Called first on the sending thread, with its kernel thread id.
pub type OnThread = Box<dyn FnOnce(i32) + Send + Sync>;

/// Shows whether a collector is reached.
#[derive(Clone)]
pub struct Reach(Arc<Window>);

impl Reach {
    /// Returns the state of the connection in words, such as `connected`.
    pub fn described(&self) -> String {
        self.0.described()
    }
}

/// A collector as a destination.
pub struct Delivery {
    target: Target,
    token: String,
    encoder: Encoder,
    window: Arc<Window>,
    limits: Limits,
    /// The wake-ups of the sending thread and its first call, until it starts.
    to_start: Option<(WakeUps, OnThread)>,
    /// The sending thread, once it runs.
    thread: Option<JoinHandle<()>>,
    backlog: Backlog,
}

impl Delivery {
    /// A destination that connects when the session begins; `on_thread` runs on the sending thread.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new(target: Target, token: String, limits: Limits, on_thread: OnThread) -> io::Result<Self> {
        let (waker, wake_ups) = wake::pair()?;
        Ok(Self {
            target,
            token,
            encoder: Encoder::default(),
            window: Arc::new(Window::new(limits.window, waker)),
            limits,
            to_start: Some((wake_ups, on_thread)),
            thread: None,
            backlog: Backlog::new(),
        })
    }

    /// Returns what shows whether the collector is reached.
    pub fn reach(&self) -> Reach {
        Reach(Arc::clone(&self.window))
    }

    fn begin(&mut self, hello: &v1::Hello) -> Result<(), SinkError> {
        // Without random numbers of the system the session has no secret: its id is enough to continue it.
        let mut secret = vec![0; SECRET_BYTES];
        if rustls::crypto::ring::default_provider().secure_random.fill(&mut secret).is_err() {
            secret.clear();
        }
        let hello = v1::Hello { token: self.token.clone(), secret, ..hello.clone() };
        let window = Arc::clone(&self.window);
        self.encoder.encode(&Body::Hello(hello), |_, framed| window.set_hello(framed))?;
        let Some((wake_ups, on_thread)) = self.to_start.take() else { return Ok(()) };
        let (target, abandon) = (self.target.clone(), self.limits.abandon);
        let (running, started) = channel::<()>();
        // The new thread inherits the signal mask of the sampler thread, which blocks every signal.
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            on_thread(nix::unistd::gettid().as_raw());
            drop(running);
            sender::run(&target, &window, wake_ups, abandon);
        })?;
        self.thread = Some(thread);
        // This thread must be excluded before threads are discovered; nothing is ever sent.
        let _ = started.recv();
        Ok(())
    }

    fn push(&mut self, body: Body) -> Result<(), SinkError> {
        appender(&self.window, &mut self.encoder)(body).map(|_| ())
    }

    fn samples(&mut self, batch: &v1::SampleBatch) -> Result<(), SinkError> {
        self.release(false)?;
        if self.window.has_space() && self.backlog.samples_may_bypass() {
            return self.push(Body::Samples(batch.clone()));
        }
        self.backlog.samples(batch);
        Ok(())
    }

    fn dictionary(&mut self, dictionary: &Dictionary) -> Result<(), SinkError> {
        self.release(false)?;
        match self.backlog.dictionary(dictionary, self.window.has_space()) {
            Some(passed) => self.push(Body::Dictionary(passed)),
            None => Ok(()),
        }
    }

    fn statistics(&mut self, statistics: &Statistics) -> Result<(), SinkError> {
        self.release(false)?;
        self.backlog.statistics(statistics);
        if self.window.has_space() { self.release_statistics() } else { Ok(()) }
    }

    fn release_statistics(&mut self) -> Result<(), SinkError> {
        let delivery = self.delivery();
        let Self { backlog, window, encoder, .. } = self;
        backlog.release_statistics(delivery, &mut appender(window, encoder))
    }

    /// Sends the backlog as far as there is space, or all of it if `force`.
    fn release(&mut self, force: bool) -> Result<(), SinkError> {
        self.check_for_loss();
        if !force && !self.window.has_space() {
            return Ok(());
        }
        let Self { backlog, window, encoder, .. } = self;
        backlog.release(force, &mut appender(window, encoder))?;
        if self.backlog.is_full_of_accounts() { self.release_statistics() } else { Ok(()) }
    }

    fn check_for_loss(&mut self) {
        if let Some(connection) = self.window.take_memory_loss() {
            self.backlog.collector_forgot(connection);
        }
    }
}

/// Returns a function that appends messages to the window.
fn appender(window: &Window, encoder: &mut Encoder) -> impl FnMut(Body) -> Result<bool, SinkError> {
    |body| {
        encoder.encode(&body, |sequence, framed| window.push(sequence, framed))?;
        Ok(window.has_space())
    }
}

impl Sink for Delivery {
    fn send(&mut self, body: &Body) -> Result<(), SinkError> {
        match body {
            Body::Hello(hello) => self.begin(hello),
            Body::Samples(batch) => self.samples(batch),
            Body::Dictionary(dictionary) => self.dictionary(dictionary),
            Body::Statistics(statistics) => self.statistics(statistics),
            Body::Goodbye(_) => {
                self.release(true)?;
                self.release_statistics()?;
                self.push(body.clone())
            }
            Body::Heartbeat(_) => self.push(body.clone()),
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        match self.window.close(self.limits.end_silence) {
            0 => {
                // Nothing is left to send or to wait for.
                let _ = self.thread.take().map(JoinHandle::join);
                Ok(())
            }
            // A warning was logged at the first attempt.
            _ if self.window.facts().connections == 0 && self.window.has_warned() => Ok(()),
            left if self.window.facts().connections == 0 => {
                Err(SinkError::Undelivered(format!("it never answered, {left} messages are dropped")))
            }
            left => Err(SinkError::Undelivered(format!(
                "it acknowledged nothing for {:?}, {left} messages are not acknowledged",
                self.limits.end_silence
            ))),
        }
    }

    fn name(&self) -> String {
        format!("collector={}", self.target)
    }

    fn has_given_up(&self) -> bool {
        self.window.is_abandoned()
    }

    fn take_resend_request(&mut self) -> bool {
        self.check_for_loss();
        self.backlog.take_resend_request(self.window.has_space(), self.window.long_absent())
    }

    fn delivery(&self) -> Option<v1::Delivery> {
        let (facts, rows) = (self.window.facts(), self.backlog.rows());
        Some(v1::Delivery {
            connections: facts.connections,
            resent: facts.resent,
            window_bytes: facts.bytes,
            window_limit: self.window.limit(),
            merged_samples: rows.merged(),
            resolution_ns: rows.coarsest_ns(),
            unnamed_ns: rows.unnamed_ns(),
        })
    }

    fn cpu_ns(&self) -> u64 {
        self.window.facts().sender_cpu_ns
    }
}
