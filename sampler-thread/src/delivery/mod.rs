//! Delivery to a collector that may be slow, away or restarted.
//!
//! Problem: a profile must not lose CPU time because of its collector, must not cost unbounded memory because of it, and
//! must not make the sampler wait for it.
//! Approach: messages wait in a bounded window ([`window`]) until they are acknowledged, and a thread of its own ([`link`])
//! sends them, over as many connections as it takes. When the window is full, samples are merged ([`merge`]) and
//! dictionary entries held back, until there is room again.
//! Invariant: what leaves for the collector names nothing whose dictionary entry does not precede it, and its CPU time
//! adds up to that of all samples.
//! Exceptions: a virtual thread whose entry was dropped for lack of room has no name if it is not sampled again. And not
//! bounded is what is held for each thread while there is no room: entry and account of a platform thread, and a merged
//! row for any that was sampled.

mod link;
mod merge;
mod transport;
mod window;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use proto::statistics::carry_over;
use proto::v1::{self, Dictionary, Statistics, ThreadAccount, ThreadKind, agent_message::Body};
use rustc_hash::FxHasher;

use self::merge::Merged;
use self::window::Window;
use crate::intern::{append, reserved_stack};
use crate::sink::{Encoder, Sink, SinkError};

pub use transport::{Target, TlsError};

/// Name of the link's thread, as `ps -T` and `/proc` show it.
pub const THREAD_NAME: &str = "tickwalk-link";

/// Bytes not acknowledged from which on samples are merged: two minutes of sixteen busy processors at 100 samples a
/// second, 20 bytes each.
pub const DEFAULT_WINDOW: u64 = 4 << 20;

/// Dictionary entries held back, in rough bytes; beyond, stacks nobody was told of are given up.
const MAX_HELD_BYTES: usize = 8 << 20;

/// Longest wait for the last acknowledgement when the JVM ends.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Frame of stacks that were given up while the collector was away.
const UNNAMED: &str = "[merged]";

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
    merged: Merged,
    held: Held,
}

/// What is held back while the window is full.
#[derive(Default)]
struct Held {
    dictionaries: Vec<Dictionary>,
    bytes: usize,
    /// Stacks from here on have lost their entries, because too much was held.
    dropped_from: Option<u64>,
    /// Whether entries were dropped that will have to be sent again.
    overflowed: bool,
    /// Statistics that wait, without accounts.
    statistics: Option<Statistics>,
    /// Accounts that wait, each in its newest state.
    accounts: HashMap<u32, ThreadAccount, BuildHasherDefault<FxHasher>>,
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
        // The entries of this stack precede everything, so it is known whenever it is needed.
        let (dictionary, unnamed) = reserved_stack(UNNAMED, "merged");
        Ok(Self {
            target,
            token,
            encoder: Encoder::default(),
            window: Arc::new(Window::new(window, wake)),
            to_start: Some((woken, on_thread)),
            merged: Merged::new(unnamed),
            held: Held { dictionaries: vec![dictionary], ..Held::default() },
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
        let window = &self.window;
        Ok(self.encoder.encode(body, |sequence, framed| window.push(sequence, framed))?)
    }

    fn samples(&mut self, batch: &v1::SampleBatch) -> Result<(), SinkError> {
        self.release(false)?;
        if self.window.room() && self.merged.is_empty() && self.held.is_passed() {
            return self.push(Body::Samples(batch.clone()));
        }
        let held = &self.held;
        self.merged.add(batch, |stack| held.dropped_from.is_none_or(|dropped| stack < dropped));
        Ok(())
    }

    fn dictionary(&mut self, dictionary: &Dictionary) -> Result<(), SinkError> {
        self.release(false)?;
        if self.window.room() && self.held.is_passed() {
            return self.push(Body::Dictionary(dictionary.clone()));
        }
        self.held.add(dictionary);
        Ok(())
    }

    fn statistics(&mut self, statistics: &Statistics) -> Result<(), SinkError> {
        self.release(false)?;
        // What is said last replaces what waited to be said: all but the accounts is cumulative.
        let mut statistics = statistics.clone();
        let accounts = std::mem::take(&mut statistics.threads);
        if let Some(older) = &self.held.statistics {
            carry_over(older, &mut statistics);
        }
        self.held.accounts.extend(accounts.into_iter().map(|account| (account.thread, account)));
        self.held.statistics = Some(statistics);
        if self.window.room() { self.release_statistics() } else { Ok(()) }
    }

    /// Sends the newest statistics, with the accounts of all threads that changed since the last ones were sent.
    fn release_statistics(&mut self) -> Result<(), SinkError> {
        let Some(mut statistics) = self.held.statistics.take() else { return Ok(()) };
        statistics.threads = self.held.accounts.drain().map(|(_, account)| account).collect();
        statistics.delivery = self.delivery();
        self.push(Body::Statistics(statistics))
    }

    /// Sends what was held back, as far as there is room; all of it if `anyway`.
    fn release(&mut self, anyway: bool) -> Result<(), SinkError> {
        if !anyway && !self.window.room() {
            return Ok(());
        }
        self.held.bytes = 0;
        for dictionary in std::mem::take(&mut self.held.dictionaries) {
            self.push(Body::Dictionary(dictionary))?;
        }
        if self.merged.is_empty() {
            return Ok(());
        }
        let (window, encoder) = (&self.window, &mut self.encoder);
        let mut outcome = Ok(());
        self.merged.release(|batch| {
            let sent = encoder.encode(Body::Samples(batch), |sequence, framed| window.push(sequence, framed));
            outcome = sent;
            outcome.is_ok() && (anyway || window.room())
        });
        Ok(outcome?)
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
        // Entries that were dropped are asked for once there is room for them; until then `Held::add` drops on.
        let dropped = self.held.overflowed && self.window.room();
        if dropped {
            self.held.overflowed = false;
            self.held.dropped_from = None;
        }
        let forgotten = self.window.take_forgotten();
        if forgotten {
            // Kept whatever else was dropped: nothing refers to it but what stands for the rest, and nobody sends it again.
            let (dictionary, _) = reserved_stack(UNNAMED, "merged");
            self.held.dictionaries.insert(0, dictionary);
        }
        forgotten || dropped
    }

    fn delivery(&self) -> Option<v1::Delivery> {
        let facts = self.window.facts();
        Some(v1::Delivery {
            connections: facts.connections,
            resent: facts.resent,
            window_bytes: facts.bytes,
            window_limit: self.window.limit(),
            merged_samples: self.merged.merged(),
            resolution_ns: self.merged.coarsest_ns(),
            unnamed_ns: self.merged.unnamed_ns(),
        })
    }

    fn cpu_ns(&self) -> u64 {
        self.window.facts().link_cpu_ns
    }
}

impl Held {
    /// Whether what comes next may go out at once: until everything is sent again, it may name what was dropped.
    fn is_passed(&self) -> bool {
        self.dictionaries.is_empty() && !self.overflowed
    }

    fn add(&mut self, more: &Dictionary) {
        let mut more = more.clone();
        if self.bytes > MAX_HELD_BYTES {
            self.overflowed = true;
        }
        if self.overflowed {
            // Until everything is sent again, a later entry may refer to one that was dropped. Virtual threads come by the
            // thousand, and those still met are sent again; the others are kept: an account without a name helps nobody.
            more.threads.retain(|thread| thread.kind != i32::from(ThreadKind::Virtual));
            if let Some(entries) = more.numbered.take().filter(|entries| !entries.node_frame.is_empty()) {
                self.dropped_from.get_or_insert(entries.first_node.into());
            }
        }
        self.bytes += prost::Message::encoded_len(&more);
        // Numbers follow each other, so this is one message unless entries were dropped in between.
        let apart = match self.dictionaries.last_mut() {
            Some(last) => append(last, more),
            None => Some(more),
        };
        self.dictionaries.extend(apart);
    }
}
