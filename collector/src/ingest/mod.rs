//! Serves agents: one thread a connection, one recording a session.
//!
//! Problem: several agents send at once; any of them may be slow, broken or hostile, connect again in the
//! middle of a session, or still hold its connection open when the collector has to go.
//! Approach: a listener thread waits for connections and the stop signal together; each connection has a plain
//! blocking thread that appends what it reads to its session's recording and then acknowledges it.
//! At stop the listener closes the reading half of every connection: what has arrived is still read,
//! recorded and acknowledged, and no read can block any more.
//! Invariant: a message is acknowledged after its bytes were written to the recording, never before; a fault
//! of one connection ends that connection only.

mod access;
mod connection;
mod session;
mod socket;

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;

use crate::address::Address;
pub use access::{Access, CertificateError};
pub use connection::Refusal;
use session::Sessions;
pub use session::{Destination, SessionReport};
use socket::{Listener, Stream};

/// What a server allows its peers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at the same time; each is a thread and up to one message of buffer.
    pub connections: usize,
    /// Sessions known at the same time. Those without a connection make room, except in recordings named after one
    /// file.
    pub sessions: usize,
    /// Longest message in bytes.
    pub message_bytes: usize,
    /// Time a new connection has to introduce itself.
    pub hello: Duration,
    /// Time a peer may leave an acknowledgement unread once its receive buffer is full.
    pub write: Duration,
    /// Time a known agent may go without a whole message; statistics arrive every second.
    pub silence: Duration,
    /// Bytes a second taken from one connection; what comes faster waits with its sender.
    pub bytes_per_second: u64,
    /// Bytes of dictionary entries taken from one connection.
    pub dictionary_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 256,
            sessions: 4096,
            message_bytes: proto::framing::MAX_MESSAGE_BYTES,
            hello: Duration::from_secs(10),
            write: Duration::from_secs(5),
            silence: Duration::from_secs(60),
            bytes_per_second: 64 << 20,
            dictionary_bytes: 1 << 30,
        }
    }
}

/// State that listener and connections share.
struct Shared {
    limits: Limits,
    access: Access,
    stopping: AtomicBool,
    sessions: Mutex<Sessions>,
    /// Second handles of the connections being served, for closing them at stop.
    open: Mutex<HashMap<u64, Stream>>,
}

/// A running collector; dropping it stops it.
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
    stop: StopHandle,
    listener: Option<JoinHandle<()>>,
}

/// Stops a [`Server`] from any thread.
#[derive(Clone)]
pub struct StopHandle {
    shared: Arc<Shared>,
    waker: Arc<UnixStream>,
}

impl StopHandle {
    /// Asks the server to take in what has arrived and then to end; returns at once.
    pub fn stop(&self) {
        // Release pairs with the Acquire of the listener, which reads the flag after the waker became readable.
        self.shared.stopping.store(true, Ordering::Release);
        // A byte that cannot be written means that earlier ones are still unread, or that the listener is gone.
        let _ = (&*self.waker).write(&[0]);
    }

    /// Connections being served.
    pub fn connections(&self) -> usize {
        self.shared.open.lock().len()
    }
}

impl Server {
    /// Listens on `address` and serves until stopped, with recordings going to `destination`.
    ///
    /// # Errors
    /// If the address cannot be listened on or the listener thread cannot be started.
    pub fn start(address: &Address, destination: Destination, limits: Limits) -> io::Result<Server> {
        Server::start_for(Access::default(), address, destination, limits)
    }

    /// As [`Server::start`], for those whom `access` admits.
    ///
    /// # Errors
    /// As [`Server::start`]; `PermissionDenied` for an unencrypted address beyond this machine, and `InvalidInput` for
    /// a TLS address without a certificate.
    pub fn start_for(
        access: Access,
        address: &Address,
        destination: Destination,
        limits: Limits,
    ) -> io::Result<Server> {
        let listener = Listener::bind(address, &access)?;
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            limits,
            access,
            stopping: AtomicBool::new(false),
            sessions: Mutex::new(Sessions::new(destination, limits.sessions)),
            open: Mutex::new(HashMap::new()),
        });
        let address = listener.address()?;
        let thread_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("listener".into())
            .spawn(move || listen(&listener, &woken, &thread_shared))?;
        let stop = StopHandle { shared: Arc::clone(&shared), waker: Arc::new(waker) };
        Ok(Server { address, shared, stop, listener: Some(thread) })
    }

    /// The address listened on, with the port the system chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A handle that stops this server.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Sessions that are known, in order of their first connection.
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.shared.sessions.lock().report()
    }

    /// Takes in what has arrived, ends all threads and tells what was recorded.
    pub fn stop(mut self) -> Vec<SessionReport> {
        self.end();
        self.sessions()
    }

    fn end(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.stop.stop();
            if listener.join().is_err() {
                tracing::error!("the listener thread panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Pause after an accept that failed: usually there are no descriptors left, and trying on at once would not free one.
const RETRY_MS: u16 = 100;

fn listen(listener: &Listener, woken: &UnixStream, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut next_id = 0u64;
    loop {
        let mut fds =
            [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                tracing::error!(%error, "waiting for connections failed, the collector accepts no more");
                break;
            }
        }
        let stopping = shared.stopping.load(Ordering::Acquire);
        threads.retain(|thread| !thread.is_finished());
        // Connections that wait to be accepted are served even at stop: their data may be complete.
        let failed = loop {
            match listener.accept() {
                Ok(stream) => {
                    next_id += 1;
                    threads.extend(connection::start(next_id, stream, shared));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    break true;
                }
            }
        };
        if stopping {
            break;
        }
        if failed {
            // A stop ends the pause. An error is one of the next wait as well, which tells it.
            let mut stop = [PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut stop, PollTimeout::from(RETRY_MS));
        }
    }
    for stream in shared.open.lock().values() {
        stream.end_reading();
    }
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a connection thread panicked");
        }
    }
}
