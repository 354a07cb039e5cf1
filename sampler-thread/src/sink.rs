//! Where encoded messages go: a recording file, a collector's socket, or both.
//!
//! Problem: a slow, dead or full destination must not stop the sampler thread for long, and must be noticed.
//! Approach: every destination is a [`Sink`]; a failing one is given up with one log line and counted, the others go on.
//! Invariant: bytes handed to [`Sink::send`] are whole framed messages, so a cut lies between or inside the last one.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv};
use proto::framing::FrameDecoder;
use proto::v1::{CollectorMessage, collector_message};

/// Longest wait for a collector to accept the connection, at start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for a collector that does not read; then it is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the last acknowledgement when the JVM ends.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// A destination of framed messages.
pub trait Sink: Send + Sync {
    /// Sends whole framed messages.
    ///
    /// # Errors
    /// Any error means that this destination is lost.
    fn send(&mut self, framed: &[u8]) -> io::Result<()>;

    /// Makes sure that everything up to `sequence` is safe, as far as the destination can tell.
    ///
    /// # Errors
    /// As [`send`](Self::send), and `TimedOut` when no acknowledgement came.
    fn finish(&mut self, sequence: u64) -> io::Result<()>;

    /// The destination in words, for log lines.
    fn name(&self) -> String;
}

/// A recording file.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    path: PathBuf,
}

impl FileSink {
    /// Creates (or truncates) the file.
    ///
    /// # Errors
    /// As [`File::create`].
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, path: path.to_owned() })
    }
}

impl Sink for FileSink {
    fn send(&mut self, framed: &[u8]) -> io::Result<()> {
        self.file.write_all(framed)
    }

    fn finish(&mut self, _sequence: u64) -> io::Result<()> {
        self.file.flush()
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// A collector behind a stream socket.
pub struct SocketSink {
    stream: Stream,
    name: String,
    decoder: FrameDecoder,
    acknowledged: u64,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tcp(stream) => stream.write_all(bytes),
        }
    }

    fn descriptor(&self) -> RawFd {
        match self {
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tcp(stream) => stream.as_raw_fd(),
        }
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }
}

impl SocketSink {
    /// Connects to a Unix domain socket.
    ///
    /// # Errors
    /// As [`UnixStream::connect`].
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self::new(Stream::Unix(stream), format!("unix:{}", path.display())))
    }

    /// Connects to a TCP address within one second.
    ///
    /// # Errors
    /// As [`TcpStream::connect_timeout`].
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self::new(Stream::Tcp(stream), address.to_string()))
    }

    fn new(stream: Stream, name: String) -> Self {
        Self { stream, name, decoder: FrameDecoder::new(), acknowledged: 0 }
    }

    /// Takes what the collector has sent so far; `flags` decides whether to wait for the first byte.
    fn receive(&mut self, flags: MsgFlags) -> io::Result<()> {
        let mut buffer = [0_u8; 4096];
        match recv(self.stream.descriptor(), &mut buffer, flags) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "the collector closed the connection",
                ));
            }
            Ok(length) => self.decoder.push(buffer.get(..length).unwrap_or_default()),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        while let Some(message) = self.decoder.next::<CollectorMessage>().map_err(invalid)? {
            match message.body {
                Some(collector_message::Body::Acknowledgement(ack)) => {
                    self.acknowledged = self.acknowledged.max(ack.sequence);
                }
                Some(collector_message::Body::Reject(reject)) => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionRefused,
                        format!("rejected: {}", reject.reason),
                    ));
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl Sink for SocketSink {
    fn send(&mut self, framed: &[u8]) -> io::Result<()> {
        // A rejection explains a broken pipe better than the pipe does, so it is looked for on both paths.
        let written = self.stream.write_all(framed);
        self.receive(MsgFlags::MSG_DONTWAIT)?;
        written
    }

    fn finish(&mut self, sequence: u64) -> io::Result<()> {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        while self.acknowledged < sequence {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the collector did not acknowledge in time",
                ));
            }
            self.stream.set_read_timeout(left)?;
            self.receive(MsgFlags::empty())?;
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// All destinations of a session; sending succeeds while one is left.
#[derive(Default)]
pub struct Destinations {
    sinks: Vec<Box<dyn Sink>>,
    delivered: u64,
}

impl Destinations {
    /// Adds a destination.
    pub fn add(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// Whether any destination is left.
    pub fn alive(&self) -> bool {
        !self.sinks.is_empty()
    }

    /// Bytes handed to destinations so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Sends to all; a destination that fails is dropped with one log line.
    pub fn send(&mut self, framed: &[u8]) {
        self.each("gave up", |sink| sink.send(framed));
        if self.alive() {
            self.delivered += framed.len() as u64;
        }
    }

    /// Finishes all.
    pub fn finish(&mut self, sequence: u64) {
        self.each("could not finish", |sink| sink.finish(sequence));
    }

    fn each(&mut self, trouble: &str, mut action: impl FnMut(&mut dyn Sink) -> io::Result<()>) {
        self.sinks.retain_mut(|sink| match action(sink.as_mut()) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("{trouble} {}: {error}", sink.name());
                false
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use proto::framing::encode_frame;
    use proto::v1::{Acknowledgement, Reject};

    use super::*;

    fn framed(body: collector_message::Body) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_frame(&CollectorMessage { body: Some(body) }, &mut bytes).expect("small");
        bytes
    }

    /// Runs a collector that reads `expect` bytes and answers with `answer`.
    fn collector(
        expect: usize,
        answer: Vec<u8>,
    ) -> (SocketSink, std::thread::JoinHandle<Vec<u8>>, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bind");
        let thread = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().expect("accept");
            let mut bytes = vec![0; expect];
            peer.read_exact(&mut bytes).expect("read");
            peer.write_all(&answer).expect("write");
            bytes
        });
        (SocketSink::unix(&path).expect("connect"), thread, dir)
    }

    #[test]
    fn finish_waits_for_the_acknowledgement() {
        let ack = framed(collector_message::Body::Acknowledgement(Acknowledgement { sequence: 3 }));
        let (mut sink, peer, _dir) = collector(4, ack);
        sink.send(b"abcd").expect("send");
        sink.finish(3).expect("acknowledged");
        assert_eq!(peer.join().expect("peer"), b"abcd");
    }

    #[test]
    fn a_rejection_is_told_in_its_own_words() {
        let reject = framed(collector_message::Body::Reject(Reject { reason: "wrong token".to_owned() }));
        let (mut sink, peer, _dir) = collector(4, reject);
        sink.send(b"abcd").expect("send");
        peer.join().expect("peer");
        let error = sink.finish(1).expect_err("rejected");
        assert_eq!(error.to_string(), "rejected: wrong token");
    }

    #[test]
    fn a_closed_connection_ends_the_wait() {
        let (mut sink, peer, _dir) = collector(4, Vec::new());
        sink.send(b"abcd").expect("send");
        peer.join().expect("peer");
        assert_eq!(sink.finish(1).expect_err("closed").kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_failing_destination_does_not_take_the_other_with_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("recording");
        let mut all = Destinations::default();
        all.add(Box::new(FileSink::create(&path).expect("file")));
        let full = FileSink {
            file: File::options().write(true).open("/dev/full").expect("device"),
            path: "/dev/full".into(),
        };
        all.add(Box::new(full));
        all.send(b"one");
        all.send(b"two");
        assert!(all.alive());
        assert_eq!(std::fs::read(&path).expect("read"), b"onetwo");
    }
}
