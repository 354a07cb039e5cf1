//! Delivery to a collector that may be slow, away or restarted.
//!
//! Problem: a profile must not lose CPU time because of its collector, must not cost unbounded memory because of it, and
//! must not make the sampler wait for it.
//! Approach: messages wait in a bounded window ([`window`]) until they are acknowledged, and a thread of its own ([`link`])
//! sends them, over as many connections as it takes. When the window is full, samples are merged ([`merge`]) and
//! dictionary entries held back, until there is room again.
//! Invariant: what leaves for the collector names nothing whose dictionary entry does not precede it, and its CPU time
//! adds up to that of all samples.
//! Bounds: what waits beside the window takes some 40 MB at most, and some 300 bytes for each thread that lives
//! ([`threads`], [`names`], [`merge`]). What is given up for that is resolution: of time, then of stacks, then of threads
//! that ended.
//! Exception: what is in the window already when the collector loses its memory is sent as it is, and may name entries
//! that were acknowledged before.

mod held;
mod link;
mod merge;
mod names;
mod threads;
mod transport;
mod window;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use proto::v1::{self, Dictionary, Statistics, agent_message::Body};

use self::held::Held;
use self::window::Window;
use crate::send::sink::{Encoder, Sink, SinkError};

pub use transport::{Target, TlsError};

/// Name of the link's thread, as `ps -T` and `/proc` show it.
pub const THREAD_NAME: &str = "tickwalk-link";

/// Bytes not acknowledged from which on samples are merged: two minutes of sixteen busy processors at 100 samples a
/// second, 20 bytes each.
pub const DEFAULT_WINDOW: u64 = 4 << 20;

/// Longest wait for the last acknowledgement when the JVM ends.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Called on the link's thread first, with its kernel thread id.
pub type OnThread = Box<dyn FnOnce(i32) + Send + Sync>;

/// A collector as a destination.
pub struct Delivery {
    target: Target,
    token: String,
    encoder: Encoder,
    window: Arc<Window>,
    /// The link's end of the wake-up pipe and its greeting, until its thread starts.
    to_start: Option<(UnixStream, OnThread)>,
    held: Held,
}

impl Delivery {
    /// A destination that connects once the session begins; `on_thread` runs on the link's thread.
    ///
    /// # Errors
    /// If no pipe can be made.
    pub fn new(target: Target, token: String, window: u64, on_thread: OnThread) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self {
            target,
            token,
            encoder: Encoder::default(),
            window: Arc::new(Window::new(window, wake)),
            to_start: Some((woken, on_thread)),
            held: Held::new(),
        })
    }

    fn begin(&mut self, hello: &v1::Hello) -> Result<(), SinkError> {
        let hello = v1::Hello { token: self.token.clone(), ..hello.clone() };
        let window = Arc::clone(&self.window);
        self.encoder.encode(Body::Hello(hello), |_, framed| window.set_hello(framed))?;
        let Some((wake, on_thread)) = self.to_start.take() else { return Ok(()) };
        let target = self.target.clone();
        let (running, started) = channel::<()>();
        // The sampler thread, which calls this, has every signal blocked, and a new thread inherits that.
        std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            on_thread(nix::unistd::gettid().as_raw());
            drop(running);
            link::run(&target, &window, &wake);
        })?;
        // Whoever looks for threads next must know already that this one is ours; nothing is ever sent.
        let _ = started.recv();
        Ok(())
    }

    fn push(&mut self, body: Body) -> Result<(), SinkError> {
        sender(&self.window, &mut self.encoder)(body).map(|_| ())
    }

    fn samples(&mut self, batch: &v1::SampleBatch) -> Result<(), SinkError> {
        self.release(false)?;
        if self.window.room() && self.held.passes_samples() {
            return self.push(Body::Samples(batch.clone()));
        }
        self.held.samples(batch);
        Ok(())
    }

    fn dictionary(&mut self, dictionary: &Dictionary) -> Result<(), SinkError> {
        self.release(false)?;
        match self.held.dictionary(dictionary, self.window.room()) {
            Some(passed) => self.push(Body::Dictionary(passed)),
            None => Ok(()),
        }
    }

    fn statistics(&mut self, statistics: &Statistics) -> Result<(), SinkError> {
        self.release(false)?;
        self.held.statistics(statistics);
        if self.window.room() { self.release_statistics() } else { Ok(()) }
    }

    fn release_statistics(&mut self) -> Result<(), SinkError> {
        let delivery = self.delivery();
        let Self { held, window, encoder, .. } = self;
        held.release_statistics(delivery, &mut sender(window, encoder))
    }

    /// Sends what was held back, as far as there is room; all of it if `anyway`.
    fn release(&mut self, anyway: bool) -> Result<(), SinkError> {
        self.look_for_loss();
        if !anyway && !self.window.room() {
            return Ok(());
        }
        let Self { held, window, encoder, .. } = self;
        held.release(anyway, &mut sender(window, encoder))?;
        if self.held.is_full_of_accounts() { self.release_statistics() } else { Ok(()) }
    }

    fn look_for_loss(&mut self) {
        if let Some(connection) = self.window.take_forgotten() {
            self.held.lost(connection);
        }
    }
}

/// Appends messages to the window.
fn sender(window: &Window, encoder: &mut Encoder) -> impl FnMut(Body) -> Result<bool, SinkError> {
    |body| {
        encoder.encode(body, |sequence, framed| window.push(sequence, framed))?;
        Ok(window.room())
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
        match self.window.close(FINISH_TIMEOUT) {
            0 => Ok(()),
            left if self.window.facts().connections == 0 => {
                // That it cannot be reached was said when it was tried first; a second line would tell nothing new.
                tracing::info!("{} never answered: {left} messages end with the session", self.name());
                Ok(())
            }
            left => Err(SinkError::Undelivered(format!("{left} messages were not acknowledged"))),
        }
    }

    fn name(&self) -> String {
        format!("collector={}", self.target)
    }

    fn take_forgotten(&mut self) -> bool {
        self.look_for_loss();
        self.held.take_forgotten(self.window.room(), self.window.long_absent())
    }

    fn delivery(&self) -> Option<v1::Delivery> {
        let (facts, rows) = (self.window.facts(), self.held.rows());
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
        self.window.facts().link_cpu_ns
    }
}
