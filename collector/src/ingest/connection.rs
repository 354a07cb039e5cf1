//! Serves one connection: a Hello, then messages until either side closes it.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::framing::{Checksums, FrameDecoder, FramedMessage, FramingError, decode_message, encode_frame};
use proto::v1::agent_message::Body;
use proto::v1::{Acknowledgement, CollectorMessage, Hello, Reject, collector_message};
use proto::version;

use super::clock;
use super::refusal::Refusal;
use super::session::SessionSink;
use super::shared::Shared;
use super::socket::Stream;

/// Maximum bytes of one read: about one ordinary batch of samples.
const READ_BYTES: usize = 64 << 10;

/// Maximum length of a Hello: its longest field is the command line, and the kernel limits an argument to 128 KiB. An
/// unknown peer gets no larger buffer.
const HELLO_BYTES: usize = 256 << 10;

/// Maximum bytes read from one connection after the stop: more than a socket buffer holds (208 KiB by default, 6 MiB at
/// most for TCP), so all bytes that arrived before the stop are read, and a peer that keeps sending cannot delay it.
const DRAIN_BYTES: usize = 8 << 20;

/// Maximum number of messages that may be missing behind the `Hello` of a connection: a collector that lost its store
/// gets the messages that its predecessor has not acknowledged. An agent sends a few messages a second.
const MOST_MISSING: u64 = 1 << 32;

/// Time a refused peer has to read the reason before the connection is closed.
const LINGER: Duration = Duration::from_secs(1);

/// Starts a thread that serves `stream`; returns `None` if it cannot be served.
pub(super) fn start(id: u64, stream: Stream, shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let second = stream.try_clone();
    let second =
        second.inspect_err(|error| tracing::warn!(connection = id, %error, "connection dropped")).ok()?;
    if let Some((oldest, stream)) = shared.open.lock().add(id, second) {
        stream.shutdown(Shutdown::Both);
        shared.refused.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(connection = oldest, "connection closed: too many connections say no Hello");
    }
    let place = Place { id, shared: Arc::clone(shared) };
    let spawned = thread::Builder::new()
        .name(format!("connection-{id}"))
        .spawn(move || run(place.id, &stream, &place.shared));
    spawned
        .inspect_err(|error| {
            tracing::warn!(connection = id, %error, "connection dropped: its thread cannot be started");
        })
        .ok()
}

/// The place of a connection among the open ones; drop frees it, also after a panic.
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
            let reject = collector_message::Body::Reject(Reject { reason: refusal.to_string() });
            if send(stream, reject).is_ok() {
                linger(stream);
            }
        }
    }
}

fn serve(id: u64, stream: &Stream, shared: &Shared) -> Result<(), Refusal> {
    stream.set_write_timeout(shared.limits.write).map_err(unread)?;
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
        stream.set_read_timeout(left).map_err(unread)?;
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
        let messages = std::mem::take(&mut inbox.messages);
        let has_messages = !messages.is_empty();
        if let Some(session) = session.as_ref().filter(|_| has_messages) {
            let has_goodbye =
                messages.iter().any(|framed| matches!(framed.message.body, Some(Body::Goodbye(_))));
            session.store(stream, messages)?;
            if has_goodbye {
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

/// The session of a connection, known after its Hello.
struct Attached {
    id: u64,
    /// SHA-256 of its secret.
    secret: Vec<u8>,
    sink: Arc<Mutex<dyn SessionSink>>,
    /// Number of the last message, and the highest number that the next one may have.
    sequence: u64,
    next_sequence: u64,
    /// Bytes of dictionary messages received.
    dictionary_bytes: u64,
}

impl Attached {
    /// Opens the session of `hello`, the first message of a connection, whose secret is hashed.
    fn open(
        connection: u64,
        hello: &Hello,
        token: &str,
        sequence: u64,
        shared: &Shared,
    ) -> Result<Self, Refusal> {
        version::check(hello).map_err(Refusal::Version)?;
        if !shared.access.admits(token) {
            return Err(Refusal::WrongToken);
        }
        if !shared.open.lock().admit(connection) {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::TooManyConnections(shared.limits.connections));
        }
        if sequence != 1 {
            return Err(Refusal::Jump(0, sequence));
        }
        Ok(Attached {
            id: hello.session_id,
            secret: hello.secret.clone(),
            sink: shared.sessions.lock().open(hello)?,
            sequence,
            next_sequence: sequence + MOST_MISSING,
            dictionary_bytes: 0,
        })
    }

    /// Checks that a message belongs to the session and follows the one before it: a jump in the numbers would make
    /// later messages look like repeated ones.
    fn check(&mut self, framed: &FramedMessage, max_dictionary_bytes: u64) -> Result<(), Refusal> {
        let sequence = framed.message.sequence;
        if sequence > self.next_sequence {
            return Err(Refusal::Jump(self.sequence, sequence));
        }
        (self.sequence, self.next_sequence) = (sequence, sequence + 1);
        match &framed.message.body {
            Some(Body::Hello(hello)) if hello.session_id != self.id || hello.secret != self.secret => {
                return Err(Refusal::OtherSession(hello.session_id));
            }
            Some(Body::Dictionary(_)) => {
                self.dictionary_bytes += framed.bytes.len() as u64;
                if self.dictionary_bytes > max_dictionary_bytes {
                    return Err(Refusal::DictionaryTooLarge(max_dictionary_bytes));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Stores `messages`, then acknowledges them.
    fn store(&self, stream: &Stream, messages: Vec<FramedMessage>) -> Result<(), Refusal> {
        let sequence = self.sink.lock().append(messages)?;
        match send(stream, collector_message::Body::Acknowledgement(Acknowledgement { sequence })) {
            // An agent may close the connection after its Goodbye without reading; reading what it sent goes on.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                Ok(())
            }
            result => result.map_err(unread),
        }
    }
}

/// Received bytes, and the complete messages among them.
struct Inbox {
    connection: u64,
    decoder: FrameDecoder,
    chunk: Box<[u8]>,
    messages: Vec<FramedMessage>,
    /// Known after the first message.
    checksums: Option<Checksums>,
}

impl Inbox {
    fn new(connection: u64, max: usize) -> Self {
        let chunk = vec![0; READ_BYTES].into_boxed_slice();
        let decoder = FrameDecoder::with_max(max);
        Inbox { connection, decoder, chunk, messages: Vec::new(), checksums: None }
    }

    fn receive(&mut self, mut stream: &Stream) -> io::Result<usize> {
        let received = stream.read(&mut self.chunk)?;
        self.decoder.push(&self.chunk[..received]);
        Ok(received)
    }

    /// Moves complete messages from the decoder to `messages`; the first one opens `session`.
    fn take_messages(&mut self, shared: &Shared, session: &mut Option<Attached>) -> Result<(), Refusal> {
        while let Some(framed) = self.decoder.next_framed().map_err(Refusal::Framing)? {
            let checksums = *self.checksums.get_or_insert_with(|| Checksums::of_stream(framed));
            let mut message = decode_message(framed, checksums).map_err(Refusal::Framing)?;
            let sequence = message.sequence;
            if sequence == 0 {
                return Err(Refusal::NoSequence);
            }
            let mut token = String::new();
            let framed = if let Some(Body::Hello(hello)) = &mut message.body {
                correct_clock(self.connection, hello, shared);
                token = hide(hello);
                FramedMessage::encode(message, checksums).map_err(Refusal::Framing)?
            } else {
                FramedMessage { message, bytes: framed.to_vec() }
            };
            match (&mut *session, &framed.message.body) {
                (None, Some(Body::Hello(hello))) => {
                    *session = Some(Attached::open(self.connection, hello, &token, sequence, shared)?);
                }
                (None, _) => return Err(Refusal::NoHello),
                (Some(session), _) => session.check(&framed, shared.limits.dictionary_bytes)?,
            }
            self.messages.push(framed);
            // After the Hello, messages may have their full length.
            self.decoder.set_max(shared.limits.message_bytes);
        }
        Ok(())
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

/// Escapes control characters of `hello`, which appears in logs, replaces the secret by its hash, and removes and
/// returns the token: neither of them may get into recordings. The hash suffices to recognize an agent that reconnects,
/// also after a restart of the collector.
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

fn send(mut stream: &Stream, body: collector_message::Body) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode_frame(&CollectorMessage { body: Some(body) }, &mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes)
}

/// Reads until the peer closes or [`LINGER`] is over: closing a socket with unread bytes would discard the reason.
fn linger(mut stream: &Stream) {
    stream.shutdown(Shutdown::Write);
    let deadline = Instant::now() + LINGER;
    let mut discarded = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(left).is_err() {
            return;
        }
        if matches!(stream.read(&mut discarded), Ok(0) | Err(_)) {
            return;
        }
    }
}

fn unread(error: io::Error) -> Refusal {
    Refusal::Unread(error.kind())
}
