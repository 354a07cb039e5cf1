//! Receives the messages of agents: one thread for each connection, one recording for each session.
//!
//! Problem: several agents send at once; any of them may be slow, broken or hostile, reconnect during a session, or
//! keep its connection open when the collector stops.
//! Approach: a listener thread waits for connections and the stop signal; each connection has a blocking thread that
//! appends received messages to the session's recording or to the store, and then acknowledges them. At stop the
//! listener closes the reading half of every connection: bytes that have arrived are still stored and acknowledged, and
//! reads return at once.
//! Invariant: a message is acknowledged only after it was stored; a fault of one connection ends that connection only.

mod access;
mod certificate;
mod clock;
mod connection;
mod limits;
mod own_recording;
mod places;
mod refusal;
mod session;
mod shared;
mod sink;
mod socket;

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;

use crate::address::Address;
pub use access::Access;
pub(crate) use access::equal;
pub use certificate::CertificateError;
pub use limits::Limits;
pub use refusal::Refusal;
use session::Sessions;
pub use session::{Destination, SessionReport};
pub use shared::Health;
use shared::Shared;
use socket::Listener;

/// A running collector; dropping it stops it.
pub struct Server {
    address: Address,
    stop: StopHandle,
    listener: Option<JoinHandle<()>>,
    /// Readable once a session has ended.
    ended: UnixStream,
}

/// Stops a [`Server`] from any thread.
#[derive(Clone)]
pub struct StopHandle {
    shared: Arc<Shared>,
    waker: Arc<UnixStream>,
}

impl StopHandle {
    /// Makes the server store what has arrived and then end; returns at once.
    pub fn stop(&self) {
        // Release pairs with the Acquire of the listener, which reads the flag after the waker became readable.
        self.shared.stopping.store(true, Ordering::Release);
        // A byte that cannot be written means that earlier ones are still unread, or that the listener is gone.
        let _ = (&*self.waker).write(&[0]);
    }

    /// Returns the known sessions in the order of their first connection.
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.shared.sessions.lock().report()
    }

    /// Returns the state of the server.
    pub fn health(&self) -> Health {
        self.shared.health()
    }
}

impl Server {
    /// Starts a server that listens on `address` and stores sessions in `destination`.
    ///
    /// # Errors
    /// If listening on the address fails or the listener thread cannot be started.
    pub fn start(address: &Address, destination: Destination, limits: Limits) -> io::Result<Server> {
        Server::start_for(Access::default(), address, destination, limits)
    }

    /// As [`Server::start`], with access control.
    ///
    /// # Errors
    /// As [`Server::start`]; `PermissionDenied` for an unencrypted address beyond the loopback interface, and
    /// `InvalidInput` for a TLS address without a certificate.
    pub fn start_for(
        access: Access,
        address: &Address,
        destination: Destination,
        limits: Limits,
    ) -> io::Result<Server> {
        Self::serve(Listener::bind(address, &access)?, access, destination, limits)
    }

    /// As [`Server::start`], on a Unix socket that is bound to `path` already; the caller removes the file.
    ///
    /// # Errors
    /// If the listener thread cannot be started.
    pub fn start_bound(
        socket: UnixListener,
        path: &Path,
        destination: Destination,
        limits: Limits,
    ) -> io::Result<Server> {
        Self::serve(Listener::bound(socket, path)?, Access::default(), destination, limits)
    }

    fn serve(
        listener: Listener,
        access: Access,
        destination: Destination,
        limits: Limits,
    ) -> io::Result<Server> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        let (ending, ended) = UnixStream::pair()?;
        ending.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            limits,
            access,
            stopping: AtomicBool::new(false),
            sessions: Mutex::new(Sessions::new(destination, limits.sessions)),
            open: Mutex::default(),
            refused: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            ending,
        });
        let address = listener.address().clone();
        let thread_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("listener".into())
            .spawn(move || listen(&listener, &woken, &thread_shared))?;
        let stop = StopHandle { shared, waker: Arc::new(waker) };
        Ok(Server { address, stop, listener: Some(thread), ended })
    }

    /// Returns a descriptor that becomes readable when the last message of a session is stored.
    pub fn session_ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Returns the address of the listener, with its actual port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns a handle that stops this server.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Returns the known sessions in the order of their first connection.
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.stop.sessions()
    }

    /// Stores what has arrived, ends all threads and returns the known sessions.
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

/// Pause after a failed accept: usually the process has run out of file descriptors.
const RETRY_MS: u16 = 100;

/// Records the end of the listener on drop, also after a panic.
struct Listening<'s>(&'s Shared);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

fn listen(listener: &Listener, woken: &UnixStream, shared: &Arc<Shared>) {
    let _listening = Listening(shared);
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut next_id = 0u64;
    loop {
        let mut fds =
            [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                tracing::error!(%error, "waiting for connections failed; restart the collector to accept connections");
                break;
            }
        }
        let stopping = shared.stopping.load(Ordering::Acquire);
        threads.retain(|thread| !thread.is_finished());
        // At stop, waiting connections are still accepted: their data may be complete.
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
            // The stop signal ends the pause. An error occurs again in the next wait, which logs it.
            let mut stop = [PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut stop, PollTimeout::from(RETRY_MS));
        }
    }
    for stream in shared.open.lock().streams() {
        stream.end_reading();
    }
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a connection thread panicked");
        }
    }
}
