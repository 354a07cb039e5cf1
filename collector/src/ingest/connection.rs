//! Serves one connection: a Hello, then messages until either side closes it.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::framing::{Checksums, FrameDecoder, FramingError, decode_message, encode_body, encode_frame};
use proto::v1::{
    Acknowledgement, AgentMessage, CollectorMessage, Hello, Reject, agent_message, collector_message,
};
use proto::version;

use super::clock;
use super::refusal::Refusal;
use super::shared::Shared;
use super::sink::SessionSink;
use super::socket::Stream;

/// Maximum bytes of one read: about one ordinary batch of samples.
const READ_BYTES: usize = 64 << 10;

/// Maximum length of a Hello: its longest field is the command line, and the kernel limits an argument to 128 KiB. An
/// unknown peer gets no larger buffer.
const HELLO_BYTES: usize = 256 << 10;

/// Maximum bytes read from one connection after the stop: more than a socket buffer holds (208 KiB by default, 6 MiB at
/// most for TCP), so that all bytes that arrived before the stop are read, and a peer that keeps sending cannot delay
/// it.
const DRAIN_BYTES: usize = 8 << 20;

/// Maximum number of messages that may be missing behind the `Hello` of a connection: a collector that lost its store
/// gets the messages that its predecessor has not acknowledged. An agent sends a few messages a second.
const MOST_MISSING: u64 = 1 << 32;

/// Time a refused peer has to read the reason before the connection is closed.
const LINGER: Duration = Duration::from_secs(1);

/// Starts a thread that serves `stream`; returns `None` if it cannot be served.
pub(super) fn start(id: u64, stream: Stream, shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let second = match stream.try_clone() {
        Ok(second) => second,
        Err(error) => {
            tracing::warn!(connection = id, %error, "connection dropped");
            return None;
        }
    };
    let closed = shared.open.lock().add(id, second, shared.limits.unknown);
    if let Some(oldest) = closed {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(connection = oldest, "connection closed: too many connections say no Hello");
    }
    let place = Place { id, shared: Arc::clone(shared) };
    let spawned = thread::Builder::new().name(format!("connection-{id}")).spawn(move || {
        run(place.id, &stream, &place.shared);
    });
    spawned
        .inspect_err(|error| {
            tracing::warn!(connection = id, %error, "connection dropped: its thread cannot be started");
        })
        .ok()
}

/// The place of a connection among those that are open; drop frees it, also after a panic.
struct Place {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(connection = self.id, "connection closed: an error in the collector");
            self.shared.panicked.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.open.lock().remove(self.id);
    }
}

fn run(id: u64, stream: &Stream, shared: &Shared) {
    tracing::debug!(connection = id, "connection opened");
    match serve(id, stream, shared) {
        Ok(()) => tracing::debug!(connection = id, "connection closed by the agent"),
        Err(refusal) => {
            tracing::warn!(connection = id, reason = %refusal, "connection closed");
            if send_reject(stream, refusal).is_ok() {
                linger(stream);
            }
        }
    }
}

fn serve(id: u64, stream: &Stream, shared: &Shared) -> Result<(), Refusal> {
    stream.set_write_timeout(Some(shared.limits.write)).map_err(unread)?;
    let mut inbox = Inbox::new(id, shared.limits.message_bytes.min(HELLO_BYTES));
    let mut deadline = Instant::now() + shared.limits.hello;
    let mut session: Option<Attached> = None;
    let mut drained = 0;
    let mut rate_limit = RateLimit::new(shared.limits.bytes_per_second);
    loop {
        // Only complete messages extend the deadline: slow senders cannot hold a connection.
        let late = if session.is_none() { Refusal::HelloLate } else { Refusal::Silent };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late);
        }
        stream.set_read_timeout(Some(left)).map_err(unread)?;
        let received = match inbox.receive(stream) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(late);
            }
            Err(error) => return Err(Refusal::Framing(FramingError::Io(error.kind()))),
        };
        if received == 0 {
            return inbox.decoder.finish().map_err(Refusal::Framing);
        }
        // The messages before a faulty one are valid, so they are stored before the fault closes the connection.
        let fault = inbox.take_messages(shared, &mut session).err();
        let has_messages = !inbox.messages.is_empty();
        if let Some(session) = &mut session {
            session.record(stream, &mut inbox)?;
            if std::mem::take(&mut inbox.has_goodbye) {
                shared.session_ended();
            }
        }
        rate_limit.wait(received);
        if has_messages {
            // Counted from here, so that the collector's own work does not use up the agent's time.
            deadline = Instant::now() + shared.limits.silence;
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        // Acquire pairs with the Release in StopHandle::stop; a late view costs one more read at most.
        if shared.stopping.load(Ordering::Acquire) {
            drained += received;
            if drained > DRAIN_BYTES {
                return Err(Refusal::Stopping);
            }
        }
    }
}

/// Gives the connection a place among those with a session, if `token` is the collector's.
fn admit(connection: u64, hello: &Hello, token: &str, shared: &Shared) -> Result<(), Refusal> {
    version::check(hello).map_err(Refusal::Version)?;
    if !shared.access.admits(token) {
        return Err(Refusal::WrongToken);
    }
    let max = shared.limits.connections;
    if !shared.open.lock().admit(connection, max) {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        return Err(Refusal::TooManyConnections(max));
    }
    Ok(())
}

/// The session of a connection, known after its Hello.
struct Attached {
    id: u64,
    /// SHA-256 of its secret.
    secret: Vec<u8>,
    writer: Arc<Mutex<dyn SessionSink>>,
    /// Number of the last message, and the highest number that the next one may have.
    sequence: u64,
    next_sequence: u64,
    /// Bytes of dictionary messages received.
    dictionary_bytes: u64,
    reply: Vec<u8>,
}

impl Attached {
    /// Opens the session of `hello`, which lost its token and its secret. Its connection has been admitted.
    fn open(hello: &Hello, sequence: u64, shared: &Shared) -> Result<Self, Refusal> {
        if sequence != 1 {
            return Err(Refusal::Jump(0, sequence));
        }
        let writer = shared.sessions.lock().open(hello)?;
        Ok(Attached {
            id: hello.session_id,
            secret: hello.secret.clone(),
            writer,
            sequence,
            next_sequence: sequence + MOST_MISSING,
            dictionary_bytes: 0,
            reply: Vec::new(),
        })
    }

    /// Checks that a message follows the one before it, so that no number makes later messages look like repeated ones.
    fn follow(&mut self, sequence: u64) -> Result<(), Refusal> {
        if sequence > self.next_sequence {
            return Err(Refusal::Jump(self.sequence, sequence));
        }
        self.sequence = sequence;
        self.next_sequence = sequence + 1;
        Ok(())
    }

    /// Stores the messages of `inbox`, then acknowledges them.
    fn record(&mut self, stream: &Stream, inbox: &mut Inbox) -> Result<(), Refusal> {
        if inbox.messages.is_empty() {
            return Ok(());
        }
        let sequence = self.writer.lock().append(&mut inbox.messages())?;
        inbox.clear();
        let body = collector_message::Body::Acknowledgement(Acknowledgement { sequence });
        self.reply.clear();
        encode_frame(&CollectorMessage { body: Some(body) }, &mut self.reply).map_err(Refusal::Framing)?;
        match { stream }.write_all(&self.reply) {
            // An agent may close the connection after its Goodbye without reading; reading what it sent goes on.
            Err(error) if is_gone(error.kind()) => Ok(()),
            result => result.map_err(unread),
        }
    }
}

/// Received bytes, and the complete messages among them.
struct Inbox {
    /// Id of the connection.
    connection: u64,
    decoder: FrameDecoder,
    chunk: Box<[u8]>,
    /// Framed messages one after the other.
    bytes: Vec<u8>,
    /// Sequence number and length of each message in `bytes`.
    messages: Vec<(u64, usize)>,
    /// True if the last message of the session is among them.
    has_goodbye: bool,
    /// Known after the first message.
    checksums: Option<Checksums>,
}

impl Inbox {
    fn new(connection: u64, max: usize) -> Self {
        Inbox {
            connection,
            decoder: FrameDecoder::with_max(max),
            chunk: vec![0; READ_BYTES].into_boxed_slice(),
            bytes: Vec::new(),
            messages: Vec::new(),
            has_goodbye: false,
            checksums: None,
        }
    }

    fn receive(&mut self, mut stream: &Stream) -> io::Result<usize> {
        let received = stream.read(&mut self.chunk)?;
        self.decoder.push(&self.chunk[..received]);
        Ok(received)
    }

    /// Moves complete messages from the decoder to `messages`; the first one opens `session`.
    fn take_messages(&mut self, shared: &Shared, session: &mut Option<Attached>) -> Result<(), Refusal> {
        while let Some(framed) = self.decoder.next_framed().map_err(Refusal::Framing)? {
            // Messages are stored undecoded; decoding them here keeps invalid ones out.
            let checksums = *self.checksums.get_or_insert_with(|| Checksums::of_stream(framed));
            let mut message = decode_message(framed, checksums).map_err(Refusal::Framing)?;
            if message.sequence == 0 {
                return Err(Refusal::NoSequence);
            }
            if let Some(session) = session {
                session.follow(message.sequence)?;
            }
            let hidden = match &mut message.body {
                Some(agent_message::Body::Hello(hello)) => {
                    correct_clock(self.connection, hello, shared);
                    Some(hide(hello))
                }
                _ => None,
            };
            match (&mut *session, &message.body) {
                (None, Some(agent_message::Body::Hello(hello))) => {
                    admit(self.connection, hello, hidden.as_deref().unwrap_or_default(), shared)?;
                    *session = Some(Attached::open(hello, message.sequence, shared)?);
                }
                (None, _) => return Err(Refusal::NoHello),
                (Some(session), Some(agent_message::Body::Hello(hello)))
                    if hello.session_id != session.id || hello.secret != session.secret =>
                {
                    return Err(Refusal::OtherSession(hello.session_id));
                }
                (Some(session), Some(agent_message::Body::Dictionary(_))) => {
                    session.dictionary_bytes += framed.len() as u64;
                    let max = shared.limits.dictionary_bytes;
                    if session.dictionary_bytes > max {
                        return Err(Refusal::DictionaryTooLarge(max));
                    }
                }
                (Some(_), _) => {}
            }
            self.has_goodbye |= matches!(message.body, Some(agent_message::Body::Goodbye(_)));
            let before = self.bytes.len();
            match hidden {
                Some(_) => encode_again(&message, checksums, &mut self.bytes).map_err(Refusal::Framing)?,
                None => self.bytes.extend_from_slice(framed),
            }
            self.messages.push((message.sequence, self.bytes.len() - before));
            // After the Hello, messages may have their full length.
            self.decoder.set_max(shared.limits.message_bytes);
        }
        Ok(())
    }

    /// Returns sequence number and framed bytes of each message.
    fn messages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = &self.bytes[..];
        self.messages.iter().map(move |&(sequence, len)| {
            let (framed, later) = rest.split_at(len);
            rest = later;
            (sequence, framed)
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
    }
}

/// Corrects the clock of a session that goes into a store, where sessions of many machines have one time.
fn correct_clock(connection: u64, hello: &mut Hello, shared: &Shared) {
    if !shared.sessions.lock().are_in_store() {
        return;
    }
    if let Some(ahead) = clock::correct(hello, clock::now_ns()) {
        tracing::warn!(
            connection, host = %hello.host, pid = hello.pid, seconds_ahead = ahead.as_secs(),
            "the clock of an agent is ahead of the collector's; its session gets the time of its arrival"
        );
    }
}

/// Frames a message that was changed; with a checksum if the stream has them.
fn encode_again(message: &AgentMessage, checksums: Checksums, out: &mut Vec<u8>) -> Result<(), FramingError> {
    match &message.body {
        Some(body) if checksums == Checksums::Required => encode_body(message.sequence, body, out),
        _ => encode_frame(message, out),
    }
}

/// Replaces control characters of `hello`, which appears in logs, by escapes.
/// Replaces the secret by its hash, and removes and returns the token: neither must get into recordings. The
/// hash suffices to recognize an agent that reconnects, also after a restart of the collector.
fn hide(hello: &mut Hello) -> String {
    hello.show();
    if !hello.secret.is_empty() {
        hello.secret = ring::digest::digest(&ring::digest::SHA256, &hello.secret).as_ref().to_vec();
    }
    std::mem::take(&mut hello.token)
}

/// Limits the bytes per second of one connection; bursts of one second's bytes are allowed.
struct RateLimit {
    bytes_per_second: f64,
    allowance: f64,
    last: Instant,
}

impl RateLimit {
    fn new(bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1) as f64;
        RateLimit { bytes_per_second, allowance: bytes_per_second, last: Instant::now() }
    }

    /// Waits until the rate permits `received` more bytes; meanwhile the sender's buffers fill.
    #[allow(clippy::disallowed_methods, reason = "the wait is for time only")]
    fn wait(&mut self, received: usize) {
        let now = Instant::now();
        let earned = now.duration_since(self.last).as_secs_f64() * self.bytes_per_second;
        self.last = now;
        self.allowance = (self.allowance + earned).min(self.bytes_per_second) - received as f64;
        if self.allowance < 0.0 {
            thread::sleep(Duration::from_secs_f64(-self.allowance / self.bytes_per_second));
        }
    }
}

fn send_reject(mut stream: &Stream, refusal: Refusal) -> io::Result<()> {
    let body = collector_message::Body::Reject(Reject { reason: refusal.to_string() });
    let mut bytes = Vec::new();
    encode_frame(&CollectorMessage { body: Some(body) }, &mut bytes)
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    stream.write_all(&bytes)
}

/// Reads until the peer closes or [`LINGER`] is over: closing a socket with unread bytes would discard the reason.
fn linger(mut stream: &Stream) {
    stream.end_writing();
    let deadline = Instant::now() + LINGER;
    let mut discarded = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match stream.read(&mut discarded) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn unread(error: io::Error) -> Refusal {
    Refusal::Unread(error.kind())
}

fn is_gone(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
